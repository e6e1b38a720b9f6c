"""Ports that are free now."""

import socket


def free_ports(count: int) -> list[int]:
    """Return ports that the system gives and nobody listens on."""
    held = [socket.socket() for _ in range(count)]
    try:
        for each in held:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in held]
    finally:
        for each in held:
            each.close()

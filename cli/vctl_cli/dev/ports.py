"""Ports on loopback that stay ours from the moment they are chosen.

A port that is only looked up can be taken before a program binds it, most often by an outgoing
connection. So a socket stays bound to each (never listening): the kernel then gives the port to
nobody who does not name it, and lets a program that names it listen, since both say SO_REUSEADDR.

A fleet's connections leave its ports in TIME_WAIT for a minute, and the same command must work
again at once. Binding with SO_REUSEADDR passes over those, and over another fleet's hold as well;
so each port that is held has a name too, an abstract Unix socket, which ends with its process.
"""

import socket
from typing import Self

from vctl_plans.errors import VctlError

HOST = "127.0.0.1"


class Ports:
    """Hands out ports: free ones, or those from a first one on."""

    def __init__(self, base_port: int = 0) -> None:
        self._next = base_port
        self._held: list[socket.socket] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def take(self) -> int:
        """Return the next port.

        Raises:
            VctlError: The port is in use.
        """
        wanted = self._next
        self._next += bool(wanted)
        held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        name = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._held += [held, name]
        try:
            # Any free port: without SO_REUSEADDR, by which the kernel would choose held ones too.
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(bool(wanted)))
            held.bind((HOST, wanted))
            port = int(held.getsockname()[1])
            name.bind(f"\0vctl-dev-port-{port}")
        except OSError as cause:
            hint = "give another --base-port, or none for any free ports"
            raise VctlError(f"port {wanted} is in use", hint=hint) from cause
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return port

    def close(self) -> None:
        """Give the ports back."""
        for held in self._held:
            held.close()
        self._held.clear()

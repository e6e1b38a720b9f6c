"""A server on an address, or on a socket that another process has handed on."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from vctl_agent.configuration import Address
from vctl_agent.gateway.persist import write_atomically
from vctl_agent.gateway.wire.server import Listener
from vctl_plans.errors import VctlError

CLOSE_S = 0.1  # for what is left after the drain
_BACKLOG = 1024


class Served(msgspec.Struct, frozen=True):
    """A server that accepts."""

    at: str  # host:port, with the port that port 0 became
    server: asyncio.Server

    def fileno(self) -> int:
        """Return the descriptor of its socket."""
        return self.server.sockets[0].fileno()


@contextlib.asynccontextmanager
async def serving(
    listener: Listener,
    on: Address | socket.socket,
    drained: Callable[[], Awaitable[None]] | None = None,
) -> AsyncIterator[Served]:
    """Serve inside the block; on leaving it accept nothing more, await *drained*, hang up.

    Raises:
        VctlError: The address cannot be listened on.
    """
    server = await _bound(listener, on)
    sweeping = asyncio.create_task(listener.sweep())
    try:
        yield Served(_where(server.sockets[0].getsockname()), server)
    finally:
        server.close()
        try:
            if drained is not None:
                await drained()
        finally:
            listener.close_idle()
            await asyncio.sleep(CLOSE_S if listener.connections else 0)
            listener.abort()
            sweeping.cancel()
            await asyncio.gather(sweeping, return_exceptions=True)


def announce(path: Path | None, address: str) -> None:
    """Write where is listened to the file that is to tell it, if there is to be one."""
    if path is not None:
        write_atomically(path, f"{address}\n".encode())


async def _bound(listener: Listener, on: Address | socket.socket) -> asyncio.Server:
    loop = asyncio.get_running_loop()
    if isinstance(on, socket.socket):
        return await loop.create_server(listener, sock=on, backlog=_BACKLOG)
    try:
        return await loop.create_server(
            listener, on.host, on.port, backlog=_BACKLOG, reuse_address=True
        )
    except OSError as cause:
        raise VctlError(f"cannot listen on {on.host}:{on.port}: {cause}") from cause


def _where(address: tuple[Any, ...]) -> str:
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

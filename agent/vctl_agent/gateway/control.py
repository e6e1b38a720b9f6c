"""The socket in the state folder on which root may have the gateway do what no other way can.

For this user alone, and never over the network: it works with etcd and the agent away.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog

from vctl_agent.unixpath import within_reach

_MODE = 0o600
_WITHIN_S = 5.0
_MAX_ASKED_BYTES = 64 * 1024

_log = structlog.get_logger()

Act = Callable[[str, socket.socket], Awaitable[None]]
"""Does what a line asks, and answers on the connection, which is then closed."""


class Control:
    """Listens, and has each connection's line acted on, one at a time.

    Args:
        path: Where to listen; whatever is there makes way.
        act: Acts.
    """

    def __init__(self, path: Path, act: Act) -> None:
        self._path = path
        self._act = act
        self._listener: socket.socket | None = None

    async def run(self) -> None:
        """Serve until cancelled."""
        loop = asyncio.get_running_loop()
        listener = self._listener or self.open()
        try:
            while True:
                connection, _ = await loop.sock_accept(listener)
                connection.setblocking(False)
                with connection:
                    await self._serve(connection)
        finally:
            self._listener = None
            listener.close()

    def open(self) -> socket.socket:
        """Listen: from now on nobody who asks is told that nobody is here, and `run` answers."""
        beside = self._path.with_name(self._path.name + ".new")
        beside.unlink(missing_ok=True)
        listener = self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with within_reach(beside) as near:
                listener.bind(near)
            beside.chmod(_MODE)
            listener.listen()
            beside.replace(self._path)
        except OSError:
            listener.close()
            raise
        listener.setblocking(False)
        return listener

    async def _serve(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_WITHIN_S):
                asked = b""
                while not asked.endswith(b"\n") and len(asked) < _MAX_ASKED_BYTES:
                    piece = await loop.sock_recv(connection, _MAX_ASKED_BYTES)
                    if not piece:
                        return
                    asked += piece
            await self._act(asked.decode(errors="replace").strip(), connection)
        except (OSError, TimeoutError) as cause:
            _log.warning("control connection broken", error=str(cause) or type(cause).__name__)

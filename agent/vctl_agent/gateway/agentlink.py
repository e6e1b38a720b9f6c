"""The Unix socket on which the agent tells what is ready and hears what is acted on (`local.py`).

The gateway listens, because it lives longer. Each side sends its whole state, so nothing is lost
with a connection; an agent that goes away leaves its last word in force. The state is encoded when
it is sent: an agent that reads slowly misses states, and costs no memory.
"""

import asyncio
import contextlib
import math
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import structlog

from vctl_agent.local import (
    HEARTBEAT_S,
    MAX_LINE_BYTES,
    AgentState,
    GatewayState,
    GatewayStatistics,
    from_line,
    to_line,
)
from vctl_plans.errors import VctlError

COALESCE_S = 0.01
"""Changes within this time go out as one line."""

_SEND_TIMEOUT_S = 30.0
_KEEPS_PATH: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
"""Python 3.13 would remove the socket's path, on which the next gateway listens by then."""

_MODE = 0o600
_log = structlog.get_logger()


def listening_socket(path: Path) -> socket.socket:
    """Bind *path* for this user alone, in place of a socket that nobody listens on.

    Bound beside its place, then renamed: it is never there with another mode or no listener.

    Raises:
        VctlError: Another gateway listens there, or the path can't be used.
    """
    if _is_listened_on(path):
        raise VctlError(f"another gateway listens on {path}", hint="stop it, or use --socket")
    beside = path.with_name(path.name + ".new")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.unlink(missing_ok=True)
        listener.bind(os.fspath(beside))
        beside.chmod(_MODE)
        listener.listen()
        beside.replace(path)
    except OSError as cause:
        listener.close()
        raise VctlError(f"cannot listen on {path}: {cause}") from cause
    listener.setblocking(False)
    return listener


def _is_listened_on(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(os.fspath(path))
        except OSError:
            return False
        return True


class AgentLink:
    """The server of the socket.

    Args:
        state: Returns the gateway's whole state now.
        accept: Takes the agent's word.
        statistics: Returns what is counted now.
        interval_s: Returns how often that is sent; 0: not at all.
    """

    def __init__(
        self,
        state: Callable[[], GatewayState],
        accept: Callable[[AgentState], None],
        *,
        statistics: Callable[[], GatewayStatistics] | None = None,
        interval_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._state = state
        self._accept = accept
        self._statistics = statistics
        self._interval_s = interval_s
        self._bells: set[asyncio.Event] = set()  # one for each connection
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def connections(self) -> int:
        """How many agents are connected: 0 or 1, or 2 while one replaces another."""
        return len(self._bells)

    def ring(self) -> None:
        """Have the state sent soon; cheap, and harmless when nothing changed."""
        for bell in self._bells:
            bell.set()

    async def start(self, listener: socket.socket) -> None:
        """Begin to accept agents on *listener*."""
        self._server = await asyncio.start_unix_server(
            self._serve, sock=listener, limit=MAX_LINE_BYTES, **_KEEPS_PATH
        )

    def fileno(self) -> int:
        """Return the descriptor of the listening socket."""
        assert self._server is not None  # noqa: S101  it was started
        return self._server.sockets[0].fileno()

    async def close(self) -> None:
        """Hang up; the agent connects again to whoever listens next."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        bell = asyncio.Event()
        self._bells.add(bell)
        sender = asyncio.create_task(self._send(writer, bell))
        _log.info("agent connected")
        try:
            await self._receive(reader)
        except (OSError, ValueError) as cause:
            _log.warning("agent's connection broken", error=str(cause))
        finally:
            self._bells.discard(bell)
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)
            writer.close()
            _log.info("agent disconnected, its last word stays in force")

    async def _receive(self, reader: asyncio.StreamReader) -> None:
        """Take the agent's lines until it hangs up; a line that is no message is skipped."""
        while line := await reader.readline():
            try:
                message = from_line(line)
            except msgspec.MsgspecError as cause:
                _log.warning("line from the agent is no message, skipped", error=str(cause))
                continue
            if isinstance(message, AgentState):
                self._accept(message)

    async def _send(self, writer: asyncio.StreamWriter, bell: asyncio.Event) -> None:
        """Send the state now, after each ring, and as a heartbeat, until the agent is gone.

        What is counted goes along whenever its interval has passed.
        """
        counted_at = -math.inf
        with contextlib.suppress(OSError, TimeoutError):
            while True:
                bell.clear()
                writer.write(to_line(self._state()))
                interval_s = self._interval_s()
                if self._statistics and interval_s and time.monotonic() - counted_at >= interval_s:
                    counted_at = time.monotonic()
                    writer.write(to_line(self._statistics()))
                async with asyncio.timeout(_SEND_TIMEOUT_S):
                    await writer.drain()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(HEARTBEAT_S, interval_s or HEARTBEAT_S)):
                        await bell.wait()
                await asyncio.sleep(COALESCE_S)
        writer.transport.abort()

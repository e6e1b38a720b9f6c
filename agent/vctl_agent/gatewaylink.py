"""The agent's end of the Unix socket to its gateway.

Each side repeats its whole state, so the link holds no queue: it sends the newest, and keeps the
newest that it got. After a break it connects again for ever.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

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

_SILENT_S = 5 * HEARTBEAT_S
_RETRY_S = 0.2

_log = structlog.get_logger(__name__)


class GatewayLink:
    """What the gateway last said, and what it is told.

    Args:
        socket: Path of the gateway's socket.
        wake: Called whenever what the gateway says has changed.
        on_statistics: Gets what the gateway counts, which wakes nobody.
    """

    is_absent = False  # whether this node has no gateway, so that none hands out requests

    def __init__(
        self,
        socket: str,
        wake: Callable[[], None],
        *,
        on_statistics: Callable[[GatewayStatistics], None] = lambda _: None,
    ) -> None:
        self._socket = socket
        self._wake = wake
        self._on_statistics = on_statistics
        self._told: AgentState | None = None
        self._to_tell = asyncio.Event()
        self.heard: GatewayState | None = None  # None while the gateway is away

    def tell(self, state: AgentState) -> None:
        """Have the gateway act on *state*, now and after every reconnection."""
        if state != self._told:
            self._told = state
            self._to_tell.set()

    @property
    def is_current(self) -> bool:
        """Whether the gateway has confirmed that it acts on what it was told last."""
        return bool(self.heard and self._told and self.heard.accepted == self._told.ready)

    async def run(self) -> None:
        """Keep the link until cancelled."""
        while True:
            try:
                async with asyncio.timeout(_SILENT_S):
                    reader, writer = await asyncio.open_unix_connection(
                        self._socket, limit=MAX_LINE_BYTES
                    )
                _log.info("gateway connected")
                await self._talk(reader, writer)
            except (OSError, TimeoutError, msgspec.MsgspecError, ValueError) as cause:
                if self.heard:
                    _log.warning("gateway link broke", cause=str(cause) or type(cause).__name__)
            if self.heard:
                self.heard = None
                self._wake()
            await asyncio.sleep(_RETRY_S)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._to_tell.set()
        telling = asyncio.create_task(self._tell_all(writer))
        try:
            while True:
                async with asyncio.timeout(_SILENT_S):
                    line = await reader.readline()
                if not line:
                    return
                message = from_line(line)
                if isinstance(message, GatewayState):
                    is_news = _lasting(message) != _lasting(self.heard)
                    self.heard = message
                    if is_news:
                        self._wake()
                if isinstance(message, GatewayStatistics):
                    self._on_statistics(message)
        finally:
            writer.close()
            telling.cancel()
            # gather, since to suppress CancelledError here would swallow one's own cancellation.
            await asyncio.gather(telling, return_exceptions=True)

    async def _tell_all(self, writer: asyncio.StreamWriter) -> None:
        while True:
            await self._to_tell.wait()
            self._to_tell.clear()
            if self._told:
                writer.write(to_line(self._told))
                await writer.drain()


def _lasting(state: GatewayState | None) -> GatewayState | None:
    """Return what of a gateway's word is worth waking for: not how many sessions it has seen."""
    return msgspec.structs.replace(state, pins={}) if state else None


class NoGateway(GatewayLink):
    """Stands for the link on a node without a gateway: nobody is told, and nobody contradicts."""

    is_absent = True

    def __init__(self) -> None:
        super().__init__("", lambda: None)

    @property
    def is_current(self) -> bool:
        """Whether the gateway acts on our last word: there is none to wait for."""
        return True

    async def run(self) -> None:
        """Do nothing until cancelled."""
        await asyncio.Event().wait()


def open_link(
    gateway: str,
    socket: Path,
    wake: Callable[[], None],
    *,
    on_statistics: Callable[[GatewayStatistics], None],
) -> GatewayLink:
    """Return the link to the node's gateway, as `Settings.gateway` says it has one or none."""
    if gateway == "none":
        return NoGateway()
    return GatewayLink(str(socket), wake, on_statistics=on_statistics)

"""The engine's side: connections kept between requests, and answers as they come.

A connection is read only as fast as its answer is taken, so back-pressure reaches the engine. An
answer that is left before its end breaks its connection, which is how the engine learns that nobody
waits for it. Nothing is asked twice here: whoever asks decides that.
"""

import asyncio
import ssl
import time

from vctl_agent.gateway.wire.heads import Heads
from vctl_agent.gateway.wire.link import Link, place_of

CONNECT_TIMEOUT_S = 5.0

KEEPALIVE_S = 3.0
"""Below uvicorn's 5 s, so that a connection is seldom used while the engine closes it."""

_SWEEP_S = 0.5


class Unreachable(Exception):  # noqa: N818  an event on one request
    """No connection could be made, so nothing was sent."""


class Pool:
    """Connections to servers.

    Args:
        timeout_s: Seconds without a byte, while one is waited for, until an answer is given up.
        tls: For https; None: the system's defaults.
    """

    def __init__(self, timeout_s: float, *, tls: ssl.SSLContext | None = None) -> None:
        self.heads = Heads()
        self._timeout_s = timeout_s
        self._tls = tls
        self._idle: dict[str, list[Link]] = {}  # by the URL; servers come and go
        self._links: set[Link] = set()

    def kept(self, base: str) -> Link | None:
        """Return a kept connection to the server of the URL *base*; None: there is none."""
        idle = self._idle.get(base)
        if not idle:
            return None
        now = time.monotonic()
        while idle:
            link = idle.pop()
            if now - link.idle_since <= KEEPALIVE_S and not link.is_closing:
                return link
            link.abort()
        return None

    def keep(self, link: Link) -> None:
        """Keep a connection for the next request."""
        link.idle_since = time.monotonic()
        self._idle.setdefault(link.base, []).append(link)

    def forget(self, link: Link) -> None:
        """Drop a connection that is gone."""
        self._links.discard(link)
        idle = self._idle.get(link.base, [])
        if link in idle:
            idle.remove(link)
        if not idle:
            self._idle.pop(link.base, None)

    async def sweep(self) -> None:
        """End connections that are late, or were idle for too long, until cancelled."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            now = time.monotonic()
            for link in tuple(self._links):
                if link.is_waited_for and now - link.heard > self._timeout_s:
                    link.late()
            for idle in tuple(self._idle.values()):
                for link in [link for link in idle if now - link.idle_since > KEEPALIVE_S]:
                    idle.remove(link)
                    link.abort()

    def close(self) -> None:
        """Break all connections."""
        for link in tuple(self._links):
            link.abort()

    async def connected(self, base: str) -> Link:
        """Return a new connection to the server of the URL *base*.

        Raises:
            Unreachable: There is none.
        """
        place = place_of(base)
        loop = asyncio.get_running_loop()
        if place.is_tls and self._tls is None:
            self._tls = ssl.create_default_context()  # once: it reads all of the system's roots
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                _, link = await loop.create_connection(
                    lambda: Link(self, base, place),
                    place.host,
                    place.port,
                    ssl=self._tls if place.is_tls else None,
                )
        except (OSError, TimeoutError) as cause:
            raise Unreachable(str(cause) or type(cause).__name__) from cause
        if link.is_closing:
            raise Unreachable("it hung up at once")
        self._links.add(link)
        return link

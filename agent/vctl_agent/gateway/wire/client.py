"""The engine's side: connections kept between requests, and answers as they come.

A connection is read only as fast as its answer is taken, so back-pressure reaches the engine. An
answer that is left before its end breaks its connection, which is how the engine learns that nobody
waits for it. Nothing is asked twice here: whoever asks decides that.
"""

import asyncio
import ssl
import time
from urllib.parse import urlsplit

from vctl_agent.gateway.wire.heads import Heads
from vctl_agent.gateway.wire.incoming import Incoming
from vctl_agent.gateway.wire.link import Link, Place

CONNECT_TIMEOUT_S = 5.0

KEEPALIVE_S = 3.0
"""Below uvicorn's 5 s, so that a connection is seldom used while the engine closes it."""

_MAX_PLACES = 1024
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
        self._idle: dict[Place, list[Link]] = {}
        self._links: set[Link] = set()
        self._places: dict[str, tuple[Place, bytes, bytes]] = {}

    async def ask(self, base: str, path: str, lines: bytes, body: bytes) -> Incoming:
        """Send a POST; return its answer once its head has come. The caller closes it.

        Args:
            base: Where the server is, as a URL.
            path: What to ask it for, with the query.
            lines: The fields as they are sent, but for Host and Content-Length.
            body: What is sent.

        Raises:
            Unreachable: There is no connection, and nothing was sent.
            Broken: The other side closed before it answered, or answered what is no HTTP.
            Late: It does not answer in time.
        """
        place, prefix, host = self._places.get(base) or self._place(base)
        head = b"POST %b%b HTTP/1.1\r\n%b%bContent-Length: %d\r\n\r\n" % (
            prefix,
            path.encode(),
            host,
            lines,
            len(body),
        )
        link = self._kept(place) or await self._connected(place)
        answer = link.send(head, body)
        try:
            await answer.begun()
        except BaseException:  # also of a cancellation the engine learns
            answer.close()
            raise
        return answer

    def keep(self, link: Link) -> None:
        """Keep a connection for the next request."""
        link.idle_since = time.monotonic()
        self._idle.setdefault(link.place, []).append(link)

    def forget(self, link: Link) -> None:
        """Drop a connection that is gone."""
        self._links.discard(link)
        idle = self._idle.get(link.place, [])
        if link in idle:
            idle.remove(link)

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

    def _place(self, base: str) -> tuple[Place, bytes, bytes]:
        """Return the server of a URL, what stands before each path, and its Host field."""
        parts = urlsplit(base)
        is_tls = parts.scheme == "https"
        place = Place(parts.hostname or "", parts.port or (443 if is_tls else 80), is_tls)
        if len(self._places) >= _MAX_PLACES:  # peers come and go
            self._places.clear()
        host = f"Host: {place.authority}\r\n".encode()
        self._places[base] = place, parts.path.encode(), host
        return self._places[base]

    def _kept(self, place: Place) -> Link | None:
        idle = self._idle.get(place)
        now = time.monotonic()
        while idle:
            link = idle.pop()
            if not link.is_closing and now - link.idle_since <= KEEPALIVE_S:
                return link
            link.abort()
        return None

    async def _connected(self, place: Place) -> Link:
        loop = asyncio.get_running_loop()
        tls = (self._tls or ssl.create_default_context()) if place.is_tls else None
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                _, link = await loop.create_connection(
                    lambda: Link(self, place), place.host, place.port, ssl=tls
                )
        except (OSError, TimeoutError) as cause:
            raise Unreachable(str(cause) or type(cause).__name__) from cause
        self._links.add(link)
        return link

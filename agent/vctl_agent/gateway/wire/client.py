"""The engine's side: connections kept between requests, and answers as they come.

A connection is read only as fast as its answer is taken, so back-pressure reaches the engine. An
answer that is left before its end breaks its connection, which is how the engine learns that nobody
waits for it. Nothing is asked twice here: whoever asks decides that.
"""

import asyncio
import ssl
import time
from collections import deque
from typing import Protocol, cast
from urllib.parse import urlsplit

import httptools
import msgspec

from vctl_agent.gateway.wire.fields import Fields, text, written

CONNECT_TIMEOUT_S = 5.0

KEEPALIVE_S = 3.0
"""Below uvicorn's 5 s, so that a connection is seldom used while the engine closes it."""

MAX_BUFFERED_BYTES = 256 * 1024
"""Of an answer that is not taken: then its connection is read no further."""

MAX_HEAD_BYTES = 256 * 1024
_SWEEP_S = 0.5
_BODYLESS = {204, 304}
_FIRST_FINAL = 200


class Unreachable(Exception):  # noqa: N818  an event on one request
    """No connection could be made, so nothing was sent."""


class Broken(Exception):  # noqa: N818  an event on one request
    """The other side closed, or says what is no HTTP."""


class Late(Exception):  # noqa: N818  an event on one request
    """The other side has been silent for too long."""


class Place(msgspec.Struct, frozen=True):
    """Where a server listens."""

    host: str
    port: int
    is_tls: bool

    @property
    def authority(self) -> str:
        """Host and port as the Host field has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.is_tls else 80) else f"{host}:{self.port}"


class _Parser(Protocol):
    def feed_data(self, data: bytes) -> None: ...
    def get_status_code(self) -> int: ...
    def should_keep_alive(self) -> bool: ...


class Link(asyncio.Protocol):
    """One connection to a server; it carries one request at a time."""

    def __init__(self, pool: "Pool", place: Place) -> None:
        self.place = place
        self.idle_since = 0.0
        self.heard = time.monotonic()  # the last byte, or the request's sending
        self.is_lost = False
        self._pool = pool
        self._transport: asyncio.Transport
        self._parser: _Parser
        self._answer: Incoming | None = None
        self._is_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the answer: by its end, if that is how it ends, or as broken."""
        self.is_lost = True
        self._pool.forget(self)
        if self._answer:
            self._answer.hung_up(exc)

    def data_received(self, data: bytes) -> None:
        """Parse."""
        self.heard = time.monotonic()
        answer = self._answer
        if answer is None:  # nobody asked: what speaks unasked cannot be trusted with a request
            self.abort()
            return
        try:
            answer.fed(len(data))
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail(answer, Broken("it changes protocols"))
        except (httptools.HttpParserError, Broken) as cause:
            self._fail(answer, Broken(f"what it says is no HTTP: {cause}"))

    def send(self, head: bytes, body: bytes) -> "Incoming":
        """Send a request; return its answer, of which nothing has come yet."""
        answer = Incoming(self)
        self._answer = answer
        self._parser = cast("_Parser", httptools.HttpResponseParser(answer))
        self.heard = time.monotonic()
        if len(body) > MAX_BUFFERED_BYTES:
            self._transport.write(head)
            self._transport.write(body)
        else:
            self._transport.write(head + body)
        return answer

    @property
    def status(self) -> int:
        """The status of the answer whose head has come."""
        return self._parser.get_status_code()

    @property
    def may_stay(self) -> bool:
        """Whether another request may follow."""
        return self._parser.should_keep_alive()

    @property
    def is_closing(self) -> bool:
        """Whether it can carry nothing any more."""
        return self.is_lost or self._transport.is_closing()

    def pause(self) -> None:
        """Read no further."""
        if not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self._is_paused:
            self._is_paused = False
            self.heard = time.monotonic()  # its silence was ours
            self._transport.resume_reading()

    @property
    def is_waited_for(self) -> bool:
        """Whether somebody waits for what comes."""
        return self._answer is not None and self._answer.is_waited_for

    def give_back(self) -> None:
        """Let another request have it."""
        self._answer = None
        self.resume()
        self._pool.keep(self)

    def late(self) -> None:
        """End it: it has been silent for too long."""
        if self._answer:
            self._fail(self._answer, Late("silent for too long"))

    def abort(self) -> None:
        """Break it."""
        self._answer = None
        self._transport.abort()

    def _fail(self, answer: "Incoming", problem: Exception) -> None:
        self.abort()
        answer.fail(problem)


class Incoming:
    """An answer as it comes.

    The parser calls the `on_` methods; `head`, `next`, `read` and `close` are for who asked.
    """

    def __init__(self, link: Link) -> None:
        self._link: Link | None = link
        self.status = 0
        self.reason = ""
        self.headers: Fields = Fields()
        self._has_head = False
        self._head_bytes = 0
        self._is_whole = False
        self._ends_by_closing = False
        self._stays = False
        self._parts: deque[bytes] = deque()
        self._size = 0
        self._problem: Exception | None = None
        self._news: asyncio.Future[None] | None = None

    @property
    def content_type(self) -> str:
        """The media type, without parameters, in lower case."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def head(self) -> None:
        """Wait for the status and the fields.

        Raises:
            Broken: The other side closed before.
            Late: It is silent.
        """
        while not self._has_head:
            await self._wait()

    async def next(self) -> bytes:
        """Return what has come of the body, once anything has; nothing at its end.

        Raises:
            Broken: The other side closed before its end.
            Late: It is silent.
        """
        while not self._parts:
            if self._is_whole:
                return b""
            await self._wait()
        piece = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        if self._link:
            self._link.resume()
        return piece

    async def read(self) -> bytes:
        """Return the whole body; as `next`."""
        pieces = []
        while piece := await self.next():
            pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        """Have done with it: a whole one's connection is kept, any other broken."""
        link, self._link = self._link, None
        if link is None or link.is_lost:
            return
        if self._is_whole and self._stays and not link.is_closing:
            link.give_back()
        else:
            link.abort()

    @property
    def is_waited_for(self) -> bool:
        """Whether somebody waits for what comes."""
        return self._news is not None

    def on_message_begin(self) -> None:
        """Take no more than one message: what comes after it belongs to nobody."""
        if self._is_whole:
            self._stays = False

    def on_status(self, reason: bytes) -> None:
        """Take the reason."""
        if not self._has_head:
            self.reason += text(reason)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a field."""
        if not self._has_head:
            self.headers.add(text(name), text(value))

    def on_headers_complete(self) -> None:
        """Take the status; one before the final one (100, 103) is passed over."""
        link = self._link
        if link is None or self._has_head:
            return
        self.status = link.status
        if self.status < _FIRST_FINAL:
            return
        self._has_head = True
        has_length = "content-length" in self.headers or "transfer-encoding" in self.headers
        self._ends_by_closing = not has_length and self.status not in _BODYLESS
        self._tell()

    def on_body(self, piece: bytes) -> None:
        """Take a piece."""
        if self._is_whole:
            return
        self._parts.append(piece)
        self._size += len(piece)
        if self._size > MAX_BUFFERED_BYTES and self._link:
            self._link.pause()
        self._tell()

    def on_message_complete(self) -> None:
        """Take the end."""
        link = self._link
        if link is None:
            return
        if not self._has_head:
            self.headers, self.reason = Fields(), ""
            return
        if self._is_whole:
            return
        self._is_whole = True
        self._stays = link.may_stay and not self._ends_by_closing
        self._tell()

    def fed(self, size_bytes: int) -> None:
        """Count what came before the head's end.

        Raises:
            Broken: It is too much.
        """
        if not self._has_head:
            self._head_bytes += size_bytes
            if self._head_bytes > MAX_HEAD_BYTES + size_bytes:
                raise Broken("its head does not end")

    def hung_up(self, cause: Exception | None) -> None:
        """Take it that the connection is gone."""
        if self._has_head and self._ends_by_closing and cause is None:
            self._is_whole = True
            self._tell()
        elif not self._is_whole:
            self.fail(Broken(str(cause) if cause else "it closed the connection"))

    def fail(self, problem: Exception) -> None:
        """Take it that nothing more comes."""
        self._problem = problem
        self._tell()

    async def _wait(self) -> None:
        if self._problem:
            raise self._problem
        self._news = asyncio.get_running_loop().create_future()
        try:
            await self._news
        finally:
            self._news = None

    def _tell(self) -> None:
        if self._news and not self._news.done():
            self._news.set_result(None)


class Pool:
    """Connections to servers.

    Args:
        timeout_s: Seconds without a byte, while one is waited for, until an answer is given up.
        tls: For https; None: the system's defaults.
    """

    def __init__(self, timeout_s: float, *, tls: ssl.SSLContext | None = None) -> None:
        self._timeout_s = timeout_s
        self._tls = tls
        self._idle: dict[Place, list[Link]] = {}
        self._links: set[Link] = set()
        self._places: dict[str, Place] = {}

    async def ask(self, method: str, url: str, fields: Fields, body: bytes) -> Incoming:
        """Send a request; return its answer once its head has come. The caller closes it.

        Raises:
            Unreachable: There is no connection, and nothing was sent.
            Broken: The other side closed before it answered, or answered what is no HTTP.
            Late: It does not answer in time.
        """
        place, target = self._place(url)
        fields["Host"] = place.authority
        fields["Content-Length"] = str(len(body))
        head = f"{method} {target} HTTP/1.1\r\n".encode() + written(fields.items()) + b"\r\n"
        link = self._kept(place) or await self._connected(place)
        answer = link.send(head, body)
        try:
            await answer.head()
        except BaseException:
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

    def _place(self, url: str) -> tuple[Place, str]:
        """Return the server of a URL and what to ask it for."""
        scheme_end = url.find("://") + 3
        path_at = url.find("/", scheme_end)
        origin, target = (url, "/") if path_at < 0 else (url[:path_at], url[path_at:])
        place = self._places.get(origin)
        if place is None:
            parts = urlsplit(origin)
            is_tls = parts.scheme == "https"
            place = Place(parts.hostname or "", parts.port or (443 if is_tls else 80), is_tls)
            if len(self._places) > 1024:  # noqa: PLR2004  peers come and go
                self._places.clear()
            self._places[origin] = place
        return place, target

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

"""The clients' side: connections, requests, and answers on them.

One task a connection handles its requests in turn; a client that goes away cancels it. Whatever a
client does, what it can hold is bounded: the head in bytes and fields, the body in bytes, both in
time, and how many requests it may send before the first is answered.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol, cast

import httptools
import msgspec
import structlog

from vctl_agent.gateway.wire.fields import CONTINUE, Date, Fields, status_line, text, written

MAX_HEAD_BYTES = 64 * 1024
MAX_FIELDS = 128
MAX_WAITING = 4
"""Requests of one connection that are read before the first of them is answered."""

_BAD_REQUEST, _TIMEOUT, _HEAD_TOO_LARGE, _NO_UPGRADE = 400, 408, 431, 501
_BODYLESS = {204, 304}
_FRAMING = 16
"""Bytes on the wire for each of a body; a chunk of one byte takes six."""
_SWEEP_S = 0.5

_log = structlog.get_logger()


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a client may take."""

    max_body_bytes: int = 32 * 2**20
    head_s: float = 30.0  # for a head, from its first byte
    idle_s: float = 75.0  # without a request
    body_bytes_per_s: float = 1024.0  # at least so much, on the whole, once `head_s` has passed
    linger_s: float = 2.0  # that what a refused client still sends is thrown away


class BodyTooLarge(Exception):  # noqa: N818  an event on one request
    """The body is larger than the limit."""


class _RefusedError(Exception):
    """Stops the parser."""


class BodyBroken(Exception):  # noqa: N818  an event on one request
    """The body's framing is broken, or it came too slowly."""


class Answer(msgspec.Struct):
    """An answer: whole as it is, unless its beginning was sent already."""

    status: int = 200
    headers: Fields = msgspec.field(default_factory=Fields)
    body: bytes = b""
    reason: str = ""
    is_begun: bool = False
    closes: bool = False  # the connection ends with it


class Request:
    """A client's request, and the way to answer it."""

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self.method = ""
        self.target = ""  # as the client wrote it
        self.path = ""
        self.query = ""
        self.headers: Fields = Fields()
        self.content_length: int | None = None
        self.is_kept_alive = False
        self.is_old = False  # HTTP/1.0
        self.is_whole = False  # the body has come
        self._parts: list[bytes] = []
        self._size = 0
        self._fed = 0
        self._problem: Exception | None = None
        self._arrived: asyncio.Future[None] | None = None

    async def read(self) -> bytes:
        """Return the body; a client that waits to be asked for it is.

        Raises:
            BodyTooLarge: It is larger than the limit, or says that it will be.
            BodyBroken: It cannot be read.
        """
        if not (self.is_whole or self._problem):
            expected = self.headers.get("expect", "")
            if expected and expected.lower() == "100-continue" and not self._size:
                self._connection.write(CONTINUE)
            self._arrived = asyncio.get_running_loop().create_future()
            self._connection.read_on()
            await self._arrived
        if self._problem:
            raise self._problem
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        return body

    async def begin(self, answer: Answer) -> None:
        """Send the answer's head; its body follows in pieces."""
        answer.is_begun = True
        is_chunked = not self.is_old and answer.status not in _BODYLESS
        self._connection.begin(self, answer, length=None, is_chunked=is_chunked)
        await self._connection.drained()

    async def write(self, piece: bytes) -> None:
        """Send a piece of the body, and wait while the client does not take it."""
        self._connection.write_piece(piece)
        await self._connection.drained()

    async def end(self) -> None:
        """Send the body's end."""
        self._connection.end_pieces()
        await self._connection.drained()

    def abort(self) -> None:
        """Break the connection, so that what was cut short does not look whole."""
        self._connection.abort()

    def add(self, piece: bytes, limit: int) -> bool:
        """Take a piece of the body; return whether it is within the limit."""
        self._size += len(piece)
        if self._size > limit:
            self.fail(BodyTooLarge())
            return False
        self._parts.append(piece)
        return True

    def finish(self) -> None:
        """Note that the body has come."""
        self.is_whole = True
        self._tell()

    def fail(self, problem: Exception) -> None:
        """Note that the body cannot be had."""
        if not self.is_whole:
            self._problem = self._problem or problem
            self._parts.clear()
            self._tell()

    def has_room(self, size_bytes: int) -> bool:
        """Count bytes as they come: framing (chunks' heads, trailers) may not outgrow the body."""
        self._fed += size_bytes
        return self._fed <= _FRAMING * self._size + size_bytes + MAX_HEAD_BYTES

    @property
    def has_come(self) -> bool:
        """Whether the body has come, and nothing of it was thrown away."""
        return self.is_whole and not self._problem

    @property
    def may_stay(self) -> bool:
        """Whether the connection may carry another request."""
        return self.is_kept_alive and self.has_come

    @property
    def received(self) -> int:
        """Bytes of the body so far."""
        return self._size

    def _tell(self) -> None:
        if self._arrived and not self._arrived.done():
            self._arrived.set_result(None)


Handler = Callable[[Request], Awaitable[Answer]]


class _Parser(Protocol):
    def feed_data(self, data: bytes) -> None: ...
    def get_http_version(self) -> str: ...
    def get_method(self) -> bytes: ...
    def should_keep_alive(self) -> bool: ...
    def should_upgrade(self) -> bool: ...


class Connection(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, listener: "Listener") -> None:
        self._listener = listener
        self._limits = listener.limits
        self._parser = cast("_Parser", httptools.HttpRequestParser(self))
        self._transport: asyncio.Transport
        self._task: asyncio.Task[None] | None = None
        self._waiting: deque[Request] = deque()
        self._news: asyncio.Future[None] | None = None
        self._request: Request | None = None  # being received
        self._url = b""
        self._head_bytes = 0
        self._fields = 0
        self._is_chunked = False
        self._refusal = 0  # status with which what cannot be read is answered, after the others
        self._is_paused = False
        self._is_lost = False
        self._discards = False
        self._drain: asyncio.Future[None] | None = None
        self._deadline = time.monotonic() + self._limits.head_s

    # -- what asyncio calls --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection."""
        self._transport = cast("asyncio.Transport", transport)
        self._listener.connections.add(self)
        self._task = asyncio.get_running_loop().create_task(self._serve())

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel what the client does not wait for any more."""
        del exc
        self._is_lost = True
        self._listener.connections.discard(self)
        if self._task:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        """Parse; a head is fed in pieces, so that it can be bounded."""
        while data and not (self._discards or self._refusal):
            piece, data = data, b""
            if self._request is None:
                room = MAX_HEAD_BYTES - self._head_bytes
                if room <= 0:
                    self._refuse(_HEAD_TOO_LARGE)
                    return
                if len(piece) > room:
                    piece, data = piece[:room], piece[room:]
            self._feed(piece)

    def eof_received(self) -> bool:
        """Take a client that sends no more for one that is gone: closing looks the same."""
        return False

    def pause_writing(self) -> None:
        """Have answers wait."""
        if self._drain is None:
            self._drain = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """Let answers go on."""
        if self._drain and not self._drain.done():
            self._drain.set_result(None)
        self._drain = None

    # -- what the parser calls -----------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._url = b""
        self._fields = 0
        self._head_bytes = 1  # it has begun; `data_received` bounds it
        self._coming = Request(self)
        self._deadline = time.monotonic() + self._limits.head_s

    def on_url(self, url: bytes) -> None:
        """Take a piece of the target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a field; what follows a body (a trailer) decides nothing."""
        self._fields += 1
        if self._request is None and self._fields <= MAX_FIELDS:
            self._coming.headers.add(text(name), text(value))

    def on_headers_complete(self) -> None:
        """Check the head, and let the request be handled while its body comes."""
        request, parser = self._coming, self._parser
        self._head_bytes = 0
        request.method = parser.get_method().decode("ascii", "replace")
        request.is_old = parser.get_http_version() == "1.0"
        request.is_kept_alive = parser.should_keep_alive()
        self._request = request
        refusal = self._checked(request)
        if refusal:
            self._refuse(refusal)
            raise _RefusedError  # so that the parser reads no further
        self._waiting.append(request)
        self._tell()

    def on_body(self, piece: bytes) -> None:
        """Take a piece of the body."""
        request = self._request
        if request and not request.add(piece, self._limits.max_body_bytes):
            self._discards = True

    def on_message_complete(self) -> None:
        """Note that the request is whole."""
        if self._request:
            self._request.finish()
            self._request = None
        self._deadline = time.monotonic() + self._limits.idle_s
        if len(self._waiting) >= MAX_WAITING and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    # -- what requests call --------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send bytes as they are.

        Raises:
            ConnectionResetError: The client is gone.
        """
        if self._is_lost or self._transport.is_closing():
            raise ConnectionResetError("the client is gone")
        self._transport.write(data)

    def begin(
        self, request: Request, answer: Answer, *, length: int | None, is_chunked: bool
    ) -> None:
        """Send an answer's head."""
        self.write(self._head(request, answer, length=length, is_chunked=is_chunked))

    def write_piece(self, piece: bytes) -> None:
        """Send a piece of a body that was begun."""
        if not piece:
            return
        self.write(b"%x\r\n%b\r\n" % (len(piece), piece) if self._is_chunked else piece)

    def end_pieces(self) -> None:
        """Send the end of a body that was begun."""
        if self._is_chunked:
            self.write(b"0\r\n\r\n")

    def read_on(self) -> None:
        """Read, should it have been too much before."""
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()

    async def drained(self) -> None:
        """Wait while the client does not take what was sent."""
        if self._drain is not None:
            await self._drain

    def abort(self) -> None:
        """Break the connection."""
        self._transport.abort()

    # -- its life ------------------------------------------------------------------------------

    def close_if_late(self, now: float) -> None:
        """End a connection whose client is too slow, or has been silent for too long."""
        request = self._request
        if request and not request.is_whole and not self._discards:
            # A trickle would hold a connection for ever, so time is given by what has come.
            due = self._deadline + request.received / self._limits.body_bytes_per_s
            if now > due:
                request.fail(BodyBroken("it came too slowly"))
                self._discards = True
        elif now > self._deadline:
            if self._head_bytes and not self._is_handling:
                self._refuse(_TIMEOUT)
            elif not self._is_handling:
                self._transport.close()

    def close_when_idle(self) -> None:
        """End the connection unless a request is on it; it then ends with its answer."""
        if not self._is_handling and not self._waiting:
            self._transport.close()

    @property
    def _is_handling(self) -> bool:
        return self._news is None

    def _feed(self, data: bytes) -> None:
        request = self._request
        if request is None:
            self._head_bytes += len(data)
        elif not request.has_room(len(data)):
            request.fail(BodyBroken("its framing is larger than itself"))
            self._discards = True
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse(_NO_UPGRADE)
        except httptools.HttpParserError as cause:
            if self._refusal:
                return
            if self._request:
                self._request.fail(BodyBroken(str(cause)))
                self._discards = True
            else:
                self._refuse(_BAD_REQUEST)

    def _checked(self, request: Request) -> int:
        """Fill in what the head says; return the status of its refusal, or 0."""
        if self._fields > MAX_FIELDS:
            return _HEAD_TOO_LARGE
        if self._parser.should_upgrade():
            return _NO_UPGRADE
        request.target = text(self._url)
        if not request.target.isascii():
            return _BAD_REQUEST
        path, _, request.query = request.target.partition("?")
        request.path = _without_authority(path)
        lengths = request.headers.getall("content-length", [])
        request.content_length = int(lengths[0]) if lengths else None
        if not request.is_old and len(request.headers.getall("host", [])) != 1:
            return _BAD_REQUEST
        if (request.content_length or 0) > self._limits.max_body_bytes:
            request.fail(BodyTooLarge())
            self._discards = True
        return 0

    def _refuse(self, status: int) -> None:
        self._refusal = self._refusal or status
        self._request = None
        self._tell()

    def _tell(self) -> None:
        if self._news and not self._news.done():
            self._news.set_result(None)

    async def _next(self) -> Request | None:
        """Return the next request; None: what comes now cannot be read."""
        while not self._waiting:
            if self._refusal:
                return None
            self.read_on()
            self._news = asyncio.get_running_loop().create_future()
            try:
                await self._news
            finally:
                self._news = None
        return self._waiting.popleft()

    async def _serve(self) -> None:
        try:
            while not self._transport.is_closing():
                request = await self._next()
                if request is None:
                    refused = self._listener.refuse(self._refusal)
                    await self._send(Request(self), refused, closes=True)
                    await self._linger()
                    return
                answer = await self._listener.handler(request)
                closes = answer.closes or not request.may_stay
                if not answer.is_begun:
                    await self._send(request, answer, closes=closes)
                self._deadline = time.monotonic() + self._limits.idle_s
                if closes or not request.may_stay:
                    if not request.has_come:
                        await self._linger()
                    return
        except ConnectionError:
            pass
        except asyncio.CancelledError:
            if not self._is_lost:
                raise
        finally:
            self._transport.close()

    async def _send(self, request: Request, answer: Answer, *, closes: bool) -> None:
        answer.closes = closes
        head = self._head(request, answer, length=len(answer.body), is_chunked=False)
        self.write(head if request.method == "HEAD" else head + answer.body)
        await self.drained()

    def _head(
        self, request: Request, answer: Answer, *, length: int | None, is_chunked: bool
    ) -> bytes:
        self._is_chunked = is_chunked
        fields = answer.headers
        fields["Date"] = self._listener.date.now()
        if is_chunked:
            fields["Transfer-Encoding"] = "chunked"
        elif length is not None and answer.status not in _BODYLESS:
            fields["Content-Length"] = str(length)
        ends_by_closing = length is None and not is_chunked and answer.status not in _BODYLESS
        if ends_by_closing:
            request.is_kept_alive = False
        if answer.closes or not request.may_stay:
            fields["Connection"] = "close"
        elif request.is_old:
            fields["Connection"] = "keep-alive"
        return status_line(answer.status, answer.reason) + written(fields.items()) + b"\r\n"

    async def _linger(self) -> None:
        """Let a client that still sends read its answer: closing at once could destroy it."""
        self._discards = True
        with contextlib.suppress(OSError, RuntimeError):
            self._transport.write_eof()
        await asyncio.sleep(self._limits.linger_s)


class Listener:
    """Makes connections; what they have in common.

    Args:
        handler: Answers a request.
        refuse: Makes the answer to what cannot be read, by its status.
        limits: What a client may take.
    """

    def __init__(self, handler: Handler, refuse: Callable[[int], Answer], limits: Limits) -> None:
        self.handler = handler
        self.refuse = refuse
        self.limits = limits
        self.date = Date()
        self.connections: set[Connection] = set()

    def __call__(self) -> Connection:
        """Return the protocol of a new connection."""
        return Connection(self)

    async def sweep(self) -> None:
        """End connections that are late, until cancelled."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            now = time.monotonic()
            for connection in tuple(self.connections):
                connection.close_if_late(now)

    def close_idle(self) -> None:
        """End all connections that no request is on."""
        for connection in tuple(self.connections):
            connection.close_when_idle()

    def abort(self) -> None:
        """Break all connections."""
        for connection in tuple(self.connections):
            connection.abort()


def _without_authority(path: str) -> str:
    """Return the path of a target in absolute form (RFC 9112 section 3.2.2), or of any other."""
    for scheme in ("http://", "https://"):
        if path.lower().startswith(scheme):
            return "/" + path[len(scheme) :].partition("/")[2]
    return path

"""A client's request, its answer, and what a client may take."""

import asyncio
from typing import Protocol

import msgspec

from vctl_agent.gateway.wire.fields import CONTINUE, Fields, written
from vctl_agent.gateway.wire.heads import NO_HEAD, Head

MAX_HEAD_BYTES = 64 * 1024
MAX_FIELDS = 128

BODYLESS = frozenset({204, 304})
"""Statuses of answers that have no body."""

_FRAMING = 16
"""Bytes on the wire for each of a body; a chunk of one byte takes six."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a client may take."""

    max_body_bytes: int = 32 * 2**20
    head_s: float = 30.0  # for a head, from its first byte
    idle_s: float = 75.0  # without a request
    body_bytes_per_s: float = 1024.0  # at least so much, on the whole, once `head_s` has passed
    take_s: float = 300.0  # that nothing of an answer is taken
    linger_s: float = 2.0  # that what a refused client still sends is thrown away


class BodyTooLarge(Exception):  # noqa: N818  an event on one request
    """The body is larger than the limit."""


class BodyBroken(Exception):  # noqa: N818  an event on one request
    """The body's framing is broken, or it came too slowly."""


class Answer(msgspec.Struct):
    """An answer: whole as it is, unless its beginning was sent already."""

    status: int = 200
    lines: bytes = b""  # its fields, as they are sent
    body: bytes = b""
    reason: str = ""
    marks: bytes = b""  # the gateway's own fields; put anew, they replace those from before
    is_begun: bool = False
    closes: bool = False  # the connection ends with it

    def add(self, name: str, value: str) -> None:
        """Add a field."""
        self.lines += written(((name, value),))


class Way(Protocol):
    """The way back to a client."""

    @property
    def is_full(self) -> bool:
        """Whether the client does not take what was sent."""

    def write(self, data: bytes) -> None:
        """Send bytes as they are."""

    def begin(
        self, request: "Request", answer: Answer, *, length: int | None, is_chunked: bool
    ) -> None:
        """Send an answer's head."""

    def write_piece(self, piece: bytes) -> None:
        """Send a piece of a body that was begun."""

    def end_pieces(self) -> None:
        """Send the end of a body that was begun."""

    def read_on(self) -> None:
        """Read, should it have been too much before."""

    async def drained(self) -> None:
        """Wait while the client does not take what was sent."""

    def abort(self) -> None:
        """Break the connection."""


class Request(msgspec.Struct, eq=False):
    """A client's request, and the way to answer it."""

    way: Way
    method: str = ""
    target: str = ""  # as the client wrote it
    path: str = ""
    query: str = ""
    head: Head = NO_HEAD
    request_id: str = ""  # as the client gave it
    content_length: int | None = None
    is_kept_alive: bool = False
    is_old: bool = False  # HTTP/1.0
    is_whole: bool = False  # the body has come
    problem: Exception | None = None  # why the body cannot be had
    received: int = 0  # bytes of the body so far
    _parts: list[bytes] = []
    _fed: int = 0
    _arrived: "asyncio.Future[None] | None" = None

    @property
    def headers(self) -> Fields:
        """The fields that came, but for its length and the request's id. Nobody changes them."""
        return self.head.fields

    async def read(self) -> bytes:
        """Return the body; a client that waits to be asked for it is.

        Raises:
            BodyTooLarge: It is larger than the limit, or says that it will be.
            BodyBroken: It cannot be read.
        """
        if not (self.is_whole or self.problem):
            if self.head.expects and not self.received:
                self.way.write(CONTINUE)
            self._arrived = asyncio.get_running_loop().create_future()
            self.way.read_on()
            await self._arrived
        if self.problem:
            raise self.problem
        return self.taken()

    def taken(self) -> bytes:
        """Return the body, which has come, and keep it no longer."""
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        return body

    async def begin(self, answer: Answer) -> None:
        """Send the answer's head; its body follows in pieces."""
        answer.is_begun = True
        is_chunked = not self.is_old and answer.status not in BODYLESS
        self.way.begin(self, answer, length=None, is_chunked=is_chunked)
        await self.way.drained()

    async def write(self, piece: bytes) -> None:
        """Send a piece of the body, and wait while the client does not take it."""
        self.way.write_piece(piece)
        if self.way.is_full:
            await self.way.drained()

    async def end(self) -> None:
        """Send the body's end."""
        self.way.end_pieces()
        await self.way.drained()

    def abort(self) -> None:
        """Break the connection, so that what was cut short does not look whole."""
        self.way.abort()

    def add(self, piece: bytes, limit: int) -> bool:
        """Take a piece of the body; return whether it is within the limit."""
        self.received += len(piece)
        if self.received > limit:
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
            self.problem = self.problem or problem
            self._parts.clear()
            self._tell()

    def has_room(self, size_bytes: int) -> bool:
        """Count bytes as they come: framing (chunks' heads, trailers) may not outgrow the body."""
        self._fed += size_bytes
        return self._fed <= _FRAMING * self.received + size_bytes + MAX_HEAD_BYTES

    @property
    def has_come(self) -> bool:
        """Whether the body has come, and nothing of it was thrown away."""
        return self.is_whole and not self.problem

    @property
    def may_stay(self) -> bool:
        """Whether the connection may carry another request."""
        return self.is_kept_alive and self.is_whole and not self.problem

    def _tell(self) -> None:
        if self._arrived and not self._arrived.done():
            self._arrived.set_result(None)

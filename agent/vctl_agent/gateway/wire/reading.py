"""What a client sends, made into requests by llhttp; whatever it sends, what is held is bounded.

The head is bounded in bytes and fields, the body in bytes and in what its framing adds. What is no
request is refused by a status, after which nothing more is read.
"""

import time
from typing import Protocol, cast

import httptools

from vctl_agent.gateway.wire.fields import text
from vctl_agent.gateway.wire.heads import Heads
from vctl_agent.gateway.wire.message import (
    MAX_FIELDS,
    MAX_HEAD_BYTES,
    BodyBroken,
    BodyTooLarge,
    Limits,
    Request,
    Way,
)

BAD_REQUEST, TIMEOUT, HEAD_TOO_LARGE, NO_UPGRADE = 400, 408, 431, 501
_VERSIONS = frozenset({"1.0", "1.1"})
_CONTENT_LENGTH, _REQUEST_ID = b"content-length", b"x-request-id"
_VARYING_SIZES = frozenset({len(_CONTENT_LENGTH), len(_REQUEST_ID)})


class _RefusedError(Exception):
    """Stops the parser."""


class _Parser(Protocol):
    def feed_data(self, data: bytes) -> None: ...
    def get_http_version(self) -> str: ...
    def get_method(self) -> bytes: ...
    def should_keep_alive(self) -> bool: ...
    def should_upgrade(self) -> bool: ...


class Reader(Way, Protocol):
    """Whose connection it is."""

    def came(self, request: Request) -> None:
        """Take a request whose head has come."""

    def ended(self) -> None:
        """Know that a request is whole."""

    def refused(self) -> None:
        """Know that nothing more is read."""


class Reading:
    """Reads one connection; the parser calls the `on_` methods."""

    def __init__(self, reader: Reader, limits: Limits, heads: Heads) -> None:
        self.request: Request | None = None  # being received: its head has come
        self.head_bytes = 0  # fed of a head that has not ended
        self.has_begun = False  # such a head; a line's end before it is nothing yet
        self.refusal = 0  # status with which what cannot be read is answered, after the others
        self.discards = False  # what comes now is thrown away
        self.deadline = time.monotonic() + limits.head_s
        self._reader = reader
        self._limits = limits
        self._heads = heads
        self._parser = cast("_Parser", httptools.HttpRequestParser(self))
        self._url = b""
        self._raw: list[bytes] = []
        self._fields = 0
        self._length = b""
        self._id = b""

    def feed(self, data: bytes) -> None:
        """Parse; a head is fed in pieces, so that it can be bounded."""
        while data and not (self.discards or self.refusal):
            piece, data = data, b""
            if self.request is None:
                room = MAX_HEAD_BYTES - self.head_bytes
                if room <= 0:
                    self.refuse(HEAD_TOO_LARGE)
                    return
                if len(piece) > room:
                    piece, data = piece[:room], piece[room:]
                self.head_bytes += len(piece)
            elif not self.request.has_room(len(piece)):
                self.request.fail(BodyBroken("its framing is larger than itself"))
                self.discards = True
                return
            self._parse(piece)

    def refuse(self, status: int) -> None:
        """Read nothing more: what has come is no request."""
        self.refusal = self.refusal or status
        self.request = None
        self._reader.refused()

    def give_up_if_slow(self, request: Request, now: float) -> None:
        """Fail a body that trickles: it would hold a connection for ever."""
        if now > self.deadline + request.received / self._limits.body_bytes_per_s:
            request.fail(BodyBroken("it came too slowly"))
            self.discards = True

    def rest(self) -> None:
        """Wait for the next request from now on, unless it has begun to come."""
        if self.request is None and not self.has_begun:
            self.deadline = time.monotonic() + self._limits.idle_s

    # -- what the parser calls -----------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._url = b""
        self._raw = []
        self._fields = 0
        self._length = self._id = b""
        self.has_begun = True
        self.deadline = time.monotonic() + self._limits.head_s

    def on_url(self, url: bytes) -> None:
        """Take a piece of the target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a field; what follows a body (a trailer) decides nothing."""
        if self.request is not None:
            return
        self._fields += 1
        lowered = name.lower() if len(name) in _VARYING_SIZES else name
        if lowered == _CONTENT_LENGTH:
            self._length = value
        elif lowered == _REQUEST_ID:
            self._id = self._id or value
        elif self._fields <= MAX_FIELDS:
            self._raw.append(name)
            self._raw.append(value)

    def on_headers_complete(self) -> None:
        """Check the head, and let the request be handled while its body comes."""
        parser = self._parser
        self.head_bytes = 0
        self.has_begun = False
        request = Request(
            self._reader,
            method=parser.get_method().decode("ascii", "replace"),
            target=text(self._url),
            request_id=text(self._id) if self._id else "",
            content_length=int(self._length) if self._length else None,
            is_kept_alive=parser.should_keep_alive(),
            is_old=parser.get_http_version() == "1.0",
        )
        self.request = request
        refusal = self._checked(request)
        if refusal:
            self.refuse(refusal)
            raise _RefusedError  # so that the parser reads no further
        self._reader.came(request)

    def on_body(self, piece: bytes) -> None:
        """Take a piece of the body."""
        request = self.request
        if request and not request.add(piece, self._limits.max_body_bytes):
            self.discards = True

    def on_message_complete(self) -> None:
        """Note that the request is whole."""
        if self.request:
            self.request.finish()
            self.request = None
        self.rest()
        self._reader.ended()

    # ------------------------------------------------------------------------------------------

    def _parse(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.refuse(NO_UPGRADE)
        except httptools.HttpParserError as cause:
            if self.refusal:
                return
            if self.request:
                self.request.fail(BodyBroken(str(cause)))
                self.discards = True
            else:
                self.refuse(BAD_REQUEST)

    def _checked(self, request: Request) -> int:
        """Fill in what the head says; return the status of its refusal, or 0."""
        if self._fields > MAX_FIELDS:
            return HEAD_TOO_LARGE
        if self._parser.should_upgrade():
            return NO_UPGRADE
        if not request.target.isascii() or self._parser.get_http_version() not in _VERSIONS:
            return BAD_REQUEST
        request.head = self._heads.of(self._raw)
        if request.head.has_coding and (request.is_old or not request.head.is_chunked):
            return BAD_REQUEST  # RFC 9112 section 6.1: nobody can tell where its body ends
        path, _, request.query = request.target.partition("?")
        request.path = path if path.startswith("/") else _without_authority(path)
        if not request.is_old and request.head.hosts != 1:
            return BAD_REQUEST
        if (request.content_length or 0) > self._limits.max_body_bytes:
            request.fail(BodyTooLarge())
            self.discards = True
        return 0


def _without_authority(path: str) -> str:
    """Return the path of a target in absolute form (RFC 9112 section 3.2.2), or of any other."""
    for scheme in ("http://", "https://"):
        if path.lower().startswith(scheme):
            return "/" + path[len(scheme) :].partition("/")[2]
    return path

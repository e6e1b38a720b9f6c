"""One connection to a server: requests on it follow each other, and answers are parsed by llhttp.

One parser reads all that comes on a connection, as its other end writes it. What comes unasked, or
after an answer's end, ends the connection: it cannot be trusted with a request.
"""

import asyncio
import time
from typing import Protocol, cast
from urllib.parse import urlsplit

import httptools
import msgspec

from vctl_agent.gateway.wire.fields import text
from vctl_agent.gateway.wire.heads import Heads
from vctl_agent.gateway.wire.incoming import MAX_BUFFERED_BYTES, Broken, Incoming, Late
from vctl_agent.gateway.wire.message import BODYLESS

MAX_HEAD_BYTES = 256 * 1024

_FIRST_FINAL = 200
_VARYING = frozenset({b"content-length", b"date", b"x-request-id"})
"""Fields that differ with each answer, and are written anew for the client."""
_VARYING_SIZES = frozenset(map(len, _VARYING))


class Place(msgspec.Struct, frozen=True):
    """Where a server listens."""

    host: str
    port: int
    is_tls: bool
    prefix: bytes  # what stands before each path
    host_line: bytes  # the field that names it


def place_of(url: str) -> Place:
    """Return where a URL leads."""
    parts = urlsplit(url)
    is_tls = parts.scheme == "https"
    usual = 443 if is_tls else 80
    name, port = parts.hostname or "", parts.port or usual
    host = f"[{name}]" if ":" in name else name
    authority = host if port == usual else f"{host}:{port}"
    return Place(name, port, is_tls, parts.path.encode(), f"Host: {authority}\r\n".encode())


class _Parser(Protocol):
    def feed_data(self, data: bytes) -> None: ...
    def get_status_code(self) -> int: ...
    def should_keep_alive(self) -> bool: ...


class Keeper(Protocol):
    """Who keeps connections."""

    heads: Heads

    def keep(self, link: "Link") -> None:
        """Keep a connection for the next request."""

    def forget(self, link: "Link") -> None:
        """Drop a connection that is gone."""


class Link(asyncio.Protocol):
    """One connection to a server; it carries one request at a time."""

    def __init__(self, keeper: Keeper, base: str, place: Place) -> None:
        self.base = base  # the server's URL
        self.place = place
        self.idle_since = 0.0
        self.heard = time.monotonic()  # the last byte, or the request's sending
        self.is_lost = False
        self._keeper = keeper
        self._transport: asyncio.Transport
        self._loop: asyncio.AbstractEventLoop
        self._parser = cast("_Parser", httptools.HttpResponseParser(self))
        self._answer: Incoming | None = None
        self._is_paused = False
        self._reason = b""
        self._raw: list[bytes] = []
        self._has_length = False
        self._head_bytes = 0
        self._ends_by_closing = False

    # -- what asyncio calls --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection."""
        self._transport = cast("asyncio.Transport", transport)
        self._loop = asyncio.get_running_loop()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the answer: by its end, if that is how it ends, or as broken."""
        self.is_lost = True
        self._keeper.forget(self)
        answer = self._answer
        if answer is None or answer.is_whole:
            return
        if answer.has_head and self._ends_by_closing and exc is None:
            answer.end(stays=False)
            answer.tell()
        else:
            answer.fail(Broken(str(exc) if exc else "it closed the connection"))

    def data_received(self, data: bytes) -> None:
        """Parse."""
        self.heard = time.monotonic()
        answer = self._answer
        if answer is None:  # nobody asked: what speaks unasked cannot be trusted with a request
            self.abort()
            return
        if not answer.has_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES + len(data):
                self._fail(answer, Broken("its head does not end"))
                return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail(answer, Broken("it changes protocols"))
        except httptools.HttpParserError as cause:
            self._fail(answer, Broken(f"what it says is no HTTP: {cause}"))
        else:
            answer.tell()

    # -- what the parser calls -----------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Take no more than one message: what comes after it belongs to nobody."""
        answer = self._answer
        if answer is not None and answer.is_whole:
            answer.stays = False
        self._reason = b""
        self._raw = []
        self._has_length = False

    def on_status(self, reason: bytes) -> None:
        """Take the reason."""
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a field; what follows a body (a trailer) decides nothing."""
        answer = self._answer
        if answer is None or answer.has_head:
            return
        if len(name) in _VARYING_SIZES and (lowered := name.lower()) in _VARYING:
            self._has_length = self._has_length or lowered == b"content-length"
            return
        self._raw.append(name)
        self._raw.append(value)

    def on_headers_complete(self) -> None:
        """Take the status; one before the final one (100, 103) is passed over."""
        answer = self._answer
        if answer is None or answer.has_head:
            return
        status = self._parser.get_status_code()
        if status < _FIRST_FINAL:
            return
        head = self._keeper.heads.of(self._raw)
        has_end = self._has_length or head.has_coding or status in BODYLESS
        self._ends_by_closing = not has_end
        answer.begin(status, text(self._reason), head)

    def on_body(self, piece: bytes) -> None:
        """Take a piece."""
        answer = self._answer
        if answer is not None and not answer.is_whole:
            answer.add(piece)

    def on_message_complete(self) -> None:
        """Take the end."""
        answer = self._answer
        if answer is not None and answer.has_head and not answer.is_whole:
            answer.end(stays=self._parser.should_keep_alive() and not self._ends_by_closing)

    # -- what requests call --------------------------------------------------------------------

    def ask(self, path: str, lines: bytes, body: bytes) -> Incoming:
        """Send a POST; return its answer, of which nothing has come yet.

        Args:
            path: What to ask for, with the query.
            lines: The fields as they are sent, but for Host and Content-Length.
            body: What is sent.
        """
        head = b"POST %b%b HTTP/1.1\r\n%b%bContent-Length: %d\r\n\r\n" % (
            self.place.prefix,
            path.encode(),
            self.place.host_line,
            lines,
            len(body),
        )
        answer = Incoming(self, self._loop)
        if self.is_closing:  # nobody would tell of its end a second time
            answer.fail(Broken("it closed the connection"))
            return answer
        self._answer = answer
        self._head_bytes = 0
        self.heard = time.monotonic()
        if len(body) > MAX_BUFFERED_BYTES:
            self._transport.write(head)
            self._transport.write(body)
        else:
            self._transport.write(head + body)
        return answer

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

    def give_back(self) -> None:
        """Let another request have it, unless the one that was answered is still being sent.

        Who answers early may never read the rest, or take it for a request.
        """
        self._answer = None
        if self._transport.get_write_buffer_size():
            self.abort()
            return
        if self._is_paused:
            self.resume()
        self._keeper.keep(self)

    def abort(self) -> None:
        """Break it."""
        self._answer = None
        self._transport.abort()

    # -- what the sweep calls ------------------------------------------------------------------

    @property
    def is_waited_for(self) -> bool:
        """Whether somebody waits for what comes."""
        return self._answer is not None and self._answer.is_waited_for

    def late(self) -> None:
        """End it: it has been silent for too long."""
        if self._answer:
            self._fail(self._answer, Late("silent for too long"))

    def _fail(self, answer: Incoming, problem: Exception) -> None:
        self.abort()
        answer.fail(problem)

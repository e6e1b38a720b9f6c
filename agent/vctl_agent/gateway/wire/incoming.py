"""An answer as it comes, for who asked: its head, then its body as fast as it is taken."""

import asyncio
from collections import deque
from typing import Protocol

import msgspec

from vctl_agent.gateway.wire.fields import Fields
from vctl_agent.gateway.wire.heads import NO_HEAD, Head

MAX_BUFFERED_BYTES = 256 * 1024
"""Of an answer that is not taken: then its connection is read no further."""


class Broken(Exception):  # noqa: N818  an event on one request
    """The other side closed, or says what is no HTTP."""


class Late(Exception):  # noqa: N818  an event on one request
    """The other side has been silent for too long."""


class Source(Protocol):
    """The connection that it comes on."""

    is_lost: bool

    @property
    def is_closing(self) -> bool:
        """Whether it can carry nothing any more."""

    def pause(self) -> None:
        """Read no further."""

    def resume(self) -> None:
        """Read on."""

    def give_back(self) -> None:
        """Let another request have it."""

    def abort(self) -> None:
        """Break it."""


class Incoming(msgspec.Struct, eq=False):
    """An answer as it comes."""

    _source: Source | None
    _loop: asyncio.AbstractEventLoop
    status: int = 0
    reason: str = ""
    head: Head = NO_HEAD
    has_head: bool = False
    is_whole: bool = False  # the body has come; what comes after it belongs to nobody
    stays: bool = False  # another request may follow on its connection
    _parts: deque[bytes] = msgspec.field(default_factory=deque)
    _size: int = 0
    _problem: Exception | None = None
    _news: "asyncio.Future[None] | None" = None

    @property
    def headers(self) -> Fields:
        """The fields that came, but for those that differ each time. Nobody changes them."""
        return self.head.fields

    @property
    def content_type(self) -> str:
        """The media type, without parameters, in lower case."""
        return self.head.content_type

    async def begun(self) -> None:
        """Wait for the status and the fields.

        Raises:
            Broken: The other side closed before.
            Late: It is silent.
        """
        while not self.has_head:
            await self._wait()

    async def next(self) -> bytes:
        """Return what has come of the body, once anything has; nothing at its end.

        Raises:
            Broken: The other side closed before its end.
            Late: It is silent.
        """
        parts = self._parts
        while not parts:
            if self.is_whole:
                return b""
            await self._wait()
        piece = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        self._size = 0
        if self._source:
            self._source.resume()
        return piece

    async def read(self) -> bytes:
        """Return the whole body; as `next`."""
        pieces = []
        while piece := await self.next():
            pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        """Have done with it: a whole one's connection is kept, any other broken."""
        source, self._source = self._source, None
        if source is None or source.is_lost:
            return
        if self.is_whole and self.stays and not source.is_closing:
            source.give_back()
        else:
            source.abort()

    @property
    def is_waited_for(self) -> bool:
        """Whether somebody waits for what comes."""
        return self._news is not None

    def begin(self, status: int, reason: str, head: Head) -> None:
        """Take the status and the fields."""
        self.status, self.reason, self.head = status, reason, head
        self.has_head = True
        self._tell()

    def add(self, piece: bytes) -> None:
        """Take a piece of the body."""
        self._parts.append(piece)
        self._size += len(piece)
        if self._size > MAX_BUFFERED_BYTES and self._source:
            self._source.pause()
        self._tell()

    def end(self, *, stays: bool) -> None:
        """Take the end."""
        self.is_whole = True
        self.stays = stays
        self._tell()

    def fail(self, problem: Exception) -> None:
        """Take it that nothing more comes."""
        self._problem = problem
        self._tell()

    async def _wait(self) -> None:
        if self._problem:
            raise self._problem
        self._news = self._loop.create_future()
        try:
            await self._news
        finally:
            self._news = None

    def _tell(self) -> None:
        news = self._news
        if news is not None and not news.done():
            news.set_result(None)

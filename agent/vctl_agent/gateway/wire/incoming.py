"""An answer as it comes, for who asked: its head, then its body as fast as it is taken."""

import asyncio
from collections.abc import Callable
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


Into = Callable[[bytes], bool]
"""Takes what comes; False: no more for now."""


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
    _parts: list[bytes] = []
    _size: int = 0
    _problem: Exception | None = None
    _news: "asyncio.Future[bool] | None" = None  # of it: whether `_into` takes no more for now
    _into: Into | None = None

    @property
    def headers(self) -> Fields:
        """The fields that came, but for those that differ each time. Nobody changes them."""
        return self.head.fields

    @property
    def content_type(self) -> str:
        """The media type, without parameters, in lower case."""
        return self.head.content_type

    async def next(self) -> bytes:
        """Return what has come of the body, once anything has; nothing at its end.

        Raises:
            Broken: The other side closed before its end.
            Late: It is silent.
        """
        while not self._parts:
            if self.is_whole:
                return b""
            await self.news()
        return self.taken()

    def taken(self) -> bytes:
        """Return what has come of the body by now; perhaps nothing."""
        parts = self._parts
        if not parts:
            return b""
        piece = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        if self._size > MAX_BUFFERED_BYTES and self._source:
            self._source.resume()
        self._size = 0
        return piece

    async def read(self) -> bytes:
        """Return the whole body; as `next`."""
        pieces = []
        while piece := await self.next():
            pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def pour(self, into: Into) -> None:
        """Hand on what comes of the body, until its end (`is_spent`) or until *into* says no.

        It is handed on in the very step in which it comes, so that nobody has to be woken for it.
        What *into* raises there is raised here.

        Raises:
            Broken: The other side closed before its end.
            Late: It is silent.
        """
        while not (self._parts and not into(self.taken())) and not self.is_whole:
            self._into = into
            try:
                if await self.news():
                    return
            finally:
                self._into = None
        if self._problem:
            raise self._problem

    @property
    def is_spent(self) -> bool:
        """Whether all of the body has come and was taken."""
        return self.is_whole and not self._parts

    def news(self) -> "asyncio.Future[bool]":
        """Return what is done once more has come of it.

        Raises:
            Broken: The other side closed before its end.
            Late: It is silent.
        """
        if self._problem:
            raise self._problem
        self._news = self._loop.create_future()
        return self._news

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
        return self._news is not None and not self._news.done()

    def begin(self, status: int, reason: str, head: Head) -> None:
        """Take the status and the fields."""
        self.status, self.reason, self.head = status, reason, head
        self.has_head = True

    def add(self, piece: bytes) -> None:
        """Take a piece of the body."""
        self._parts.append(piece)
        self._size += len(piece)
        if self._size > MAX_BUFFERED_BYTES and self._source:
            self._source.pause()

    def end(self, *, stays: bool) -> None:
        """Take the end."""
        self.is_whole = True
        self.stays = stays

    def fail(self, problem: Exception) -> None:
        """Take it that nothing more comes; what is whole is none the worse for it."""
        if not self.is_whole:
            self._problem = self._problem or problem
        self.tell()

    def tell(self) -> None:
        """Let who waits know of all that has come since the last time."""
        is_stopped = False
        if self._into is not None and self._parts and not self.is_whole:
            try:
                is_stopped = not self._into(self.taken())
                if not (is_stopped or self._problem):
                    return
            except Exception as cause:  # noqa: BLE001  it is the request's own: raised there
                self._problem = self._problem or cause
        news, self._news = self._news, None
        if news is not None and not news.done():
            news.set_result(is_stopped)

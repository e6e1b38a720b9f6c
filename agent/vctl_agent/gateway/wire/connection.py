"""One client's connection: its requests are answered in turn, by one task, and one at a time.

A client that goes away cancels what it does not wait for any more.
"""

import asyncio
import contextlib
import time
from collections import deque
from typing import TYPE_CHECKING, cast

from vctl_agent.gateway.wire.fields import status_line
from vctl_agent.gateway.wire.message import BODYLESS, Answer, Request
from vctl_agent.gateway.wire.reading import TIMEOUT, Reading

if TYPE_CHECKING:
    from vctl_agent.gateway.wire.server import Listener

MAX_WAITING = 4
"""Requests of one connection that are read before the first of them is answered."""


class Connection(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, listener: "Listener") -> None:
        self.waiting: deque[Request] = deque()
        self.reading = Reading(self, listener.limits, listener.heads)
        self._listener = listener
        self._limits = listener.limits
        self._transport: asyncio.Transport
        self._loop: asyncio.AbstractEventLoop
        self._task: asyncio.Task[None] | None = None
        self._news: asyncio.Future[None] | None = None  # waited for while nothing is handled
        self._is_chunked = False
        self._unread_since: float | None = None  # None: what comes is read
        self._is_lost = False
        self._drain: asyncio.Future[None] | None = None
        self._full_since = 0.0  # while there is a `_drain`

    # -- what asyncio calls --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection."""
        self._transport = cast("asyncio.Transport", transport)
        self._listener.connections.add(self)
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._serve())

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel what the client does not wait for any more."""
        del exc
        self._is_lost = True
        self._listener.connections.discard(self)
        if self._task:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        """Read."""
        self.reading.feed(data)

    def eof_received(self) -> bool:
        """Take a client that sends no more for one that is gone: closing looks the same."""
        return False

    def pause_writing(self) -> None:
        """Have answers wait."""
        if self._drain is None:
            self._drain = self._loop.create_future()
            self._full_since = time.monotonic()

    def resume_writing(self) -> None:
        """Let answers go on."""
        if self._drain and not self._drain.done():
            self._drain.set_result(None)
        self._drain = None

    # -- what comes ----------------------------------------------------------------------------

    def came(self, request: Request) -> None:
        """Have a request wait for its turn."""
        self.waiting.append(request)
        if self._news and not self._news.done():
            self._news.set_result(None)

    def ended(self) -> None:
        """Read no more while too much waits."""
        if len(self.waiting) >= MAX_WAITING and self._unread_since is None:
            self._unread_since = time.monotonic()
            self._transport.pause_reading()

    def refused(self) -> None:
        """Have the refusal answered."""
        if self._news and not self._news.done():
            self._news.set_result(None)

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
        if self._unread_since is not None:
            # What we did not read does not count as what did not come.
            self.reading.deadline += time.monotonic() - self._unread_since
            self._unread_since = None
            self._transport.resume_reading()

    @property
    def is_full(self) -> bool:
        """Whether the client does not take what was sent."""
        return self._drain is not None

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
        reading = self.reading
        request = reading.request
        if self._drain is not None and now > self._full_since + self._limits.take_s:
            self._transport.abort()
        elif self._unread_since is not None:
            return
        elif request and not request.is_whole and not reading.discards:
            reading.give_up_if_slow(request, now)
        elif now > reading.deadline and self._news is not None:
            if reading.has_begun:
                reading.refuse(TIMEOUT)
            else:
                self._transport.close()

    def close_when_idle(self) -> None:
        """End the connection unless a request is on it; it then ends with its answer."""
        if self._news is not None and not self.waiting:
            self._transport.close()

    async def _next(self) -> Request | None:
        """Return the next request; None: what comes now cannot be read."""
        while not self.waiting:
            if self.reading.refusal:
                return None
            self.read_on()
            self._news = self._loop.create_future()
            try:
                await self._news
            finally:
                self._news = None
        return self.waiting.popleft()

    async def _serve(self) -> None:
        try:
            while not self._transport.is_closing():
                request = await self._next()
                if request is None:
                    refused = self._listener.refuse(self.reading.refusal)
                    self._send(Request(self), refused, closes=True)
                    await self.drained()
                    await self._linger()
                    return
                answer = await self._listener.handler(request)
                closes = answer.closes or not request.may_stay
                if not answer.is_begun:
                    self._send(request, answer, closes=closes)
                    if self._drain is not None:
                        await self._drain
                self.reading.rest()
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

    def _send(self, request: Request, answer: Answer, *, closes: bool) -> None:
        answer.closes = closes
        head = self._head(request, answer, length=len(answer.body), is_chunked=False)
        self.write(head if request.method == "HEAD" else head + answer.body)

    def _head(
        self, request: Request, answer: Answer, *, length: int | None, is_chunked: bool
    ) -> bytes:
        self._is_chunked = is_chunked
        has_body = answer.status not in BODYLESS
        framing = b""
        if is_chunked:
            framing = b"Transfer-Encoding: chunked\r\n"
        elif has_body and length is not None:
            framing = b"Content-Length: %d\r\n" % length
        elif has_body:
            request.is_kept_alive = False  # it ends with the connection
        if answer.closes or not request.may_stay:
            framing += b"Connection: close\r\n"
        elif request.is_old:
            framing += b"Connection: keep-alive\r\n"
        first, date = status_line(answer.status, answer.reason), self._listener.date.line()
        return b"%b%b%b%b%b\r\n" % (first, answer.lines, answer.marks, date, framing)

    async def _linger(self) -> None:
        """Let a client that still sends read its answer: closing at once could destroy it."""
        self.reading.discards = True
        with contextlib.suppress(OSError, RuntimeError):
            self._transport.write_eof()
        await asyncio.sleep(self._limits.linger_s)

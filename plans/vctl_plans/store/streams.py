"""One bidirectional stream, on which every read and write has a time limit.

A read that runs out of time must not be cancelled and tried again (grpc.aio cancels the whole call
with it), so the pending read is kept and waited for anew.
"""

import asyncio
from typing import Any

import grpc
import grpc.aio

from vctl_plans.store.guard import HeaderGuard, StaleMemberError
from vctl_plans.store.messages import Message, fingerprint
from vctl_plans.store.verdicts import BrokenAttemptError, translate


class SilentError(Exception):
    """Nothing was heard in time; the stream may still be good."""


class Stream:
    """A stream of one call; `Connection.stream` opens and ends it."""

    def __init__(self, call: Any, guard: HeaderGuard) -> None:
        self._call = call
        self._guard = guard
        self._pending: asyncio.Task[Message] | None = None

    async def write(self, request: Message, timeout_s: float) -> None:
        """Send *request*.

        Raises:
            BrokenAttemptError: The stream is broken, or took it not in time.
        """
        await self._finish(asyncio.ensure_future(self._call.write(request)), timeout_s)

    async def read(self, timeout_s: float) -> Message:
        """Return the next answer, after its header was judged.

        Raises:
            SilentError: None came in time; `read` again to go on waiting.
            BrokenAttemptError: The stream is broken.
            TokenRefusedError: The server wants another token.
        """
        if self._pending is None:
            self._pending = asyncio.ensure_future(self._call.read())
        await asyncio.wait({self._pending}, timeout=max(timeout_s, 0.0))
        if not self._pending.done():
            raise SilentError
        pending, self._pending = self._pending, None
        answer = _result(pending)
        if answer is grpc.aio.EOF:  # type: ignore[attr-defined]  # not in the stubs
            raise BrokenAttemptError("the stream has ended")
        try:
            self._guard.check_member(fingerprint(answer.header))
        except StaleMemberError as error:
            raise BrokenAttemptError(f"a stale member answered: {error}") from error
        return answer

    async def close(self) -> None:
        """Cancel the call and whatever still waits for it."""
        self._call.cancel()
        if self._pending is not None:
            self._pending.cancel()
            await asyncio.wait({self._pending})

    async def _finish(self, task: asyncio.Task[None], timeout_s: float) -> None:
        await asyncio.wait({task}, timeout=max(timeout_s, 0.0))
        if not task.done():
            self._call.cancel()
            raise BrokenAttemptError("the stream takes no requests")
        _result(task)


def _result(task: asyncio.Task[Message]) -> Message:
    """Return what *task* returned, its failure translated."""
    if task.cancelled():
        # Nobody but grpc.aio cancels it while we wait: it does so when the channel is closed.
        raise BrokenAttemptError("the channel was closed")
    try:
        return task.result()
    except grpc.aio.AioRpcError as error:
        raise translate(error) from error
    except asyncio.InvalidStateError as error:
        raise BrokenAttemptError("the stream has ended") from error

"""Answers what operators ask of this node: requests of one kind, one at a time.

A request is answered once, in the node's report, and the answer goes when the request expires. One
whose work ends by a bug is answered by nobody, and costs the agent nothing. What the kinds have in
common is here; what is done for a request is its own module's.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, TypeVar

import structlog

from vctl_plans.inspection import OperatorRequest

RequestT = TypeVar("RequestT", bound=OperatorRequest)
AnswerT = TypeVar("AnswerT")

_log = structlog.get_logger(__name__)


class Answering(Generic[RequestT, AnswerT]):
    """The requests of one kind that stand, and what was answered.

    Args:
        kind: Of which kind they are.
        answer: Does what a request asks.
        wake: Called when there is something new to report.
        ends_with_request: Whether work for a request that is gone is ended; else it goes on to its
            end, where half of it would be worse.
    """

    def __init__(
        self,
        kind: type[RequestT],
        answer: Callable[[RequestT], Awaitable[AnswerT]],
        wake: Callable[[], None],
        *,
        ends_with_request: bool = False,
    ) -> None:
        self._kind = kind
        self._answer = answer
        self._wake = wake
        self._ends_with_request = ends_with_request
        self._asked: dict[str, RequestT] = {}
        self._answers: dict[str, AnswerT] = {}
        self._given_up: set[str] = set()  # requests that a bug answers
        self._doing: tuple[str, asyncio.Future[AnswerT]] | None = None
        self._news = asyncio.Event()

    @property
    def answers(self) -> tuple[AnswerT, ...]:
        """What the node's report says."""
        return tuple(self._answers[name] for name in sorted(self._answers))

    def ask(self, requests: Iterable[OperatorRequest]) -> None:
        """Take the requests that stand, of any kind; answers to others are dropped."""
        self._asked = {each.id: each for each in requests if isinstance(each, self._kind)}
        self._given_up &= set(self._asked)
        expired = set(self._answers) - set(self._asked)
        for request_id in expired:
            del self._answers[request_id]
        if expired:
            self._wake()
        if self._ends_with_request and self._doing and self._doing[0] not in self._asked:
            self._doing[1].cancel()
        self._news.set()

    async def run(self) -> None:
        """Answer requests until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            while (request := self._next()) is not None:
                await self._take(request)

    def _next(self) -> RequestT | None:
        done = self._answers.keys() | self._given_up
        return next((r for r in self._asked.values() if r.id not in done), None)

    async def _take(self, request: RequestT) -> None:
        """Answer one; an answer to a request that went meanwhile is nobody's."""
        work = asyncio.ensure_future(self._answer(request))
        self._doing = (request.id, work)
        try:
            await asyncio.wait({work})
        finally:
            self._doing = None
            work.cancel()  # only where this was cancelled is there anything left to end
            await asyncio.gather(work, return_exceptions=True)
        if work.cancelled() or request.id not in self._asked:
            return
        bug = work.exception()
        if bug:
            self._given_up.add(request.id)
            _log.error("request not answered", request=request.id, exc_info=bug)
            return
        self._answers[request.id] = work.result()
        self._wake()

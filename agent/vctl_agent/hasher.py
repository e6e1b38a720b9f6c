"""Hashes sources that only nodes can read, when an operator asks: for a release that is to be made.

A request is answered once, in the node's report, and the answer goes when the request expires. One
is worked on at a time, in a process of its own; a request that is gone is worked on no more.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import structlog

from vctl_agent.artifacts.describe import Description
from vctl_plans.errors import ArtifactError
from vctl_plans.inspection import Hashed, HashRequest, OperatorRequest
from vctl_plans.weights import KIND_OF, Kind

_log = structlog.get_logger(__name__)

Describe = Callable[[str, Kind], Awaitable[Description]]
"""Hashes what lies at a source's URI, if this node may read it."""


class Hasher:
    """Answers requests to hash, one at a time.

    Args:
        describe: Does the work.
        wake: Called when there is something new to report.
    """

    def __init__(self, describe: Describe, wake: Callable[[], None]) -> None:
        self._describe = describe
        self._wake = wake
        self._asked: dict[str, HashRequest] = {}
        self._answers: dict[str, Hashed] = {}
        self._doing: tuple[str, asyncio.Task[Hashed]] | None = None
        self._news = asyncio.Event()

    @property
    def hashed(self) -> tuple[Hashed, ...]:
        """What the node's report says."""
        return tuple(self._answers[name] for name in sorted(self._answers))

    def ask(self, requests: Iterable[OperatorRequest]) -> None:
        """Take the requests that stand; answers to others are dropped, and work for them ends."""
        self._asked = {each.id: each for each in requests if isinstance(each, HashRequest)}
        expired = set(self._answers) - set(self._asked)
        for request_id in expired:
            del self._answers[request_id]
        if expired:
            self._wake()
        if self._doing and self._doing[0] not in self._asked:
            self._doing[1].cancel()
        self._news.set()

    async def answer(self) -> None:
        """Answer requests until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            while open_requests := [r for r in self._asked.values() if r.id not in self._answers]:
                request = open_requests[0]
                answer = await self._answered(request)
                if answer and request.id in self._asked:
                    self._answers[request.id] = answer
                    self._wake()

    async def _answered(self, request: HashRequest) -> Hashed | None:
        """Return the answer; None if the request went before it was there."""
        task = asyncio.create_task(self._hash(request))
        self._doing = (request.id, task)
        try:
            await asyncio.wait({task})
        finally:
            self._doing = None
            task.cancel()  # only where this was cancelled is there anything left to end
            await asyncio.gather(task, return_exceptions=True)
        return None if task.cancelled() else task.result()

    async def _hash(self, request: HashRequest) -> Hashed:
        try:
            found = await self._describe(request.source, KIND_OF[request.component])
        except ArtifactError as cause:
            found = Description(problem=cause.message)
        _log.info(
            "hashed for an operator",
            request=request.id,
            source=request.source,
            root=found.root,
            problem=found.problem,
        )
        return Hashed(
            request=request.id,
            root=found.root,
            size_bytes=found.size_bytes,
            rank=found.rank,
            base_name=found.base_name,
            problem=found.problem,
        )

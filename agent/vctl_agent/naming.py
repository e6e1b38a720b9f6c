"""Has the engine hold a release under its service's own name too, when an operator asks.

That is the way out of vctl: clients then call the engine itself. Answered once a request, in the
node's report, by what the engine lists; the answer goes when the request expires.
"""

import asyncio
from collections.abc import Callable, Iterable

import structlog

from vctl_agent.executor import Executor
from vctl_plans.errors import VctlError
from vctl_plans.inspection import Named, NameRequest, OperatorRequest
from vctl_plans.release import Release

_log = structlog.get_logger(__name__)


class Namer:
    """Answers one request at a time.

    Args:
        executor: Does it.
        releases: Gives every release that is known now.
        wake: Called when there is something new to report.
    """

    def __init__(
        self,
        executor: Executor,
        releases: Callable[[], Iterable[Release]],
        wake: Callable[[], None],
    ) -> None:
        self._executor = executor
        self._releases = releases
        self._wake = wake
        self._asked: dict[str, NameRequest] = {}
        self._answers: dict[str, Named] = {}
        self._news = asyncio.Event()

    @property
    def named(self) -> tuple[Named, ...]:
        """What the node's report says."""
        return tuple(self._answers[name] for name in sorted(self._answers))

    def ask(self, requests: Iterable[OperatorRequest]) -> None:
        """Take the requests that stand; answers to others are dropped."""
        self._asked = {each.id: each for each in requests if isinstance(each, NameRequest)}
        expired = set(self._answers) - set(self._asked)
        for request_id in expired:
            del self._answers[request_id]
        if expired:
            self._wake()
        self._news.set()

    async def answer(self) -> None:
        """Answer requests until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            while open_requests := [r for r in self._asked.values() if r.id not in self._answers]:
                request = open_requests[0]
                answer = await self._name(request)
                if request.id in self._asked:
                    self._answers[request.id] = answer
                    self._wake()

    async def _name(self, request: NameRequest) -> Named:
        wanted = (request.service, request.number, request.digest)
        found = (r for r in self._releases() if (r.service, r.number, r.digest) == wanted)
        release = next(found, None)
        if release is None:
            problem = f"release {request.number} of {request.service} is not known here"
            return Named(request=request.id, problem=problem)
        try:
            path = await self._executor.name_publicly(release)
        except VctlError as cause:
            _log.warning("not named", service=request.service, cause=cause.message)
            return Named(request=request.id, problem=cause.message)
        except Exception as bug:  # noqa: BLE001  it costs one request, and not the agent
            _log.exception("naming failed by a bug", service=request.service)
            return Named(request=request.id, problem=f"{type(bug).__name__}: {bug}")
        return Named(request=request.id, path=path)

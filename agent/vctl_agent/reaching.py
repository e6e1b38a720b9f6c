"""Says which artifacts cannot be read at their sources any more, when an operator asks.

What may have to be read again is told by the fleet as this node knows it (`reachability`), so the
request stays as small as any. A request that is gone is worked on no more.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog

from vctl_agent.answering import Answering
from vctl_agent.artifacts.reach import Trouble
from vctl_plans.errors import ArtifactError
from vctl_plans.inspection import Reached, ReachRequest, Unreached
from vctl_plans.reachability import MAX_UNREACHED, Needed, needed_artifacts
from vctl_plans.snapshot import Fleet

_LOOK_AGAIN_S = 0.5

_log = structlog.get_logger(__name__)

Reach = Callable[[Sequence[Needed]], Awaitable[list[Trouble | None]]]
"""Looks for artifacts at their sources; one answer for each."""


class Reacher:
    """Looks; `requests` are those for it.

    Args:
        reach: Does the work.
        fleet: Gives the fleet as it is known now; None: it is not.
        wake: Called when there is something new to report.
    """

    def __init__(
        self, reach: Reach, fleet: Callable[[], Fleet | None], wake: Callable[[], None]
    ) -> None:
        self._reach = reach
        self._fleet = fleet
        self.requests = Answering(ReachRequest, self._look, wake, ends_with_request=True)

    async def _look(self, request: ReachRequest) -> Reached:
        while (fleet := self._fleet()) is None:  # noqa: ASYNC110  nobody tells when it is known
            await asyncio.sleep(_LOOK_AGAIN_S)
        needed = needed_artifacts(fleet)
        try:
            found = await self._reach(needed)
        except ArtifactError as cause:
            found = [Trouble(cause.message, cause.hint)] * len(needed)
        problems = [_unreached(*pair) for pair in zip(needed, found, strict=True) if pair[1]]
        _log.info(
            "sources looked at", request=request.id, asked=len(needed), unreached=len(problems)
        )
        return Reached(
            request=request.id,
            asked=len(needed),
            unreached=len(problems),
            problems=tuple(problems[:MAX_UNREACHED]),
        )


def _unreached(needed: Needed, trouble: Trouble | None) -> Unreached:
    return Unreached(
        service=needed.service,
        number=needed.number,
        component=needed.component,
        problem=trouble.problem if trouble else "",
        hint=trouble.hint if trouble else "",
    )

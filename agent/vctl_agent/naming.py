"""Has the engine hold a release under its service's own name too, when an operator asks.

That is the way out of vctl: clients then call the engine itself. Answered by what the engine lists.
"""

from collections.abc import Callable, Iterable

import structlog

from vctl_agent.answering import Answering
from vctl_agent.executor import Executor
from vctl_plans.errors import VctlError
from vctl_plans.inspection import Named, NameRequest
from vctl_plans.release import Release

_log = structlog.get_logger(__name__)


class Namer:
    """Names releases publicly; `requests` are those for it.

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
        self.requests = Answering(NameRequest, self._name, wake)

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

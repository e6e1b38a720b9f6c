"""Hashes sources that only nodes can read, when an operator asks: for a release that is to be made.

One is worked on at a time, in a process of its own; a request that is gone is worked on no more.
"""

from collections.abc import Awaitable, Callable

import structlog

from vctl_agent.answering import Answering
from vctl_agent.artifacts.describe import Description
from vctl_plans.errors import ArtifactError
from vctl_plans.inspection import Hashed, HashRequest
from vctl_plans.weights import KIND_OF, Kind

_log = structlog.get_logger(__name__)

Describe = Callable[[str, Kind], Awaitable[Description]]
"""Hashes what lies at a source's URI, if this node may read it."""


class Hasher:
    """Hashes; `requests` are those for it.

    Args:
        describe: Does the work.
        wake: Called when there is something new to report.
    """

    def __init__(self, describe: Describe, wake: Callable[[], None]) -> None:
        self._describe = describe
        self.requests = Answering(HashRequest, self._hash, wake, ends_with_request=True)

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

"""Keeps looking at the engine, so that nobody else waits for it.

A reconcile cycle must not hang on an engine that hangs: it uses the latest description, which this
refreshes once a second and right after each change.
"""

import asyncio
from collections.abc import Callable

import msgspec
import structlog

from vctl_agent.engines.port import Description, Engine
from vctl_agent.engines.suspect import Suspect
from vctl_plans.capability import EngineFacts
from vctl_plans.errors import EngineError

_PERIOD_S = 1.0

_log = structlog.get_logger(__name__)


class EngineWatch:
    """The engine's latest description.

    Args:
        engine: The engine.
        wake: Called whenever the description has changed.
        suspect: Which run of the engine must serve nothing; None: nobody notes it.
        on_facts: Told what the engine can do, whenever that changed.
    """

    def __init__(
        self,
        engine: Engine,
        wake: Callable[[], None],
        *,
        suspect: Suspect | None = None,
        on_facts: Callable[[EngineFacts], None] = lambda _: None,
    ) -> None:
        self._engine = engine
        self._wake = wake
        self._suspect = suspect
        self._on_facts = on_facts
        self._looking = asyncio.Lock()  # else a late answer would undo what a newer one told
        self.latest: Description | None = None  # None while the engine does not answer
        self.problem = "the engine was not asked yet"

    @property
    def incarnation(self) -> str:
        """The engine's run; empty while it does not answer."""
        return self.latest.incarnation if self.latest else ""

    async def run(self) -> None:
        """Keep looking until cancelled."""
        while True:
            await self.refresh()
            await asyncio.sleep(_PERIOD_S)

    async def refresh(self) -> Description | None:
        """Look now, and not before an earlier look has ended."""
        async with self._looking:
            try:
                seen: Description | None = await self._engine.describe()
                problem = ""
            except EngineError as cause:
                seen, problem = None, cause.message
            self._take(seen, problem)
        return seen

    def condemn(self, incarnation: str, reason: str) -> None:
        """Have a run of the engine serve nothing until it is restarted."""
        if self._suspect:
            self._suspect.condemn(incarnation, reason)
        if self.latest:
            self._take(self.latest, "")

    def _judged(self, seen: Description) -> Description:
        reason = self._suspect.reason(seen.incarnation) if self._suspect else ""
        if not reason:
            return seen
        return msgspec.structs.replace(seen, problem=reason, needs_restart=True)

    def _take(self, seen: Description | None, problem: str) -> None:
        seen = self._judged(seen) if seen else None
        if (seen, problem) == (self.latest, self.problem):
            return
        if problem:
            _log.warning("engine away", problem=problem)
        elif seen and (not self.latest or self.latest.incarnation != seen.incarnation):
            _log.info("engine found", kind=seen.facts.kind, incarnation=seen.incarnation)
        if seen and (not self.latest or self.latest.facts != seen.facts):
            self._on_facts(seen.facts)
        self.latest, self.problem = seen, problem
        self._wake()

"""What a conductor's guardrails see: the nodes' statistics, the queries, and each step's watch.

Judging is `watching.observe`'s; here is only the looking. The statistics are followed only while
some rollout needs them, and reading them wakes nobody: a fleet writes them 500 times a second, so
the conductor looks when a decision said that it wants to.

The rule to keep: no evidence is never a pass. While the statistics are not heard, what was judged
before does not stand alone; what follows is inconclusive, and the rollout ends by its deadline.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping

import msgspec
import structlog

from vctl_agent.queries import Occasion, Queries, Source
from vctl_agent.watched import interval_of, is_watched
from vctl_plans import watching as watches
from vctl_plans.codec import decode
from vctl_plans.decision import State
from vctl_plans.errors import StoreError, VctlError
from vctl_plans.keys import Keys
from vctl_plans.node import NodeReport
from vctl_plans.plan import Watch
from vctl_plans.seen import Window, shifted
from vctl_plans.snapshot import Fleet
from vctl_plans.statistics import NodeStatistics
from vctl_plans.store.port import Store, Update
from vctl_plans.verdict import Figure, Outcome, Verdict
from vctl_plans.watching import KEPT, Watching

_RETRY_S = 2.0
_PATIENCE_S = 10.0
"""For which a rollout waits for the statistics to be heard, before that is inconclusive."""
_SHORTEST_QUERY_S = 1.0
"""Between two times that Prometheus is asked."""
_LOOKS_PER_REPORT = 4
"""Looks in the time in which every node reports once. A look at 10,000 nodes, which report every
20 s, takes about a second of this process; one at ten nodes takes less than a millisecond."""
_DEAF = Verdict(Outcome.INCONCLUSIVE, "the nodes' statistics cannot be read")

_log = structlog.get_logger(__name__)


class _Step(msgspec.Struct):
    """One step's watch, on this machine's monotonic clock."""

    occasion: Occasion
    began: float  # when the phase began whose age `watching` counts in
    watching: Watching
    looked: float | None = None


class Watchman:
    """Looks for one conductor.

    Args:
        store: The store.
        keys: The fleet's keys.
        source: Who answers queries.
        clock: Seconds, monotonic.
    """

    def __init__(
        self,
        store: Store,
        keys: Keys,
        *,
        source: Source | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._keys = keys
        self._clock = clock
        self._queries = Queries(source, clock=clock)
        self._steps: dict[str, _Step] = {}  # by service
        self._statistics: dict[str, NodeStatistics] = {}  # by key
        self._silent_since: float | None = clock()  # None: the statistics are heard
        self._is_needed = False
        self._needed = asyncio.Event()  # it has changed

    async def run(self) -> None:
        """Follow what is needed, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._queries.run())
            following: asyncio.Task[None] | None = None
            while True:
                await self._needed.wait()
                self._needed.clear()
                if self._is_needed and following is None:
                    following = group.create_task(self._follow())
                elif following is not None and not self._is_needed:
                    following.cancel()
                    await asyncio.gather(following, return_exceptions=True)
                    following = None
                    self._statistics.clear()

    def attend(self, fleet: Fleet) -> None:
        """Take which rollouts run, with each look at the fleet."""
        rollouts = {name: s.rollout for name, s in fleet.services.items() if is_watched(s.rollout)}
        self._steps = {
            service: step
            for service, step in self._steps.items()
            if (rollout := rollouts.get(service)) and rollout.id == step.occasion.rollout
        }
        self._queries.keep(self._steps)
        if bool(rollouts) != self._is_needed:
            self._is_needed = bool(rollouts)
            self._silent_since = self._clock()
            self._needed.set()

    def is_to_be_awaited(self, state: State) -> bool:
        """Whether a decision should wait until the statistics are heard, as they soon will be."""
        silent_s = self._silent_s()
        return self._is_under_watch(state) and silent_s is not None and silent_s < _PATIENCE_S

    def verdicts(self, service: str) -> tuple[Verdict, ...]:
        """Return what of the service's present step is to be kept for a next conductor."""
        step = self._steps.get(service)
        return step.watching.verdicts if step else ()

    def figures(self, service: str) -> tuple[Figure, ...]:
        """Return what each judge found last in the service's present step."""
        step = self._steps.get(service)
        return step.watching.figures if step else ()

    def windows(self, service: str, *, began: float) -> tuple[Window, ...]:
        """Return what was counted in the service's present step, and was not told yet.

        An operator's write may have ended the phase in which it was counted; the decision after it
        tells of it, and its ages are then below zero. Say `told` once that decision is written.

        Args:
            service: The service.
            began: When the phase began that the decision ends, on this clock.
        """
        step = self._steps.get(service)
        if step is None:
            return ()
        found, last = step.watching.windows, step.watching.open_window
        later_s = step.began - began
        return tuple(shifted(each, later_s) for each in (*found, *([last] if last else [])))

    def told(self, service: str) -> None:
        """Take it that the history has what was counted in the service's present step."""
        step = self._steps.get(service)
        if step:
            step.watching = msgspec.structs.replace(step.watching, windows=(), open_window=None)

    def observe(
        self,
        state: State,
        reports: Mapping[str, NodeReport],
        *,
        began: float,
        taken_over: tuple[Verdict, ...] = (),
    ) -> Watching | None:
        """Return the watch of the rollout's present step; None where none is needed.

        Args:
            state: What a decision on the rollout stands on.
            reports: Of the nodes that are present.
            began: When the present phase began, on this clock.
            taken_over: What an earlier conductor found in this phase.
        """
        watch, rollout = state.plan.watch, state.rollout
        if watch is None or not self._is_under_watch(state):
            return None
        step = self._step(state, began, taken_over)
        values = self._queries.values(
            rollout.service,
            step.occasion,
            watch.queries,
            every_s=max(watch.interval_s, _SHORTEST_QUERY_S),
        )
        if self._silent_since is not None:
            verdicts = (*step.watching.verdicts, _DEAF)[-KEPT:]
            return msgspec.structs.replace(step.watching, verdicts=verdicts)
        now = self._clock()
        pause_s = interval_of(rollout) / _LOOKS_PER_REPORT
        if step.looked is None or now - step.looked >= pause_s:
            step.looked = now
            step.watching = self._looked(state, watch, reports, step=step, values=values)
        return step.watching

    def _is_under_watch(self, state: State) -> bool:
        return state.plan.watch is not None and state.rollout.is_soaking

    def _silent_s(self) -> float | None:
        return None if self._silent_since is None else self._clock() - self._silent_since

    def _looked(
        self,
        state: State,
        watch: Watch,
        reports: Mapping[str, NodeReport],
        *,
        step: _Step,
        values: Mapping[str, float | None],
    ) -> Watching:
        seen = watches.look(
            state.rollout,
            state.route,
            state.route_revision,
            statistics=self._statistics.values(),
            reports=reports,
            queries=values,
        )
        after = watches.observe(step.watching, watch, seen, self._clock() - step.began)
        if after.verdicts is not step.watching.verdicts:
            newest = after.verdicts[-1]
            _log.info(
                "window judged",
                service=state.rollout.service,
                rollout=state.rollout.id,
                outcome=newest.outcome.value,
                sentence=newest.sentence,
            )
        return after

    def _step(self, state: State, began: float, taken_over: tuple[Verdict, ...]) -> _Step:
        """Return the step's watch, in the age of the phase that began at *began*.

        A step may soak in several phases, as when its soak is extended or an operator pauses it.
        """
        rollout = state.rollout
        occasion = Occasion(rollout.id, rollout.step, state.route_revision)
        step = self._steps.get(rollout.service)
        if step is None or step.occasion != occasion:
            step = _Step(occasion, began, Watching(verdicts=taken_over))
            self._steps[rollout.service] = step
        elif step.began != began:
            since_s = step.watching.since_s + step.began - began
            step.watching = msgspec.structs.replace(
                step.watching,
                since_s=since_s,
                windows=tuple(shifted(w, step.began - began) for w in step.watching.windows),
            )
            step.began = began
        return step

    async def _follow(self) -> None:
        """Follow the statistics for ever; a store that refuses is asked again."""
        while True:
            self._statistics.clear()
            try:
                updates = self._store.watch(self._keys.statistics)
                async with contextlib.aclosing(updates):  # type: ignore[type-var]
                    async for update in updates:
                        self._take(update)
            except StoreError as cause:
                _log.warning("statistics cannot be followed", cause=cause.message)
            self._hear(is_live=False)
            await asyncio.sleep(_RETRY_S)

    def _hear(self, *, is_live: bool) -> None:
        if is_live:
            self._silent_since = None
        elif self._silent_since is None:
            self._silent_since = self._clock()

    def _take(self, update: Update) -> None:
        self._hear(is_live=update.is_live)
        for key in update.changed:
            entry = update.entries.get(key)
            self._statistics.pop(key, None)
            if entry is None:
                continue
            try:
                self._statistics[key] = decode(entry.value, NodeStatistics, key=key)
            except VctlError as cause:
                _log.warning("statistics unreadable", cause=cause.message)

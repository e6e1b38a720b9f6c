"""Advances every rollout of the fleet while elected: look, decide, write, and again.

Decisions are `machine.step`'s; here is only the looking and the writing. All that a decision rests
on is compared in its transaction, so a conductor that was paused, or that reads late, writes
nothing wrong: it loses and looks again. How long a phase has lasted is kept as elapsed time,
checkpointed, so that a new conductor goes on from there and no two clocks are ever compared.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TypeVar

import msgspec
import structlog

from vctl_agent.absences import Absences
from vctl_agent.alerting.telling import tell
from vctl_agent.chronicler import Chronicler
from vctl_agent.crashpoints import Crashpoints
from vctl_agent.fusing import Fusing
from vctl_agent.peering import Peering
from vctl_agent.queries import Source
from vctl_agent.watchman import Watchman
from vctl_plans.alert import drifted
from vctl_plans.codec import SCHEMA, decode
from vctl_plans.decision import Decision, State
from vctl_plans.errors import Conflict, InvariantError, NotFound, VctlError
from vctl_plans.events import Event, Observed, TakenOver
from vctl_plans.keys import Keys
from vctl_plans.machine import step
from vctl_plans.operate import Continue
from vctl_plans.plan import Plan
from vctl_plans.rollout import Progress, Rollout, Roster
from vctl_plans.seen import Seen
from vctl_plans.snapshot import Fleet, Service, read_nodes, read_services
from vctl_plans.store.commit import commit_own, continue_txn, progress_txn
from vctl_plans.store.port import KeyValue, Store, Txn
from vctl_plans.units import utc_text
from vctl_plans.verdict import Verdict
from vctl_plans.watching import Watching

_CHECKPOINT_S = 5.0
_RETRY_S = 0.5

_log = structlog.get_logger(__name__)

D = TypeVar("D", Plan, Roster)


class _Clock(msgspec.Struct):
    """When the present phase of one rollout began, on this machine's monotonic clock."""

    rollout: str
    seq: int
    began: float
    takeovers: int
    taken_over: tuple[Verdict, ...]  # of the guardrails, in this phase
    checkpointed: float
    kept: tuple[Verdict, ...] = ()  # of the guardrails, at the last checkpoint


class Conductor:
    """One term of office.

    Args:
        store: The store.
        keys: The fleet's keys.
        fence: create_revision of the election key that this term holds.
        crashpoints: For tests.
        clock: Monotonic seconds.
        on_look: Gets each reading of the fleet; it must return at once.
        source: Who answers the queries of guardrails.
    """

    def __init__(
        self,
        store: Store,
        keys: Keys,
        *,
        fence: int,
        crashpoints: Crashpoints,
        clock: Callable[[], float] = time.monotonic,
        on_look: Callable[[Fleet], None] = lambda _: None,
        source: Source | None = None,
    ) -> None:
        self._store = store
        self._keys = keys
        self._fence = fence
        self._crashpoints = crashpoints
        self._clock = clock
        self._on_look = on_look
        self._absences = Absences(clock)
        self._watchman = Watchman(store, keys, source=source, clock=clock)
        self._peering = Peering(store, keys, fence=fence, crashpoints=crashpoints, clock=clock)
        self._fusing = Fusing(store, keys, fence=fence, crashpoints=crashpoints, clock=clock)
        self._chronicler = Chronicler()
        self._entries: dict[str, Mapping[str, KeyValue]] = {}
        self._wakened = asyncio.Event()
        self._clocks: dict[str, _Clock] = {}
        self._written: dict[str, int] = {}  # service -> revision of one's own last write
        self._documents: dict[str, Plan | Roster] = {}
        self._drifted: dict[str, str] = {}  # service -> the last alert of drift that was told

    async def run(self) -> None:
        """Conduct until cancelled, or until a watch ends for good."""
        prefixes = (self._keys.services, self._keys.nodes, self._keys.reports)
        async with asyncio.TaskGroup() as group:
            for prefix in prefixes:
                group.create_task(self._follow(prefix))
            group.create_task(self._watchman.run())
            group.create_task(self._conduct(prefixes))

    async def _follow(self, prefix: str) -> None:
        async with contextlib.aclosing(self._store.watch(prefix)) as updates:  # type: ignore[type-var]
            async for update in updates:
                if update.is_live:
                    self._entries[prefix] = dict(update.entries)
                    self._wakened.set()
                else:  # who does not hear the nodes must not call them late
                    self._entries.pop(prefix, None)

    async def _conduct(self, prefixes: tuple[str, ...]) -> None:
        while True:
            sleep_s = _CHECKPOINT_S
            if all(prefix in self._entries for prefix in prefixes):
                sleep_s = await self._turn(prefixes)
            try:
                async with asyncio.timeout(sleep_s):
                    await self._wakened.wait()
            except TimeoutError:
                pass
            self._wakened.clear()

    async def _turn(self, prefixes: tuple[str, ...]) -> float:
        """Take one decision for each rollout that has one; return seconds to the next look."""
        services, records, reports = (self._entries[p].values() for p in prefixes)
        entries = self._entries[self._keys.services]
        fleet = read_services(self._keys, services)
        nodes = msgspec.structs.replace(
            read_nodes(self._keys, records, reports), services=fleet.services
        )
        self._on_look(nodes)
        self._absences.look(nodes.present())
        self._watchman.attend(fleet)
        sleep_s = _CHECKPOINT_S
        for service in fleet.services.values():
            try:
                sleep_s = min(sleep_s, await self._advance(service, nodes))
            except Conflict:
                _log.info("lost a race, looking again", service=service.name)
                sleep_s = min(sleep_s, _RETRY_S)
            except InvariantError:
                raise
            except VctlError as cause:
                _log.warning("not advanced", service=service.name, cause=cause.message)
                sleep_s = min(sleep_s, _RETRY_S)
        self._forget_documents(fleet)
        sleep_s = min(sleep_s, await self._fusing.turn(nodes, entries))
        return min(sleep_s, await self._peering.turn(fleet.services, nodes, entries))

    def _forget_documents(self, fleet: Fleet) -> None:
        """Keep only what rollouts that run name: a term may last for months."""
        running = [s.rollout for s in fleet.services.values() if s.rollout]
        named = {
            key
            for rollout in running
            if not rollout.phase.is_terminal
            for key in (self._keys.plan(rollout.plan), self._keys.roster(rollout.roster))
        }
        self._documents = {key: self._documents[key] for key in named & self._documents.keys()}

    async def _advance(self, service: Service, nodes: Fleet) -> float:
        rollout = service.rollout
        if rollout is None or rollout.phase.is_terminal or rollout.v > SCHEMA:
            return _CHECKPOINT_S
        if service.rollout_revision < self._written.get(service.name, 0):
            return _CHECKPOINT_S  # the watch has not brought one's own write yet
        clock = await self._phase_clock(rollout)
        now_s = self._clock() - clock.began
        state = await self._state(service, rollout)
        if self._watchman.is_to_be_awaited(state):
            return _RETRY_S
        observed = self._observed(state, nodes, clock)
        self._chronicler.look(state, observed.reports, now_s)
        await self._tell_of_drift(rollout, observed.watching)
        events: tuple[Event, ...] = (TakenOver(clock.takeovers), observed)
        for event in events:
            decision = step(state, event, now_s)
            if decision.rollout != rollout:
                await self._write(service, nodes, decision, now_s)
                return _CHECKPOINT_S  # the watch brings what was written, and wakes
        if decision.wake_s is None:
            return _CHECKPOINT_S  # no deadline runs, so no time need be kept
        await self._checkpoint(service.name, clock, now_s)
        return max(0.01, decision.wake_s - now_s)

    def _observed(self, state: State, fleet: Fleet, clock: _Clock) -> Observed:
        """Return what a decision looks at, beside the rollout itself."""
        reports = fleet.present()
        gone = self._absences.gone(state.roster, reports, longer_than_s=state.plan.converge_s)
        watching = self._watchman.observe(
            state, reports, began=clock.began, taken_over=clock.taken_over
        )
        return Observed(
            reports,
            gone,
            watching,
            drained=frozenset(
                node for node, said in fleet.reports.items() if said.drain and said.drain.is_out
            ),
            others=fleet.busy_beside(state.rollout.service),
        )

    async def _tell_of_drift(self, rollout: Rollout, watching: Watching | None) -> None:
        """Alert once to a step whose answers differ, whatever the machine makes of it."""
        alert = drifted(rollout, watching.finding) if watching else None
        if alert and alert.id != self._drifted.get(rollout.service):
            await tell(self._store, self._keys, [alert], fence=self._fence)
            self._drifted[rollout.service] = alert.id

    async def _write(
        self, service: Service, fleet: Fleet, decision: Decision, now_s: float
    ) -> None:
        before, route = service.rollout, decision.state.route
        assert before is not None  # noqa: S101  there is nothing to decide without one
        turn = Continue(
            before=before,
            rollout=decision.rollout,
            route=route if route != service.current_route else None,
            seen=self._seen(decision, fleet, now_s),
        )
        at = utc_text(datetime.now(UTC))
        txn = continue_txn(self._keys, service, turn, fence=self._fence, at=at)
        after = msgspec.structs.replace(service, rollout=decision.rollout, route=route)
        beside = self._peering.beside(after, fleet, self._entries.get(self._keys.services, {}))
        if beside:
            txn = Txn(
                (*txn.comparisons, *beside.comparisons), (*txn.operations, *beside.operations)
            )
        revision = await commit_own(self._store, self._keys, txn, decision.rollout)
        self._written[service.name] = revision
        self._watchman.told(service.name)
        _log.info(
            "decided",
            service=service.name,
            rollout=before.id,
            phase=decision.rollout.phase.value,
            sentence=decision.sentence,
        )
        self._crashpoints.passed("decided")

    def _seen(self, decision: Decision, fleet: Fleet, now_s: float) -> Seen:
        """Return what goes into the history with a decision that ends a phase of age *now_s*."""
        service, began = decision.rollout.service, self._clock() - now_s
        windows = self._watchman.windows(service, began=began)
        return self._chronicler.seen(decision, fleet.present(), now_s, windows=windows)

    async def _phase_clock(self, rollout: Rollout) -> _Clock:
        """Return the phase's clock; of a phase that another conductor began, gone on from there."""
        clock = self._clocks.get(rollout.service)
        if clock and (clock.rollout, clock.seq) == (rollout.id, rollout.seq):
            return clock
        now = self._clock()
        began_here = clock is not None and clock.rollout == rollout.id
        recorded = None if began_here else await self._recorded(rollout)
        clock = _Clock(
            rollout=rollout.id,
            seq=rollout.seq,
            began=now - (recorded.elapsed_s if recorded else 0.0),
            takeovers=recorded.takeovers + 1 if recorded else 0,
            taken_over=recorded.verdicts if recorded else (),
            checkpointed=0.0,
        )
        self._clocks[rollout.service] = clock
        return clock

    async def _recorded(self, rollout: Rollout) -> Progress | None:
        """Return what an earlier conductor wrote of the present phase."""
        found = await self._store.get(self._keys.progress(rollout.service))
        progress = decode(found.value, Progress, key=found.key) if found else None
        is_of_phase = progress and (progress.rollout, progress.seq) == (rollout.id, rollout.seq)
        return progress if is_of_phase else None

    async def _checkpoint(self, service: str, clock: _Clock, now_s: float) -> None:
        """Write how far the phase is: now and then, and whenever a window was judged."""
        verdicts = self._watchman.verdicts(service)
        is_recent = clock.checkpointed and now_s - clock.checkpointed < _CHECKPOINT_S
        if is_recent and verdicts == clock.kept:
            return
        progress = Progress(
            rollout=clock.rollout,
            seq=clock.seq,
            elapsed_s=now_s,
            takeovers=clock.takeovers,
            verdicts=verdicts,
            figures=self._watchman.figures(service),
        )
        txn = progress_txn(self._keys, service, progress, fence=self._fence)
        await self._store.commit(txn)
        clock.checkpointed, clock.kept = max(now_s, 1e-9), verdicts

    async def _state(self, service: Service, rollout: Rollout) -> State:
        plan = await self._document(self._keys.plan(rollout.plan), Plan)
        roster = await self._document(self._keys.roster(rollout.roster), Roster)
        return State(
            plan=plan,
            rollout=rollout,
            route=service.current_route,
            route_revision=service.route_revision,
            roster=roster.nodes,
        )

    async def _document(self, key: str, kind: type[D]) -> D:
        """Return an immutable document, read once."""
        held = self._documents.get(key)
        if isinstance(held, kind):
            return held
        found = await self._store.get(key)
        if found is None:
            raise NotFound(f"{key} is missing, though a rollout names it")
        document = decode(found.value, kind, key=key)
        self._documents[key] = document
        return document

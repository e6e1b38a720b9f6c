"""A conductor under guardrails: it sees what gateways counted, and what follows comes to pass."""

import asyncio
from collections.abc import AsyncIterator, Callable

import msgspec
import pytest

from tests.agent.support import SERVICE
from tests.agent.test_conductor import KEYS, Stage, running
from tests.builders import a_route, a_weighted_plan, an_adapter_wish, some_releases
from vctl_agent import watchman
from vctl_agent.absences import Absences
from vctl_agent.conductor import Conductor
from vctl_agent.queries import Source
from vctl_plans import operate, reverting
from vctl_plans.alert import Alert, Severity
from vctl_plans.codec import decode, encode
from vctl_plans.errors import Conflict, Rejected
from vctl_plans.node import NodeRecord, NodeReport, ReleaseReport
from vctl_plans.phase import NodePhase, RolloutPhase
from vctl_plans.plan import DriftLimits, Plan, Watch
from vctl_plans.rollout import Cause, Entry, Progress, Rollout
from vctl_plans.seen import Traffic
from vctl_plans.statistics import (
    ErrorClass,
    NodeStatistics,
    Origin,
    Recorder,
    Sample,
    Snapshot,
    Statistics,
)
from vctl_plans.store.commit import begin_txn, continue_txn
from vctl_plans.store.memory import MemoryStore
from vctl_plans.store.port import Delete, Put, Txn, Update
from vctl_plans.verdict import Outcome

NODES = ("n1", "n2")
WATCH = Watch(min_requests=50, interval_s=10)
SOAK_S = 60.0
A_WHILE_S = 0.03  # in which nothing should happen


def counted(requests: int, *, failed: int = 0) -> Statistics:
    recorder = Recorder()
    for n in range(requests):
        error = ErrorClass.SERVER if n < failed else None
        recorder.add(Sample(latency_s=0.1, error=error))
    return recorder.snapshot()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():
            await asyncio.sleep(0.005)


class Guarded(Stage):
    """A service that serves release 1, and a rollout of release 2 under guardrails."""

    last: Conductor | None = None

    async def start(
        self, watch: Watch | None = WATCH, *, manual: tuple[float, ...] = ()
    ) -> Rollout:
        plan: Plan = a_weighted_plan(50, 100, soak_s=SOAK_S, watch=watch, manual=manual)
        puts = [Put(KEYS.node(n), encode(NodeRecord(node=n, boot_id=f"b-{n}"))) for n in NODES]
        puts.append(Put(KEYS.route(SERVICE), encode(a_route())))
        puts.append(Put(KEYS.release(SERVICE, 1), encode(some_releases(1)[1])))
        await self.store.commit(Txn(operations=tuple(puts)))
        service = await self.service()
        begun = operate.start(
            service,
            plan,
            wish=an_adapter_wish(2),
            roster=NODES,
            request=operate.Request(id="r2"),
        )
        assert isinstance(begun, operate.Begin)
        await self.store.commit(begin_txn(KEYS, service, begun))
        return begun.rollout

    async def report_all(self, *nodes: str) -> None:
        """Have nodes hold both releases ready and act on the newest route."""
        revision = (await self.service()).route_revision
        rollout = await self.rollout()
        for node in nodes or NODES:
            report = NodeReport(
                node=node,
                boot_id=f"b-{node}",
                incarnation="i",
                releases=tuple(
                    ReleaseReport(
                        service=SERVICE,
                        number=number,
                        digest="d",
                        phase=NodePhase.READY,
                        attempt=rollout.attempt,
                    )
                    for number in (1, 2)
                ),
                routes={SERVICE: revision},
                gateway_ok=True,
            )
            await self.store.put(KEYS.report(node), encode(report))

    async def rollout(self) -> Rollout:
        rollout = (await self.service()).rollout
        assert rollout is not None
        return rollout

    async def soak(self) -> None:
        """Bring the rollout to its first soak."""
        for phase in (RolloutPhase.SHIFTING, RolloutPhase.SOAKING):
            await self.report_all()
            await self.until(lambda now, p=phase: now is p)  # type: ignore[misc]

    def conductor(
        self, store: MemoryStore | None = None, *, source: Source | None = None
    ) -> Conductor:
        self.last = super().conductor(store, source=source)
        return self.last

    async def count(self, *, candidate: Statistics, stable: Statistics) -> None:
        """Have each node write that its gateway counted this under the present route."""
        revision = (await self.service()).route_revision
        for node in NODES:
            snapshots = tuple(
                Snapshot(
                    service=SERVICE,
                    number=number,
                    digest="d",
                    origin=Origin(f"g-{node}.{number}", revision),
                    statistics=statistics,
                )
                for number, statistics in ((1, stable), (2, candidate))
            )
            value = NodeStatistics(node=node, boot_id=f"b-{node}", snapshots=snapshots)
            await self.store.put(KEYS.statistics_of(node), encode(value))
            if self.last:
                heard = self.last._watchman._statistics
                await until(lambda v=value, h=heard: v in h.values())  # type: ignore[misc]

    async def pass_to(self, now: float) -> None:
        """Move the clock, and wake the conductor."""
        self.now = now
        await self.store.put(KEYS.report("nobody"), str(now).encode())
        await asyncio.sleep(A_WHILE_S)

    async def until_said(self, sentence: str) -> None:
        async with asyncio.timeout(5):
            while sentence not in (await self.rollout()).sentence:
                await asyncio.sleep(0.005)

    async def until_kept(self, holds: Callable[[Progress], bool]) -> Progress:
        async with asyncio.timeout(5):
            while True:
                found = await self.store.get(KEYS.progress(SERVICE))
                if found and holds(kept := decode(found.value, Progress)):
                    return kept
                await asyncio.sleep(0.005)


@pytest.fixture
async def stage() -> AsyncIterator[Guarded]:
    made = Guarded()
    await made.elect()
    yield made
    await made.store.close()


GOOD = counted(100)
BAD = counted(100, failed=40)


async def test_breach_rolls_back_at_once_and_says_the_figures(stage: Guarded) -> None:
    """What it leaves is revoked; the soak is not waited for."""
    await stage.start()
    async with running(stage.conductor()):
        await stage.soak()
        await stage.count(candidate=BAD, stable=GOOD)
        await stage.pass_to(WATCH.interval_s + 1)
        await stage.until(lambda now: now is RolloutPhase.ROLLING_BACK)

    rollout, route = await stage.rollout(), (await stage.service()).current_route
    assert Cause.GUARDRAIL is rollout.cause
    assert "80 of 200 requests failed on the candidate, 0 of 200 on stable" in rollout.sentence
    assert (1, 0, (2,)) == (route.stable, route.candidate, route.revoked)


async def test_what_was_counted_is_kept_with_the_decision_it_led_to(stage: Guarded) -> None:
    await stage.start()
    async with running(stage.conductor()):
        await stage.soak()
        await stage.count(candidate=BAD, stable=GOOD)
        await stage.pass_to(WATCH.interval_s + 1)
        await stage.until(lambda now: now is RolloutPhase.ROLLING_BACK)

    rollout = await stage.rollout()
    found = await stage.store.get(KEYS.decision(SERVICE, rollout.id, rollout.seq))
    assert found is not None
    seen = decode(found.value, Entry).seen
    assert seen is not None
    (window,) = {each.until_s: each for each in seen.windows}.values()
    assert (200, 80) == (window.candidate.requests, window.candidate.failures)
    assert (200, 0) == (window.stable.requests, window.stable.failures)
    assert window.stable.p99_s is not None
    assert Traffic(stable=1) == seen.traffic


async def test_what_was_counted_is_told_once(stage: Guarded) -> None:
    """With the decision that ended the phase it was counted in, and with no later one."""
    await stage.start()
    async with running(stage.conductor()):
        await stage.soak()
        await stage.count(candidate=GOOD, stable=GOOD)
        await stage.pass_to(SOAK_S + 1)
        await stage.until(lambda now: now is RolloutPhase.SHIFTING)
        await stage.report_all()
        await stage.until(lambda now: now is RolloutPhase.SOAKING)

    rollout = await stage.rollout()
    entries = (await stage.store.list(KEYS.rollout_history(SERVICE, rollout.id))).entries
    told = [decode(entry.value, Entry) for entry in entries]
    windows = {entry.seq: len(entry.seen.windows) for entry in told if entry.seen}
    assert {0: 0, 1: 0, 2: 0, 3: 1, 4: 0} == windows


class Losing(MemoryStore):
    """A conductor's store that loses the race for each decision once."""

    def __init__(self, of: MemoryStore) -> None:
        super().__init__(cluster=of._cluster)
        self.lost: set[str] = set()

    async def commit(self, txn: Txn) -> int:
        keys = {each.key for each in txn.operations if isinstance(each, Put)}
        decided = {key for key in keys if key.startswith(KEYS.history(SERVICE))}
        if decided - self.lost:
            self.lost |= decided
            raise Conflict("somebody wrote first")
        return await super().commit(txn)


async def test_what_was_seen_is_told_also_by_a_decision_that_lost_a_race(stage: Guarded) -> None:
    """What was counted, and when nodes had arrived, goes into the history once it is written."""
    await stage.start()
    losing = Losing(stage.store)
    async with running(stage.conductor(losing)):
        await asyncio.sleep(A_WHILE_S)  # it has seen the phase begin
        stage.now += 2
        await stage.report_all()
        await asyncio.sleep(A_WHILE_S)
        stage.now += 5  # when it decides again
        await stage.soak()
        await stage.count(candidate=GOOD, stable=GOOD)
        await stage.pass_to(stage.now + SOAK_S + 1)
        await stage.until(lambda now: now is RolloutPhase.SHIFTING)
    rollout = await stage.rollout()
    entries = (await stage.store.list(KEYS.rollout_history(SERVICE, rollout.id))).entries
    seen = {e.seq: e.seen for e in (decode(entry.value, Entry) for entry in entries)}
    assert len(losing.lost) == len(seen) - 1
    ready, soaked = seen[1], seen[3]
    assert ready
    assert soaked
    assert dict.fromkeys(NODES, 2.0) == ready.arrivals
    assert 1 == len(soaked.windows)


async def test_what_an_operator_cut_short_is_told_with_the_next_decision(stage: Guarded) -> None:
    """A rollback is no write of the conductor's: what it counted until then is not lost by it."""
    await stage.start()
    async with running(stage.conductor()):
        await stage.soak()
        await stage.count(candidate=GOOD, stable=GOOD)
        await stage.pass_to(WATCH.interval_s + 1)
        service = await stage.service()
        asked = operate.Request(id="back")
        turn = reverting.rollback_now(service, to=0, roster=NODES, request=asked)
        assert isinstance(turn, operate.Continue)
        await stage.store.commit(continue_txn(KEYS, service, turn))
        await stage.report_all()
        key = KEYS.decision(SERVICE, turn.rollout.id, turn.rollout.seq + 1)
        async with asyncio.timeout(5):
            while await stage.store.get(key) is None:
                await asyncio.sleep(A_WHILE_S)

    rollout = await stage.rollout()
    entries = (await stage.store.list(KEYS.rollout_history(SERVICE, rollout.id))).entries
    windows = [w for e in entries if (s := decode(e.value, Entry).seen) for w in s.windows]
    assert [(-WATCH.interval_s - 1, 0.0)] == [(w.since_s, w.until_s) for w in windows][:1]


def answering(*, tokens: int) -> Statistics:
    recorder = Recorder()
    for _ in range(2000):
        recorder.add(Sample(latency_s=0.1, answer_tokens=tokens))
    return recorder.snapshot()


async def test_drift_alerts_once_and_goes_on(stage: Guarded) -> None:
    """P1: a person is told, and traffic stays; once for the step, however often it is seen."""
    # One window is over every limit, and it takes three in a row to go back.
    await stage.start(msgspec.structs.replace(WATCH, drift=DriftLimits(windows=3)))
    async with running(stage.conductor()):
        await stage.soak()
        await stage.count(candidate=answering(tokens=200), stable=answering(tokens=20))
        await stage.pass_to(WATCH.interval_s + 1)
        await stage.pass_to(WATCH.interval_s + 2)
        found = (await stage.store.list(KEYS.alerts)).entries

    assert RolloutPhase.SOAKING is await stage.phase()
    told = [decode(entry.value, Alert) for entry in found]
    assert ["r2-step-1-drift"] == [alert.id for alert in told]
    assert Severity.P1 is told[0].severity
    assert "drift of answer_tokens: PSI" in told[0].sentence


async def test_rollout_whose_guardrails_pass_goes_on_after_its_soak(stage: Guarded) -> None:
    """And not before."""
    await stage.start()
    async with running(stage.conductor()):
        await stage.soak()
        await stage.count(candidate=GOOD, stable=GOOD)
        await stage.pass_to(WATCH.interval_s + 1)
        assert RolloutPhase.SOAKING is await stage.phase()
        await stage.pass_to(SOAK_S + 1)
        await stage.until(lambda now: now is RolloutPhase.SHIFTING)

        assert 100 == (await stage.service()).current_route.weight
        assert "guardrails passed" in (await stage.rollout()).sentence
        await stage.report_all()
        await stage.until(lambda now: now is RolloutPhase.SOAKING)
        await stage.pass_to(2 * SOAK_S + 2)
        await stage.until_said("soak is extended")  # what passed was the step before


async def test_step_that_waits_to_be_promoted_is_watched_on(stage: Guarded) -> None:
    """Its windows go on where they were when the soak ended."""
    await stage.start(manual=(50,))
    async with running(stage.conductor()):
        await stage.soak()
        await stage.count(candidate=GOOD, stable=GOOD)
        for now in (SOAK_S - 5, SOAK_S + 1):
            await stage.pass_to(now)
        await stage.until(lambda now: now is RolloutPhase.PAUSED)
        await stage.count(candidate=counted(200, failed=60), stable=counted(200))
        await stage.pass_to(SOAK_S + 4)
        assert RolloutPhase.PAUSED is await stage.phase()
        await stage.pass_to(SOAK_S - 5 + WATCH.interval_s + 1)
        await stage.until(lambda now: now is RolloutPhase.ROLLING_BACK)


async def test_too_few_requests_extend_the_soak(stage: Guarded) -> None:
    """No evidence is no pass."""
    await stage.start()
    async with running(stage.conductor()):
        await stage.soak()
        await stage.count(candidate=counted(3), stable=GOOD)
        await stage.pass_to(SOAK_S + 1)
        await stage.until_said("6 requests on candidate are fewer than 50")
        assert RolloutPhase.SOAKING is await stage.phase()

        await stage.count(candidate=GOOD, stable=GOOD)
        await stage.pass_to(SOAK_S + 20)
        await stage.until(lambda now: now is RolloutPhase.SHIFTING)


async def test_counts_of_another_route_are_no_evidence(stage: Guarded) -> None:
    """They are of the traffic before the step."""
    await stage.start()
    async with running(stage.conductor()):
        await stage.count(candidate=BAD, stable=GOOD)
        await stage.soak()
        await stage.pass_to(WATCH.interval_s + 1)

        assert RolloutPhase.SOAKING is await stage.phase()


async def test_verdicts_are_kept_for_the_next_conductor(stage: Guarded) -> None:
    """Two breaches in a row are two, whoever saw the first."""
    await stage.start(msgspec.structs.replace(WATCH, consecutive=2))
    async with running(stage.conductor()):
        await stage.soak()
        await stage.pass_to(WATCH.interval_s - 2)
        await stage.until_kept(lambda kept: kept.elapsed_s >= WATCH.interval_s - 2)
        await stage.count(candidate=BAD, stable=GOOD)
        await stage.pass_to(WATCH.interval_s + 1)
        kept = await stage.until_kept(lambda kept: bool(kept.verdicts))
    assert RolloutPhase.SOAKING is await stage.phase()
    assert [Outcome.FAILED] == [verdict.outcome for verdict in kept.verdicts]

    stage.now = 9000.0  # another machine's clock
    async with running(stage.conductor()):
        await asyncio.sleep(A_WHILE_S)
        await stage.count(candidate=counted(200, failed=80), stable=GOOD)
        await stage.pass_to(9000.0 + WATCH.interval_s)
        await stage.until(lambda now: now is RolloutPhase.ROLLING_BACK)

    assert "(2 in a row)" in (await stage.rollout()).sentence


class Listening(MemoryStore):
    """A client that notes what is watched; `is_denied` refuses the statistics."""

    def __init__(self, stage: Stage, *, is_denied: bool = False) -> None:
        super().__init__(cluster=stage.store._cluster)
        self.watched: list[str] = []
        self.is_denied = is_denied

    async def watch(self, prefix: str) -> AsyncIterator[Update]:
        if self.is_denied and prefix == KEYS.statistics:
            raise Rejected("denied", code="PERMISSION_DENIED")
        self.watched.append(prefix)
        try:
            async for update in super().watch(prefix):
                yield update
        finally:
            self.watched.remove(prefix)


async def test_statistics_are_followed_only_while_a_rollout_needs_them(stage: Guarded) -> None:
    """Ten thousand nodes write them."""
    store = Listening(stage)
    async with running(stage.conductor(store)):
        await until(lambda: KEYS.services in store.watched)
        await asyncio.sleep(A_WHILE_S)
        assert KEYS.statistics not in store.watched
        rollout = await stage.start()
        await until(lambda: KEYS.statistics in store.watched)

        ended = msgspec.structs.replace(rollout, phase=RolloutPhase.FAILED)
        await stage.store.put(KEYS.rollout(SERVICE), encode(ended))
        await until(lambda: KEYS.statistics not in store.watched)


async def test_rollout_without_guardrails_needs_no_statistics(stage: Guarded) -> None:
    """It soaks and goes on."""
    store = Listening(stage)
    await stage.start(watch=None)
    async with running(stage.conductor(store)):
        await stage.soak()
        assert KEYS.statistics not in store.watched
        await stage.pass_to(SOAK_S + 1)
        await stage.until(lambda now: now is RolloutPhase.SHIFTING)


async def test_statistics_that_cannot_be_read_are_no_pass(stage: Guarded) -> None:
    """They are waited for a while; then the soak is extended, and it is said why."""
    await stage.start(msgspec.structs.replace(WATCH, on_inconclusive="pause"))
    store = Listening(stage, is_denied=True)
    async with running(stage.conductor(store)):
        await stage.soak()
        await stage.pass_to(SOAK_S + 1)
        await stage.until(lambda now: now is RolloutPhase.PAUSED)

    assert "the nodes' statistics cannot be read" in (await stage.rollout()).sentence


async def test_new_conductor_waits_until_it_hears_the_statistics(
    stage: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else inconclusive would be what it has not looked at yet, and a plan may proceed on that."""
    await stage.start(msgspec.structs.replace(WATCH, on_inconclusive="proceed"))
    async with running(stage.conductor()):
        await stage.soak()
        await stage.pass_to(SOAK_S - 2)
        await stage.until_kept(lambda kept: kept.elapsed_s >= SOAK_S - 2)
    store = Listening(stage, is_denied=True)
    monkeypatch.setattr(watchman, "_RETRY_S", 0.01)
    conductor = stage.conductor(store)
    async with running(conductor):
        await until(lambda: bool(conductor._clocks))
        await stage.pass_to(SOAK_S + 1)
        await asyncio.sleep(A_WHILE_S)
        assert RolloutPhase.SOAKING is await stage.phase()

        store.is_denied = False
        await stage.count(candidate=BAD, stable=GOOD)
        await stage.until(lambda now: now is RolloutPhase.ROLLING_BACK)


async def test_statistics_that_nobody_can_read_hide_no_others(stage: Guarded) -> None:
    """One node's bad value is that node's."""
    await stage.start()
    await stage.store.put(KEYS.statistics_of("n3"), b"nonsense")
    async with running(stage.conductor()):
        await stage.soak()
        await stage.count(candidate=BAD, stable=GOOD)
        await stage.pass_to(WATCH.interval_s + 1)
        await stage.until(lambda now: now is RolloutPhase.ROLLING_BACK)


class Answering:
    """Answers queries with what a test says."""

    def __init__(self, value: float | None) -> None:
        self.value_now = value
        self.asked: list[str] = []

    async def value(self, query: str) -> float | None:
        self.asked.append(query)
        return self.value_now


async def test_query_over_its_limit_rolls_back(stage: Guarded) -> None:
    """And a query is asked only while a step soaks."""
    query = "rate(errors[1m])"
    await stage.start(msgspec.structs.replace(WATCH, queries={query: "<= 0.05"}))
    source = Answering(0.5)
    conductor = stage.conductor(source=source)
    async with running(conductor):
        await asyncio.sleep(A_WHILE_S)
        assert source.asked == []
        await stage.soak()
        await stage.count(candidate=GOOD, stable=GOOD)
        await until(lambda: bool(source.asked))
        await stage.pass_to(WATCH.interval_s + 1)
        await stage.until(lambda now: now is RolloutPhase.ROLLING_BACK)

    assert {query} == set(source.asked)
    assert f"query {query}: 0.5, must be <= 0.05" in (await stage.rollout()).sentence


def test_nodes_that_vanish_are_counted_as_gone_after_the_time_to_converge() -> None:
    """On this conductor's clock, without a break."""
    clock = iter((0, 1, 21, 21.5, 22, 23, 43))
    here = iter((NODES, ("n1",), ("n1",), ("n1",), NODES, ("n1",), ("n1",)))
    now = 0.0
    absences = Absences(lambda: now)
    seen: list[set[str]] = []
    for now, present in zip(clock, here, strict=True):  # noqa: B007  the clock reads it
        absences.look(present)
        seen.append(set(absences.gone(NODES, present, longer_than_s=20)))

    assert [set(), set(), set(), {"n2"}, set(), set(), set()] == seen


async def test_rollout_pauses_when_its_nodes_have_vanished(stage: Guarded) -> None:
    """Their records went with their leases."""
    await stage.start(watch=None)
    async with running(stage.conductor()):
        await stage.soak()
        await stage.store.commit(Txn(operations=(Delete(KEYS.node("n2")),)))
        absences = stage.last._absences if stage.last else None
        await until(lambda: absences is not None and "n2" in absences._since)
        await stage.pass_to(21)
        await stage.until(lambda now: now is RolloutPhase.PAUSED)

    assert "1 of 2 nodes have vanished" in (await stage.rollout()).sentence

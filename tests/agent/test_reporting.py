"""What a gateway counts stands in the store while a rollout watches it, and not after."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.agent.support import SERVICE, a_fleet, a_rollout
from vctl_agent import reporting
from vctl_agent.crashpoints import Crashpoints
from vctl_agent.local import GatewayStatistics
from vctl_agent.reporting import StatisticsWriter
from vctl_agent.watched import report_interval_s, watched
from vctl_plans.codec import decode, encode
from vctl_plans.errors import StoreUnavailable
from vctl_plans.keys import Keys
from vctl_plans.phase import RolloutPhase
from vctl_plans.snapshot import Fleet, Service
from vctl_plans.statistics import NodeStatistics, Origin, Snapshot, Statistics
from vctl_plans.store.memory import MemoryStore

KEYS = Keys("dev")
KEY = KEYS.statistics_of("n1")
INTERVAL_S = 0.02


def fleet(*, watches: bool = True, **more: Any) -> Fleet:
    return a_fleet({}, rollout=a_rollout(2, watches=watches, **more))


def told(requests: int, *services: str) -> GatewayStatistics:
    return GatewayStatistics(
        boot_id="g",
        snapshots=tuple(
            Snapshot(
                service=service,
                number=2,
                digest="d",
                origin=Origin("g.1", 7),
                statistics=Statistics(requests=requests),
            )
            for service in services or (SERVICE,)
        ),
    )


class Writer:
    """A writer on a store, whose node is registered until a test says otherwise."""

    def __init__(self) -> None:
        self.cluster = MemoryStore()
        self.store = self.cluster.peer()
        self.is_registered = True
        self.writer = StatisticsWriter(
            self.store,
            KEYS,
            node="n1",
            boot_id="b1",
            is_registered=lambda: self.is_registered,
            crashpoints=Crashpoints(),
        )

    async def value(self) -> NodeStatistics | None:
        found = await self.cluster.get(KEY)
        return decode(found.value, NodeStatistics) if found else None

    async def requests(self) -> int | None:
        value = await self.value()
        return sum(s.statistics.requests for s in value.snapshots) if value else None

    async def until(self, requests: int | None) -> None:
        async with asyncio.timeout(5):
            while await self.requests() != requests:
                await asyncio.sleep(0.005)


@pytest.fixture
async def node(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Writer]:
    monkeypatch.setattr(reporting, "_RETRY_S", INTERVAL_S)
    monkeypatch.setattr(reporting, "report_interval_s", lambda _: INTERVAL_S)
    made = Writer()
    task = asyncio.create_task(made.writer.run())
    yield made
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await made.cluster.close()


async def test_counts_are_written_while_watched_and_deleted_after(node: Writer) -> None:
    """With who wrote them; the key is gone with the rollout."""
    node.writer.watch(fleet())
    node.writer.take(told(3))
    await node.until(3)
    value = await node.value()
    assert value == NodeStatistics(node="n1", boot_id="b1", snapshots=told(3).snapshots)

    node.writer.watch(fleet(phase=RolloutPhase.CONVERGED))
    await node.until(None)


async def test_counts_that_did_not_change_are_written_once(node: Writer) -> None:
    """However often the gateway repeats itself."""
    node.writer.watch(fleet())
    for _ in range(4):
        node.writer.take(told(3))
        await asyncio.sleep(INTERVAL_S)

    found = await node.cluster.get(KEY)
    assert found is not None
    assert 1 == found.version


async def test_newest_counts_are_written_and_no_more_often_than_allowed(node: Writer) -> None:
    """What came in between is never written."""
    node.writer.watch(fleet())
    for requests in range(1, 200):
        node.writer.take(told(requests))
        await asyncio.sleep(0)
    await node.until(199)

    found = await node.cluster.get(KEY)
    assert found is not None
    assert found.version <= 3


async def test_counts_of_services_that_are_not_watched_stay_out(node: Writer) -> None:
    """A gateway that has not heard yet that another service's rollout ended."""
    node.writer.watch(fleet())
    node.writer.take(told(3, SERVICE, "other"))
    await node.until(3)

    value = await node.value()
    assert value is not None
    assert [SERVICE] == [each.service for each in value.snapshots]


async def test_counts_of_an_earlier_rollout_are_not_written_in_the_next(node: Writer) -> None:
    """Though the gateway has said nothing since."""
    node.writer.watch(fleet())
    node.writer.take(told(3))
    await node.until(3)
    node.writer.watch(fleet(watches=False))
    await node.until(None)
    node.writer.watch(fleet())
    await asyncio.sleep(2 * INTERVAL_S)

    assert None is await node.requests()


async def test_counts_that_an_agent_before_left_are_deleted(node: Writer) -> None:
    """It was killed before it could."""
    await node.cluster.put(KEY, encode(NodeStatistics(node="n1", boot_id="b0")))
    await asyncio.sleep(2 * INTERVAL_S)
    assert await node.value() is not None, "nothing is known yet of what is watched"
    node.writer.watch(fleet(watches=False))

    await node.until(None)


async def test_agent_without_the_name_writes_nothing(node: Writer) -> None:
    """Another's counts would be lost."""
    node.is_registered = False
    node.writer.watch(fleet())
    node.writer.take(told(3))
    await asyncio.sleep(2 * INTERVAL_S)
    assert await node.value() is None

    node.is_registered = True
    await node.until(3)


@pytest.mark.parametrize("is_over", [False, True])
async def test_store_that_was_away_is_asked_again(node: Writer, is_over: bool) -> None:
    """For the newest, or to forget."""
    node.writer.watch(fleet())
    node.writer.take(told(3))
    await node.until(3)
    node.store.fail_next(StoreUnavailable("away"))
    node.store.fail_next(StoreUnavailable("away"))
    if is_over:
        node.writer.watch(fleet(watches=False))
    else:
        node.writer.take(told(4))

    await node.until(None if is_over else 4)


def test_service_is_watched_while_its_rollout_watches_and_runs() -> None:
    """In every phase that is not the end, paused too."""
    ends = {phase for phase in RolloutPhase if not watched(fleet(phase=phase))}

    assert {phase for phase in RolloutPhase if phase.is_terminal} == ends
    assert () == watched(fleet(watches=False))
    assert () == watched(Fleet(services={SERVICE: Service(name=SERVICE)}))


@pytest.mark.parametrize(("nodes", "seconds"), [(1, 2.0), (1000, 2.0), (10_000, 20.0)])
def test_fleet_stays_under_500_writes_a_second(nodes: int, seconds: float) -> None:
    """A large one reports less often."""
    assert seconds == report_interval_s(fleet(roster_size=nodes))
    assert 2.0 == report_interval_s(fleet(watches=False, roster_size=nodes))

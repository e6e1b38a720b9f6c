"""Nodes that do not act on a route are told of once, and never wrongly."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from tests.builders import NODES, SERVICE, a_report, a_route, a_service
from vctl_agent.admin import Metrics
from vctl_agent.convergence import Convergence
from vctl_plans.alert import LATE_S, Alert
from vctl_plans.codec import decode
from vctl_plans.errors import StoreUnavailable
from vctl_plans.keys import Keys
from vctl_plans.node import NodeRecord, NodeReport
from vctl_plans.snapshot import Fleet
from vctl_plans.store.memory import MemoryStore
from vctl_plans.store.port import Delete, Put, Txn

KEYS = Keys("dev")
REVISION = 7


class Watch:
    """A judge with a clock that a test moves."""

    def __init__(self, store: MemoryStore | None = None, fence: int = 1) -> None:
        self.now = 100.0
        self.metrics = Metrics()
        self.convergence = Convergence(
            store or MemoryStore(),
            KEYS,
            fence=fence,
            metrics=self.metrics,
            clock=lambda: self.now,
        )

    def told(self, fleet: Fleet, *, after_s: float = 0.0) -> list[str]:
        self.now += after_s
        return [alert.sentence for alert in self.convergence.judge(fleet)]

    @property
    def unconverged(self) -> float | None:
        labels = {"service": SERVICE}
        return self.metrics.registry.get_sample_value("vctl_unconverged_nodes", labels)


def fleet(
    *late: str, nodes: tuple[str, ...] = NODES, revision: int = REVISION, boot: str = "boot"
) -> Fleet:
    """Return a fleet in which all nodes but *late* act on the route."""
    reports: list[NodeReport] = [
        a_report(n, route_revision=revision - (1 if n in late else 0)) for n in nodes
    ]
    return Fleet(
        services={SERVICE: a_service(route=a_route(), revision=revision)},
        records={n: NodeRecord(node=n, boot_id=f"{boot}-{n}") for n in nodes},
        reports={r.node: msgspec.structs.replace(r, boot_id=f"{boot}-{r.node}") for r in reports},
    )


def test_node_that_does_not_act_on_the_route_is_told_of_once_after_its_time():
    watch = Watch()
    assert [] == watch.told(fleet("b"))
    assert [] == watch.told(fleet("b"), after_s=LATE_S - 1)
    assert ["30 s after route 7 was written, these nodes do not act on it: b"] == watch.told(
        fleet("b"), after_s=1
    )
    assert [] == watch.told(fleet("b"), after_s=LATE_S)
    assert 1 == watch.unconverged


def test_nodes_that_act_on_the_route_in_time_are_not_told_of():
    watch = Watch()
    assert [] == watch.told(fleet("a", "b", "c"))
    assert 3 == watch.unconverged
    assert [] == watch.told(fleet(), after_s=LATE_S + 1)
    assert 0 == watch.unconverged


def test_every_route_has_its_own_time():
    watch = Watch()
    watch.told(fleet("a"))
    assert [] == watch.told(fleet("a", revision=8), after_s=LATE_S - 1)
    assert [] == watch.told(fleet("a", revision=8), after_s=LATE_S - 1)
    assert 1 == len(watch.told(fleet("a", revision=8), after_s=1))


def test_node_that_joins_later_is_not_late():
    """It may have come a second ago."""
    watch = Watch()
    watch.told(fleet(nodes=("a",)))
    assert [] == watch.told(fleet("b", nodes=("a", "b")), after_s=LATE_S)
    assert 1 == watch.unconverged


def test_node_whose_agent_started_anew_is_not_late():
    watch = Watch()
    watch.told(fleet("a", "b", "c"))
    assert [] == watch.told(fleet("a", "b", "c", boot="new"), after_s=LATE_S)


def test_node_that_is_gone_is_not_late():
    """Whoever counts it, the rollout, says so."""
    watch = Watch()
    watch.told(fleet("c"))
    assert [] == watch.told(fleet(nodes=("a", "b")), after_s=LATE_S)


def test_service_that_is_gone_leaves_no_figure():
    watch = Watch()
    watch.told(fleet("c"))
    watch.told(Fleet())
    assert watch.unconverged is None


def test_service_without_a_route_is_not_judged():
    watch = Watch()
    routeless = msgspec.structs.replace(fleet(), services={SERVICE: a_service()})
    watch.told(routeless)
    assert [] == watch.told(routeless, after_s=LATE_S)


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    made = MemoryStore()
    yield made
    await made.close()


async def alerts_of(store: MemoryStore) -> list[Alert]:
    return [decode(e.value, Alert) for e in (await store.list(KEYS.alerts)).entries]


async def test_alert_is_written_once_though_conductors_change(store: MemoryStore):
    """The second term judges anew, finds the same alert waiting, and is content."""
    for _ in range(2):
        await store.commit(Txn((), (Delete(KEYS.conductor),)))
        watch = Watch(store, await store.commit(Txn((), (Put(KEYS.conductor, b"c"),))))
        watch.told(fleet("b"))
        watch.now += LATE_S
        watch.convergence.look(fleet("b"))
        task = asyncio.create_task(watch.convergence.run())
        async with asyncio.timeout(5):
            while not await alerts_of(store):
                await asyncio.sleep(0.005)
        await asyncio.sleep(0.02)
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert ["support-route-7"] == [alert.id for alert in await alerts_of(store)]
    (entry,) = (await store.list(KEYS.alerts)).entries
    assert 1 == entry.version


async def test_conductor_whose_term_ended_writes_no_alert(store: MemoryStore):
    watch = Watch(store, fence=99)
    watch.told(fleet("b"))
    watch.now += LATE_S
    watch.convergence.look(fleet("b"))
    task = asyncio.create_task(watch.convergence.run())
    await asyncio.sleep(0.03)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert [] == await alerts_of(store)


async def test_store_that_is_away_gets_the_alert_when_it_is_back(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("vctl_agent.convergence._RETRY_S", 0.01)
    fence = await store.commit(Txn((), (Put(KEYS.conductor, b"c"),)))
    mine = store.peer()
    mine.fail_next(StoreUnavailable("away"))
    mine.lose_reply()
    watch = Watch(mine, fence)
    watch.told(fleet("b"))
    watch.now += LATE_S
    watch.convergence.look(fleet("b"))
    task = asyncio.create_task(watch.convergence.run())
    async with asyncio.timeout(5):
        while not await alerts_of(store):
            await asyncio.sleep(0.005)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert ["support-route-7"] == [alert.id for alert in await alerts_of(store)]

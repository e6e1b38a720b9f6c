"""The conductor names peers when they are needed, seldom, under its fence, and in nobody's way."""

from collections.abc import AsyncIterator

import msgspec
import pytest

from tests.agent.support import SERVICE
from tests.agent.test_conductor import KEYS, Stage, running
from vctl_agent.crashpoints import Crashpoints
from vctl_agent.pacing import PERIOD_S, RETRY_S
from vctl_agent.peering import Peering
from vctl_plans.codec import decode, encode
from vctl_plans.errors import Conflict, Rejected
from vctl_plans.node import NodeRecord, NodeReport, ReleaseReport
from vctl_plans.peers import Peers
from vctl_plans.phase import Component, NodePhase, RolloutPhase
from vctl_plans.release import Artifact, Release, release_digest
from vctl_plans.route import Route
from vctl_plans.snapshot import Fleet, Service, read_nodes, read_services
from vctl_plans.store.memory import MemoryStore
from vctl_plans.store.port import Delete, KeyValue, Put, Txn

ADAPTER = Artifact(root="b3:" + "1" * 64, source="file:///v1")
_DRAFT = Release(
    service=SERVICE,
    number=1,
    components={Component.ADAPTER: ADAPTER},
    vector={Component.ADAPTER: 1},
)
RELEASE = msgspec.structs.replace(_DRAFT, digest=release_digest(_DRAFT))


class Term:
    """A conductor's term over a fleet that serves release 1."""

    def __init__(self, store: MemoryStore, fence: int) -> None:
        self.store = store
        self.now = 0.0
        self.peering = Peering(
            store, KEYS, fence=fence, crashpoints=Crashpoints(), clock=lambda: self.now
        )

    async def node(self, name: str, *, is_ready: bool) -> None:
        """Have a node say whether it holds the release ready."""
        record = NodeRecord(node=name, boot_id="b", gateway_url=f"http://{name}:1")
        phase = NodePhase.READY if is_ready else NodePhase.LOADING
        said = ReleaseReport(service=SERVICE, number=1, digest=RELEASE.digest, phase=phase)
        report = NodeReport(node=name, boot_id="b", releases=(said,), gateway_ok=True)
        await self.store.put(KEYS.node(name), encode(record))
        await self.store.put(KEYS.report(name), encode(report))

    async def read(self) -> tuple[dict[str, Service], Fleet, dict[str, KeyValue]]:
        services, records, reports = [
            (await self.store.list(prefix)).entries
            for prefix in (KEYS.services, KEYS.nodes, KEYS.reports)
        ]
        return (
            read_services(KEYS, services).services,
            read_nodes(KEYS, records, reports),
            {entry.key: entry for entry in services},
        )

    async def turn(self) -> float:
        return await self.peering.turn(*await self.read())

    async def named(self) -> list[str]:
        found = await self.store.get(KEYS.peers(SERVICE))
        peers = decode(found.value, Peers) if found else Peers(service=SERVICE)
        return [peer.node for peer in peers.of(1, RELEASE.digest)]


@pytest.fixture
async def term() -> AsyncIterator[Term]:
    store = MemoryStore()
    fence = await store.commit(Txn((), (Put(KEYS.conductor, b"c"),)))
    await store.put(KEYS.release(SERVICE, 1), encode(RELEASE))
    await store.put(KEYS.route(SERVICE), encode(Route(service=SERVICE, stable=1)))
    yield Term(store, fence)
    await store.close()


async def test_nothing_is_written_while_all_are_ready(term: Term) -> None:
    for name in ("a", "b"):
        await term.node(name, is_ready=True)
    before = term.store.revision
    await term.turn()
    assert before == term.store.revision


async def test_peers_are_named_when_a_node_is_not_ready_and_then_stand(term: Term) -> None:
    await term.node("a", is_ready=True)
    await term.node("b", is_ready=False)
    await term.turn()
    assert ["a"] == await term.named()
    before = term.store.revision
    term.now += 2 * PERIOD_S
    await term.turn()
    assert before == term.store.revision


async def test_one_write_a_second_at_most(term: Term) -> None:
    await term.node("a", is_ready=True)
    await term.node("b", is_ready=False)
    await term.turn()
    await term.node("a", is_ready=False)
    await term.node("b", is_ready=True)
    term.now += 0.4
    assert pytest.approx(0.6) == await term.turn()
    assert ["a"] == await term.named()
    term.now += 0.6
    await term.turn()
    assert ["b"] == await term.named()


async def test_another_conductors_term_writes_nothing(term: Term) -> None:
    await term.node("a", is_ready=True)
    await term.node("b", is_ready=False)
    await term.store.commit(Txn((), (Delete(KEYS.conductor),)))
    await term.store.commit(Txn((), (Put(KEYS.conductor, b"other"),)))
    await term.turn()
    assert [] == await term.named()


async def test_unreadable_peers_are_named_anew(term: Term) -> None:
    await term.node("a", is_ready=True)
    await term.node("b", is_ready=False)
    await term.store.put(KEYS.peers(SERVICE), b"[")
    await term.turn()
    assert ["a"] == await term.named()


async def test_peers_of_a_newer_schema_are_left_alone(term: Term) -> None:
    await term.node("a", is_ready=True)
    await term.node("b", is_ready=False)
    await term.store.put(KEYS.peers(SERVICE), encode(Peers(service=SERVICE, v=99)))
    await term.turn()
    assert [] == await term.named()


@pytest.mark.parametrize(
    ("error", "wait_s"),
    [(Conflict("raced"), PERIOD_S), (Rejected("denied", code="PERMISSION_DENIED"), RETRY_S)],
)
async def test_write_that_fails_is_tried_again_later(
    term: Term, error: Conflict | Rejected, wait_s: float
) -> None:
    await term.node("a", is_ready=True)
    await term.node("b", is_ready=False)
    read = await term.read()
    term.store.fail_next(error)
    assert wait_s == await term.peering.turn(*read)
    assert [] == await term.named()
    term.now += wait_s
    await term.turn()
    assert ["a"] == await term.named()


class Denying(MemoryStore):
    """A client that may not write peers."""

    denied = 0

    async def commit(self, txn: Txn) -> int:
        if any(each.key == KEYS.peers(SERVICE) for each in txn.operations):
            self.denied += 1
            raise Rejected("denied", code="PERMISSION_DENIED")
        return await super().commit(txn)


async def test_rollout_converges_though_peers_cannot_be_written() -> None:
    """Node p could be a peer of the others, whose reports name another digest."""
    stage = Stage()
    await stage.elect()
    await stage.begin()
    digest = (await stage.service()).releases[1].digest
    said = ReleaseReport(service=SERVICE, number=1, digest=digest, phase=NodePhase.READY)
    record = NodeRecord(node="p", boot_id="b", gateway_url="http://p:1")
    report = NodeReport(node="p", boot_id="b", releases=(said,), gateway_ok=True)
    await stage.store.put(KEYS.node("p"), encode(record))
    await stage.store.put(KEYS.report("p"), encode(report))
    store = Denying(cluster=stage.store._cluster)
    async with running(stage.conductor(store)):
        for phase in (RolloutPhase.SHIFTING, RolloutPhase.SETTLING, RolloutPhase.CONVERGED):
            await stage.report("n1")
            await stage.report("n2")
            await stage.until(lambda now, p=phase: now is p)  # type: ignore[misc]
    assert 1 == store.denied  # the clock stands still, so there is no second try
    await stage.store.close()

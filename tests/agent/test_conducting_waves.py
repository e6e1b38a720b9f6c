"""A conductor changes a fleet's base by waves: what gateways must see at once is one write."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
import pytest

from tests.builders import SERVICE, a_base_wish, a_plan, a_route, some_releases
from vctl_agent.conductor import Conductor
from vctl_agent.crashpoints import Crashpoints
from vctl_plans import operate
from vctl_plans.base import Base, is_of_base
from vctl_plans.capability import Capability, EngineFacts
from vctl_plans.codec import decode, encode
from vctl_plans.keys import Keys
from vctl_plans.node import NodeRecord, NodeReport, ReleaseReport
from vctl_plans.peers import Peers
from vctl_plans.phase import NodePhase, RolloutPhase
from vctl_plans.rollout import wanted
from vctl_plans.snapshot import Service, read_services, surroundings
from vctl_plans.store.commit import begin_txn
from vctl_plans.store.memory import MemoryStore
from vctl_plans.store.port import Put, Txn

KEYS = Keys("dev")
FOUR = ("a", "b", "c", "d")


class Waves:
    """A store in which release 1 serves, and nodes that do what they are asked."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.seen: list[tuple[Service, Peers]] = []  # each state that a gateway would see

    async def begin(self) -> None:
        """Start a rollout of another base."""
        puts = [Put(KEYS.release(SERVICE, 1), encode(some_releases(1)[1]))]
        puts += [Put(KEYS.route(SERVICE), encode(a_route())), Put(KEYS.conductor, b"c")]
        for node in FOUR:
            record = NodeRecord(node=node, boot_id=node, gateway_url=f"http://{node}")
            record = msgspec.structs.replace(
                record, facts=EngineFacts(capabilities=(Capability.SWAP_BASE,))
            )
            puts.append(Put(KEYS.node(node), encode(record)))
        self.fence = await self.store.commit(Txn((), tuple(puts)))
        listing = (await self.store.list(KEYS.services)).entries
        fleet = read_services(KEYS, listing)
        around = surroundings(SERVICE, base=None, services=fleet, records=())
        service = msgspec.structs.replace(fleet.services[SERVICE], around=around)
        begun = operate.start(
            service,
            a_plan(),
            wish=a_base_wish(2),
            roster=FOUR,
            request=operate.Request(id="r2"),
        )
        assert isinstance(begun, operate.Begin)
        await self.store.commit(begin_txn(KEYS, service, begun))

    @contextlib.asynccontextmanager
    async def conducted(self) -> AsyncIterator[None]:
        """Run a conductor, and the nodes."""
        conductor = Conductor(self.store, KEYS, fence=self.fence, crashpoints=Crashpoints())
        tasks = [asyncio.create_task(conductor.run()), asyncio.create_task(self._obey())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _obey(self) -> None:
        async for update in self.store.watch(KEYS.services):
            fleet = read_services(KEYS, update.entries.values())
            service, named = fleet.services[SERVICE], update.entries.get(KEYS.peers(SERVICE))
            peers = decode(named.value, Peers) if named else Peers(service=SERVICE)
            self.seen.append((service, peers))
            for node in FOUR:
                await self.store.put(KEYS.report(node), encode(_report(service, node)))

    async def ended(self) -> Service:
        """Wait for the rollout's end."""
        async with asyncio.timeout(20):
            while True:
                entries = (await self.store.list(KEYS.services)).entries
                service = read_services(KEYS, entries).services[SERVICE]
                if service.rollout and service.rollout.phase.is_terminal:
                    return service
                await asyncio.sleep(0.01)

    async def base(self) -> Base:
        """Return the fleet's base."""
        entry = await self.store.get(KEYS.base)
        assert entry is not None
        return decode(entry.value, Base)


def _report(service: Service, node: str) -> NodeReport:
    """Return what a node says that has done all at once."""
    rollout = service.rollout
    lines = [
        ReleaseReport(
            service=SERVICE,
            number=number,
            digest=service.releases[number].digest,
            phase=NodePhase.READY if is_of_base(service, number, node) else NodePhase.STAGED,
            attempt=rollout.attempt if rollout else "",
        )
        for number in sorted(wanted(service.route, rollout))
    ]
    return NodeReport(
        node=node,
        boot_id=node,
        incarnation="i",
        releases=tuple(lines),
        routes={SERVICE: service.route_revision},
        gateway_ok=True,
    )


@pytest.fixture
async def scene() -> Waves:
    made = Waves()
    await made.begin()
    return made


async def test_base_changes_and_gateways_see_route_and_peers_at_once(scene: Waves) -> None:
    """In no state has a release traffic and no peer that is to hold it, or one that leaves."""
    locked = await scene.base()
    async with scene.conducted():
        service = await scene.ended()

    assert service.rollout
    assert RolloutPhase.CONVERGED is service.rollout.phase
    assert f"{SERVICE}/r2" == locked.lock
    assert "" == (await scene.base()).lock
    assert (2, 0) == (service.current_route.stable, service.current_route.candidate)
    weights = [state.current_route.weight for state, _ in scene.seen]
    assert {0.0, 100 / 3, 200 / 3, 100.0} == set(weights)
    for state, peers in scene.seen:
        assert state.rollout
        if not state.current_route.candidate or state.rollout.phase is not RolloutPhase.SHIFTING:
            continue
        route = state.current_route
        shares = {route.candidate: route.weight, route.stable: 100 - route.weight}
        for number in (n for n, weight in shares.items() if weight):
            of = {peer.node for peer in peers.of(number, state.releases[number].digest)}
            assert of
            assert of <= {node for node in FOUR if is_of_base(state, number, node)}


async def test_base_gives_way_to_a_service_that_began_meanwhile(scene: Waves) -> None:
    """Its start had read the base before it was locked."""
    await scene.store.put(KEYS.route("search"), encode(a_route(service="search")))
    async with scene.conducted():
        service = await scene.ended()

    assert service.rollout
    assert RolloutPhase.FAILED is service.rollout.phase
    assert "the base would change for search too" in service.rollout.sentence
    assert "" == (await scene.base()).lock

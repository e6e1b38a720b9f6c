"""What nobody knows any more, since a backup was restored, frees its place in the engine."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.agent.support import SERVICE, Node, a_fleet, a_rollout, make_releases
from vctl_agent.engines.fake import FakeEngine
from vctl_agent.local import GatewayState
from vctl_agent.orphans import Orphans
from vctl_plans.errors import TemporaryEngineError
from vctl_plans.phase import NodePhase
from vctl_plans.release import Release
from vctl_plans.route import Route
from vctl_plans.snapshot import Fleet, Service

Releases = dict[int, Release]


class Restored:
    """A node that serves release 1, and holds release 2 of which its store knows nothing."""

    def __init__(self, folder: Path, releases: Releases) -> None:
        self.node = Node(folder, FakeEngine(max_adapters=2))
        self.releases = releases
        self.fleet: Fleet | None = None
        link: Any = self.node.link
        self.orphans = Orphans(
            self.node.artifacts,
            self.node.watch,
            link,
            fleet=lambda: self.fleet,
            unload=self.node.reconciler.unload_orphan,
            clock=lambda: self.node.now,
        )

    @property
    def held(self) -> set[str]:
        return set(self.node.engine.adapters)

    def name(self, number: int) -> str:
        return self.releases[number].engine_name

    def want(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.node.reconciler.want(fleet)

    async def begin(self) -> None:
        """Load both, and then have a store that is older than release 2."""
        route = Route(service=SERVICE, stable=1, candidate=2, weight=50.0)
        self.want(a_fleet(self.releases, route=route))
        both = {NodePhase.READY}
        await self.node.settle(lambda: {self.node.phase(n) for n in (1, 2)} == both)
        self.want(a_fleet({1: self.releases[1]}, route=Route(service=SERVICE, stable=1)))
        await self.node.idle()

    async def wait(self, s: float) -> None:
        """Let time pass, and have it looked at all the while."""
        for _ in range(int(s)):
            self.node.now += 1
            await self.node.idle(1)
            self.orphans._counted()
            for name in self.orphans._ripe():
                await self.orphans._end(name)


@pytest.fixture
def releases(tmp_path: Path) -> Releases:
    return make_releases(tmp_path, 3)


@pytest.fixture
async def restored(tmp_path: Path, releases: Releases) -> Restored:
    made = Restored(tmp_path, releases)
    await made.begin()
    return made


async def test_orphan_goes_after_a_drain_and_frees_its_place(restored: Restored) -> None:
    """Else a rollout would wait for a place until the engine is restarted."""
    node, releases = restored.node, restored.releases
    third = msgspec.structs.replace(releases[3], number=2)
    rollout = a_rollout(2)
    known = {1: releases[1], 2: third}
    restored.want(a_fleet(known, rollout=rollout, route=Route(service=SERVICE, stable=1)))
    await node.idle()
    await restored.wait(29)
    assert {restored.name(1), restored.name(2)} == restored.held
    assert NodePhase.STAGED is node.phase(2)

    await restored.wait(3)
    await node.settle(lambda: node.phase(2) is NodePhase.READY)

    assert {restored.name(1), third.engine_name} == restored.held
    assert NodePhase.READY is node.phase(1)


async def test_release_that_comes_to_be_known_is_kept(restored: Restored) -> None:
    """It was not looked for as long as a drain takes; and it counts from the beginning then."""
    await restored.wait(20)
    route = Route(service=SERVICE, stable=1)
    restored.want(a_fleet(restored.releases, route=route))
    await restored.wait(40)
    restored.want(a_fleet({1: restored.releases[1]}, route=route))
    await restored.wait(20)

    assert restored.name(2) in restored.held


async def test_nothing_goes_while_somebody_could_mean_it(restored: Restored) -> None:
    """A request, a route, or what cannot be read; and the store, the gateway, must be there."""
    node, fleet = restored.node, restored.fleet
    assert fleet is not None
    unread = msgspec.structs.replace(fleet, problems=("unreadable Release at ...",))
    routed = a_fleet({1: restored.releases[1]}, route=Route(service=SERVICE, stable=1, candidate=7))
    other = Fleet(services={**fleet.services, "other": Service(
        name="other", route=Route(service="other", stable=3))})  # fmt: skip
    for unclear in (unread, routed, other, None):
        restored.fleet = unclear
        await restored.wait(40)
        assert restored.name(2) in restored.held
    restored.fleet = fleet
    node.link.in_flight = {2: 1}
    await restored.wait(40)
    assert restored.name(2) in restored.held
    node.link.is_away = True
    await restored.wait(40)
    assert restored.name(2) in restored.held

    node.link.in_flight, node.link.is_away = {}, False
    await restored.wait(32)
    assert {restored.name(1)} == restored.held


async def test_what_the_gateway_may_still_hand_out_stays(restored: Restored) -> None:
    """Under whatever number it knows it."""
    told = restored.node.link.told
    assert told is not None
    stale = msgspec.structs.replace(told.ready[0], model=f"base:{restored.name(2)}")

    class Stale:
        is_absent = False
        heard = GatewayState(boot_id="g", routes={}, accepted=(stale,))

    restored.orphans._link = Stale()  # type: ignore[assignment]
    await restored.wait(40)

    assert restored.name(2) in restored.held


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("mine", "/somewhere"),
        ("support@aaaaaaaaaaaa", "/somewhere/" + 64 * "a"),
        ("support@bbbbbbbbbbbb", ""),
    ],
)
async def test_what_vctl_did_not_load_is_left_alone(
    restored: Restored, name: str, path: str
) -> None:
    """Whatever it is called; and so is another name for our own copy."""
    adapter = restored.releases[2].adapter
    assert adapter is not None
    engine = restored.node.engine
    engine.adapters[name] = path or str(restored.node.artifacts.path(adapter.root))
    await restored.wait(40)

    assert {restored.name(1), name} == restored.held


async def test_unload_that_fails_waits_before_it_is_tried_again(restored: Restored) -> None:
    """It is no word against the node."""
    engine = restored.node.engine
    engine.failures["unload"] = TemporaryEngineError("busy")
    await restored.wait(50)
    assert 1 == sum(call == "unload" for call, _ in engine.calls)
    del engine.failures["unload"]
    await restored.wait(32)

    assert {restored.name(1)} == restored.held
    assert NodePhase.READY is restored.node.phase(1)


async def test_orphan_that_is_needed_while_it_goes_is_loaded_again(restored: Restored) -> None:
    """(1) It is being unloaded; (2) its release comes to be known; (3) it is gone.

    By what the engine lists it would be ready at (2), and requests would come for what goes.
    """
    node = restored.node
    unload = node.engine.unload

    async def slow(name: str) -> None:
        restored.want(a_fleet(restored.releases, rollout=a_rollout(2),
                              route=Route(service=SERVICE, stable=1)))  # fmt: skip
        await node.idle()
        assert NodePhase.DRAINING is node.phase(2)
        await unload(name)

    node.engine.unload = slow  # type: ignore[method-assign]
    await restored.wait(32)
    await node.settle(lambda: node.phase(2) is NodePhase.READY)

    assert restored.name(2) in restored.held


async def test_node_without_a_gateway_needs_none(tmp_path: Path, releases: Releases) -> None:
    """There is nobody to hear from."""
    restored = Restored(tmp_path, releases)
    await restored.begin()
    restored.node.link.is_away = True
    restored.node.link.is_absent = True
    await restored.wait(32)

    assert restored.name(2) not in restored.held


@asynccontextmanager
async def at_work(orphans: Orphans) -> AsyncIterator[None]:
    task = asyncio.create_task(orphans.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_it_goes_by_itself(restored: Restored, monkeypatch: pytest.MonkeyPatch) -> None:
    """Woken by any change, and by nothing where all is known."""
    monkeypatch.setattr("vctl_agent.orphans._LOOK_S", 0.002)
    async with at_work(restored.orphans):
        restored.orphans.look()
        await asyncio.sleep(0.02)
        assert restored.name(2) in restored.held
        restored.node.now += 31
        async with asyncio.timeout(5):
            while restored.name(2) in restored.held:
                await asyncio.sleep(0.005)

"""A node removes what nothing needs, when it is time, and never what its engine may still read."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.agent.support import (
    SERVICE,
    Node,
    a_fleet,
    a_rollout,
    make_adapter,
    make_releases,
    next_release,
)
from vctl_agent.artifacts.collect import Collector
from vctl_agent.collecting import Collecting, Needs, Room
from vctl_agent.crashpoints import Crashpoints
from vctl_agent.engines.fake import FakeEngine
from vctl_plans.errors import NoRoom, TemporaryEngineError
from vctl_plans.inspection import CollectRequest, VerifyRequest
from vctl_plans.phase import NodePhase, RolloutPhase
from vctl_plans.release import Artifact, Release
from vctl_plans.retention import Why
from vctl_plans.route import Route
from vctl_plans.snapshot import Fleet

READY = NodePhase.READY


class CollectedNode(Node):
    """A node whose artifacts are collected; nothing is kept for comfort unless told."""

    def __init__(
        self, folder: Path, engine: FakeEngine | None = None, *, keep: int = 0, space: int = 0
    ) -> None:
        super().__init__(folder, engine)
        self.wakes = 0
        self.is_store_away = False
        needs = Needs(
            self._known,
            self.watch,
            self.link,  # type: ignore[arg-type]
            self.application,
            self.registered,
        )
        self.collecting = Collecting(
            Collector(self.artifacts),
            needs,
            room=Room(keep, space),
            wake=self._woken,
            crashpoints=Crashpoints(),
        )

    def _known(self) -> Fleet | None:
        return None if self.is_store_away else self.reconciler.fleet

    def _woken(self) -> None:
        self.wakes += 1

    def lies(self, release: Release) -> bool:
        """Whether the adapter of a release is on the disk."""
        assert release.adapter is not None
        return self.artifacts.path(release.adapter.root).is_dir()

    async def serve(self, fleet: Fleet, number: int) -> None:
        """Bring a node to serve a release."""
        self.reconciler.want(fleet)
        await self.settle(lambda: self.phase(number) is READY)


def serving(releases: dict[int, Release], number: int, **more: object) -> Fleet:
    """Return a fleet on which one release serves, and what was before may be unloaded."""
    unload = tuple(n for n in releases if n != number)
    rollout = a_rollout(number, phase=RolloutPhase.CONVERGED, unload=unload, **more)
    return a_fleet(releases, rollout=rollout, route=Route(service=SERVICE, stable=number))


async def after_two(node: CollectedNode, releases: dict[int, Release]) -> None:
    """Serve release 1, then release 2; the first is unloaded."""
    await node.serve(serving(releases, 1), 1)
    await node.serve(serving(releases, 2), 2)
    await node.settle(lambda: releases[1].engine_name not in node.engine.adapters)


@pytest.fixture
def node(tmp_path: Path) -> CollectedNode:
    return CollectedNode(tmp_path)


async def test_unloaded_adapter_stays_until_the_engine_is_another(
    node: CollectedNode, tmp_path: Path
) -> None:
    """It may read the directory again, and die where it is gone: also after the agent's restart."""
    releases = make_releases(tmp_path, 2)
    await after_two(node, releases)
    decided = await node.collecting.collect(needed_bytes=sys.maxsize)
    assert [Why.REGISTERED] == [
        decided.stays[r.adapter.root] for r in [releases[1]] if r.adapter is not None
    ]
    assert node.lies(releases[1])

    again = CollectedNode(tmp_path, node.engine)
    await again.serve(serving(releases, 2), 2)
    await again.collecting.collect(needed_bytes=sys.maxsize)
    assert again.lies(releases[1])

    again.engine.restart()
    await again.serve(serving(releases, 2), 2)
    await again.collecting.collect()
    assert not again.lies(releases[1])
    assert again.lies(releases[2])
    await again.idle()
    assert READY is again.phase(2)


async def test_adapter_that_the_engine_refused_stays_as_well(
    node: CollectedNode, tmp_path: Path
) -> None:
    """Nobody knows what of it the engine remembers."""
    releases = make_releases(tmp_path, 2)
    await node.serve(serving(releases, 1), 1)
    node.engine.failures["load"] = TemporaryEngineError("full")
    node.reconciler.want(serving(releases, 2))
    await node.settle(lambda: node.phase(2) is NodePhase.FAILED)
    node.engine.failures.clear()
    node.reconciler.want(serving(releases, 1))
    await node.settle(lambda: node.phase(1) is READY)
    decided = await node.collecting.collect()

    assert releases[2].adapter is not None
    assert Why.REGISTERED is decided.stays[releases[2].adapter.root]


async def test_node_without_a_gateway_collects_as_well(node: CollectedNode, tmp_path: Path) -> None:
    """Nobody hands out requests there: none need be asked, and in direct mode disks fill up too."""
    releases = make_releases(tmp_path, 2)
    await after_two(node, releases)
    node.engine.restart()
    await node.serve(serving(releases, 2), 2)
    node.link.is_away = node.link.is_absent = True
    decided = await node.collecting.collect()

    assert "" == decided.unknown
    assert (False, True) == (node.lies(releases[1]), node.lies(releases[2]))


@pytest.mark.parametrize("is_away", ["engine", "gateway", "store"])
async def test_nothing_goes_while_somebody_is_away(
    node: CollectedNode, tmp_path: Path, is_away: str
) -> None:
    """Whoever does not answer may need it."""
    releases = make_releases(tmp_path, 2)
    await after_two(node, releases)
    node.engine.restart()
    await node.serve(serving(releases, 2), 2)
    node.engine.is_away = is_away == "engine"
    node.link.is_away = is_away == "gateway"
    node.is_store_away = is_away == "store"
    await node.watch.refresh()
    decided = await node.collecting.collect()

    assert is_away in decided.unknown
    assert node.lies(releases[1])


async def test_request_in_flight_keeps_its_release(node: CollectedNode, tmp_path: Path) -> None:
    """Whatever the engine says."""
    releases = make_releases(tmp_path, 2)
    await after_two(node, releases)
    node.engine.restart()
    await node.serve(serving(releases, 2), 2)
    node.link.in_flight = {1: 1}
    await node.collecting.collect()
    assert node.lies(releases[1])

    node.link.in_flight = {}
    await node.collecting.collect()
    assert not node.lies(releases[1])


async def test_load_that_waits_is_refused_what_was_removed(
    node: CollectedNode, tmp_path: Path
) -> None:
    """It is brought anew; the engine is never given a directory that is not there."""
    releases = make_releases(tmp_path, 1)
    asked: list[bool] = []
    load = node.engine.load

    async def watched_load(name: str, path: str) -> None:
        asked.append(is_there(path))
        await load(name, path)

    node.engine.load = watched_load  # type: ignore[method-assign]
    node.engine.is_away = True  # so that it is staged, and not loaded yet
    node.reconciler.want(a_fleet(releases, rollout=a_rollout(1)))
    await node.settle(lambda: node.lies(releases[1]) and node.phase(1) is NodePhase.FAILED)
    node.engine.is_away = False
    await node.watch.refresh()
    node.reconciler.cycle(node.link)  # type: ignore[arg-type]
    # The action has begun, and not come to the engine: now the rollout is gone, and so the bytes.
    assert releases[1].adapter is not None
    assert Collector(node.artifacts).set_aside(releases[1].adapter.root)
    await node.settle(lambda: node.phase(1) is NodePhase.FAILED)
    node.now += 60
    await node.settle(lambda: node.phase(1) is READY)

    assert [True] == asked


async def test_base_that_the_engine_was_given_is_noted(tmp_path: Path) -> None:
    """Also for the next agent; until the engine starts with its own again."""
    from tests.agent.test_basechange import a_base_rollout, make_base, want

    made: dict[int, Release] = {}
    next_release(made, adapter=make_adapter(tmp_path / "v1"), weights=make_base(tmp_path / "b1"))
    node = CollectedNode(tmp_path)
    want(node, made, a_base_rollout(100.0, to_release=1, from_release=0))
    await node.settle(lambda: node.phase(1) is READY)
    base = made[1].components["weights"].root  # type: ignore[index]
    assert base in node.registered.roots

    again = CollectedNode(tmp_path, node.engine)
    again.is_store_away = True
    await again.watch.refresh()
    again.registered.see(again.watch.latest)
    assert base in again.registered.roots
    again.engine.restart()
    again.registered.see(await again.watch.refresh())
    assert base not in again.registered.roots


async def test_newest_are_kept_and_goes_on_request_only_what_may(
    tmp_path: Path,
) -> None:
    """A dry run says the same and removes nothing."""
    node = CollectedNode(tmp_path, keep=2)
    releases = make_releases(tmp_path, 4)
    for number in releases:
        await node.serve(serving(releases, number), number)
    node.engine.restart()
    await node.serve(serving(releases, 4), 4)
    async with running(node.collecting.requests.run):
        node.collecting.requests.ask([CollectRequest(id="q1", is_dry=True), VerifyRequest(id="v")])
        await until(lambda: bool(node.collecting.requests.answers))
        (dry,) = node.collecting.requests.answers
        assert all(node.lies(release) for release in releases.values())
        node.collecting.requests.ask([CollectRequest(id="q2")])
        await until(lambda: [a.request for a in node.collecting.requests.answers] == ["q2"])
        (real,) = node.collecting.requests.answers

    assert msgspec.structs.replace(dry, request="q2") == real
    assert [False, False, True, True] == [node.lies(releases[n]) for n in (1, 2, 3, 4)]
    assert (2, 2) == (real.count, real.kept)
    assert real.freed_bytes > 0
    assert {"routed": 1, "among the newest": 1} == real.reasons


async def test_answer_goes_with_its_request(node: CollectedNode, tmp_path: Path) -> None:
    """A report does not grow with what was asked once."""
    await node.serve(serving(make_releases(tmp_path, 1), 1), 1)
    async with running(node.collecting.requests.run):
        node.collecting.requests.ask([CollectRequest(id="q1")])
        await until(lambda: bool(node.collecting.requests.answers))
        wakes = node.wakes
        node.collecting.requests.ask([])

    assert (wakes + 1, ()) == (node.wakes, node.collecting.requests.answers)


async def test_artifacts_go_once_a_rollout_has_ended(node: CollectedNode, tmp_path: Path) -> None:
    """Nobody has to ask, and nothing goes while it runs."""
    releases = make_releases(tmp_path, 2)
    await after_two(node, releases)
    node.engine.restart()
    running_on = a_rollout(2, phase=RolloutPhase.SETTLING, id="r9")
    route = Route(service=SERVICE, stable=2)
    await node.serve(a_fleet(releases, rollout=running_on, route=route), 2)
    async with running(node.collecting.run):
        node.collecting.follow(a_fleet(releases, rollout=running_on, route=route))
        await asyncio.sleep(0.05)
        assert node.lies(releases[1])
        node.reconciler.want(serving(releases, 2, id="r9"))
        node.collecting.follow(serving(releases, 2, id="r9"))
        await until(lambda: not node.lies(releases[1]))


async def test_artifacts_go_once_the_engine_was_restarted(
    node: CollectedNode, tmp_path: Path
) -> None:
    """What only the run before it was given is free then."""
    releases = make_releases(tmp_path, 2)
    await after_two(node, releases)
    async with running(node.collecting.run):
        node.collecting.follow(serving(releases, 2))
        node.collecting.look()
        await asyncio.sleep(0.05)
        assert node.lies(releases[1])
        node.engine.restart()
        await node.watch.refresh()
        node.collecting.look()
        await until(lambda: not node.lies(releases[1]))


async def test_room_is_made_for_what_is_to_be_brought(tmp_path: Path) -> None:
    """The longest unused goes first, and no more than is needed."""
    releases = make_releases(tmp_path, 4)
    size = sum(f.stat().st_size for f in (tmp_path / "v1").iterdir())
    node = CollectedNode(tmp_path, keep=9, space=3 * size)
    for number in (1, 2, 3):
        await node.serve(serving(releases, number), number)
    node.engine.restart()
    await node.serve(serving(releases, 3), 3)
    assert releases[4].adapter is not None
    wish = msgspec.structs.replace(releases[4].adapter, size_bytes=size)
    await node.collecting.make_room(wish, False)
    assert [False, True, True] == [node.lies(releases[n]) for n in (1, 2, 3)]

    await node.collecting.make_room(wish, False)
    assert node.lies(releases[2]), "there is room now"


async def test_too_little_room_is_said_with_what_stays(tmp_path: Path) -> None:
    """Nothing that serves is given up for it."""
    releases = make_releases(tmp_path, 1)
    node = CollectedNode(tmp_path, space=10)
    await node.serve(serving(releases, 1), 1)
    wish = Artifact(root="b3:" + "9" * 64, source="file:///x", size_bytes=2048)

    with pytest.raises(NoRoom, match=r"2\.0 KiB are to be brought and .* missing.*1 routed"):
        await node.collecting.make_room(wish, False)
    assert node.lies(releases[1])
    unknown = msgspec.structs.replace(wish, size_bytes=0)
    await node.collecting.make_room(unknown, False)


async def test_full_disk_takes_whatever_may_go(tmp_path: Path) -> None:
    """How much is needed is not known then."""
    releases = make_releases(tmp_path, 2)
    node = CollectedNode(tmp_path, keep=9)
    await after_two(node, releases)
    node.engine.restart()
    await node.serve(serving(releases, 2), 2)
    await node.collecting.collect()
    assert node.lies(releases[1])
    assert releases[2].adapter is not None
    await node.collecting.make_room(releases[2].adapter, True)

    assert not node.lies(releases[1])


async def test_use_of_the_disk_is_told_in_coarse_steps(tmp_path: Path) -> None:
    """A small change is no news: it would be a write of every node."""
    releases = make_releases(tmp_path, 2)
    size = sum(f.stat().st_size for f in (tmp_path / "v1").iterdir())
    node = CollectedNode(tmp_path, keep=9, space=100 * size)
    await node.serve(serving(releases, 1), 1)
    await node.collecting.collect()
    assert (0.01, 1) == (node.collecting.used, node.wakes)

    await node.serve(serving(releases, 2), 2)
    await node.collecting.collect()
    assert (0.01, 1) == (node.collecting.used, node.wakes)


async def test_full_disk_has_room_made_before_the_next_try(
    node: CollectedNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each it is looked whether there is room; afterwards, where there was not, made."""
    asked: list[bool] = []

    async def make_room(_artifact: Artifact, is_full: bool) -> None:
        asked.append(is_full)

    stage = node.artifacts.stage

    def full_at_first(*wish: Any, **more: Any) -> Path:
        if len(asked) == 1:
            raise NoRoom("no space left on device")
        return stage(*wish, **more)

    monkeypatch.setattr(node.executor._stager, "_make_room", make_room)
    monkeypatch.setattr(node.artifacts, "stage", full_at_first)
    node.reconciler.want(serving(make_releases(tmp_path, 1), 1))
    await node.settle(lambda: node.phase(1) is NodePhase.FAILED)
    assert [False, True] == asked

    node.now += 60
    await node.settle(lambda: node.phase(1) is READY)
    assert [False, True, False] == asked


def is_there(path: str) -> bool:
    return Path(path).is_dir()


@asynccontextmanager
async def running(work: Callable[[], object]) -> AsyncIterator[None]:
    task = asyncio.ensure_future(work())  # type: ignore[call-overload]
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.005)

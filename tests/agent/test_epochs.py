"""Every drop of an engine's caches is counted, and followed by probes, whoever asked for it."""

import asyncio
from pathlib import Path

import pytest

from tests.agent.support import (
    SERVICE,
    Node,
    a_fleet,
    make_adapter,
    make_files,
    make_releases,
    next_release,
)
from vctl_agent.engines.epochs import EpochFile, Epochs
from vctl_agent.engines.fake import FakeEngine, Trouble
from vctl_agent.engines.port import Answer, Question
from vctl_agent.probed import BASE, Probed
from vctl_plans.errors import PermanentEngineError, TemporaryEngineError
from vctl_plans.phase import Component, NodePhase
from vctl_plans.release import Actor, Release, compose
from vctl_plans.route import Mode, Route
from vctl_plans.snapshot import Fleet, Service

OTHER = "other"


class Counted:
    """An engine whose epochs are counted; make another to restart its agent."""

    def __init__(self, folder: Path, engine: FakeEngine | None = None) -> None:
        self.fake = engine or FakeEngine()
        self.probed = Probed(folder / "probed.json")
        self.probed.open()
        file = EpochFile(folder / "epoch.json")
        file.open()
        self.engine = Epochs(self.fake, self.probed, file)

    async def epoch(self) -> int:
        return (await self.engine.describe()).cache_epoch


async def test_epoch_grows_when_all_that_was_cached_is_gone(tmp_path: Path) -> None:
    """A load or an unload takes nothing from what another model has cached."""
    counted = Counted(tmp_path)
    seen = [await counted.epoch()]
    for change in (
        counted.engine.load("support@1", "/v1"),
        counted.engine.flush(),
        counted.engine.replace("support", "/v2"),
        counted.engine.unload("support@1"),
        counted.engine.swap_base("/other"),
    ):
        await change
        seen.append(await counted.epoch())
    counted.fake.restart()
    seen.append(await counted.epoch())

    assert [1, 1, 2, 3, 3, 4, 5] == seen


async def test_next_agent_counts_on(tmp_path: Path) -> None:
    """And what lost its notes begins again: nothing else is known there either."""
    first = Counted(tmp_path)
    await first.epoch()
    await first.engine.flush()

    assert 2 == await Counted(tmp_path, first.fake).epoch()
    (tmp_path / "epoch.json").write_text("{")
    assert 1 == await Counted(tmp_path, first.fake).epoch()


@pytest.mark.parametrize("trouble", [Trouble.REFUSES, Trouble.HANGS])
async def test_flush_that_is_not_confirmed_is_not_counted(tmp_path: Path, trouble: Trouble) -> None:
    """It may have been done all the same, so what was probed is due, for the next agent too."""
    counted = Counted(tmp_path)
    await counted.epoch()
    run = counted.fake.incarnation
    counted.probed.add(run, "support@1")
    counted.fake.troubles["flush"] = trouble
    with pytest.raises((PermanentEngineError, TemporaryEngineError)):
        await counted.engine.flush()
    later = Counted(tmp_path, counted.fake)

    assert 1 == await later.epoch()
    assert (True, False) == (later.probed.has(run, "support@1"),
                             later.probed.is_current(run, "support@1"))  # fmt: skip


async def test_what_is_due_is_on_disk_before_the_engine_is_asked(tmp_path: Path) -> None:
    """An agent that dies in the middle leaves no proof older than the caches."""
    counted = Counted(tmp_path)
    counted.probed.add(counted.fake.incarnation, "support@1")
    seen = []

    class Looking(FakeEngine):
        async def flush(self) -> None:
            next_agent = Probed(tmp_path / "probed.json")
            next_agent.open()
            seen.append(next_agent.is_current("fake-1", "support@1"))

    await Epochs(Looking(), counted.probed, EpochFile(tmp_path / "epoch.json")).flush()

    assert [False] == seen


async def test_probe_that_begins_during_a_flush_does_not_count(tmp_path: Path) -> None:
    """(1) It is begun; (2) the engine drops its caches, and answers; (3) the probe ends."""

    class Busy(FakeEngine):
        async def flush(self) -> None:
            self.begun = counted.probed.drops

    counted = Counted(tmp_path, Busy())
    await counted.engine.flush()
    counted.probed.add("fake-1", "support@1", drops=counted.fake.begun)  # type: ignore[attr-defined]
    assert not counted.probed.has("fake-1", "support@1")
    counted.probed.add("fake-1", "support@1", drops=counted.probed.drops)
    assert counted.probed.is_current("fake-1", "support@1")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def serving(node: Node, tmp_path: Path) -> str:
    """Have the node serve release 1; return its adapter's name."""
    releases = make_releases(tmp_path, 1)
    node.reconciler.want(a_fleet(releases, route=Route(service=SERVICE, stable=1)))
    await node.settle(lambda: node.phase(1) is NodePhase.READY)
    await node.idle()
    node.engine.calls.clear()
    node.reports.clear()
    return releases[1].engine_name


async def test_flush_has_all_probed_again_under_what_serves(node: Node, tmp_path: Path) -> None:
    """No request is turned away meanwhile, and the report says the epoch."""
    name = await serving(node, tmp_path)
    asked: list[str] = []
    answer = node.engine.answer

    async def noted(model: str, question: Question, *, salt: str = "") -> Answer:
        assert node.link.told
        assert [1] == [ready.number for ready in node.link.told.ready]
        asked.append(model)
        await asyncio.sleep(0.02)
        return await answer(model, question, salt=salt)

    node.engine.answer = noted  # type: ignore[method-assign]
    await node.counted.flush()
    await node.settle(lambda: ("answer", name) in node.engine.calls)
    await node.idle()

    assert [name] * 4 == asked, "once"
    assert [(NodePhase.READY, 2)] == [
        (node.phase(1), report.cache_epoch) for report in node.reports
    ]


async def test_engine_that_goes_away_meanwhile_is_said(node: Node, tmp_path: Path) -> None:
    """What is probed again is ready only as long as all else is well."""
    name = await serving(node, tmp_path)
    goes_on = asyncio.Event()

    async def never(*_: object, **__: object) -> Answer:
        node.engine.is_away = True
        await goes_on.wait()
        raise TemporaryEngineError("the engine does not answer")

    node.engine.answer = never  # type: ignore[method-assign]
    await node.counted.flush()
    await node.settle(lambda: node.phase(1) is NodePhase.FAILED)
    goes_on.set()

    assert name in node.engine.adapters


async def test_base_that_serves_is_probed_again(node: Node, tmp_path: Path) -> None:
    """By the noise that was measured before the flush."""
    prompt = make_files(tmp_path / "prompt", {"system.txt": "Be brief."})
    releases: dict[int, Release] = {}
    next_release(releases, prompt=prompt)
    node.reconciler.want(a_fleet(releases, route=Route(service=SERVICE, stable=1)))
    await node.settle(lambda: node.phase(1) is NodePhase.READY)
    run = node.engine.incarnation
    node.probed.measure(run, 0.25)
    await node.counted.flush()
    assert not node.probed.is_current(run, BASE)
    await node.settle(lambda: node.probed.is_current(run, BASE))

    assert 0.25 == node.probed.noise(run)
    assert NodePhase.READY is node.phase(1)


async def test_what_fails_after_a_flush_is_taken_from_the_gateway(
    node: Node, tmp_path: Path
) -> None:
    """Until the fuse says whether it is quarantined, or too many nodes would be."""
    name = await serving(node, tmp_path)
    node.engine.stale[name] = node.engine.base
    await node.counted.flush()
    await node.settle(lambda: node.phase(1) is not NodePhase.READY)
    said = node.reports[-1].release(SERVICE, 1)

    assert said is not None
    assert (NodePhase.PROBING, True) == (said.phase, said.fails_probe)
    assert "its cached answer differs" in said.reason
    assert node.link.told is not None
    assert () == node.link.told.ready


async def test_engine_that_is_busy_after_a_flush_serves_on(node: Node, tmp_path: Path) -> None:
    """It is asked again later, until it has answered."""
    name = await serving(node, tmp_path)
    node.engine.failures["answer"] = TemporaryEngineError("busy")
    await node.counted.flush()
    await node.settle(lambda: len(node.engine.calls) > 1 or bool(node.reconciler._tries._tried))
    await node.idle()
    assert NodePhase.READY is node.phase(1)
    del node.engine.failures["answer"]
    node.now += 60
    await node.settle(lambda: node.engine.calls[-1] == ("answer", name))

    assert {NodePhase.READY} == {r.phase for report in node.reports for r in report.releases}


async def test_probe_that_a_flush_falls_into_does_not_count(node: Node, tmp_path: Path) -> None:
    """Half of what it saw was dropped: it is made once more."""
    releases = make_releases(tmp_path, 1)
    answer, flushes = node.engine.answer, iter([True])

    async def flushed(model: str, question: Question, *, salt: str = "") -> Answer:
        if model == releases[1].engine_name and next(flushes, False):
            await node.counted.flush()
        return await answer(model, question, salt=salt)

    node.engine.answer = flushed  # type: ignore[method-assign]
    node.reconciler.want(a_fleet(releases, route=Route(service=SERVICE, stable=1)))
    await node.settle(lambda: node.phase(1) is NodePhase.READY)

    probes = [call for call in node.engine.calls if call == ("answer", releases[1].engine_name)]
    assert 2 == len(probes)


async def test_name_that_goes_to_another_has_its_neighbours_probed_again(
    node: Node, tmp_path: Path
) -> None:
    """Direct mode drops the cache of the whole engine, and others serve from it."""
    name = await serving(node, tmp_path)
    fleet = node.reconciler.fleet
    assert fleet is not None
    adapter = make_adapter(tmp_path / "other", fill_byte=9)
    release = compose(OTHER, {Component.ADAPTER: adapter}, known=(), stable=None, by=Actor())
    direct = Service(
        name=OTHER,
        releases={1: release},
        route=Route(service=OTHER, mode=Mode.DIRECT, stable=1),
        route_revision=5,
    )
    node.reconciler.want(Fleet(services={**fleet.services, OTHER: direct}))
    await node.settle(lambda: bool(node.reports) and node.reports[-1].routes.get(OTHER) == 5)
    await node.settle(lambda: ("answer", name) in node.engine.calls)
    await node.idle()

    run = node.engine.incarnation
    assert node.probed.is_current(run, name)
    ours = [r for report in node.reports for r in report.releases if r.service == SERVICE]
    assert {NodePhase.READY} == {each.phase for each in ours}
    assert 2 == node.reports[-1].cache_epoch

"""A release under its service's own name, when asked; and adapters that vctl did not load."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.agent.support import SERVICE, Node, a_fleet, a_rollout, make_releases
from vctl_agent.engines.fake import FakeEngine
from vctl_agent.engines.port import Description, Resident
from vctl_agent.naming import Namer
from vctl_agent.placing import unmanaged
from vctl_plans.errors import TemporaryEngineError
from vctl_plans.inspection import NameRequest, VerifyRequest
from vctl_plans.node import MAX_UNMANAGED, Unmanaged
from vctl_plans.phase import Component, NodePhase, RolloutPhase
from vctl_plans.release import Actor, Release, adopted, compose
from vctl_plans.rollout import ServiceSpec
from vctl_plans.route import Mode, Route
from vctl_plans.snapshot import Fleet, Service


@pytest.fixture
def releases(tmp_path: Path) -> dict[int, Release]:
    return make_releases(tmp_path, 2)


def asked(release: Release, name: str = "q") -> NameRequest:
    return NameRequest(
        id=name, service=release.service, number=release.number, digest=release.digest
    )


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():
            await asyncio.sleep(0.002)


async def answered(node: Node, releases: dict[int, Release], *requests: NameRequest) -> Namer:
    """Have requests answered, all of them."""
    namer = Namer(node.executor, lambda: list(releases.values()), lambda: None)
    answering = asyncio.create_task(namer.requests.run())
    try:
        namer.requests.ask([*requests, VerifyRequest(id="v")])
        await until(lambda: len(namer.requests.answers) == len(requests))
    finally:
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)
    return namer


async def test_engine_holds_the_verified_copy_by_the_services_name(
    tmp_path: Path, releases: dict[int, Release]
):
    """Staged here if it was not; the answer is where the engine lists it from."""
    node = Node(tmp_path)
    (answer,) = (await answered(node, releases, asked(releases[2]))).requests.answers
    path = str(node.artifacts.path(releases[2].adapter.root))  # type: ignore[union-attr]
    assert ("q", path, "") == (answer.request, answer.path, answer.problem)
    assert {SERVICE: path} == node.engine.adapters


async def test_asked_twice_it_is_loaded_once_and_answers_go_with_their_requests(
    tmp_path: Path, releases: dict[int, Release]
):
    node = Node(tmp_path)
    namer = await answered(node, releases, asked(releases[1]), asked(releases[1], "r"))
    assert [("load", SERVICE)] == node.engine.calls
    namer.requests.ask([asked(releases[1], "r")])
    assert ["r"] == [each.request for each in namer.requests.answers]


async def test_what_was_loaded_by_hand_from_the_releases_source_is_left_alone(
    tmp_path: Path, releases: dict[int, Release]
):
    """It was adopted from there: nothing that runs is disturbed."""
    node = Node(tmp_path)
    source = releases[1].adapter.source.removeprefix("file://")  # type: ignore[union-attr]
    node.engine.adapters[SERVICE] = source
    (answer,) = (await answered(node, releases, asked(releases[1]))).requests.answers
    assert (source, "", []) == (answer.path, answer.problem, node.engine.calls)


async def test_name_that_holds_something_else_is_not_taken(
    tmp_path: Path, releases: dict[int, Release]
):
    node = Node(tmp_path)
    node.engine.adapters[SERVICE] = "/by/hand"
    (answer,) = (await answered(node, releases, asked(releases[1]))).requests.answers
    assert "holds support from /by/hand, which is not release 1" in answer.problem
    assert ("", []) == (answer.path, node.engine.calls)


async def test_release_that_is_not_known_and_engine_that_refuses_are_told(
    tmp_path: Path, releases: dict[int, Release]
):
    node = Node(tmp_path)
    strange = msgspec.structs.replace(asked(releases[1]), digest="b3:other")
    (answer,) = (await answered(node, releases, strange)).requests.answers
    assert answer.problem == "release 1 of support is not known here"
    node.engine.failures["load"] = TemporaryEngineError("no room")
    (answer,) = (await answered(node, releases, asked(releases[1]))).requests.answers
    assert answer.problem == "no room"
    node.engine.failures.clear()
    node.engine.lies = True
    (answer,) = (await answered(node, releases, asked(releases[1]))).requests.answers
    assert "does not list it" in answer.problem
    node.engine.is_away = True
    (answer,) = (await answered(node, releases, asked(releases[1]))).requests.answers
    assert "does not answer" in answer.problem


# -- adopted unverified --------------------------------------------------------------------------


def of_hand(known: dict[int, Release]) -> Release:
    """Return a release whose adapter nobody could read."""
    return compose(
        SERVICE, {Component.ADAPTER: adopted("tuned", "/by/hand")}, known=known.values(),
        stable=None, by=Actor(),
    )  # fmt: skip


async def test_adopted_adapter_serves_from_where_it_is(tmp_path: Path):
    """Probed like any other, and neither staged nor loaded."""
    node, release = Node(tmp_path), of_hand({})
    node.engine.adapters["tuned"] = "/by/hand"
    node.reconciler.want(a_fleet({1: release}, rollout=a_rollout(1)))
    await node.settle(lambda: node.phase(1) is NodePhase.READY)
    assert [("answer", "tuned")] == node.engine.calls
    assert node.link.told is not None
    assert ["tuned"] == [ready.model for ready in node.link.told.ready]


async def test_adopted_adapter_that_is_gone_is_not_loaded_again(tmp_path: Path):
    """Until somebody puts it back by hand: nobody ever verified what lies there."""
    node, release = Node(tmp_path), of_hand({})
    node.reconciler.want(a_fleet({1: release}, route=Route(service=SERVICE, stable=1)))
    await node.settle(lambda: node.phase(1) is NodePhase.FAILED)
    said = node.reports[-1].release(SERVICE, 1)
    assert said is not None
    assert "never verified" in said.reason
    assert not said.is_permanent
    assert [] == node.engine.calls

    node.engine.adapters["tuned"] = "/by/hand"
    node.now += 60
    await node.settle(lambda: node.phase(1) is NodePhase.READY)


async def test_adopted_adapter_is_not_unloaded(tmp_path: Path, releases: dict[int, Release]):
    """Others may call it by its name; it is gone as far as vctl is concerned."""
    node = Node(tmp_path)
    known = {1: of_hand({}), 2: msgspec.structs.replace(releases[2])}
    node.engine.adapters["tuned"] = "/by/hand"
    node.reconciler.want(a_fleet(known, route=Route(service=SERVICE, stable=1)))
    await node.settle(lambda: node.phase(1) is NodePhase.READY)
    ended = a_rollout(2, phase=RolloutPhase.SETTLING, unload=(1,))
    node.reconciler.want(a_fleet(known, rollout=ended, route=Route(service=SERVICE, stable=2)))
    await node.settle(lambda: node.phase(2) is NodePhase.READY)
    await node.idle()
    assert node.phase(1) is None
    assert "tuned" in node.engine.adapters
    assert "unload" not in {call for call, _ in node.engine.calls}


async def test_service_that_was_let_go_leaves_only_what_nobody_else_loaded(
    tmp_path: Path, releases: dict[int, Release]
):
    """Its identities go, once nothing is in flight; the public name stays."""
    node = Node(tmp_path)
    route = Route(service=SERVICE, stable=1, instant=(2,), good=(2, 1))
    node.reconciler.want(a_fleet(releases, route=route))
    await node.settle(lambda: node.phase(2) is node.phase(1) is NodePhase.READY)
    node.engine.adapters[SERVICE] = "/by/hand"
    node.link.in_flight = {1: 1}
    service = Service(
        name=SERVICE, releases=releases, spec=ServiceSpec(service=SERVICE, retired=route),
        spec_revision=3, rollout=a_rollout(2, phase=RolloutPhase.CONVERGED),
    )  # fmt: skip
    node.reconciler.want(Fleet(services={SERVICE: service}))
    await node.settle(lambda: node.phase(2) is None)
    await node.idle()
    assert {releases[1].engine_name, SERVICE} == set(node.engine.adapters)

    node.link.in_flight = {}
    await node.settle(lambda: node.phase(1) is None)
    assert {SERVICE} == set(node.engine.adapters)
    assert [SERVICE] == [each.name for each in node.reports[-1].unmanaged]


# -- what is nobody's ----------------------------------------------------------------------------


async def engine_with(*adapters: Resident) -> Description:
    return msgspec.structs.replace(await FakeEngine().describe(), adapters=adapters)


async def test_only_what_is_no_releases_is_reported(releases: dict[int, Release]):
    """Nor what vctl named itself for a release that it has not heard of."""
    root = "f" * 64
    engine = await engine_with(
        Resident(releases[1].engine_name, "/state/x"),
        Resident(f"gone@{root[:12]}", f"/state/{root}"),
        Resident("by-hand", "/m/1"),
        Resident("at@home", "/m/2"),
        Resident(SERVICE, "/m/3"),
    )
    services = a_fleet(releases).services.values()
    assert (
        Unmanaged("at@home", "/m/2"),
        Unmanaged("by-hand", "/m/1"),
        Unmanaged(SERVICE, "/m/3"),
    ) == unmanaged(engine, services)
    direct = Service(name=SERVICE, spec=ServiceSpec(service=SERVICE, mode=Mode.DIRECT))
    assert SERVICE not in {each.name for each in unmanaged(engine, [direct])}
    assert () == unmanaged(None, services)


async def test_report_stays_small():
    """However much somebody loads by hand."""
    many = (Resident(f"a{n:03}", f"/{n}") for n in reversed(range(100)))
    found = unmanaged(await engine_with(Resident("a", "/" + "x" * 9000), *many), ())
    assert [f"a{n:03}" for n in range(MAX_UNMANAGED)] == [each.name for each in found]

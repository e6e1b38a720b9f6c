"""An engine whose places are full is asked for nothing, and what serves is never what gives way."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from tests.agent.support import (
    SERVICE,
    Node,
    a_fleet,
    a_rollout,
    make_adapter,
    make_releases,
)
from vctl_agent.engines.fake import FakeEngine
from vctl_agent.gpu import Memory
from vctl_plans.errors import PermanentEngineError
from vctl_plans.phase import Component, NodePhase, RolloutPhase
from vctl_plans.release import Actor, Release, compose
from vctl_plans.route import Route
from vctl_plans.snapshot import Fleet, Service


def a_node(folder: Path, places: int) -> Node:
    return Node(folder, FakeEngine(max_adapters=places))


def reason(node: Node, number: int, service: str = SERVICE) -> str:
    said = node.reports[-1].release(service, number)
    return said.reason if said else ""


async def test_release_waits_for_a_place_with_the_numbers(tmp_path: Path) -> None:
    """What runs is left alone; once a place is free, it is loaded."""
    node, releases = a_node(tmp_path, 2), make_releases(tmp_path, 3)
    held = Route(service=SERVICE, stable=2, instant=(1,))
    node.reconciler.want(a_fleet(releases, route=held))
    await node.settle(lambda: len(node.engine.adapters) == 2)

    node.reconciler.want(a_fleet(releases, route=held, rollout=a_rollout(3)))
    await node.settle(lambda: node.phase(3) is NodePhase.STAGED)
    await node.idle()

    assert "the engine holds 2 adapters and has places for 2" == reason(node, 3)
    assert [] == node.engine.evicted
    assert ("load", releases[3].engine_name) not in node.engine.calls

    gives_way = a_rollout(3, unload=(1,))
    route = Route(service=SERVICE, stable=2)
    node.reconciler.want(a_fleet(releases, route=route, rollout=gives_way))
    await node.settle(lambda: node.phase(3) is NodePhase.READY)

    assert {releases[2].engine_name, releases[3].engine_name} == set(node.engine.adapters)
    assert [] == node.engine.evicted
    assert NodePhase.READY is node.phase(2)


async def test_two_that_are_brought_at_once_do_not_share_a_place(tmp_path: Path) -> None:
    """The one that is loading counts, though the engine does not list it yet."""
    node, releases = a_node(tmp_path, 1), make_releases(tmp_path, 2)
    route = Route(service=SERVICE, stable=1, candidate=2, weight=50)

    loads, may_load = node.engine.load, asyncio.Event()

    async def load(name: str, path: str) -> None:
        await may_load.wait()
        await loads(name, path)

    node.engine.load = load  # type: ignore[method-assign]
    node.reconciler.want(a_fleet(releases, route=route))
    waits = {NodePhase.STAGED, NodePhase.LOADING}
    await node.settle(lambda: waits == {node.phase(1), node.phase(2)})
    await node.idle()
    may_load.set()
    await node.settle(lambda: bool(node.engine.adapters))
    await node.idle()

    assert [] == node.engine.evicted
    assert 1 == len([call for call in node.engine.calls if call[0] == "load"])


async def test_what_serves_comes_before_what_is_retained(tmp_path: Path) -> None:
    """An engine that was started again with fewer places holds what serves."""
    node, releases = a_node(tmp_path, 2), make_releases(tmp_path, 2)
    route = Route(service=SERVICE, stable=2, instant=(1,))
    node.reconciler.want(a_fleet(releases, route=route))
    await node.settle(lambda: {NodePhase.READY} == {node.phase(1), node.phase(2)})

    node.engine.max_adapters = 1
    node.engine.restart()
    await node.settle(lambda: node.phase(2) is not NodePhase.READY)
    await node.settle(lambda: node.phase(2) is NodePhase.READY)
    await node.idle()

    assert [releases[2].engine_name] == list(node.engine.adapters)
    assert NodePhase.STAGED is node.phase(1)
    assert [] == node.engine.evicted


async def test_no_place_is_kept_for_what_is_refused(tmp_path: Path) -> None:
    """One bad adapter does not keep another service from its place."""
    node = a_node(tmp_path, 1)
    releases, chat = make_releases(tmp_path, 1), a_service(tmp_path, "chat", fill_byte=9)
    bad = releases[1].engine_name
    refuse = node.engine.load

    async def load(name: str, path: str) -> None:
        if name == bad:
            raise PermanentEngineError("refused")
        await refuse(name, path)

    node.engine.load = load  # type: ignore[method-assign]
    fleet = a_fleet(releases, route=Route(service=SERVICE, stable=1))
    retained = msgspec.structs.replace(chat, route=Route(service="chat", instant=(1,)))
    node.reconciler.want(Fleet(services={**fleet.services, "chat": retained}))

    await node.settle(lambda: chat.releases[1].engine_name in node.engine.adapters)

    assert "refused" == reason(node, 1)


async def test_exchanged_release_is_drained_and_unloaded_before_the_other_is_loaded(
    tmp_path: Path,
) -> None:
    """By the rollout's wave alone: the route still serves it, from other nodes."""
    node, releases = a_node(tmp_path, 1), make_releases(tmp_path, 2)
    route = Route(service=SERVICE, stable=1)
    node.reconciler.want(a_fleet(releases, route=route))
    await node.settle(lambda: node.phase(1) is NodePhase.READY)
    turn = {"wave_size": 1, "exchanges": True, "roster_size": 3}
    shifts = a_rollout(2, phase=RolloutPhase.SHIFTING, **turn)
    node.reconciler.want(a_fleet(releases, route=route, rollout=shifts))
    await node.settle(lambda: node.phase(2) is NodePhase.STAGED)
    assert NodePhase.READY is node.phase(1)

    node.link.in_flight = {1: 1}
    turned = msgspec.structs.replace(shifts, wave=100.0)
    node.reconciler.want(a_fleet(releases, route=route, rollout=turned))
    await node.settle(lambda: node.phase(1) is NodePhase.DRAINING)
    await node.idle()
    assert [releases[1].engine_name] == list(node.engine.adapters)
    assert node.link.told is not None
    assert () == node.link.told.ready

    node.link.in_flight = {}
    await node.settle(lambda: node.phase(2) is NodePhase.READY)
    assert [releases[2].engine_name] == list(node.engine.adapters)
    assert NodePhase.STAGED is node.phase(1)
    assert [] == node.engine.evicted

    back = msgspec.structs.replace(turned, phase=RolloutPhase.ROLLING_BACK, back_to=1, wave=0.0)
    revoked = Route(service=SERVICE, stable=1, revoked=(2,))
    node.reconciler.want(a_fleet(releases, route=revoked, rollout=back))
    await node.settle(lambda: node.phase(1) is NodePhase.READY)
    assert [releases[1].engine_name] == list(node.engine.adapters)


async def test_exchanged_release_under_requests_goes_at_the_drain_deadline(tmp_path: Path) -> None:
    node, releases = a_node(tmp_path, 1), make_releases(tmp_path, 2)
    route = Route(service=SERVICE, stable=1)
    node.reconciler.want(a_fleet(releases, route=route))
    await node.settle(lambda: node.phase(1) is NodePhase.READY)
    node.link.in_flight = {1: 3}
    turn = a_rollout(
        2, phase=RolloutPhase.SHIFTING, wave_size=1, exchanges=True, wave=100.0, drain_s=30.0
    )
    node.reconciler.want(a_fleet(releases, route=route, rollout=turn))
    await node.settle(lambda: node.phase(1) is NodePhase.DRAINING)
    node.now += 29
    await node.idle()
    assert [releases[1].engine_name] == list(node.engine.adapters)

    node.now += 2
    await node.settle(lambda: node.phase(2) is NodePhase.READY)


async def test_unload_that_fails_in_an_exchange_is_tried_again_after_a_wait(tmp_path: Path) -> None:
    node, releases = a_node(tmp_path, 1), make_releases(tmp_path, 2)
    route = Route(service=SERVICE, stable=1)
    node.reconciler.want(a_fleet(releases, route=route))
    await node.settle(lambda: node.phase(1) is NodePhase.READY)
    node.engine.lies = True
    turn = a_rollout(2, phase=RolloutPhase.SHIFTING, wave_size=1, exchanges=True, wave=100.0)
    node.reconciler.want(a_fleet(releases, route=route, rollout=turn))
    await node.settle(lambda: bool(reason(node, 1)))
    tries = len(node.engine.calls)
    await node.idle()
    assert tries == len(node.engine.calls)
    assert NodePhase.DRAINING is node.phase(1)

    node.engine.lies = False
    node.now += 60
    await node.settle(lambda: node.phase(2) is NodePhase.READY)


# -- memory ---------------------------------------------------------------------------------------


async def test_engine_that_tells_its_memory_keeps_a_fifth_of_it(tmp_path: Path) -> None:
    node, releases = a_node(tmp_path, 8), make_releases(tmp_path, 1)
    node.engine.free_memory = 0.19
    node.reconciler.want(a_fleet(releases, rollout=a_rollout(1)))

    await node.settle(lambda: node.phase(1) is NodePhase.STAGED)
    assert "19% of memory would be left after the load, and 20% must be" == reason(node, 1)
    assert [] == node.engine.calls

    node.engine.free_memory = 0.4
    await node.settle(lambda: node.phase(1) is NodePhase.READY)


async def test_size_of_the_adapter_counts(tmp_path: Path) -> None:
    node, releases = a_node(tmp_path, 8), make_releases(tmp_path, 1)
    adapter = msgspec.structs.replace(releases[1].components[Component.ADAPTER], size_bytes=300)
    made = msgspec.structs.replace(releases[1], components={Component.ADAPTER: adapter})
    node.engine.free_memory, node.engine.memory_bytes = 0.4, 1000
    node.reconciler.want(a_fleet({1: made}, rollout=a_rollout(1)))

    await node.settle(lambda: node.phase(1) is NodePhase.STAGED)

    assert "10% of memory would be left after the load, and 20% must be" == reason(node, 1)


@pytest.mark.parametrize(
    ("memory", "said"),
    [
        (None, "free memory is not known, and 30% must be left"),
        (Memory(0.25, 10**9), "25% of memory would be left after the load, and 30% must be"),
    ],
)
async def test_plan_that_demands_memory_is_not_served_on_hope(
    tmp_path: Path, memory: Memory | None, said: str
) -> None:
    node, releases = a_node(tmp_path, 8), make_releases(tmp_path, 1)
    node.reconciler._places._memory = lambda: memory
    node.reconciler.want(a_fleet(releases, rollout=a_rollout(1, free_memory=0.3)))

    await node.settle(lambda: node.phase(1) is NodePhase.STAGED)

    assert said == reason(node, 1)


@pytest.mark.parametrize(("used", "told"), [(0.0, 0.0), (0.801, 0.85), (0.85, 0.85), (1.0, 1.0)])
async def test_kv_cache_is_told_while_a_rollout_asks(
    tmp_path: Path, used: float, told: float
) -> None:
    """In steps, never less than it is; else every request would be a write."""
    node, releases = a_node(tmp_path, 8), make_releases(tmp_path, 2)
    node.engine.kv_used = used
    route = Route(service=SERVICE, stable=1)
    node.reconciler.want(a_fleet(releases, route=route, rollout=a_rollout(2)))
    await node.settle(lambda: bool(node.reports) and node.phase(2) is NodePhase.READY)
    assert node.reports[-1].kv_used is None

    node.reconciler.want(a_fleet(releases, route=route, rollout=a_rollout(2, asks_kv=True)))
    await node.idle()

    assert told == node.reports[-1].kv_used


# -- bad adapters ---------------------------------------------------------------------------------


def a_service(folder: Path, name: str, *, fill_byte: int, **config: object) -> Service:
    """Return another service, whose first release serves."""
    artifact = make_adapter(folder / name, fill_byte=fill_byte, **config)
    release: Release = compose(
        name, {Component.ADAPTER: artifact}, known=(), stable=None, by=Actor()
    )
    return Service(name=name, releases={1: release}, route=Route(service=name, stable=1))


BAD: list[tuple[dict[str, object], str]] = [
    ({"r": 16}, "its adapter is of rank 16, and the engine takes 8 at most"),
    ({"use_dora": True}, "its adapter has DoRA, which vllm does not take"),
    ({"modules_to_save": ["lm_head"]}, "its adapter has modules_to_save, which vllm does not take"),
    (
        {"base_model_name_or_path": "meta-llama/Llama-3.1-70B"},
        (
            "its adapter is of base meta-llama/Llama-3.1-70B,"
            " and the engine serves meta-llama/Llama-3.1-8B"
        ),
    ),
]


@pytest.mark.parametrize(("config", "said"), BAD)
async def test_bad_adapter_is_refused_before_the_engine_is_asked_and_alone(
    tmp_path: Path, config: dict[str, object], said: str
) -> None:
    """For good, with its own reason; the other service of the node does not notice."""
    node = a_node(tmp_path, 4)
    node.engine.kind, node.engine.max_rank = "vllm", 8
    node.engine.base = "meta-llama/Llama-3.1-8B"
    bad = a_service(tmp_path, "bad", fill_byte=3, **config)
    good = a_service(tmp_path, "good", fill_byte=4)
    node.reconciler.want(Fleet(services={"bad": bad, "good": good}))

    await node.settle(lambda: bool(reason(node, 1, "bad")))
    await node.settle(lambda: bool(node.link.told and node.link.told.ready))
    node.now += 1000
    await node.idle()

    assert said == reason(node, 1, "bad")
    told = node.reports[-1].release("bad", 1)
    assert told is not None
    assert (NodePhase.FAILED, True) == (told.phase, told.is_permanent)
    assert [("load", good.releases[1].engine_name)] == [
        call for call in node.engine.calls if call[0] == "load"
    ]


async def test_refused_rank_is_asked_again_of_another_engine(tmp_path: Path) -> None:
    """What one run of the engine does not take, the next may."""
    node, releases = a_node(tmp_path, 4), make_releases(tmp_path, 1)
    node.engine.max_rank = 1
    node.reconciler.want(a_fleet(releases, route=Route(service=SERVICE, stable=1)))
    await node.settle(lambda: node.phase(1) is NodePhase.FAILED)

    node.engine.max_rank = 8
    node.engine.restart()

    await node.settle(lambda: node.phase(1) is NodePhase.READY)


async def test_pickle_in_place_of_weights_is_refused_by_name(tmp_path: Path) -> None:
    """Nor does it help that its root was given."""
    node, releases = a_node(tmp_path, 4), make_releases(tmp_path, 1)
    folder = tmp_path / "v1"
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")
    node.reconciler.want(a_fleet(releases, route=Route(service=SERVICE, stable=1)))

    await node.settle(lambda: node.phase(1) is NodePhase.FAILED)

    assert "adapter_model.safetensors is missing" in reason(node, 1)
    assert "adapter_model.bin is a pickle, which is never served" in reason(node, 1)


@pytest.mark.parametrize("content", ["{", '{"peft_type": "LORA"}', '{"peft_type": "IA3"}'])
async def test_configuration_that_does_not_validate_is_refused(
    tmp_path: Path, content: str
) -> None:
    node, releases = a_node(tmp_path, 4), make_releases(tmp_path, 1)
    (tmp_path / "v1" / "adapter_config.json").write_text(content)
    node.reconciler.want(a_fleet(releases, route=Route(service=SERVICE, stable=1)))

    await node.settle(lambda: node.phase(1) is NodePhase.FAILED)

    assert "adapter_config.json" in reason(node, 1)
    assert [] == node.engine.calls


async def test_manifest_that_names_files_outside_is_not_followed(tmp_path: Path) -> None:
    """The copy is made of the artifact's own files, and hashed whatever a manifest says."""
    node, releases = a_node(tmp_path, 4), make_releases(tmp_path, 1)
    secret = tmp_path / "secret"
    secret.write_text("secret")
    manifest = tmp_path / "v1" / "vctl.manifest.json"
    manifest.write_text('{"files": [{"path": "../secret", "size": 6}]}')
    node.reconciler.want(a_fleet(releases, route=Route(service=SERVICE, stable=1)))

    await node.settle(lambda: node.phase(1) is NodePhase.READY)

    staged = {path.name for path in (tmp_path / "state" / "artifacts").rglob("*")}
    assert "secret" not in staged

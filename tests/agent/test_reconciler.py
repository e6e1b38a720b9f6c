"""A node is brought to what is wanted of it, from whatever it holds, and never under a request."""

from pathlib import Path

import pytest

from tests.agent.support import SERVICE, Node, a_fleet, a_rollout, make_releases
from vctl_plans.errors import PermanentEngineError, TemporaryEngineError
from vctl_plans.phase import NodePhase, RolloutPhase
from vctl_plans.route import Route


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def test_release_that_is_wanted_becomes_ready(node: Node, tmp_path: Path) -> None:
    """It is staged, loaded, probed and offered, in this order."""
    releases = make_releases(tmp_path, 1)
    node.reconciler.want(a_fleet(releases, rollout=a_rollout(1)))

    await node.settle(lambda: node.phase(1) is NodePhase.READY)

    name = releases[1].engine_name
    assert [("load", name), ("probe", name)] == node.engine.calls
    assert node.link.told is not None
    assert [(SERVICE, 1, name)] == [(r.service, r.number, r.model) for r in node.link.told.ready]


async def test_release_is_offered_only_after_its_probe(node: Node, tmp_path: Path) -> None:
    """While the probe has not passed, the gateway is not told."""
    node.engine.failures["probe"] = TemporaryEngineError("busy")
    node.reconciler.want(a_fleet(make_releases(tmp_path, 1), rollout=a_rollout(1)))

    await node.settle(lambda: node.phase(1) is NodePhase.FAILED)

    assert node.link.told is not None
    assert node.link.told.ready == ()


async def test_flipped_bit_is_refused_for_good(node: Node, tmp_path: Path) -> None:
    """Bytes other than the root's never reach the engine, and trying again is not tried."""
    releases = make_releases(tmp_path, 1)
    weights_file = tmp_path / "v1" / "adapter_model.safetensors"
    content = bytearray(weights_file.read_bytes())
    content[-1] ^= 1
    weights_file.write_bytes(content)
    node.reconciler.want(a_fleet(releases, rollout=a_rollout(1)))

    await node.settle(lambda: node.phase(1) is NodePhase.FAILED)
    node.now += 1000
    await node.idle()

    assert node.engine.calls == []
    said = node.reports[-1].release(SERVICE, 1)
    assert said is not None
    assert said.is_permanent
    assert list((tmp_path / "state" / "artifacts").iterdir()) == []


async def test_failure_is_forgotten_with_the_next_rollout(node: Node, tmp_path: Path) -> None:
    """`retry` starts the same release again, and the node tries again."""
    releases = make_releases(tmp_path, 1)
    node.engine.failures["load"] = PermanentEngineError("refused")
    node.reconciler.want(a_fleet(releases, rollout=a_rollout(1)))
    await node.settle(lambda: node.phase(1) is NodePhase.FAILED)

    node.engine.failures.clear()
    node.reconciler.want(a_fleet(releases, rollout=a_rollout(1, id="again")))
    await node.settle(lambda: node.phase(1) is NodePhase.READY)

    said = node.reports[-1].release(SERVICE, 1)
    assert said is not None
    assert said.attempt == "again"


async def test_temporary_failure_is_tried_again_after_a_wait(node: Node, tmp_path: Path) -> None:
    """Not before the wait is over, and then until it works."""
    node.engine.failures["load"] = TemporaryEngineError("full")
    node.reconciler.want(a_fleet(make_releases(tmp_path, 1), rollout=a_rollout(1)))
    await node.settle(lambda: node.phase(1) is NodePhase.FAILED)
    tries = len(node.engine.calls)
    await node.idle()
    assert tries == len(node.engine.calls)

    node.engine.failures.clear()
    node.now += 60
    await node.settle(lambda: node.phase(1) is NodePhase.READY)


async def test_engine_that_says_yes_and_does_nothing_is_not_believed(
    node: Node, tmp_path: Path
) -> None:
    """The state is read back after the call."""
    node.engine.lies = True
    node.reconciler.want(a_fleet(make_releases(tmp_path, 1), rollout=a_rollout(1)))

    await node.settle(lambda: node.phase(1) is NodePhase.FAILED)

    assert node.link.told is not None
    assert node.link.told.ready == ()


async def test_failed_probe_is_a_quarantine(node: Node, tmp_path: Path) -> None:
    """A release whose answers are not its own is loaded and never offered."""
    node.engine.failures["probe"] = PermanentEngineError("answers as the base")
    node.reconciler.want(a_fleet(make_releases(tmp_path, 1), rollout=a_rollout(1)))

    await node.settle(lambda: node.phase(1) is NodePhase.QUARANTINED)

    assert node.link.told is not None
    assert node.link.told.ready == ()


async def test_restarted_engine_is_loaded_again(node: Node, tmp_path: Path) -> None:
    """All that it held is gone; what the disk holds is not fetched again."""
    releases = make_releases(tmp_path, 1)
    route = Route(service=SERVICE, stable=1)
    node.reconciler.want(a_fleet(releases, route=route))
    await node.settle(lambda: node.phase(1) is NodePhase.READY)
    (tmp_path / "v1" / "adapter_config.json").unlink()  # the source is not needed any more

    node.engine.restart()
    await node.settle(lambda: node.phase(1) is not NodePhase.READY)
    await node.settle(lambda: node.phase(1) is NodePhase.READY)

    assert [releases[1].engine_name] == list(node.engine.adapters)


async def test_restarted_agent_adopts_what_the_engine_holds(node: Node, tmp_path: Path) -> None:
    """It neither loads nor probes again, and offers the release at its first word."""
    fleet = a_fleet(make_releases(tmp_path, 1), route=Route(service=SERVICE, stable=1))
    node.reconciler.want(fleet)
    await node.settle(lambda: node.phase(1) is NodePhase.READY)
    node.engine.calls.clear()

    again = Node(tmp_path, node.engine)
    again.reconciler.want(fleet)
    await again.idle(1)

    assert again.phase(1) is NodePhase.READY
    assert node.engine.calls == []


async def test_agent_that_does_not_know_says_nothing(node: Node) -> None:
    """Before it has seen fleet and engine, it does not tell the gateway to serve nothing."""
    await node.idle()
    assert node.link.told is None

    node.engine.is_away = True
    node.reconciler.want(a_fleet({}))
    await node.idle()

    assert node.link.told is None


async def test_release_is_unloaded_only_when_listed(node: Node, tmp_path: Path) -> None:
    """That nothing wants it is not enough."""
    releases = make_releases(tmp_path, 2)
    node.reconciler.want(a_fleet(releases, route=Route(service=SERVICE, stable=1)))
    await node.settle(lambda: node.phase(1) is NodePhase.READY)

    route = Route(service=SERVICE, stable=2)
    settling = a_rollout(2, phase=RolloutPhase.SETTLING)
    node.reconciler.want(a_fleet(releases, rollout=settling, route=route))
    await node.settle(lambda: node.phase(2) is NodePhase.READY)
    await node.idle()
    assert node.phase(1) is NodePhase.READY

    listed = a_rollout(2, phase=RolloutPhase.SETTLING, unload=(1,))
    node.reconciler.want(a_fleet(releases, rollout=listed, route=route))
    await node.settle(lambda: node.phase(1) is None)

    assert [releases[2].engine_name] == list(node.engine.adapters)


async def test_release_is_not_unloaded_under_a_request(node: Node, tmp_path: Path) -> None:
    """Requests in flight are waited for, up to the drain deadline."""
    releases = make_releases(tmp_path, 2)
    node.reconciler.want(a_fleet(releases, route=Route(service=SERVICE, stable=1)))
    await node.settle(lambda: node.phase(1) is NodePhase.READY)
    node.link.in_flight[1] = 1
    listed = a_rollout(2, phase=RolloutPhase.SETTLING, unload=(1,), drain_s=30)
    node.reconciler.want(a_fleet(releases, rollout=listed, route=Route(service=SERVICE, stable=2)))

    await node.settle(lambda: node.phase(1) is NodePhase.DRAINING)
    node.now += 29
    await node.idle()
    assert releases[1].engine_name in node.engine.adapters

    node.link.in_flight[1] = 0
    await node.settle(lambda: releases[1].engine_name not in node.engine.adapters)


@pytest.mark.parametrize("is_away", [False, True])
async def test_drain_deadline_ends_the_wait(node: Node, tmp_path: Path, is_away: bool) -> None:
    """A stream that never ends, or a gateway that is away, holds nothing up for ever."""
    releases = make_releases(tmp_path, 2)
    node.reconciler.want(a_fleet(releases, route=Route(service=SERVICE, stable=1)))
    await node.settle(lambda: node.phase(1) is NodePhase.READY)
    node.link.in_flight[1] = 1
    node.link.is_away = is_away
    listed = a_rollout(2, phase=RolloutPhase.SETTLING, unload=(1,), drain_s=30)
    node.reconciler.want(a_fleet(releases, rollout=listed, route=Route(service=SERVICE, stable=2)))
    await node.settle(lambda: node.phase(1) is NodePhase.DRAINING)

    node.now += 31
    await node.settle(lambda: releases[1].engine_name not in node.engine.adapters)


async def test_same_bytes_in_a_wanted_release_are_not_unloaded(node: Node, tmp_path: Path) -> None:
    """Two releases with one root share one adapter in the engine."""
    first = make_releases(tmp_path, 1)[1]
    twin = type(first)(
        service=SERVICE, number=2, components=first.components, vector=first.vector, digest="b3:2"
    )
    releases = {1: first, 2: twin}
    node.reconciler.want(a_fleet(releases, route=Route(service=SERVICE, stable=1)))
    await node.settle(lambda: node.phase(1) is NodePhase.READY)

    listed = a_rollout(2, phase=RolloutPhase.SETTLING, unload=(1,))
    node.reconciler.want(a_fleet(releases, rollout=listed, route=Route(service=SERVICE, stable=2)))
    await node.settle(lambda: node.phase(2) is NodePhase.READY)
    await node.idle()

    assert [first.engine_name] == list(node.engine.adapters)
    assert node.phase(1) is None, "else the rollout would wait for it to be unloaded"


async def test_report_is_made_only_when_something_changed(node: Node, tmp_path: Path) -> None:
    """A quiet node writes nothing."""
    node.reconciler.want(
        a_fleet(make_releases(tmp_path, 1), route=Route(service=SERVICE, stable=1))
    )
    await node.settle(lambda: node.phase(1) is NodePhase.READY)
    made = len(node.reports)

    await node.idle()

    assert made == len(node.reports)


async def test_route_is_acknowledged_while_the_engine_hangs(node: Node, tmp_path: Path) -> None:
    """What the gateway acts on is reported, whatever else is slow."""
    node.reconciler.want(a_fleet(make_releases(tmp_path, 1), rollout=a_rollout(1)))
    await node.idle(1)
    node.link.routes = {SERVICE: 7}

    node.reconciler.cycle(node.link)  # type: ignore[arg-type]

    assert node.reports[-1].routes == {SERVICE: 7}

"""A node's base weights: staged first, drained, swapped, confirmed; and only then loaded upon."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from tests.agent.support import Cut, FakeLink, Node, a_fleet, a_rollout, make_adapter, next_release
from tests.weights.building import fill, pack, zeros
from vctl_agent.engines.fake import FakeEngine
from vctl_agent.local import AgentState, GatewayState
from vctl_plans import weights
from vctl_plans.errors import PermanentEngineError, TemporaryEngineError
from vctl_plans.phase import NodePhase, RolloutPhase
from vctl_plans.release import Artifact, Release
from vctl_plans.rollout import Rollout
from vctl_plans.route import Route

SERVICE = "support"
ROUTE = Route(service=SERVICE, stable=1, good=(1,))
READY, STAGED, DRAINING = NodePhase.READY, NodePhase.STAGED, NodePhase.DRAINING


def make_base(path: Path) -> Artifact:
    """Write a model directory and return the artifact that it is."""
    model = pack([zeros("model.embed_tokens.weight", "F32", 4, 4)])
    fill(path, {"config.json": "{}", "model.safetensors": model})
    return Artifact(root=weights.scan(path, kind="model").root, source=f"file://{path}")


@pytest.fixture
def releases(tmp_path: Path) -> dict[int, Release]:
    """Release 1 on the engine's own base, release 2 with its adapter on another."""
    made: dict[int, Release] = {}
    next_release(made, adapter=make_adapter(tmp_path / "v1"))
    next_release(made, weights=make_base(tmp_path / "base2"))
    return made


def a_base_rollout(wave: float, **more: object) -> Rollout:
    """Return a rollout of release 2, in which one node may be without a base."""
    phase = RolloutPhase.SHIFTING if wave else RolloutPhase.PREPARING
    return a_rollout(2, phase=phase, wave_size=1, wave=wave, drain_s=30.0, **more)


def want(
    node: Node, releases: dict[int, Release], rollout: Rollout | None, **route: object
) -> None:
    """Have the fleet want this of the node."""
    changed = msgspec.structs.replace(ROUTE, **route)
    node.reconciler.want(a_fleet(releases, rollout=rollout, route=changed))


async def on_release_1(folder: Path, releases: dict[int, Release], **more: object) -> Node:
    """Return a node that serves release 1 and has release 2 on its disk."""
    node = Node(folder, **more)  # type: ignore[arg-type]
    want(node, releases, a_base_rollout(0.0))
    await node.settle(lambda: (node.phase(1), node.phase(2)) == (READY, STAGED))
    return node


def base_path(node: Node, releases: dict[int, Release]) -> str:
    """Return where release 2's base lies on the node."""
    return str(node.artifacts.path(releases[2].components["weights"].root))  # type: ignore[index]


async def test_release_of_another_base_is_staged_and_waits(
    tmp_path: Path, releases: dict[int, Release]
) -> None:
    """All that can be done without taking anything from what serves; its adapter is not loaded."""
    node = await on_release_1(tmp_path, releases)
    await node.idle()

    assert "" == node.engine.base_path
    assert {1} == {ready.number for ready in node.link.heard.accepted}  # type: ignore[union-attr]
    assert [("load", releases[1].engine_name), ("answer", releases[1].engine_name)] == (
        node.engine.calls
    )


async def test_node_in_the_wave_changes_its_base_and_loads_upon_it(
    tmp_path: Path, releases: dict[int, Release]
) -> None:
    """The same adapter is loaded and probed again: its name stands for other numbers now."""
    node = await on_release_1(tmp_path, releases)
    node.engine.calls.clear()

    want(node, releases, a_base_rollout(100.0))
    await node.settle(lambda: node.phase(2) is READY)

    assert STAGED is node.phase(1)
    assert releases[2].components["weights"].root == node.reports[-1].base  # type: ignore[index]
    name = releases[2].engine_name
    assert [("swap_base", base_path(node, releases)), ("load", name), ("answer", name)] == (
        node.engine.calls
    )


async def test_requests_in_flight_are_waited_for(
    tmp_path: Path, releases: dict[int, Release]
) -> None:
    """No new one comes, and the engine keeps its base until the last has ended."""
    node = await on_release_1(tmp_path, releases)
    node.link.in_flight = {1: 2}
    want(node, releases, a_base_rollout(100.0))
    await node.settle(lambda: node.phase(1) is DRAINING)
    await node.idle()
    assert () == node.link.heard.accepted  # type: ignore[union-attr]
    assert "" == node.engine.base_path

    node.link.in_flight = {}
    await node.settle(lambda: node.phase(2) is READY)


async def test_gateway_that_may_still_hand_out_references_is_waited_for(
    tmp_path: Path, releases: dict[int, Release]
) -> None:
    """It is told, and has not confirmed: nothing is in flight, and something may be at once."""
    node = await on_release_1(tmp_path, releases)
    slow = SlowLink(node.link)
    node.link = slow  # type: ignore[assignment]
    want(node, releases, a_base_rollout(100.0))
    await node.settle(lambda: node.phase(1) is DRAINING)
    await node.idle()
    assert "" == node.engine.base_path

    slow.confirm()
    await node.settle(lambda: node.engine.base_path == base_path(node, releases))


class SlowLink:
    """A gateway that acts on what it was told before, until it confirms."""

    def __init__(self, link: FakeLink) -> None:
        self._link = link
        self._heard = link.heard
        self.is_current = False

    def tell(self, state: AgentState) -> None:
        self._link.tell(state)

    def confirm(self) -> None:
        self._heard = self._link.heard

    @property
    def heard(self) -> GatewayState | None:
        return self._heard


@pytest.mark.parametrize("is_away", [True, False])
async def test_drain_deadline_ends_the_wait(
    tmp_path: Path, releases: dict[int, Release], *, is_away: bool
) -> None:
    """For requests that do not end, and where the gateway does not tell."""
    node = await on_release_1(tmp_path, releases)
    node.link.in_flight, node.link.is_away = {1: 1}, is_away
    want(node, releases, a_base_rollout(100.0))
    await node.settle(lambda: node.phase(1) is DRAINING)
    node.now += 29.0
    await node.idle()
    assert "" == node.engine.base_path

    node.now += 2.0
    await node.settle(lambda: node.engine.base_path == base_path(node, releases))


async def test_node_returns_to_the_base_that_its_engine_started_with(
    tmp_path: Path, releases: dict[int, Release]
) -> None:
    """A rollback lets it out of the wave."""
    node = await on_release_1(tmp_path, releases)
    want(node, releases, a_base_rollout(100.0))
    await node.settle(lambda: node.phase(2) is READY)

    want(node, releases, a_base_rollout(0.0, back_to=1))
    await node.settle(lambda: node.phase(1) is READY)

    assert "" == node.engine.base_path
    assert "" == node.reports[-1].base


async def test_engine_that_was_restarted_gets_its_base_again(
    tmp_path: Path, releases: dict[int, Release]
) -> None:
    """It comes up with its own, whatever it held before; nothing is served of it meanwhile."""
    node = await on_release_1(tmp_path, releases)
    want(node, releases, None, stable=2, good=(1, 2))
    await node.settle(lambda: node.phase(2) is READY)

    node.engine.restart()
    await node.settle(lambda: node.phase(2) is not READY)
    await node.settle(lambda: node.phase(2) is READY)

    assert base_path(node, releases) == node.engine.base_path


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("lies", "the engine holds the base that it was started with"),
        ("keeps_cache", "12 entries are still cached"),
        ("keeps_incarnation", "the engine says that it is as it was"),
    ],
)
async def test_change_that_is_not_confirmed_is_a_quarantine(
    tmp_path: Path, releases: dict[int, Release], fault: str, reason: str
) -> None:
    """The engine's yes is not believed; it is not asked again within the rollout."""
    node = await on_release_1(tmp_path, releases)
    setattr(node.engine, fault, True)
    node.engine.calls.clear()
    want(node, releases, a_base_rollout(100.0))
    await node.settle(lambda: node.phase(2) is NodePhase.QUARANTINED)
    node.now += 100.0
    await node.idle()

    said = node.reports[-1].release(SERVICE, 2)
    assert said
    assert (f"the change of the base is not confirmed: {reason}", True) == (
        said.reason,
        said.is_permanent,
    )
    assert [("swap_base", base_path(node, releases))] == node.engine.calls
    assert () == node.link.heard.accepted  # type: ignore[union-attr]


class SlowEngine(FakeEngine):
    """Answers a while after it has swapped: others see the new base before the agent knows."""

    async def swap_base(self, path: str) -> None:
        await super().swap_base(path)
        await asyncio.sleep(0.03)


async def test_nothing_is_loaded_on_a_base_that_is_not_confirmed_yet(
    tmp_path: Path, releases: dict[int, Release]
) -> None:
    """Also where the engine lists it already."""
    node = await on_release_1(tmp_path, releases, engine=SlowEngine())
    node.engine.keeps_cache = True
    node.engine.calls.clear()
    want(node, releases, a_base_rollout(100.0))
    await node.settle(lambda: node.phase(2) is NodePhase.QUARANTINED)
    await node.idle()

    assert [("swap_base", base_path(node, releases))] == node.engine.calls


async def test_quarantine_of_one_base_is_none_of_the_other(
    tmp_path: Path, releases: dict[int, Release]
) -> None:
    """The node goes back, and serves what it served."""
    node = await on_release_1(tmp_path, releases)
    node.engine.failures["swap_base"] = PermanentEngineError("no such model")
    want(node, releases, a_base_rollout(100.0))
    await node.settle(lambda: node.phase(2) is NodePhase.QUARANTINED)

    want(node, releases, a_base_rollout(0.0, back_to=1))
    await node.settle(lambda: node.phase(1) is READY)


async def test_busy_engine_is_asked_again_after_a_while(
    tmp_path: Path, releases: dict[int, Release]
) -> None:
    """The reason is told meanwhile."""
    node = await on_release_1(tmp_path, releases)
    node.engine.failures["swap_base"] = TemporaryEngineError("2 requests still run")
    want(node, releases, a_base_rollout(100.0))
    await node.settle(lambda: node.phase(2) is NodePhase.FAILED)
    await node.idle()
    said = node.reports[-1].release(SERVICE, 2)
    assert said
    assert ("2 requests still run", False) == (said.reason, said.is_permanent)

    node.engine.failures.clear()
    node.now += 2.0
    await node.settle(lambda: node.phase(2) is READY)


async def test_agent_killed_after_the_swap_goes_on(
    tmp_path: Path, releases: dict[int, Release]
) -> None:
    """The next one finds the base there, and loads upon it."""
    node = await on_release_1(tmp_path, releases, crashpoints=Cut(7))
    want(node, releases, a_base_rollout(100.0))
    await node.settle(lambda: node.is_killed)
    await node.bury()
    assert base_path(node, releases) == node.engine.base_path

    again = Node(tmp_path, node.engine)
    node.engine.calls.clear()
    want(again, releases, a_base_rollout(100.0))
    await again.settle(lambda: again.phase(2) is READY)

    name = releases[2].engine_name
    assert [("load", name), ("answer", name)] == node.engine.calls

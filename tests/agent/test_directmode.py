"""Direct mode on a node: one name, one release at a time, put there and probed at the switch."""

from pathlib import Path

import msgspec
import pytest

from tests.agent.support import SERVICE, Cut, Node, a_rollout, make_releases
from vctl_agent.engines.fake import FakeEngine
from vctl_agent.engines.suspect import Suspect
from vctl_agent.gatewaylink import NoGateway
from vctl_plans.direct import STAGED
from vctl_plans.errors import (
    PermanentEngineError,
    SuspectEngineError,
    TemporaryEngineError,
)
from vctl_plans.phase import NodePhase, RolloutPhase
from vctl_plans.release import Release
from vctl_plans.rollout import Rollout, ServiceSpec
from vctl_plans.route import Mode, Route
from vctl_plans.snapshot import Fleet, Service

SPEC = ServiceSpec(service=SERVICE, mode=Mode.DIRECT)


class Picky(FakeEngine):
    """An engine that answers as its base does by what it holds from some directories."""

    def __init__(self) -> None:
        super().__init__()
        self.bad: set[str] = set()

    def _source(self, model: str) -> str:
        is_bad = self.adapters.get(model) in self.bad
        return super()._source(self.facts.base if is_bad else model)


def direct_fleet(
    releases: dict[int, Release],
    *,
    rollout: Rollout | None = None,
    revision: int = 0,
    **route: object,
) -> Fleet:
    """Return a fleet with the one service, in direct mode; its route, if it has one, by fields."""
    made = Route(service=SERVICE, mode=Mode.DIRECT)
    service = Service(
        name=SERVICE,
        spec=SPEC,
        spec_revision=1,
        releases=releases,
        rollout=rollout,
        route=msgspec.structs.replace(made, **route) if revision else None,
        route_revision=revision,
    )
    return Fleet(services={SERVICE: service})


@pytest.fixture
def releases(tmp_path: Path) -> dict[int, Release]:
    return make_releases(tmp_path, 3)


async def serving(node: Node, releases: dict[int, Release]) -> None:
    """Have the node serve release 1."""
    node.reconciler.want(direct_fleet(releases, revision=5, stable=1, good=(1,)))
    await node.settle(lambda: acts_on(node) == 5)


def acts_on(node: Node) -> int:
    return node.reports[-1].routes.get(SERVICE, 0) if node.reports else 0


def held(node: Node) -> str:
    return node.engine.adapters.get(SERVICE, "")


def path(node: Node, release: Release) -> str:
    assert release.adapter
    return str(node.artifacts.path(release.adapter.root))


def switching(releases: dict[int, Release], *, to: int = 2, revision: int = 6) -> Fleet:
    """Return the fleet once all traffic is to be on the candidate."""
    rollout = a_rollout(to, phase=RolloutPhase.SHIFTING)
    return direct_fleet(
        releases, rollout=rollout, revision=revision,
        stable=to - 1, candidate=to, weight=100.0, good=(to - 1,),
    )  # fmt: skip


async def test_candidate_is_staged_and_the_engine_is_not_touched(
    tmp_path: Path, releases: dict[int, Release]
):
    """Ready is all that it can be while another has the name; and it is said."""
    node = Node(tmp_path)
    await serving(node, releases)
    node.engine.calls.clear()
    preparing = direct_fleet(releases, rollout=a_rollout(2), revision=5, stable=1, good=(1,))
    node.reconciler.want(preparing)

    await node.settle(lambda: node.phase(2) is NodePhase.READY)
    said = node.reports[-1].release(SERVICE, 2)

    assert said is not None
    assert (said.reason, said.attempt) == (STAGED, "r2")
    assert [] == node.engine.calls
    assert path(node, releases[1]) == held(node)


async def test_candidate_is_not_ready_where_no_engine_answers(
    tmp_path: Path, releases: dict[int, Release]
):
    """Staged as it may be: the switch would fail."""
    node = Node(tmp_path)
    await serving(node, releases)
    node.engine.is_away = True
    node.reconciler.want(
        direct_fleet(releases, rollout=a_rollout(2), revision=5, stable=1, good=(1,))
    )
    await node.settle(lambda: node.phase(2) is NodePhase.FAILED)
    node.engine.is_away = False
    await node.settle(lambda: node.phase(2) is NodePhase.READY)


async def test_first_release_takes_the_name_once_it_is_routed(
    tmp_path: Path, releases: dict[int, Release]
):
    node = Node(tmp_path)
    node.reconciler.want(direct_fleet(releases, rollout=a_rollout(1)))
    await node.settle(lambda: node.phase(1) is NodePhase.READY)
    assert [] == node.engine.calls

    await serving(node, releases)

    assert [("replace", SERVICE), ("answer", SERVICE)] == node.engine.calls
    assert {SERVICE: path(node, releases[1])} == node.engine.adapters


async def test_switch_replaces_and_probes_before_the_route_is_reported(
    tmp_path: Path, releases: dict[int, Release]
):
    node = Node(tmp_path)
    await serving(node, releases)
    node.engine.calls.clear()
    node.engine.failures["answer"] = TemporaryEngineError("busy")
    node.reconciler.want(switching(releases))
    await node.settle(lambda: node.phase(2) is NodePhase.FAILED)
    await node.idle()
    assert (path(node, releases[2]), 0) == (held(node), acts_on(node))

    del node.engine.failures["answer"]
    node.now += 60
    await node.settle(lambda: acts_on(node) == 6)

    assert ("replace", SERVICE) == node.engine.calls[0]
    assert ["replace"] == [call for call, _ in node.engine.calls if call != "answer"]
    assert NodePhase.READY is node.phase(1)  # it lies on disk, for the way back
    assert "" == node.reconciler.unserved


async def test_gateway_is_told_nothing_of_it(tmp_path: Path, releases: dict[int, Release]):
    """And what the gateway says that it acts on is not taken for the engine's word."""
    node = Node(tmp_path)
    node.link.routes = {SERVICE: 99, "other": 4}
    await serving(node, releases)
    assert node.link.told is not None
    assert () == node.link.told.ready
    assert {SERVICE: 5, "other": 4} == node.reports[-1].routes


async def test_failed_probe_goes_back_by_itself_and_reports(
    tmp_path: Path, releases: dict[int, Release]
):
    """What served before serves again, probed; the route is not reported; nothing is tried on."""
    engine = Picky()
    node = Node(tmp_path, engine)
    await serving(node, releases)
    engine.bad.add(path(node, releases[2]))
    node.reconciler.want(switching(releases))

    await node.settle(lambda: node.phase(2) is NodePhase.QUARANTINED)
    await node.settle(lambda: held(node) == path(node, releases[1]))
    await node.settle(lambda: not node.reconciler._doing.phases)
    engine.calls.clear()
    node.now += 600
    await node.idle()
    said = node.reports[-1].release(SERVICE, 2)

    assert said is not None
    assert (said.is_permanent, said.fails_probe) == (True, True)
    assert "as the base" in said.reason
    assert (0, []) == (acts_on(node), engine.calls)
    assert NodePhase.READY is node.phase(1)


async def test_rollback_after_a_failed_probe_needs_nothing_more(
    tmp_path: Path, releases: dict[int, Release]
):
    engine = Picky()
    node = Node(tmp_path, engine)
    await serving(node, releases)
    engine.bad.add(path(node, releases[2]))
    node.reconciler.want(switching(releases))
    await node.settle(lambda: node.phase(2) is NodePhase.QUARANTINED)
    await node.settle(
        lambda: held(node) == path(node, releases[1]) and not node.reconciler._doing.phases
    )
    engine.calls.clear()

    back = a_rollout(2, phase=RolloutPhase.ROLLING_BACK, back_to=1, request="q", unload=(2,))
    node.reconciler.want(
        direct_fleet(releases, rollout=back, revision=7, stable=1, revoked=(2,), good=(1,))
    )
    await node.settle(lambda: acts_on(node) == 7)

    assert [] == engine.calls
    assert node.phase(2) in {None, NodePhase.FAILED}


async def test_rollback_puts_the_release_before_in_its_place(
    tmp_path: Path, releases: dict[int, Release]
):
    """What is left drains until another has its name, and is then gone."""
    node = Node(tmp_path)
    await serving(node, releases)
    node.reconciler.want(switching(releases))
    await node.settle(lambda: acts_on(node) == 6)
    node.engine.failures["replace"] = TemporaryEngineError("busy")
    back = a_rollout(2, phase=RolloutPhase.ROLLING_BACK, back_to=1, request="q", unload=(2,))
    node.reconciler.want(
        direct_fleet(releases, rollout=back, revision=7, stable=1, revoked=(2,), good=(1,))
    )
    await node.settle(lambda: node.phase(1) is NodePhase.FAILED)
    assert (NodePhase.DRAINING, 0) == (node.phase(2), acts_on(node))

    node.engine.failures.clear()
    node.now += 60
    await node.settle(lambda: acts_on(node) == 7)

    assert path(node, releases[1]) == held(node)
    assert node.phase(2) is None


async def test_engine_that_nobody_can_know_serves_nothing_more(
    tmp_path: Path, releases: dict[int, Release]
):
    """A replace that stopped half way: quarantined, and asked nothing until its restart."""
    node = Node(tmp_path)
    node.watch._suspect = Suspect(tmp_path / "suspect.json")
    await serving(node, releases)
    node.engine.failures["replace"] = SuspectEngineError("it unloaded, and did not load")
    node.reconciler.want(switching(releases))
    await node.settle(lambda: node.phase(1) is node.phase(2) is NodePhase.QUARANTINED)
    node.engine.calls.clear()
    node.now += 600
    await node.idle()

    assert ([], 0) == (node.engine.calls, acts_on(node))
    assert "it unloaded, and did not load" == node.reports[-1].problem

    node.engine.failures.clear()
    node.engine.restart()
    await node.settle(lambda: acts_on(node) == 6)


async def test_restarted_engine_is_given_the_release_again(
    tmp_path: Path, releases: dict[int, Release]
):
    node = Node(tmp_path)
    await serving(node, releases)
    node.engine.calls.clear()
    node.engine.restart()
    await node.settle(lambda: node.phase(1) is not NodePhase.READY)
    assert 0 == acts_on(node)
    await node.settle(lambda: acts_on(node) == 5)
    assert [("replace", SERVICE), ("answer", SERVICE)] == node.engine.calls


async def test_next_agent_adopts_what_it_finds(tmp_path: Path, releases: dict[int, Release]):
    node = Node(tmp_path)
    await serving(node, releases)
    node.engine.calls.clear()
    successor = Node(tmp_path, node.engine)
    await serving(successor, releases)
    assert [] == node.engine.calls


async def test_engine_that_says_yes_and_does_nothing_is_not_believed(
    tmp_path: Path, releases: dict[int, Release]
):
    node = Node(tmp_path)
    await serving(node, releases)
    node.engine.lies = True
    node.reconciler.want(switching(releases))
    await node.settle(lambda: node.phase(2) is NodePhase.FAILED)
    said = node.reports[-1].release(SERVICE, 2)
    assert said is not None
    assert said.reason == "the engine replaced support and does not list it so"
    assert 0 == acts_on(node)


async def test_node_without_a_gateway_serves_direct_services(
    tmp_path: Path, releases: dict[int, Release]
):
    node = Node(tmp_path, has_gateway=False)
    node.link = NoGateway()  # type: ignore[assignment]
    await serving(node, releases)
    assert node.reports[-1].gateway_ok


async def test_node_without_a_gateway_refuses_what_needs_one(
    tmp_path: Path, releases: dict[int, Release]
):
    """For good: its rollout fails at once, with the reason."""
    node = Node(tmp_path, has_gateway=False)
    service = Service(name=SERVICE, releases=releases, rollout=a_rollout(1))
    node.reconciler.want(Fleet(services={SERVICE: service}))
    await node.settle(lambda: node.phase(1) is NodePhase.FAILED)
    said = node.reports[-1].release(SERVICE, 1)
    assert said is not None
    assert said.is_permanent
    assert "no gateway" in said.reason
    assert [] == node.engine.calls


async def test_refused_replace_goes_back_as_well(tmp_path: Path, releases: dict[int, Release]):
    """An engine that refuses the adapter and lost the name gets the one before again."""

    class Refusing(FakeEngine):
        refused = ""

        async def replace(self, name: str, path: str) -> None:
            if path == self.refused:
                self.adapters.pop(name, None)
                raise PermanentEngineError("its rank is too high")
            await super().replace(name, path)

    engine = Refusing()
    node = Node(tmp_path, engine)
    await serving(node, releases)
    engine.refused = path(node, releases[2])
    node.reconciler.want(switching(releases))
    await node.settle(lambda: node.phase(2) is NodePhase.FAILED)
    await node.settle(lambda: held(node) == path(node, releases[1]))
    said = node.reports[-1].release(SERVICE, 2)
    assert said is not None
    assert (said.is_permanent, said.reason) == (True, "its rank is too high")


async def test_agent_that_is_killed_after_any_effect_of_a_switch_is_finished_by_the_next(
    tmp_path: Path,
):
    """Nothing is replaced twice for it, and nothing is believed that was not seen."""
    for at in range(1, 100):
        folder = tmp_path / f"cut{at}"
        cut, releases = Cut(at), make_releases(folder, 2)
        node = Node(folder, crashpoints=cut)
        node = await through(node, direct_fleet(releases, revision=5, stable=1, good=(1,)), 5)
        node = await through(node, switching(releases), 6)
        assert path(node, releases[2]) == held(node)
        replaced = [call for call, _ in node.engine.calls if call == "replace"]
        assert ["replace", "replace"] == replaced, f"cut after {cut.effect}"
        if not cut.effect:
            break
    assert 9 == at  # staged, given, replaced, probed, twice: every effect was cut after once


async def through(node: Node, fleet: Fleet, revision: int) -> Node:
    """Act on a route; where the agent is killed, start another on what it left."""
    node.reconciler.want(fleet)
    await node.settle(lambda: node.is_killed or acts_on(node) == revision)
    if node.is_killed:
        await node.bury()
        node = Node(node.folder, node.engine)
        node.reconciler.want(fleet)
        await node.settle(lambda: acts_on(node) == revision)
    return node

"""Rollouts on a real vLLM, under load: every answer is the word of the release that it names."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.support import SERVICE, Fleet
from tests.vllm.asking import Said, unaided
from tests.vllm.fleet import (
    PROMPTS,
    Load,
    References,
    Supervisor,
    a_vllm_fleet,
    of_releases,
    references,
    restart_hook,
    until,
)
from tests.vllm.serving import Vllm
from vctl_plans.node import NodeReport
from vctl_plans.phase import NodePhase, RolloutPhase

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1200)]

ADAPTERS = ("v1", "v2", "v3")


@pytest.fixture(scope="module")
def vllms(vllm: Vllm, second_vllm: Vllm) -> list[Vllm]:
    return [vllm, second_vllm]


@pytest.fixture(scope="module")
def right(vllm: Vllm) -> References:
    return references(vllm, ADAPTERS)


@pytest.fixture(scope="module")
def supervisor(vllms: list[Vllm], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervisor]:
    with Supervisor(vllms, tmp_path_factory.mktemp("supervisor")).running() as made:
        yield made


@pytest.fixture(scope="module")
def fleet(
    vllms: list[Vllm],
    right: References,
    supervisor: Supervisor,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Fleet]:
    """Two nodes that serve release 1, adapter v1."""
    hook = ("--engine-restart-hook", restart_hook(supervisor.folder))
    with a_vllm_fleet(tmp_path_factory.mktemp("fleet"), vllms, *hook) as made:
        said = made.vctl("rollout", "start", "--new-service", "--adapter", vllms[0].model("v1"))
        assert said.code == 0, (said, made.logs())
        yield made


@contextmanager
def under_load(fleet: Fleet, right: References) -> Iterator[Load]:
    """Ask all the time; afterwards no request has failed and each answer was right."""
    with the_load(fleet) as load:
        yield load
        load.wait_for(10)
    assert [] == load.failures
    assert [] == load.wrong(of_releases(fleet, right))
    assert any(answer.said.cached for answer in load.answers)


@contextmanager
def the_load(fleet: Fleet) -> Iterator[Load]:
    """Ask all nodes all the time, from before the block to after its end."""
    with Load(list(fleet.dev.gateway_urls.values())).running() as load:
        load.wait_for(10)
        yield load
        load.wait_for(10)


def serving(load: Load) -> set[int]:
    return {answer.release for answer in load.answers}


def test_full_switch_and_rollback_under_load(
    fleet: Fleet, vllms: list[Vllm], right: References
) -> None:
    """There and back at once; the release that was left is still loaded."""
    with under_load(fleet, right) as load:
        said = fleet.vctl("rollout", "start", "--adapter", vllms[0].model("v2"))
        assert said.code == 0, (said, fleet.logs())
        load.wait_for(20, of=2)
        back = fleet.vctl("rollback", "--now", "--reason", "test")
        load.wait_for(20, of=1)

    assert back.code == 0, back
    assert {1, 2} == serving(load)
    assert (1, RolloutPhase.ROLLED_BACK) == (fleet.stable(), fleet.rollout().phase)


def test_weighted_rollout_and_rollback_midway(
    fleet: Fleet, vllms: list[Vllm], right: References, tmp_path: Path
) -> None:
    """Both releases answer at a time, each from its own cache."""
    steps = "{weight: 50, soak: 60s, manual: true}, {weight: 100}"
    plan = _weighted(tmp_path, vllms[0].model("v3"), steps)
    with under_load(fleet, right) as load:
        said = fleet.vctl("rollout", "start", plan, "--no-watch")
        assert said.code == 0, said
        number = fleet.rollout().to_release
        load.wait_for(20, of=number)
        load.wait_for(20, of=1)
        back = fleet.vctl("rollback", "--now", "--reason", "test")
        load.wait_for(20)

    assert back.code == 0, back
    assert {1, number} == serving(load)
    assert 1 == fleet.stable()


def test_engine_killed_during_a_rollout_loads_everything_again(
    fleet: Fleet, vllms: list[Vllm], right: References, supervisor: Supervisor, tmp_path: Path
) -> None:
    """What it was answering breaks off, and nothing is answered wrongly; then the rollout ends."""
    started, victim = len(supervisor.started), vllms[1]
    plan = _weighted(
        tmp_path, victim.model("v2"), "{weight: 50, soak: 5s}, {weight: 100, soak: 1s}"
    )
    with the_load(fleet) as load:
        assert 0 == fleet.vctl("rollout", "start", plan, "--no-watch").code
        number = fleet.rollout().to_release
        load.wait_for(5, of=number, within_s=60)
        before = _report(fleet, "n2").incarnation
        victim.kill()
        until(lambda: victim in supervisor.started[started:], within_s=10)
        victim.wait_ready()
        fleet.until(lambda: _report(fleet, "n2").incarnation not in {"", before}, within_s=30)
        fleet.until(lambda: _ready(fleet, "n2") >= {1, number}, within_s=60)
        if fleet.rollout().phase is RolloutPhase.PAUSED:
            assert "n2" in fleet.stand()
            assert fleet.vctl("rollout", "resume", "--no-watch").code == 0
        fleet.until_phase(RolloutPhase.CONVERGED, within_s=90)
        load.wait_for(10, of=number)

    assert number == fleet.stable()
    assert [] == load.wrong(of_releases(fleet, right))


def test_base_changes_and_comes_back(fleet: Fleet, vllms: list[Vllm], right: References) -> None:
    """One node at a time; each answers for the base that it holds, and no request fails."""
    first = fleet.stable()
    with the_load(fleet) as load:
        said = fleet.vctl("rollout", "start", "--weights", vllms[0].model("other"), within_s=120)
        assert said.code == 0, (said, fleet.logs())
        on_other = fleet.stable()
        load.wait_for(20, of=on_other)
        of_other = _unaided(fleet, vllms[0], on_other)
        back = fleet.vctl("rollback", "--now", "--reason", "test", within_s=120)
        assert back.code == 0, (back, fleet.logs())
        load.wait_for(20, of=first)

    of_first = of_releases(fleet, right)[first]
    assert not any(a.equals(b) for a, b in zip(of_other, of_first, strict=True))
    assert [] == load.failures
    assert [] == load.wrong({**of_releases(fleet, right), on_other: of_other})
    assert first == fleet.stable() != on_other


def test_base_that_breaks_the_engine_is_never_served_and_the_engine_restarted(
    fleet: Fleet, vllms: list[Vllm], right: References, supervisor: Supervisor
) -> None:
    """Its bytes are those of the release, and do not fit: vLLM would answer its health check.

    The rollout waits for a person and names the node; after an abort all is as it was.
    """
    started, first = len(supervisor.started), fleet.stable()
    with the_load(fleet) as load:
        start = ("rollout", "start", "--weights", vllms[0].model("narrow"))
        said = fleet.vctl(*start, within_s=200)
        refused = fleet.rollout().to_release
        until(lambda: len(supervisor.started) > started, within_s=30, why=fleet.stand)
        supervisor.started[-1].wait_ready()
        assert fleet.vctl("rollout", "abort", within_s=100).code in {0, 3}
        fleet.until(lambda: all(first in _ready(fleet, n) for n in fleet.dev.nodes), within_s=60)
        load.wait_for(20, of=first)

    assert said.code == 4, said
    assert "the change of its base broke off" in said.out + said.err
    told = json.loads((supervisor.folder / "told").read_text())
    assert ("restart", "vllm") == (told["event"], told["engine"])
    assert "broke off" in told["reason"]
    assert refused not in serving(load)
    assert [] == load.failures
    assert [] == load.wrong(of_releases(fleet, right))
    assert first == fleet.stable()


def _unaided(fleet: Fleet, vllm: Vllm, number: int) -> list[Said]:
    """Return what a release answers without any cache, by the engine itself."""
    name = fleet.service().releases[number].engine_name
    return [unaided(vllm.url, name, prompt) for prompt in PROMPTS]


def _weighted(folder: Path, adapter: str, steps: str) -> str:
    plan = folder / "plan.yaml"
    plan.write_text(
        f"service: {SERVICE}\nstrategy: weighted\n"
        f"release: {{adapter: {{source: {adapter}}}}}\nsteps: [{steps}]\n"
    )
    return str(plan)


def _report(fleet: Fleet, node: str) -> NodeReport:
    return fleet.dev.read().present().get(node, NodeReport(node=node, boot_id=""))


def _ready(fleet: Fleet, node: str) -> set[int]:
    """Return the releases that a node says are ready."""
    releases = _report(fleet, node).releases
    return {release.number for release in releases if release.phase is NodePhase.READY}

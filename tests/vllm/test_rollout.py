"""Rollouts on a real vLLM, under load: every answer is the word of the release that it names."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.support import SERVICE, Fleet
from tests.vllm.fleet import (
    Load,
    References,
    Supervisor,
    a_vllm_fleet,
    of_releases,
    references,
    until,
)
from tests.vllm.serving import Vllm
from vctl_plans.phase import NodePhase, RolloutPhase

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(500)]

ADAPTERS = ("v1", "v2", "v3")


@pytest.fixture(scope="module")
def right(vllm: Vllm) -> References:
    return references(vllm, ADAPTERS)


@pytest.fixture(scope="module")
def supervisor(vllm: Vllm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervisor]:
    pid_file = tmp_path_factory.mktemp("supervisor") / "pid"
    with Supervisor(vllm, pid_file).running() as made:
        yield made


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the restart hook notes what it was told."""
    return tmp_path_factory.mktemp("hook") / "told"


@pytest.fixture(scope="module")
def fleet(
    vllm: Vllm,
    right: References,
    supervisor: Supervisor,
    told: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Fleet]:
    """One node that serves release 1, adapter v1."""
    script = f"cat >> {told}; kill -9 -- -$(cat {supervisor.pid_file})"
    hook = ("--engine-restart-hook", f"/bin/sh -c '{script}'")
    with a_vllm_fleet(tmp_path_factory.mktemp("fleet"), vllm, *hook) as made:
        said = made.vctl("rollout", "start", "--new-service", "--adapter", vllm.model("v1"))
        assert said.code == 0, (said, made.logs())
        yield made


@contextmanager
def under_load(fleet: Fleet, right: References) -> Iterator[Load]:
    """Ask all the time; afterwards no request has failed and each answer was right."""
    (url,) = fleet.dev.gateway_urls.values()
    with Load(url).running() as load:
        load.wait_for(10)
        yield load
        load.wait_for(10)
    assert [] == load.failures
    assert [] == load.wrong(of_releases(fleet, right))
    assert any(answer.said.cached for answer in load.answers)


def serving(load: Load) -> set[int]:
    return {answer.release for answer in load.answers}


def test_full_switch_and_rollback_under_load(fleet: Fleet, vllm: Vllm, right: References) -> None:
    """There and back at once; the release that was left is still loaded."""
    with under_load(fleet, right) as load:
        said = fleet.vctl("rollout", "start", "--adapter", vllm.model("v2"))
        assert said.code == 0, (said, fleet.logs())
        load.wait_for(20, of=2)
        back = fleet.vctl("rollback", "--now", "--reason", "test")
        load.wait_for(20, of=1)

    assert back.code == 0, back
    assert {1, 2} == serving(load)
    assert (1, RolloutPhase.ROLLED_BACK) == (fleet.stable(), fleet.rollout().phase)


def test_weighted_rollout_and_rollback_midway(
    fleet: Fleet, vllm: Vllm, right: References, tmp_path: Path
) -> None:
    """Both releases answer at a time, each from its own cache."""
    steps = "{weight: 50, soak: 60s, manual: true}, {weight: 100}"
    plan = _weighted(tmp_path, vllm.model("v3"), steps)
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
    fleet: Fleet, vllm: Vllm, right: References, supervisor: Supervisor, tmp_path: Path
) -> None:
    """Requests fail while there is no engine, and none is answered wrongly; then it goes on."""
    (url,) = fleet.dev.gateway_urls.values()
    starts = supervisor.starts
    plan = _weighted(tmp_path, vllm.model("v2"), "{weight: 50, soak: 5s}, {weight: 100, soak: 1s}")
    with Load(url).running() as load:
        load.wait_for(10)
        assert 0 == fleet.vctl("rollout", "start", plan, "--no-watch").code
        number = fleet.rollout().to_release
        load.wait_for(5, of=number, within_s=60)
        before = _incarnation(fleet)
        vllm.kill()
        until(lambda: supervisor.starts > starts, within_s=10)
        vllm.wait_ready()
        fleet.until(lambda: _incarnation(fleet) not in {"", before}, within_s=30)
        fleet.until(lambda: _ready(fleet) >= {1, number}, within_s=60)
        load.wait_for(10, within_s=60)
        if fleet.rollout().phase is RolloutPhase.PAUSED:
            assert "n1" in fleet.rollout().reason, fleet.rollout()
            assert fleet.vctl("rollout", "resume", within_s=90).code == 0
        fleet.until_phase(RolloutPhase.CONVERGED, within_s=90)
        load.wait_for(10, of=number)

    assert number == fleet.stable()
    assert load.failures
    assert [] == load.wrong(of_releases(fleet, right))


def _weighted(folder: Path, adapter: str, steps: str) -> str:
    plan = folder / "plan.yaml"
    plan.write_text(
        f"service: {SERVICE}\nstrategy: weighted\n"
        f"release: {{adapter: {{source: {adapter}}}}}\nsteps: [{steps}]\n"
    )
    return str(plan)


def _incarnation(fleet: Fleet) -> str:
    return next((said.incarnation for said in fleet.dev.read().present().values()), "")


def _ready(fleet: Fleet) -> set[int]:
    """Return the releases that the node says are ready."""
    reports = fleet.dev.read().present().values()
    return {r.number for said in reports for r in said.releases if r.phase is NodePhase.READY}

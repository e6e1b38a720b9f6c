"""Adapters are rolled out to a live fleet by the commands that people type."""

import json
import signal
from pathlib import Path

import pytest

from tests.e2e.support import Fleet, Load, ask
from vctl_plans.phase import RolloutPhase

pytestmark = [pytest.mark.e2e, pytest.mark.etcd, pytest.mark.torch, pytest.mark.xdist_group("two")]


def _start(fleet: Fleet, adapter: str, *more: str) -> int:
    return fleet.vctl("rollout", "start", "--adapter", str(fleet.adapter(adapter)), *more).code


def test_rollout_moves_every_node_and_no_request_fails(fleet: Fleet) -> None:
    """Each answer is of the release that it claims, before, during and after."""
    before = fleet.stable()
    right = {before: ask(fleet.dev.gateway_urls["n1"])[1]}
    with Load(list(fleet.dev.gateway_urls.values())).running() as load:
        load.wait_for(20)
        assert _start(fleet, fleet.another()) == 0
        after = fleet.stable()
        right[after] = ask(fleet.dev.gateway_urls["n2"])[1]
        load.wait_for(20)

    assert after != before
    assert load.failures == []
    assert {(release, right[release]) for release, _ in load.answers} == set(load.answers)
    assert {before, after} == {release for release, _ in load.answers}


def test_same_plan_again_is_already_done(fleet: Fleet) -> None:
    """It says so and exits 0; nothing is written."""
    adapter = fleet.another()
    assert _start(fleet, adapter) == 0
    rollout = fleet.rollout()

    assert _start(fleet, adapter) == 0

    assert rollout == fleet.rollout()


def test_flipped_bit_is_refused_by_every_node_and_moves_nothing(fleet: Fleet) -> None:
    """Exit code 1, the tensor is named, and the release before serves on."""
    stable = fleet.stable()
    victim = fleet.folder / "models" / "adapters" / "rotten"
    victim.mkdir(exist_ok=True)
    for file in fleet.adapter("v3").iterdir():
        content = file.read_bytes()
        (victim / file.name).write_bytes(content)
    made = fleet.vctl("-o", "json", "release", "create", "support", "--adapter", str(victim))
    assert made.code == 0, made
    number = max(fleet.service().releases)
    weights = victim / "adapter_model.safetensors"
    flipped = bytearray(weights.read_bytes())
    flipped[-1] ^= 1
    weights.write_bytes(flipped)

    said = fleet.vctl("rollout", "start", "--release", str(number))

    assert said.code == 1
    assert "lora" in said.out + said.err
    assert stable == fleet.stable()
    assert fleet.rollout().phase is RolloutPhase.FAILED


def test_rollback_now_returns_traffic_and_revokes(fleet: Fleet) -> None:
    """Pressed twice it follows the one that exists; the release that it left cannot come back."""
    before = fleet.stable()
    assert _start(fleet, fleet.another()) == 0
    bad = fleet.stable()

    said = fleet.vctl("rollback", "--now", "--reason", "test")
    again = fleet.vctl("rollback", "--now")

    assert (said.code, again.code) == (0, 0), (said, again)
    assert before == fleet.stable()
    assert bad in fleet.service().current_route.revoked
    assert fleet.rollout().phase is RolloutPhase.ROLLED_BACK
    assert fleet.vctl("rollout", "start", "--release", str(bad)).code == 7


def test_second_rollout_is_refused_while_one_runs(fleet: Fleet) -> None:
    """With what to do about it; the first is not disturbed."""
    stable = fleet.service().stable
    assert stable is not None
    first = fleet.begin(
        "rollout", "start", "--adapter", str(fleet.adapter(fleet.another())), "--soak", "4s"
    )
    fleet.until(lambda: fleet.rollout().phase is RolloutPhase.SOAKING)

    said = fleet.vctl("rollout", "start", "--adapter", str(fleet.adapter("v3")))

    assert said.code == 7
    assert "rollback --now" in said.err
    assert first.wait(timeout=30) == 0
    first.communicate()


def test_identical_plan_attaches_to_the_running_one(fleet: Fleet) -> None:
    """Two people with one wish see one rollout."""
    arguments = ("rollout", "start", "--adapter", str(fleet.adapter(fleet.another())))
    first = fleet.begin(*arguments, "--soak", "2s")
    fleet.until(lambda: fleet.rollout().phase is RolloutPhase.SOAKING)
    rollout = fleet.rollout().id

    second = fleet.vctl(*arguments, "--soak", "2s")

    assert second.code == 0
    assert rollout == fleet.rollout().id
    first.communicate(timeout=30)
    assert first.returncode == 0


def test_command_killed_while_it_follows_changes_nothing(fleet: Fleet) -> None:
    """The rollout is the conductor's."""
    following = fleet.begin(
        "rollout", "start", "--adapter", str(fleet.adapter(fleet.another())), "--soak", "1s"
    )
    fleet.until(lambda: fleet.rollout().phase is RolloutPhase.SOAKING)
    following.send_signal(signal.SIGKILL)
    following.communicate()

    fleet.until_phase(RolloutPhase.CONVERGED)


def test_timeout_of_the_command_leaves_the_rollout(fleet: Fleet) -> None:
    """Exit code 5, and how to follow it."""
    said = fleet.vctl(
        "--timeout", "1500ms", "rollout", "start",
        "--adapter", str(fleet.adapter(fleet.another())), "--soak", "3s",
    )  # fmt: skip

    assert said.code == 5, said
    assert "rollout watch" in said.err
    fleet.until_phase(RolloutPhase.CONVERGED)


def test_supersede_takes_the_place_of_one_that_prepares(fleet: Fleet) -> None:
    """A node that is down keeps it preparing; the newer plan takes over, and ends when it can."""
    fleet.dev.kill("n2", "agent")
    try:
        adapter = fleet.another()
        first = fleet.begin("rollout", "start", "--adapter", str(fleet.adapter(adapter)))
        fleet.until(lambda: fleet.rollout().phase is RolloutPhase.PREPARING)
        superseded = fleet.rollout().id
        second = fleet.begin(
            "rollout", "start", "--adapter", str(fleet.adapter("v3")), "--supersede"
        )
        fleet.until(lambda: fleet.rollout().id != superseded)
        first.communicate(timeout=30)
        assert first.returncode == 3
    finally:
        fleet.dev.restart("n2", "agent")
    out, err = second.communicate(timeout=30)
    assert second.returncode == 0, (out, err, fleet.logs())


def test_plan_that_does_not_validate_writes_nothing(fleet: Fleet, tmp_path: Path) -> None:
    """Exit code 2, with the field's path and what is allowed."""
    plan = tmp_path / "plan.yaml"
    plan.write_text("service: support\nrelease: 1\nstrategy: full-switch\nsoak: soon\n")
    before = fleet.rollout()

    said = fleet.vctl("rollout", "start", str(plan))

    assert said.code == 2
    assert "soak" in said.err
    assert before == fleet.rollout()


def test_status_shows_what_is_served(fleet: Fleet) -> None:
    """In JSON, for a program to read."""
    said = fleet.vctl("-o", "json", "status")

    assert said.code == 0
    assert str(fleet.stable()) in said.out
    assert json.loads(said.out)


def test_every_node_hashes_again_when_asked(fleet: Fleet) -> None:
    """Through etcd alone; rot on one node's disk is found there, and it serves on."""
    said = fleet.vctl("verify-weights", "--service", "support", "--timeout", "30s")
    assert 0 == said.code, said
    assert "verified (2/2)" in said.out

    stable = fleet.service().stable
    assert stable is not None
    assert stable.adapter is not None
    copy = fleet.folder / "nodes/n2/agent/artifacts" / stable.adapter.root.removeprefix("b3:")
    file = copy / "adapter_model.safetensors"
    whole = file.read_bytes()
    file.chmod(0o644)
    try:
        file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        said = fleet.vctl("verify-weights", "--service", "support", "--timeout", "30s")
        assert 1 == said.code, said
        assert "n2: differs: release" in said.out
        assert "n1: verified" in said.out
        assert stable.number == ask(fleet.dev.gateway_urls["n2"])[0]
    finally:
        file.write_bytes(whole)
    assert 0 == fleet.vctl("verify-weights", "--service", "support", "--timeout", "30s").code


def test_etcd_away_while_serving_costs_no_request(fleet: Fleet) -> None:
    """The last route goes on being served; when etcd returns, rollouts go on."""
    with Load(list(fleet.dev.gateway_urls.values())).running(each=1) as load:
        fleet.dev.restart("", "etcd")
        load.wait_for(40)

    assert load.failures == []
    fleet.until(lambda: len(fleet.dev.read().present()) == 2)
    assert _start(fleet, fleet.another()) == 0

"""In every phase of a rollout on a live fleet: its conductor dies or sleeps, an operator goes back.

A phase lasts only as long as some node has not done its part, so one node that does not conduct is
stopped to hold it: its engine while the others prepare, its gateway while they wait for the route.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.support import SERVICE, Fleet, Load
from vctl_plans.keys import Keys
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.rollout import Rollout
from vctl_plans.store.gateway import GatewayReader
from vctl_plans.store.settings import StoreSettings

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.etcd,
    pytest.mark.torch,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("three"),
]

PHASES = [P.PREPARING, P.SHIFTING, P.SOAKING, P.PAUSED, P.SETTLING, P.ROLLING_BACK]


def conductor(fleet: Fleet) -> str:
    """Return the node that conducts; nothing while none does."""
    keys = Keys(fleet.dev.options.fleet)
    with GatewayReader(StoreSettings(endpoints=(fleet.dev.layout.endpoint,)), budget_s=2) as reader:
        found = reader.get(keys.conductor)
    return found.value.decode().partition(" ")[0] if found else ""


def bystander(fleet: Fleet) -> str:
    """Return a node that does not conduct."""
    fleet.until(lambda: conductor(fleet) != "")
    return next(node for node in fleet.dev.nodes if node != conductor(fleet))


@contextmanager
def stopped(fleet: Fleet, node: str, part: str) -> Iterator[None]:
    """Have a program do nothing."""
    program = fleet.dev.program(node, part)
    program.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        program.signal(signal.SIGCONT)


@contextmanager
def held_in(fleet: Fleet, phase: P, tmp_path: Path) -> Iterator[None]:
    """Bring a new rollout to *phase*, and hold it there inside of the block."""
    node = bystander(fleet)
    if phase is P.PREPARING:
        number = max(fleet.service().releases) + 1
        absent = fleet.new_adapter(f"absent{number}", 100 + number)  # else it may be retained
        with stopped(fleet, node, "engine"):
            _begin(fleet, tmp_path, absent)
            yield
        return
    _begin(fleet, tmp_path)
    fleet.until_phase(P.SOAKING)
    if phase is P.SETTLING:
        promote(fleet)
        fleet.until(lambda: fleet.rollout().step == 1 and fleet.rollout().phase is P.SOAKING)
    if phase is P.PAUSED:
        assert 0 == fleet.vctl("rollout", "pause").code
    if phase in {P.SOAKING, P.PAUSED}:
        yield
        return
    with stopped(fleet, node, "gateway"):
        if phase is P.ROLLING_BACK:
            assert 0 == fleet.vctl("rollback", "--now", "--no-watch").code
        else:
            promote(fleet)
        fleet.until_phase(phase)
        yield


def _begin(fleet: Fleet, tmp_path: Path, adapter: Path | None = None) -> None:
    adapter = adapter or fleet.adapter(fleet.another())
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        f"service: {SERVICE}\nstrategy: weighted\n"
        "steps: [{weight: 50, soak: 1h}, {weight: 100, soak: 1h}]\n"
        f"release: {{adapter: {{source: {adapter}}}}}\n"
    )
    said = fleet.vctl("rollout", "start", str(plan), "--no-watch")
    assert 0 == said.code, said


def promote(fleet: Fleet) -> None:
    """Let the rollout go on to its next step."""
    said = fleet.vctl("rollout", "promote", "--no-watch")
    assert 0 == said.code, said


def led_to_its_end(fleet: Fleet) -> Rollout:
    """Resume and promote until the rollout has ended."""
    while not (rollout := fleet.rollout()).phase.is_terminal:
        if rollout.phase is P.PAUSED:
            assert 0 == fleet.vctl("rollout", "resume", "--no-watch").code
        elif rollout.phase is P.SOAKING and not rollout.promoted:
            promote(fleet)
        fleet.until(partial(_has_gone_on, fleet, rollout))
    return rollout


def _has_gone_on(fleet: Fleet, rollout: Rollout) -> bool:
    return fleet.rollout().seq > rollout.seq


def decisions(fleet: Fleet) -> list[int]:
    """Return the numbers of the rollout's decisions, as its history has them."""
    keys = Keys(fleet.dev.options.fleet)
    prefix = keys.rollout_history(SERVICE, fleet.rollout().id)
    with GatewayReader(StoreSettings(endpoints=(fleet.dev.layout.endpoint,)), budget_s=2) as reader:
        return [int(entry.key.removeprefix(prefix)) for entry in reader.list(prefix).entries]


def until_whole(fleet: Fleet) -> None:
    """Wait until every node is there; one that slept was `until_gone` before."""
    fleet.until(lambda: len(fleet.dev.read().present()) == 3)


@pytest.mark.parametrize("phase", PHASES)
def test_conductor_killed_in_every_phase(fleet: Fleet, phase: P, tmp_path: Path) -> None:
    """Another goes on from what is stored; the rollout ends as it would have."""
    with held_in(fleet, phase, tmp_path):
        assert phase is fleet.rollout().phase
        was = conductor(fleet)
        fleet.dev.kill(was, "agent")
        fleet.until(lambda: conductor(fleet) not in {"", was})
        assert phase is fleet.rollout().phase
    fleet.restart_agents(was)

    ended = led_to_its_end(fleet)

    assert (P.ROLLED_BACK if phase is P.ROLLING_BACK else P.CONVERGED) is ended.phase
    assert () == ended.unconfirmed
    assert list(range(ended.seq + 1)) == decisions(fleet)


def test_conductor_that_slept_past_its_lease_writes_nothing(fleet: Fleet, tmp_path: Path) -> None:
    """It wakes up with a decision to take, and finds that another one conducts."""
    with held_in(fleet, P.SOAKING, tmp_path):
        was = conductor(fleet)
        with stopped(fleet, was, "agent"):
            fleet.until(lambda: conductor(fleet) not in {"", was})
            fleet.until_gone(was)
            promote(fleet)  # what it would act on first when it wakes
    until_whole(fleet)

    ended = led_to_its_end(fleet)

    assert (P.CONVERGED, ()) == (ended.phase, ended.unconfirmed)
    assert list(range(ended.seq + 1)) == decisions(fleet)
    assert conductor(fleet) != was


@pytest.mark.parametrize("phase", PHASES)
def test_rollback_now_in_every_phase_ends_on_the_old_release(
    fleet: Fleet, phase: P, tmp_path: Path
) -> None:
    """After it no client is answered by the revoked release, and no request is lost."""
    old, load = fleet.stable(), Load(list(fleet.dev.gateway_urls.values()))
    with held_in(fleet, phase, tmp_path):
        new = fleet.rollout().to_release
        said = fleet.vctl("rollback", "--now", "--no-watch")
        assert 0 == said.code, said
        assert old == fleet.stable()
    fleet.until_phase(P.ROLLED_BACK)
    assert () == fleet.rollout().unconfirmed
    with load.running(each=2):
        load.wait_for(30)

    assert [] == load.failures
    assert {old} == {release for release, _ in load.answers}
    assert new in fleet.service().current_route.revoked
    assert 7 == fleet.vctl("rollout", "start", "--release", str(new)).code

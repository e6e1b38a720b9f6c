"""An agent is killed after each of its effects in turn, and the rollout converges every time.

The fleet has one node, so that the agent is conductor as well and its decisions are among the
effects. Adapters take turns: with one earlier release retained, each rollout stages, loads, probes
and unloads.
"""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.e2e.support import ADAPTERS, Fleet, a_fleet, ask
from vctl_agent.crashpoints import VARIABLE
from vctl_plans.phase import RolloutPhase

pytestmark = [pytest.mark.e2e, pytest.mark.etcd, pytest.mark.torch, pytest.mark.timeout(400)]

STRIDE = 2
"""The effects are shared out to this many tests, which run side by side."""

MOST_EFFECTS = 60


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with a_fleet(tmp_path, nodes=1) as made:
        for name in ADAPTERS:
            adapter = str(made.adapter(name))
            said = made.vctl("rollout", "start", "--new-service", "--adapter", adapter)
            assert said.code == 0, said
        yield made


@pytest.mark.parametrize("first", range(1, STRIDE + 1))
def test_sigkill_after_each_effect_of_a_rollout(fleet: Fleet, first: int) -> None:
    """Restarted, the agent adopts what engine and disk hold, and goes on."""
    names = list(ADAPTERS)
    killed_at: list[int] = []
    for turn, effect in enumerate(count(first, STRIDE)):
        was_killed = _rollout_with_crash(fleet, names[turn % len(names)], effect)
        assert fleet.rollout().phase is RolloutPhase.CONVERGED, fleet.logs()
        assert fleet.stable() == ask(fleet.dev.gateway_urls["n1"])[0]
        if not was_killed:
            break
        killed_at.append(effect)
        assert effect < MOST_EFFECTS

    assert len(killed_at) * STRIDE >= 8, "a rollout has at least so many effects"


def _rollout_with_crash(fleet: Fleet, adapter: str, effect: int) -> bool:
    """Roll *adapter* out under an agent that dies after *effect*; return whether it did."""
    agent = fleet.dev.program("n1", "agent")
    _begin(fleet, adapter)
    fleet.dev.restart("n1", "agent", more_env={VARIABLE: str(effect)})
    fleet.until(lambda: not agent.is_running or fleet.rollout().phase.is_terminal)
    was_killed = not agent.is_running
    if was_killed:
        fleet.dev.restart("n1", "agent")
    fleet.until(lambda: fleet.rollout().phase.is_terminal)
    return was_killed


def _begin(fleet: Fleet, adapter: str) -> None:
    """Write the rollout while no agent runs, so that every effect is one of the next agent's.

    The node still counts as present until its lease ends; where the command comes too late for
    that, the node comes back and it is tried again.
    """
    arguments = ("rollout", "start", "--no-watch", "--adapter", str(fleet.adapter(adapter)))
    for _ in range(5):
        fleet.until(lambda: bool(fleet.dev.read().present()))
        fleet.dev.kill("n1", "agent")
        said = fleet.vctl(*arguments)
        if said.code == 0:
            return
        assert "no node is present" in said.err, said
        fleet.dev.restart("n1", "agent")
    raise AssertionError(said)

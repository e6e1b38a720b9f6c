"""Whole fleets under seeds and faults: what must always hold holds after every event."""

import pytest

from tests.sim.coverage import ENOUGH, missing, rare_seeds
from tests.sim.history import Spec
from tests.sim.run import Summary, chunk, told

CHUNKS = 8
pytestmark = pytest.mark.timeout(900)  # seconds of a machine that does much else


@pytest.mark.parametrize("part", range(CHUNKS))
def test_fleets_keep_the_invariants_under_faults(part: int, sim_seeds: range) -> None:
    """After any faults and commands nothing broke, all has ended, and a new release goes out."""
    seeds = sim_seeds[part::CHUNKS]
    outcomes = chunk(seeds)
    broken = [outcome for outcome in outcomes if outcome.broken]

    assert not broken, "\n\n".join(told(each, Spec(seed=each.seed)) for each in broken[:2])


def test_histories_reach_every_fault_every_end_and_every_move() -> None:
    """Faults that never happen, or moves that are never made, would prove nothing."""
    summary = Summary()
    for seeds in (rare_seeds(), *(range(n, n + 50) for n in range(0, ENOUGH, 50))):
        for outcome in chunk(seeds):
            summary.add(outcome)
        if not missing(summary):
            break

    assert [] == missing(summary)

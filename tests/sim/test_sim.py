"""Whole fleets under seeds and faults: what must always hold holds after every write."""

import pytest

from tests.sim.simulation import Simulation

CHUNKS, SEEDS_A_CHUNK = 8, 150


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_fleet_keeps_the_invariants_under_faults(chunk: int) -> None:
    """After any faults and any commands no invariant broke, and a new release still goes out."""
    seeds = range(chunk * SEEDS_A_CHUNK, (chunk + 1) * SEEDS_A_CHUNK)
    broken = {}
    for seed in seeds:
        try:
            Simulation(seed).run()
        except AssertionError as cause:
            broken[seed] = str(cause)
            break

    assert not broken, "\n".join(f"seed {seed}:\n{log}" for seed, log in broken.items())

"""What many histories must have reached, or they prove less than they seem to.

``python -m tests.sim.coverage`` writes `rare.txt` anew: few seeds that reach everything, where the
seeds from 0 on need more than a thousand. They go stale with what is drawn; then the test looks on.
"""

import sys
from pathlib import Path

from tests.sim.faults import FAULTS
from tests.sim.history import Spec, run
from tests.sim.operators import COMMANDS
from tests.sim.run import Summary
from vctl_plans.machine import TABLE
from vctl_plans.phase import RolloutPhase

ENOUGH = 2000
"""Histories in which the rarest was seen long ago."""

_RARE = Path(__file__).with_name("rare.txt")


def missing(summary: Summary) -> list[str]:
    """Return the phases, faults, commands and moves that no history has seen."""
    moves = [f"{event.__name__} in {phase}" for phase in TABLE for event in TABLE[phase]]
    moves.append(f"Breached in {RolloutPhase.SOAKING}")
    return [
        *(f"phase {phase}" for phase in RolloutPhase if not summary.phases[phase]),
        *(f"fault {kind}" for kind in FAULTS if not summary.troubles[kind]),
        *(f"command {name}" for name in COMMANDS if not summary.commands[f"{name} done"]),
        *(f"move {move}" for move in moves if not summary.moves[move]),
    ]


def rare_seeds() -> list[int]:
    """Return seeds that reached everything when that was last looked at."""
    return [int(line) for line in _RARE.read_text(encoding="ascii").split()]


def few(histories: int) -> list[int]:
    """Return few of the seeds from 0 on that reach what all of them do, the greatest gain first."""
    everything = set(missing(Summary()))
    reached: dict[int, set[str]] = {}
    for seed in range(histories):
        summary = Summary()
        summary.add(run(Spec(seed=seed)))
        reached[seed] = everything - set(missing(summary))
    found: list[int] = []
    left = set().union(*reached.values())
    while left:
        seed = max(reached, key=lambda each: len(reached[each] & left))
        found.append(seed)
        left -= reached[seed]
    return found


if __name__ == "__main__":
    seeds = few(ENOUGH)
    _RARE.write_text("\n".join(map(str, seeds)) + "\n", encoding="ascii")
    sys.stdout.write(f"{len(seeds)} seeds reach what {ENOUGH} do\n")

"""What many histories must have reached, or they prove less than they seem to."""

from tests.sim.faults import FAULTS
from tests.sim.operators import COMMANDS
from tests.sim.run import Summary
from vctl_plans.machine import TABLE
from vctl_plans.phase import RolloutPhase


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

"""A rollout that was followed, as the stages that it passed or did not: gate, steps, end.

What a test report and a summary page show. A stage passed only if it was seen to: one that waits
for a person failed as far as a pipeline is concerned, and those after it were not tried.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Literal, NamedTuple

from vctl_cli.exitcodes import ExitCode
from vctl_cli.follow import Scene
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.rollout import Entry, Rollout, listed

Outcome = Literal["passed", "failed", "error", "skipped"]


class Stage(NamedTuple):
    """One thing that had to happen."""

    name: str
    outcome: Outcome
    text: str = ""  # why it did not
    seconds: float = 0.0


_GATE = -1


def stages(scene: Scene, code: ExitCode) -> tuple[Stage, ...]:
    """Return the rollout's stages, as they stood when it was left with *code*."""
    rollout = scene.rollout
    names = _names(scene)
    at = _reached(rollout, len(names) - 2) + 1  # the gate is the first
    times = _times(scene.entries, len(names))
    made = []
    for n, name in enumerate(names):
        outcome: Outcome = "passed" if n < at else "skipped"
        text = ""
        if n == at:
            outcome, text = _present(rollout, code)
        made.append(Stage(name, outcome, text, times[n]))
    return tuple(made)


def _names(scene: Scene) -> tuple[str, ...]:
    rollout = scene.rollout
    number = rollout.to_release
    if rollout.strategy == "rollback" or rollout.is_going_back or rollout.phase is P.ROLLED_BACK:
        number = rollout.back_to or number
    weights = [step.weight for step in scene.plan.steps] if scene.plan else [100.0]
    if rollout.strategy == "rollback":
        steps = [f"traffic returns to release {number}"]
    else:
        steps = [f"step {n}: {weight:g} % of traffic" for n, weight in enumerate(weights, start=1)]
    end = "rolled back" if rollout.strategy == "rollback" else "converged"
    return (f"release {rollout.to_release} is ready", *steps, end)


def _reached(rollout: Rollout, steps: int) -> int:
    """Return where it stands: the gate, a step, or behind all steps; one more when it is done."""
    phase = P(rollout.resume_phase) if rollout.resume_phase else rollout.phase
    if phase is P.CONVERGED or (phase is P.ROLLED_BACK and rollout.strategy == "rollback"):
        return steps + (0 if rollout.unconfirmed else 1)
    if phase is P.SETTLING:
        return steps
    is_at_gate = phase in {P.PREPARING, P.FAILED, P.SUPERSEDED}
    return _GATE if is_at_gate else min(rollout.step, steps - 1)


def _present(rollout: Rollout, code: ExitCode) -> tuple[Outcome, str]:
    """Return how the stage stands at which the rollout was left."""
    match code:
        case ExitCode.UNCONFIRMED:
            return "failed", f"unconfirmed: {listed(rollout.unconfirmed)}"
        case ExitCode.TIMED_OUT:
            return "error", f"the command's --timeout ran out; the rollout is {rollout.phase}"
        case ExitCode.INTERRUPTED:
            return "error", f"the command was interrupted; the rollout is {rollout.phase}"
        case ExitCode.DONE:
            return "passed", ""
        case _:
            return "failed", rollout.sentence


def _times(entries: Sequence[Entry], count: int) -> list[float]:
    """Return how long each stage took, by its decisions; stages that never began took none."""
    begun = [*_beginnings(entries)][:count]
    last = _moment(entries[-1].at) if entries else None
    ends = [*begun[1:], last]
    found = [
        max(0.0, (end - start).total_seconds()) if start and end else 0.0
        for start, end in zip(begun, ends, strict=False)
    ]
    return found + [0.0] * (count - len(found))


def _beginnings(entries: Sequence[Entry]) -> Iterator[datetime | None]:
    """Yield when each stage began: the first decision, each step, the end of the last one."""
    before: P | None = None
    for entry in entries:
        is_step = entry.phase is P.SHIFTING and before is not P.SHIFTING
        if before is None or is_step or (entry.phase is P.SETTLING and before is not P.SETTLING):
            yield _moment(entry.at)
        before = entry.phase


def _moment(at: str) -> datetime | None:
    try:
        return datetime.fromisoformat(at)
    except ValueError:
        return None

"""What a person can do about a rollout that waits for them, or that ended badly."""

from collections.abc import Sequence

from vctl_plans.phase import RolloutPhase
from vctl_plans.plan import Plan
from vctl_plans.rollout import Rollout

Step = tuple[str, str]  # a command, and what it does


def next_steps(rollout: Rollout, plan: Plan | None = None) -> tuple[Step, ...]:
    """Return the commands that lead on; none where nobody is waited for."""
    of = f"-s {rollout.service}"
    if rollout.phase is RolloutPhase.PAUSED:
        return (*_onward(rollout, plan, of), *_back(rollout, of))
    if rollout.phase is RolloutPhase.FAILED:
        return (
            (f"vctl rollout status {of}", "what the nodes say"),
            (f"vctl rollout retry {of}", "once that is mended"),
        )
    return ()


def _onward(rollout: Rollout, plan: Plan | None, of: str) -> tuple[Step, ...]:
    if rollout.awaits_promote:
        return ((f"vctl rollout promote {of}", _next_step(rollout, plan)),)
    resume = (f"vctl rollout resume {of}", f"go on {_resumed(rollout)}")
    return ((f"vctl rollout status {of}", "what the nodes say"), resume)


def _resumed(rollout: Rollout) -> str:
    return f"with {rollout.resume_phase.replace('_', ' ')}" if rollout.resume_phase else "from here"


def _next_step(rollout: Rollout, plan: Plan | None) -> str:
    if rollout.step + 1 >= rollout.steps:
        return "settle: the release becomes the stable one"
    where = f"go on to step {rollout.step + 2} of {rollout.steps}"
    steps = plan.steps if plan else ()
    if rollout.step + 1 < len(steps):
        where += f", {steps[rollout.step + 1].weight:g} % of traffic"
    return where


def _back(rollout: Rollout, of: str) -> tuple[Step, ...]:
    if rollout.is_going_back:
        return ()
    to = f"release {rollout.from_release}" if rollout.from_release else "nothing"
    abort = f"give it up: traffic returns to {to}" if rollout.has_moved else "give it up"
    now = f"back at once; release {rollout.to_release} never serves again"
    can_return = rollout.from_release and rollout.has_moved
    steps: tuple[Step, ...] = ((f"vctl rollout abort {of}", abort),)
    return (*steps, (f"vctl rollback --now {of}", now)) if can_return else steps


def steps_text(steps: Sequence[Step]) -> str:
    """Return a line a command, what it does beside it."""
    width = max((len(command) for command, _ in steps), default=0)
    return "\n".join(f"  {command.ljust(width)}  {what}" for command, what in steps)

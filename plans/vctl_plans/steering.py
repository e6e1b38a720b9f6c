"""What an operator says to a rollout that runs, or to the last one that did (DESIGN section 7).

As in `operate`: decided on a reading of the service, nothing is written here. No traffic moves by
these words but by an abort; what a promotion allows is the conductor's to do.
"""

from typing import overload

from vctl_plans.errors import TransitionError
from vctl_plans.events import AbortAsked, PauseAsked, PromoteAsked, ResumeAsked, Steer
from vctl_plans.machine import step
from vctl_plans.operate import (
    Attach,
    Begin,
    Continue,
    Request,
    beginning,
    is_own,
    refuse_nobody,
    refuse_revoked,
    refuse_unreadable,
    running_rollout,
    state_of,
)
from vctl_plans.phase import RolloutPhase
from vctl_plans.plan import Plan
from vctl_plans.rollout import Cause, Promotion, Rollout, Roster
from vctl_plans.snapshot import Service
from vctl_plans.wishing import existing_release


def retry(
    service: Service, plan: Plan, *, roster: tuple[str, ...], request: Request
) -> Begin | Attach:
    """Decide what `rollout retry` writes: the last rollout again, with the nodes of now.

    Args:
        service: The service as read.
        plan: The last rollout's.
        roster: The nodes that are present now, sorted.
        request: Who asks.

    Raises:
        PlanError: No node is present, or the release is gone.
        TransitionError: There is nothing to try again, or its release is revoked.
        VctlError: What is there now cannot be read.
    """
    refuse_unreadable(service)
    last = service.rollout
    if last is None:
        raise TransitionError(
            f"service {service.name} never had a rollout", hint="allowed now: vctl rollout start"
        )
    if is_own(last, request):
        return Attach(last)
    if not last.phase.is_terminal or last.phase is RolloutPhase.CONVERGED:
        raise TransitionError(
            f"rollout retry is not allowed: rollout {last.id} of {service.name} is {last.phase}",
            hint="allowed once it failed or was aborted; a rollout that runs goes on by itself"
            if not last.phase.is_terminal
            else "allowed now: vctl rollout start, vctl rollback",
        )
    target = existing_release(service, last.to_release)
    refuse_revoked(service, target)
    if last.phase is RolloutPhase.ROLLED_BACK and last.cause is not Cause.ABORTED:
        raise TransitionError(
            f"rollout retry is not allowed: rollout {last.id} of {service.name} went back as asked",
            hint="allowed now: vctl rollout start, vctl rollback",
        )
    refuse_nobody(roster)
    return beginning(service, plan, target, request, roster=Roster(nodes=roster), replaced=last)


@overload
def steer(
    service: Service, event: AbortAsked | PauseAsked | ResumeAsked, *, elapsed_s: float = 0.0
) -> Continue: ...
@overload
def steer(service: Service, event: Steer, *, elapsed_s: float = 0.0) -> Continue | Attach: ...
def steer(service: Service, event: Steer, *, elapsed_s: float = 0.0) -> Continue | Attach:
    """Decide what `rollout abort`, `pause`, `promote` or `resume` writes.

    Args:
        service: The service as read.
        event: What is asked.
        elapsed_s: How long the phase has lasted at least; what a pause keeps of a soak.

    Raises:
        TransitionError: No rollout runs, or its phase does not allow it.
        VctlError: What is there now cannot be read.
    """
    refuse_unreadable(service)
    running = running_rollout(service)
    if running is None:
        last = service.rollout
        raise TransitionError(
            f"no rollout of {service.name} runs"
            + (f": {last.id}, the last, is {last.phase}" if last else ""),
            hint="allowed now: vctl rollout start, vctl rollback",
        )
    if isinstance(event, PromoteAsked) and _is_promoted(running, event):
        return Attach(running)
    route = service.current_route
    after = step(state_of(service, running, route), event, elapsed_s).state
    return Continue(running, after.rollout, after.route if after.route != route else None)


def _is_promoted(rollout: Rollout, event: PromoteAsked) -> bool:
    """Whether the present step is promoted already: pressed twice, it is one step, not two."""
    enough = {Promotion.FULL} if event.is_full else {Promotion.STEP, Promotion.FULL}
    return rollout.phase is RolloutPhase.SOAKING and rollout.promoted in enough

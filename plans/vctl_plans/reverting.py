"""What `rollback --now`, and the end of an override, write: route and phase at once.

As in `operate`: decided on a reading of the service, nothing is written here.
"""

import msgspec

from vctl_plans import basing, capacity
from vctl_plans.errors import PlanError, TransitionError
from vctl_plans.events import RollbackAsked
from vctl_plans.machine import step
from vctl_plans.operate import (
    Attach,
    Begin,
    Continue,
    Request,
    beginning,
    has_groups,
    is_own,
    refuse_revoked,
    refuse_unreadable,
    running_rollout,
    state_of,
)
from vctl_plans.phase import RolloutPhase
from vctl_plans.plan import Plan
from vctl_plans.release import Release
from vctl_plans.rollout import Cause, Rollout, Roster
from vctl_plans.route import Route, override_of, without
from vctl_plans.snapshot import Service
from vctl_plans.wishing import existing_release, roots


def rollback_now(
    service: Service,
    *,
    to: int,
    roster: tuple[str, ...],
    request: Request,
    allow_downtime: bool = False,
) -> Begin | Continue | Attach:
    """Decide what `rollback --now` writes: route and phase at once.

    Pressed twice, by two people, or after an abort or a guardrail went back already, it follows
    the rollback that exists; going further back needs *to*.

    Args:
        service: The service as read.
        to: The release to return to; 0 for the last good one.
        roster: The nodes that are present now, sorted.
        request: Who asks.
        allow_downtime: Whether nodes that have place for one release may unload what serves
            before they load the target.

    Raises:
        PlanError: The release does not exist, or engines have no place for it.
        TransitionError: There is nothing to return to, or the target is revoked.
        VctlError: What is there now cannot be read.
    """
    refuse_unreadable(service)
    route, rollout = service.route, service.rollout
    if not route or not route.stable:
        raise TransitionError(f"service {service.name} serves nothing yet: nothing to roll back")
    if rollout and (is_own(rollout, request) or _goes_back_to(service, rollout, to)):
        return Attach(rollout)
    running = running_rollout(service)
    ends_groups = not to and not running and has_groups(service)
    number = to or (route.stable if ends_groups else _way_back(route, running))
    target = existing_release(service, number)
    refuse_revoked(service, target)
    asked = RollbackAsked(target=target.number, request=request.id, by=request.by,
                          reason=request.reason)  # fmt: skip
    if running:
        _refuse_other_base(service, running, target)
        roomy = _with_room(service, running, target)
        after = step(state_of(service, running, roomy), asked, 0.0).state
        return Continue(running, after.rollout, after.route if after.route != route else None)
    groups = rollout.groups if rollout and ends_groups else ""
    plan = Plan(service=service.name, strategy="rollback", to=target.number,
                target=roots(target, target.number), allow_downtime=allow_downtime)  # fmt: skip
    return _at_once(service, plan, asked, request, roster=Roster(nodes=roster), groups=groups)


def _with_room(service: Service, running: Rollout, target: Release) -> Route:
    """Return the route on which as much is retained as leaves a place for the target.

    Where it is not loaded it is loaded beside all that serves now, which a rollout that runs may
    have doubled.
    """
    route = service.current_route
    if running.is_by_waves:
        return route  # what it goes back to has its place
    try:
        found = capacity.fit(service, target, allow_downtime=False)
    except PlanError as cause:
        raise TransitionError(
            f"release {target.number} is not loaded; {cause.message}",
            hint="free a place first: vctl rollout abort; then vctl rollback --now"
            f" --to {target.number}",
        ) from cause
    return without(route, found.gives_way) or route


def end_override(
    service: Service, group: str, *, roster: tuple[str, ...], request: Request
) -> Begin | Attach:
    """Decide what `route override rm` writes: groups get what all others do.

    Their release is not revoked, and is unloaded where nothing else wants it.

    Args:
        service: The service as read.
        group: Digest of the groups.
        roster: The nodes that are present now, sorted.
        request: Who asks.

    Raises:
        TransitionError: A rollout runs, or there is no such override.
        VctlError: What is there now cannot be read.
    """
    refuse_unreadable(service)
    if service.rollout and is_own(service.rollout, request):
        return Attach(service.rollout)
    running = running_rollout(service)
    if running:
        raise TransitionError(
            f"rollout {running.id} of {service.name} is {running.phase}",
            hint="wait until it has ended, or end it: vctl rollout abort, vctl rollback --now",
        )
    route = service.current_route
    if not override_of(route, group):
        raise TransitionError(
            f"no groups of {service.name} have a release of their own under {group or 'that name'}",
            hint="see them: vctl route show",
        )
    asked = RollbackAsked(target=route.stable, request=request.id, revokes=False, by=request.by,
                          reason=request.reason)  # fmt: skip
    target = existing_release(service, route.stable)
    plan = Plan(service=service.name, strategy="rollback", to=target.number,
                target=roots(target, target.number))  # fmt: skip
    return _at_once(service, plan, asked, request, roster=Roster(nodes=roster), groups=group)


def _at_once(
    service: Service,
    plan: Plan,
    asked: RollbackAsked,
    request: Request,
    *,
    roster: Roster,
    groups: str,
) -> Begin:
    """Return the beginning of a rollback whose first decision is to go back.

    What gives way to its target is on the unload list of its second: see `decision.make_room`.
    """
    target, route = existing_release(service, asked.target), service.current_route
    begun = beginning(service, plan, target, request, roster=roster, replaced=service.rollout)
    rollout = msgspec.structs.replace(begun.rollout, groups=groups)
    after = step(state_of(service, rollout, begun.route or route), asked, 0.0).state
    return msgspec.structs.replace(
        begun,
        rollout=msgspec.structs.replace(after.rollout, seq=0),  # its first decision
        route=after.route if after.route != route else None,
    )


def _refuse_other_base(service: Service, running: Rollout, target: Release) -> None:
    """Refuse to change the nodes' base within a rollout that did not lock it."""
    if not running.moves_base and basing.moves_base(service, target):
        raise TransitionError(
            f"release {target.number} of {service.name} runs on another base, and rollout"
            f" {running.id} does not change the nodes'",
            hint="end it first: vctl rollout abort; then vctl rollback --now",
        )


def _way_back(route: Route, running: Rollout | None) -> int:
    """Return the release that "back" means now, or 0.

    While a rollout goes back already, where it goes; while it brings groups a release, or its
    release is not stable yet, the stable one; else the last good one. So too while an override is
    ended: that moves nothing of what all others get.
    """
    if running is None or running.cause is Cause.OVERRIDE:
        return route.last_good()
    if running.back_to:
        return running.back_to
    if running.groups or running.to_release != route.stable:
        return route.stable
    return route.last_good()


def _goes_back_to(service: Service, rollout: Rollout, to: int) -> bool:
    """Whether a rollback is on its way, or has ended, where *to* wants it.

    One that a person asked for; or one that an abort or a guardrail has ended, unless groups keep
    a release of their own, which is then what there is to go back from. While those two still go
    back, the press goes on with them and revokes what they leave. Else whoever presses a moment
    after the guardrail would revoke the good release that it had just brought back.
    """
    if to not in {0, rollout.back_to}:
        return False
    has_ended = rollout.phase is RolloutPhase.ROLLED_BACK
    if rollout.cause is Cause.ASKED:
        return has_ended or rollout.phase is RolloutPhase.ROLLING_BACK
    is_there = rollout.back_to == service.current_route.stable and not has_groups(service)
    return has_ended and is_there and rollout.cause in {Cause.ABORTED, Cause.GUARDRAIL}

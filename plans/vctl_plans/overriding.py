"""What `route override set` writes: groups are held to a release that nodes hold already.

It is a write of the route and nothing else: nothing is prepared, nothing soaks, no rollout begins.
So it is allowed only where no rollout runs, and only to a release that serves or is certified as
instant; for any other, a user-group rollout brings it to the groups. As in `operate`: decided on a
reading of the service, nothing is written here.
"""

from collections.abc import Collection

import msgspec

from vctl_plans.chronicle import traffic
from vctl_plans.errors import PlanError, TransitionError
from vctl_plans.groups import Groups
from vctl_plans.operate import Request, refuse_revoked, refuse_unreadable, running_rollout
from vctl_plans.phase import RolloutPhase
from vctl_plans.release import Release
from vctl_plans.rollout import Entry
from vctl_plans.route import Route, overridden, override_of
from vctl_plans.seen import Seen
from vctl_plans.snapshot import Service
from vctl_plans.wishing import existing_release

MOST_OVERRIDES = 64
"""Of a service: every gateway watches the route, and asks each request for each of its groups."""


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """Groups are held to a release: what is to be written."""

    groups: Groups
    route: Route
    entry: Entry  # of the history, under the request's own id


def hold(
    service: Service,
    groups: Groups,
    number: int,
    *,
    ready: Collection[str],
    request: Request,
) -> Held | None:
    """Decide what `route override set` writes; None: the groups have it already.

    Args:
        service: The service as read.
        groups: Who is to be held.
        number: The release.
        ready: The nodes that report it ready now, and take requests.
        request: Who asks.

    Raises:
        PlanError: There is no such release, or no gateway chooses for this service.
        TransitionError: A rollout runs, nothing serves, the release is revoked or not loaded, or
            too many groups have a release of their own.
        VctlError: What is there now cannot be read.
    """
    refuse_unreadable(service)
    route = service.current_route
    if override_of(route, groups.digest) == number:
        return None
    target = existing_release(service, number)
    refuse_revoked(service, target)
    _refuse_now(service)
    _refuse_not_loaded(service, target, groups, ready)
    after = overridden(route, groups.digest, number)
    _refuse_many(service, after)
    return Held(
        groups=groups,
        route=after,
        entry=Entry(
            rollout=request.id,
            seq=0,
            phase=RolloutPhase.CONVERGED,
            sentence=f"an operator holds {groups.names} to release {number}; all others keep"
            f" release {route.stable}",
            by=request.by,
            reason=request.reason,
            seen=Seen(traffic=traffic(after)),
        ),
    )


def _refuse_now(service: Service) -> None:
    """Refuse while a rollout runs, where nothing serves, and where no gateway would choose."""
    running = running_rollout(service)
    if running:
        raise TransitionError(
            f"rollout {running.id} of {service.name} is {running.phase}",
            hint="wait until it has ended, or end it: vctl rollout abort, vctl rollback --now",
        )
    if service.is_direct:
        raise PlanError(
            f"clients of {service.name} call the engines themselves: nothing chooses for groups",
            path="service",
        )
    if not service.current_route.stable:
        raise TransitionError(
            f"service {service.name} serves nothing yet",
            hint=f"bring its first release: vctl rollout start -s {service.name} --adapter SOURCE",
        )


def _refuse_many(service: Service, after: Route) -> None:
    if len(after.overrides) > max(MOST_OVERRIDES, len(service.current_route.overrides)):
        raise TransitionError(
            f"{MOST_OVERRIDES} groups of {service.name} have a release of their own: no more may",
            hint="see them: vctl route show; end one: vctl route override rm",
        )


def _refuse_not_loaded(
    service: Service, target: Release, groups: Groups, ready: Collection[str]
) -> None:
    route = service.current_route
    loaded = route.serving | set(route.instant)
    if target.number in loaded and ready:
        return
    why = "no node reports it ready" if target.number in loaded else "it is not loaded"
    known = ", ".join(str(n) for n in sorted(loaded))
    raise TransitionError(
        f"release {target.number} of {service.name} cannot be given at once: {why};"
        f" loaded: {known}",
        hint="bring it to them: vctl rollout start"
        f" -s {service.name} --release {target.number} --group {groups.groups[0].name} ..."
        " (with the same --user, --tenant, --header, --percent)",
    )

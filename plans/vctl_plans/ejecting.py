"""The way out of vctl: engines keep what serves under the service's own name, and vctl lets go.

Two steps, so that no request is lost: first every node's engine holds the stable release under the
public name too and lists it; then clients move to the engines; then the route is retired. What is
retired is kept in the service's spec: whoever comes back finds numbers going on, and what was
revoked still revoked.
"""

import msgspec

from vctl_plans.errors import TransitionError
from vctl_plans.operate import Request, refuse_unreadable, running_rollout
from vctl_plans.phase import RolloutPhase
from vctl_plans.release import Release
from vctl_plans.rollout import Entry, ServiceSpec
from vctl_plans.snapshot import Service, way_back


class Ejection(msgspec.Struct, frozen=True, kw_only=True):
    """A service is let go: what is to be written."""

    spec: ServiceSpec
    entry: Entry  # of the history


def refuse(service: Service) -> Release:
    """Return the release that engines are to hold under the service's name.

    Raises:
        TransitionError: A rollout runs, nothing serves, or it is no adapter.
        VctlError: What is there now cannot be read.
    """
    refuse_unreadable(service)
    running = running_rollout(service)
    if running:
        raise TransitionError(
            f"rollout {running.id} of {service.name} is {running.phase}",
            hint="wait until it has ended, or end it: vctl rollout abort, vctl rollback --now",
        )
    if service.ejected:
        raise TransitionError(
            f"service {service.name} was let go already, at release {service.ejected}",
            hint=f"to come back: {way_back(service.name, service.ejected)}",
        )
    stable, route = service.stable, service.current_route
    if stable is None:
        raise TransitionError(f"service {service.name} serves nothing: there is nothing to keep")
    if route.overrides:
        raise TransitionError(
            f"groups of {service.name} have a release of their own, which no engine can tell",
            hint="see them: vctl route show; end what they have: vctl route override rm",
        )
    if not stable.adapter:
        raise TransitionError(
            f"release {stable.number} of {service.name} is the base model's own answer: engines"
            " serve it by the base's name already",
        )
    return stable


def eject(service: Service, stable: Release, request: Request) -> Ejection:
    """Decide the letting go, once every node's engine was seen to hold *stable*.

    Raises:
        TransitionError: Something else serves by now, or a rollout runs.
        VctlError: What is there now cannot be read.
    """
    now = refuse(service)
    if now.digest != stable.digest:
        raise TransitionError(
            f"release {now.number} of {service.name} serves by now, and engines were given"
            f" {stable.number}",
            hint="run it again",
        )
    spec = service.spec or ServiceSpec(service=service.name)
    return Ejection(
        spec=msgspec.structs.replace(spec, retired=service.current_route, by=request.by),
        entry=Entry(
            rollout=request.id,
            seq=0,
            phase=RolloutPhase.CONVERGED,
            sentence=f"ejected: engines serve release {stable.number} as {service.name},"
            " and vctl lets it go",
            by=request.by,
            reason=request.reason,
        ),
    )

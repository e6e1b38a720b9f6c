"""Which release a wish is for: one that exists, or one that is composed of what is to be brought.

A release is composed from the stable one. Where the service already has just what is wished, it is
that one: the same thing typed twice is one release.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from vctl_plans.errors import PlanError, TransitionError
from vctl_plans.phase import Component
from vctl_plans.plan import Plan
from vctl_plans.release import Artifact, Release, compose, has_same_content
from vctl_plans.route import override_of
from vctl_plans.snapshot import Service

if TYPE_CHECKING:
    from vctl_plans.operate import Request


def wished(
    service: Service, plan: Plan, wish: Mapping[Component, Artifact] | int, request: "Request"
) -> tuple[Release, Release | None]:
    """Return the release to serve, and the same when it is new."""
    if not isinstance(wish, int):
        return _composed(service, plan, wish, request)
    last_good = service.route.last_good() if service.route else 0
    number = wish or (last_good if plan.strategy == "rollback" else 0)
    return existing_release(service, number), None


def existing_release(service: Service, number: int) -> Release:
    """Return a release of the service; 0 stands for an earlier good one that there is not."""
    if number in service.releases:
        return service.releases[number]
    if not number:
        raise TransitionError(
            f"service {service.name} has no earlier good release to return to",
            hint="name one with --to N",
        )
    known = ", ".join(str(n) for n in sorted(service.releases)[-10:]) or "none"
    raise PlanError(f"release {number} of {service.name} does not exist; known: {known}",
                    path="release")  # fmt: skip


def _composed(
    service: Service, plan: Plan, wish: Mapping[Component, Artifact], request: "Request"
) -> tuple[Release, Release | None]:
    """Return the release to serve, and the same when it is new."""
    current = [service.rollout.to_release] if service.rollout and service.is_running else []
    current += [service.route.stable] if service.route else []
    for number in current:
        release = service.releases.get(number)
        if release and has_same_content(release, wish):
            return release, None
    new = compose(
        service.name,
        wish,
        known=service.releases.values(),
        stable=service.stable,
        by=request.by,
        reason=request.reason,
        probes=plan.probes,
    )
    theirs = service.releases.get(override_of(service.current_route, plan.groups))
    if theirs and roots(theirs, theirs.number) == roots(new, new.number):
        return theirs, None  # composed for these groups before, and typed again
    return new, new


def roots(target: Release, wish: Mapping[Component, Artifact] | int) -> dict[str, str]:
    """Return what of *target* a plan is about: by component, its root."""
    names = target.components if isinstance(wish, int) else wish
    return {name.value: target.components[name].root for name in names}

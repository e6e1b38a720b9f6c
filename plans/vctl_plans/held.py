"""What gateways tell beside their routes: root's own word on a node, and who holds on to what."""

from collections.abc import Mapping

import msgspec

from vctl_plans.node import NodeReport
from vctl_plans.rollout import listed
from vctl_plans.snapshot import Service


class Held(msgspec.Struct, frozen=True):
    """How many sessions hold on to a release, as far as nodes can tell.

    A session that comes to several gateways is counted by each. So there are as many as the one
    gateway tells that tells of most, or more, up to what they tell of together.
    """

    least: int
    most: int


def overrides_of(service: str, present: Mapping[str, NodeReport]) -> dict[str, int]:
    """Return the nodes on which root has the service served by a release, and which."""
    return {
        node: report.overrides[service]
        for node, report in sorted(present.items())
        if service in report.overrides
    }


def glass_text(service: str, glass: Mapping[str, int]) -> str:
    """Return the warning of a service that root has served otherwise than its route says."""
    releases: dict[int, list[str]] = {}
    for node, release in glass.items():
        releases.setdefault(release, []).append(node)
    where = "; ".join(f"release {n} on {listed(tuple(on))}" for n, on in sorted(releases.items()))
    return (
        f"BREAK-GLASS: {service} is served by {where}, whatever its route says,"
        f" until: vctl-gateway override --service {service} --clear"
    )


def sessions_of(service: Service, present: Mapping[str, NodeReport]) -> dict[int, Held]:
    """Return how many sessions hold on to which release, while something moves."""
    if not service.current_route.candidate:
        return {}
    told = [report.pins.get(service.name, {}) for report in present.values()]
    return {
        release: Held(max(counts), sum(counts))
        for release in sorted({release for each in told for release in each})
        if (counts := [each.get(release, 0) for each in told])
    }


def pins_text(pins: Mapping[int, Held]) -> str:
    """Return how many sessions hold on to which release."""
    each = (
        f"{f'{held.least} to {held.most}' if held.least < held.most else held.most} on release {n}"
        for n, held in pins.items()
    )
    return f"sessions seen: {', '.join(each)}"

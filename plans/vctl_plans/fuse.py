"""The fuse: how many nodes may be taken from a release that serves, because they fail its probe.

A release that serves is probed again when its engine was restarted. If it fails then, the node says
so and waits for the conductor's permission to be quarantined; without it, the node serves on after
`PATIENCE_S`, and says why. So a wrong golden prompt, or a probe that errs everywhere, takes at most
a tenth of the fleet, also when all engines start at once and when no conductor is there: nobody
else sees all nodes, and the permission is written before anyone is quarantined, not after too many
are.

The permission is one small key a service, which names the nodes. Nodes that failed while a rollout
prepared the release, before it served, need none: they never served it, and the plan's own limits
decided about them. They count here.
"""

from collections.abc import Mapping

import msgspec

from vctl_plans.alert import Alert, Severity
from vctl_plans.codec import Value
from vctl_plans.node import NodeReport
from vctl_plans.node_machine import Failure
from vctl_plans.phase import NodePhase
from vctl_plans.release import Release
from vctl_plans.rollout import listed

PERCENT = 10
"""Of the nodes of a release that serves; DESIGN section 6."""

MOST_NAMED = 64
"""Nodes that one key names: it is watched by all. In fleets of more than 640, less than 10 %."""

PATIENCE_S = 5.0
"""For which a node that fails the probe of what serves waits to be told; meanwhile others serve."""


class Fuse(Value, frozen=True, kw_only=True):
    """The nodes that may be quarantined for a release that serves."""

    service: str
    release: str = ""  # its digest
    nodes: tuple[str, ...] = ()  # sorted


class Failing(msgspec.Struct, frozen=True):
    """Nodes that fail the probe of the release that serves, as they say."""

    release: str  # digest
    nodes: tuple[str, ...]  # sorted
    before: frozenset[str]  # of those, quarantined before it served
    reason: str = ""  # of the first
    of: int = 0  # nodes that are present


def limit(nodes: int) -> int:
    """Return how many of *nodes* may be quarantined: a tenth, one at least, and never the last."""
    return min(max(1, nodes * PERCENT // 100), max(0, nodes - 1), MOST_NAMED)


def failing(
    stable: Release | None, present: Mapping[str, NodeReport], fuse: Fuse, *, nodes: int
) -> Failing:
    """Return who fails the probe of a service's stable release.

    Args:
        stable: The release.
        present: The reports that count.
        fuse: What stands.
        nodes: How many nodes are present, whether or not they have reported.
    """
    if stable is None:
        return Failing("", (), frozenset())
    said = {
        node: found
        for node, report in present.items()
        if (found := report.release(stable.service, stable.number)) and found.fails_probe
    }
    told = fuse.nodes if fuse.release == stable.digest else ()
    return Failing(
        release=stable.digest,
        nodes=tuple(sorted(said)),
        before=frozenset(
            node
            for node, found in said.items()
            if found.phase is NodePhase.QUARANTINED and node not in told
        ),
        reason=said[min(said)].reason if said else "",
        of=nodes,
    )


def permitted(service: str, found: Failing, before: Fuse, known: frozenset[str]) -> Fuse:
    """Return the fuse that should stand: equal to *before* where it is still right.

    Who has the permission keeps it for as long as it fails, or has not been heard since its agent
    began; then others get it, by name. When nodes vanish, fewer have it.

    Args:
        service: The service.
        found: Who fails.
        before: What stands there now.
        known: Nodes that are present and have not reported yet.
    """
    told = before.nodes if before.release == found.release else ()
    room = max(0, limit(found.of) - len(found.before))
    kept = [node for node in told if node in found.nodes or node in known]
    others = [node for node in found.nodes if node not in kept and node not in found.before]
    nodes = tuple(sorted([*kept, *others][:room]))
    release = found.release if nodes else ""
    return Fuse(service=service, release=release, nodes=nodes)


def blown(stable: Release, found: Failing, fuse: Fuse) -> Alert | None:
    """Return the alert that more nodes fail than may be quarantined; one for each release."""
    name = stable.service
    serving = [n for n in found.nodes if n not in fuse.nodes and n not in found.before]
    if not serving:
        return None
    return Alert(
        id=f"{name}-fuse-{found.release.removeprefix('b3:')[:12]}",
        service=name,
        severity=Severity.P0,
        title=f"{name}: nodes serve what fails its probe",
        sentence=f"{len(found.nodes)} of {found.of} nodes fail the probe of release"
        f" {stable.number}, which serves, and no more than {limit(found.of)} are quarantined for"
        f" that: these serve on: {listed(tuple(serving))}; the first says: {found.reason}",
    )


def spared_in_s(
    fuse: Fuse | None, release: Release, failure: Failure | None, *, stable: int, node: str
) -> float | None:
    """Return after what time a release serves on *node* though it fails its probe; None: not ever.

    Args:
        fuse: The service's.
        release: The release.
        failure: Its last try, if that failed.
        stable: The number of the service's stable release.
        node: The node's name.
    """
    if not failure or not (failure.is_of_probe and failure.was_serving):
        return None
    is_named = fuse is not None and fuse.release == release.digest and node in fuse.nodes
    if release.number != stable or is_named:
        return None
    return max(0.0, PATIENCE_S - failure.since_s)

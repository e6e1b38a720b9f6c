"""Adapters that an engine still holds of releases that nobody knows any more.

A backup of etcd that was restored may be older than a release: then its adapter stays in an engine,
in a place that others need, and no unload list can ever name it. It may go once nothing that is
known can name it.

The hard decision: who is unknown may be anybody. As long as a route, a rollout or a request names a
release that cannot be looked up, or a value cannot be read, no adapter is an orphan.
"""

from collections.abc import Set as AbstractSet

from vctl_plans.rollout import wanted
from vctl_plans.snapshot import Fleet, Service


def orphans(
    fleet: Fleet,
    held: AbstractSet[str],
    *,
    requested: AbstractSet[tuple[str, int]],
    offered: AbstractSet[str],
) -> frozenset[str]:
    """Return which adapters may go.

    Args:
        fleet: All services, as the store has them.
        held: Adapters in the engine that vctl loaded under the names of releases.
        requested: Service and number of releases that requests are on, or may be handed.
        offered: Adapters that requests may be handed.
    """
    if fleet.problems:
        return frozenset()
    known = {(s.name, number) for s in fleet.services.values() for number in s.releases}
    named = {(s.name, number) for s in fleet.services.values() for number in _named(s)}
    if (named | requested) - known:
        return frozenset()
    theirs = {r.engine_name for s in fleet.services.values() for r in s.releases.values()}
    return frozenset(held - theirs - offered)


def _named(service: Service) -> set[int]:
    """Return the releases that the service's keys speak of and an engine may hold."""
    rollout = service.rollout
    of_rollout = {rollout.from_release, rollout.to_release, *rollout.unload} if rollout else set()
    return (set(wanted(service.route, rollout)) | of_rollout) - {0}

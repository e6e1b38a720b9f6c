"""What the gateway counts of the services that a rollout watches (`statistics` has the words).

The rule to keep: a count never goes back under one name. So whenever a release's counting begins
anew (its service is watched again, or it was let go for want of room), it gets another origin.

What is kept is bounded whatever is routed: of a service so many releases, of a release so many
route revisions, and all that is told at once fits a line to the agent and a value of etcd.
"""

import time
from collections.abc import Callable, Collection, Iterable

import msgspec

from vctl_agent.gateway.metrics import Metrics
from vctl_agent.gateway.observation import Counted, Observation
from vctl_agent.local import GatewayStatistics
from vctl_plans.codec import encode
from vctl_plans.statistics import (
    ErrorClass,
    Origin,
    Recorder,
    Sample,
    Snapshot,
    Statistics,
)

KEPT_ROUTES = 3
"""Newest route revisions of a release that are kept: a window may still be open on the one before
the present, and a barrier writes twice more."""
KEPT_RELEASES = 8
"""Releases of a service that are kept: those whose newest route revision is highest."""
MAX_BYTES = 2**20
"""Of all that is told at once: below `local.MAX_LINE_BYTES`, and below what one write to etcd takes
(`store.port.MAX_REQUEST_BYTES`)."""


class _Record:
    """One release under one route revision; what did not change is not encoded anew."""

    def __init__(self) -> None:
        self._recorder = Recorder()
        self._taken: Statistics | None = None

    def add(self, sample: Sample) -> None:
        self._recorder.add(sample)
        self._taken = None

    def statistics(self) -> Statistics:
        if self._taken is None:
            self._taken = self._recorder.snapshot()
        return self._taken


class _Release(msgspec.Struct):
    """One release's counts, since they began."""

    name: str  # the origin's, of this beginning
    routes: dict[int, _Record] = {}

    def add(self, route_revision: int, sample: Sample) -> None:
        self.routes.setdefault(route_revision, _Record()).add(sample)
        if len(self.routes) > KEPT_ROUTES:
            # A route that was let go stays so: what comes late for it is the oldest again.
            del self.routes[min(self.routes)]


_Key = tuple[str, int, str]  # service, number, digest


class Counting:
    """Every ended request, for Prometheus; those of watched services also as statistics.

    Args:
        boot_id: The gateway's.
        metrics: What Prometheus reads.
        clock: Seconds, monotonic.
    """

    def __init__(
        self, boot_id: str, metrics: Metrics, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._boot_id = boot_id
        self._metrics = metrics
        self._clock = clock
        self._watched: frozenset[str] = frozenset()
        self._releases: dict[_Key, _Release] = {}
        self._begun = 0  # how many counts have begun, so that each has a name of its own

    def watch(self, services: Collection[str]) -> None:
        """Count for exactly *services*; what was counted for others is dropped."""
        if self._watched == frozenset(services):
            return
        self._watched = frozenset(services)
        self._releases = {
            key: found for key, found in self._releases.items() if key[0] in self._watched
        }

    def observe(self, counted: Counted) -> Observation:
        """Return the observation of one request; it is counted on leaving its ``with`` block."""
        return Observation(
            counted, self._ended, self._clock, counted.service in self._watched, self._clock()
        )

    def told(self) -> GatewayStatistics:
        """Return what the agent is told."""
        return GatewayStatistics(
            boot_id=self._boot_id, snapshots=fitted(self.snapshots(), MAX_BYTES)
        )

    def snapshots(self) -> tuple[Snapshot, ...]:
        """Return all that is counted, in order."""
        return tuple(
            Snapshot(
                service=service,
                number=number,
                digest=digest,
                origin=Origin(found.name, route_revision),
                statistics=found.routes[route_revision].statistics(),
            )
            for (service, number, digest), found in sorted(
                self._releases.items(), key=lambda item: item[0]
            )
            for route_revision in sorted(found.routes)
        )

    def _ended(self, seen: Observation, error: ErrorClass | None) -> None:
        counted = seen.counted
        self._metrics.count_end(counted.service, counted.number, error, seen.first_s)
        if counted.service in self._watched:
            self.add(counted, seen.sample(error))

    def add(self, counted: Counted, sample: Sample) -> None:
        """Count one request of a service that is watched."""
        key = (counted.service, counted.number, counted.digest)
        release = self._releases.get(key)
        if release is None:
            self._begun += 1
            release = self._releases[key] = _Release(f"{self._boot_id}.{self._begun}")
        release.add(counted.route_revision, sample)
        self._make_room(counted.service)

    def _make_room(self, service: str) -> None:
        keys = [key for key in self._releases if key[0] == service]
        if len(keys) > KEPT_RELEASES:
            del self._releases[min(keys, key=lambda key: (max(self._releases[key].routes), key))]


def fitted(snapshots: Iterable[Snapshot], max_bytes: int) -> tuple[Snapshot, ...]:
    """Return as many as fit, in order: first each release's newest route, then the one before.

    What is left out is missing whole, as of a gateway that is silent: it never shows less than it
    counted before.
    """
    every = tuple(snapshots)
    if len(msgspec.json.encode(every)) <= max_bytes:
        return every
    ages: dict[_Key, int] = {}
    aged: list[tuple[int, int]] = []
    for place, each in reversed(tuple(enumerate(every))):
        key = (each.service, each.number, each.digest)
        ages[key] = ages.get(key, -1) + 1
        aged.append((ages[key], place))
    kept: list[int] = []
    left = max_bytes - len("[]")
    for _, place in sorted(aged):
        left -= len(encode(every[place])) + len(",")
        if left < 0:
            break
        kept.append(place)
    return tuple(every[place] for place in sorted(kept))

"""What the gateway counts, for Prometheus. Labels name services and releases, never clients.

The registry is the gateway's own, so that two gateways in one process (a test) do not meet. What is
known anyway (counts, revisions) is read when it is asked for, not kept twice.
"""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from vctl_agent.gateway.barrier import Barrier
from vctl_agent.gateway.inflight import References
from vctl_agent.gateway.live import Live
from vctl_agent.gateway.tally import Spread, Tallies, Tally
from vctl_plans.statistics import ErrorClass


class Metrics:
    """Counters and histograms of requests, and the present read at each scrape."""

    def __init__(self, live: Live, references: References, barrier: Barrier) -> None:
        self.registry = CollectorRegistry()
        self._tallies = Tallies()
        self._dropped = Counter(
            "vctl_gateway_access_log_dropped_total",
            "Lines of the access log that were dropped, since nobody read them fast enough.",
            registry=self.registry,
        )
        self.registry.register(_Counts(self._tallies))
        self.registry.register(_Present(live, references, barrier))

    def count(self, service: str, release: int, status: int, seconds: float) -> None:
        """Count a request that ended."""
        tally = self._tallies.of(service, release)
        tally.statuses[status] = tally.statuses.get(status, 0) + 1
        tally.seconds.add(seconds)

    def count_end(
        self, service: str, release: int, error: ErrorClass | None, first_token_s: float | None
    ) -> None:
        """Count how a request ended that a release was chosen for."""
        if error is None and first_token_s is None:
            return
        tally = self._tallies.of(service, release)
        if error is not None:
            tally.errors[error] = tally.errors.get(error, 0) + 1
        if first_token_s is not None:
            tally.first_token.add(first_token_s)

    def hop(self, service: str, release: int, direction: str, outcome: str) -> None:
        """Count a request that was passed from one gateway to another."""
        hops = self._tallies.of(service, release).hops
        hops[direction, outcome] = hops.get((direction, outcome), 0) + 1

    def log_dropped(self, lines: int) -> None:
        """Count lines of the access log that were dropped."""
        self._dropped.inc(lines)

    def text(self) -> bytes:
        """Return the exposition."""
        return generate_latest(self.registry)


class _Counts(Collector):
    """Shows what was counted by release."""

    def __init__(self, tallies: Tallies) -> None:
        self._tallies = tallies

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "vctl_gateway_requests",
            "Requests that ended, by what was answered (499: the client went away).",
            labels=["service", "release", "status"],
        )
        errors = CounterMetricFamily(
            "vctl_gateway_errors",
            "Requests that failed after a release was chosen, by how they failed.",
            labels=["service", "release", "class"],
        )
        hops = CounterMetricFamily(
            "vctl_gateway_hops",
            "Requests passed to a peer (sent) or by a peer (received), by what came of it.",
            labels=["service", "release", "direction", "outcome"],
        )
        for service, release, tally in self._tallies.items():
            for status, count in tally.statuses.items():
                requests.add_metric([service, release, str(status)], count)
            for error, count in tally.errors.items():
                errors.add_metric([service, release, error.value], count)
            for (direction, outcome), count in tally.hops.items():
                hops.add_metric([service, release, direction, str(outcome)], count)
        yield from (requests, errors, hops)
        yield self._spreads(
            "vctl_gateway_request_seconds",
            "Seconds from a request's headers to its last byte.",
            lambda tally: tally.seconds,
        )
        yield self._spreads(
            "vctl_gateway_first_token_seconds",
            "Seconds from the choice of a release to the first piece of a streamed answer.",
            lambda tally: tally.first_token,
        )

    def _spreads(self, name: str, says: str, of: Callable[[Tally], Spread]) -> Metric:
        family = HistogramMetricFamily(name, says, labels=["service", "release"])
        for service, release, tally in self._tallies.items():
            spread = of(tally)
            if any(spread.counts):
                family.add_metric([service, release], spread.buckets(), spread.sum_s)
        return family


class _Present(Collector):
    """Reads what the gateway knows at the moment of a scrape."""

    def __init__(self, live: Live, references: References, barrier: Barrier) -> None:
        self._live = live
        self._references = references
        self._barrier = barrier

    def collect(self) -> Iterator[Metric]:
        in_flight = GaugeMetricFamily(
            "vctl_gateway_in_flight",
            "Requests that hold a release now.",
            labels=["service", "release"],
        )
        for held in self._references.listing():
            in_flight.add_metric([held.service, str(held.number)], held.count)
        yield in_flight
        revision = GaugeMetricFamily(
            "vctl_gateway_route_revision",
            "The route revision that new requests are decided by.",
            labels=["service"],
        )
        for service, route_revision in self._live.acted.known.route_revisions().items():
            revision.add_metric([service], route_revision)
        yield revision
        yield from self._held()
        yield GaugeMetricFamily(
            "vctl_gateway_last_contact_seconds",
            "Seconds since the watch of etcd was live; 0 while it is.",
            value=self._live.last_contact_s(),
        )

    def _held(self) -> Iterator[Metric]:
        held = GaugeMetricFamily(
            "vctl_gateway_held_requests",
            "Requests that wait until their service has switched.",
            labels=["service"],
        )
        for service in self._live.acted.known.routes.keys() | self._barrier.held.keys():
            held.add_metric([service], self._barrier.held.get(service, 0))
        yield held
        glass = GaugeMetricFamily(
            "vctl_gateway_override",
            "1 for the release that root has a service served by here, whatever its route says.",
            labels=["service", "release"],
        )
        for service, release in self._live.overrides.items():
            glass.add_metric([service, str(release)], 1)
        yield glass
        timeouts = CounterMetricFamily(
            "vctl_gateway_hold_timeouts",
            "Requests that were sent away because their service did not switch in time.",
            labels=["service"],
        )
        for service, count in self._barrier.timeouts.items():
            timeouts.add_metric([service], count)
        yield timeouts

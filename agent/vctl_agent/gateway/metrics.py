"""What the gateway counts, for Prometheus. Labels name services and releases, never clients.

The registry is the gateway's own, so that two gateways in one process (a test) do not meet. What is
known anyway (counts, revisions) is read when it is asked for, not kept twice.
"""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from vctl_agent.gateway.barrier import Barrier
from vctl_agent.gateway.inflight import References
from vctl_agent.gateway.live import Live
from vctl_plans.statistics import ErrorClass, Sample

# From a cached embedding to a long stream.
_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    """Counters and histograms of requests, and the present read at each scrape."""

    def __init__(self, live: Live, references: References, barrier: Barrier) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "vctl_gateway_requests_total",
            "Requests that ended, by what was answered (499: the client went away).",
            ["service", "release", "status"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "vctl_gateway_request_seconds",
            "Seconds from a request's headers to its last byte.",
            ["service", "release"],
            buckets=_BUCKETS_S,
            registry=self.registry,
        )
        self._errors = Counter(
            "vctl_gateway_errors_total",
            "Requests that failed after a release was chosen, by how they failed.",
            ["service", "release", "class"],
            registry=self.registry,
        )
        self._first_token = Histogram(
            "vctl_gateway_first_token_seconds",
            "Seconds from the choice of a release to the first piece of a streamed answer.",
            ["service", "release"],
            buckets=_BUCKETS_S,
            registry=self.registry,
        )
        self._hops = Counter(
            "vctl_gateway_hops_total",
            "Requests passed to a peer (sent) or by a peer (received), by what came of it.",
            ["service", "release", "direction", "outcome"],
            registry=self.registry,
        )
        self._counters: dict[tuple[str, int, int], Counter] = {}
        self._histograms: dict[tuple[str, int], Histogram] = {}
        self._error_counters: dict[tuple[str, int, ErrorClass], Counter] = {}
        self._first_tokens: dict[tuple[str, int], Histogram] = {}
        self.registry.register(_Present(live, references, barrier))

    def count(self, service: str, release: int, status: int, seconds: float) -> None:
        """Count a request that ended; the label's children are looked up once each."""
        counter = self._counters.get((service, release, status))
        if counter is None:
            counter = self._requests.labels(service, str(release), str(status))
            self._counters[service, release, status] = counter
        histogram = self._histograms.get((service, release))
        if histogram is None:
            histogram = self._seconds.labels(service, str(release))
            self._histograms[service, release] = histogram
        counter.inc()
        histogram.observe(seconds)

    def count_sample(self, service: str, release: int, sample: Sample) -> None:
        """Count how a request ended that a release was chosen for."""
        if sample.error is not None:
            counter = self._error_counters.get((service, release, sample.error))
            if counter is None:
                counter = self._errors.labels(service, str(release), sample.error.value)
                self._error_counters[service, release, sample.error] = counter
            counter.inc()
        if sample.first_token_s is not None:
            histogram = self._first_tokens.get((service, release))
            if histogram is None:
                histogram = self._first_token.labels(service, str(release))
                self._first_tokens[service, release] = histogram
            histogram.observe(sample.first_token_s)

    def hop(self, service: str, release: int, direction: str, outcome: str) -> None:
        """Count a request that was passed from one gateway to another."""
        self._hops.labels(service, str(release), direction, outcome).inc()

    def text(self) -> bytes:
        """Return the exposition."""
        return generate_latest(self.registry)


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

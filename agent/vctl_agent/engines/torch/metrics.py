"""What /metrics tells: counters kept as requests end, and gauges read when they are asked for.

The rule to keep: no label takes a value that grows with use. Adapters come and go many times a
day, so only requests in flight are told by model, and only while they are.
"""

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from vctl_agent.engines.torch.cache import CacheCounts
from vctl_agent.engines.torch.registry import Registry

SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


class Metrics:
    """The metrics of one engine process."""

    def __init__(self, registry: Registry, counts: Callable[[], CacheCounts]) -> None:
        self._all = CollectorRegistry()
        self._all.register(_Present(registry, counts))
        ProcessCollector(registry=self._all)
        self.requests = Counter(
            "vctl_engine_requests",
            "Requests for an answer, by their end: completed, refused, failed, cancelled.",
            ["endpoint", "outcome"],
            registry=self._all,
        )
        self.request_seconds = Histogram(
            "vctl_engine_request_seconds",
            "From a request's arrival to its last token; completed requests only.",
            ["endpoint"],
            buckets=SECONDS,
            registry=self._all,
        )
        self.first_token_seconds = Histogram(
            "vctl_engine_first_token_seconds",
            "From a request's arrival to its first token.",
            ["endpoint"],
            buckets=SECONDS,
            registry=self._all,
        )
        self.tokens = Counter(
            "vctl_engine_tokens",
            "Tokens of requests: prompt (cached ones included), cached, generated.",
            ["kind"],
            registry=self._all,
        )

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._all)


class _Present(Collector):
    """What is read anew at each scrape."""

    def __init__(self, registry: Registry, counts: Callable[[], CacheCounts]) -> None:
        self._registry = registry
        self._counts = counts

    def collect(self) -> Iterable[Metric]:
        inflight = GaugeMetricFamily(
            "vctl_engine_inflight", "Requests that use a model now.", labels=["model"]
        )
        for model, count in self._registry.inflight.items():
            inflight.add_metric([model], count)
        yield inflight
        counts = self._counts()
        for name, text, value in (
            ("adapters", "Adapters that are loaded.", len(self._registry.adapters)),
            ("max_loras", "Adapters that can be.", self._registry.limits.max_loras),
            ("cache_blocks", "Blocks in the prefix cache.", counts.blocks),
            ("cache_capacity_blocks", "Blocks that fit in it.", counts.capacity),
        ):
            yield GaugeMetricFamily(f"vctl_engine_{name}", text, value=value)
        for name, text, value in (
            ("cache_hits", "Blocks of prompts that were found.", counts.hits),
            ("cache_misses", "Blocks of prompts that were looked for in vain.", counts.misses),
            ("cache_evictions", "Blocks that made room.", counts.evictions),
        ):
            yield CounterMetricFamily(f"vctl_engine_{name}", text, value=value)

"""Counts by release: what Prometheus reads, and how much is kept."""

from prometheus_client.parser import text_string_to_metric_families

from vctl_agent.gateway.barrier import Barrier
from vctl_agent.gateway.inflight import References
from vctl_agent.gateway.live import Acted, Live
from vctl_agent.gateway.metrics import Metrics
from vctl_agent.gateway.tally import MOST, Spread, Tallies


def metrics() -> Metrics:
    live = Live(Acted(), prefix="/", clock=lambda: 0.0)
    return Metrics(live, References(lambda: None), Barrier(live))


def shown(made: Metrics, name: str) -> dict[tuple[str, ...], float]:
    """Return the samples of *name* by the values of their labels, in the labels' order."""
    return {
        tuple(value for _, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(made.text().decode())
        for sample in family.samples
        if sample.name == name
    }


def test_seconds_count_up_to_each_bound_that_they_do_not_exceed():
    spread = Spread()
    for seconds in (0.001, 0.005, 0.0051, 1000.0):
        spread.add(seconds)

    found = dict(spread.buckets())
    assert (2, 3, 3, 4) == (found["0.005"], found["0.01"], found["600.0"], found["+Inf"])


def test_scrape_shows_what_was_counted():
    made = metrics()
    made.count("support", 1, 200, 0.004)
    made.count("support", 1, 200, 2.0)
    made.count("support", 1, 503, 0.1)
    made.hop("support", 2, "sent", "served")

    counts = shown(made, "vctl_gateway_requests_total")
    assert {("1", "support", "200"): 2.0, ("1", "support", "503"): 1.0} == counts
    assert {("1", "support"): 3.0} == shown(made, "vctl_gateway_request_seconds_count")
    buckets = shown(made, "vctl_gateway_request_seconds_bucket")
    assert (1.0, 3.0) == (buckets["0.005", "1", "support"], buckets["+Inf", "1", "support"])
    assert 2.104 == shown(made, "vctl_gateway_request_seconds_sum")["1", "support"]
    assert [1.0] == list(shown(made, "vctl_gateway_hops_total").values())


def test_releases_that_are_counted_for_are_bounded():
    tallies = Tallies()
    for number in range(3 * MOST):
        tallies.of("support", number).seconds.add(1.0)

    numbers = [int(release) for _, release, _ in tallies.items()]
    assert list(range(2 * MOST, 3 * MOST)) == numbers

"""What is kept beside a decision: small whatever the fleet, and by the nodes' own word."""

import msgspec
import pytest

from tests.builders import a_report, a_rollout, a_route, a_state
from vctl_plans.chronicle import (
    NAMED,
    POINTS,
    arrived,
    curve,
    holders,
    rate,
    seen,
    thinned,
    traffic,
)
from vctl_plans.codec import encode
from vctl_plans.phase import NodePhase
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.route import Override
from vctl_plans.seen import Rate, Traffic, Window
from vctl_plans.statistics import ErrorClass, Recorder, Sample, Statistics


def test_traffic_is_that_of_the_route():
    route = a_route(candidate=2, weight=25.0, overrides=(Override(group="g", release=3),))
    assert Traffic(stable=1, candidate=2, weight=25.0, groups=(3,)) == traffic(route)


@pytest.mark.parametrize(
    ("phase", "revision", "expected"),
    [
        (P.PREPARING, 7, ("a",)),  # who holds the release ready
        (P.SHIFTING, 7, ("a", "b")),  # whose gateway acts on the route
        (P.SHIFTING, 8, ()),
        (P.SOAKING, 7, ()),  # nobody is waited for
    ],
)
def test_who_has_arrived_depends_on_what_the_phase_waits_for(
    phase: P, revision: int, expected: tuple[str, ...]
):
    state = msgspec.structs.replace(a_state(phase), route_revision=revision)
    reports = {
        "a": a_report("a", rollout=a_rollout(), r2=NodePhase.READY),
        "b": a_report("b", rollout=a_rollout(), r2=NodePhase.LOADING),
    }
    assert expected == arrived(state, reports)


def test_holders_are_counted_by_release():
    reports = [
        a_report("a", r1=NodePhase.READY, r2=NodePhase.READY),
        a_report("b", r1=NodePhase.READY, r2=NodePhase.PROBING),
    ]
    assert {"1": 2, "2": 1} == holders("support", reports)
    assert {} == holders("other", reports)


def test_curve_is_whole_where_it_is_short_and_ends_at_the_last():
    assert ((1.0, 1), (2.0, 3), (5.0, 4)) == curve([2.0, 1.0, 2.0, 5.0])
    points = curve(n / 10 for n in range(10_000))
    assert POINTS == len(points)
    assert ((0.0, 1), (999.9, 10_000)) == (points[0], points[-1])


def test_what_is_kept_of_ten_thousand_nodes_is_small():
    arrivals = {f"node-{n:05d}": n / 100 for n in range(10_000)}
    kept = seen(a_route(), took_s=100.0, holding={"1": 10_000, "2": 9_999}, arrivals=arrivals)
    assert NAMED == len(kept.arrivals)
    assert "node-09999" in kept.arrivals
    assert (99.99, 10_000) == kept.curve[-1]
    assert len(encode(kept)) < 3_000


def test_rate_tells_what_speaks_against_the_release():
    recorder = Recorder()
    for error in (ErrorClass.SERVER, ErrorClass.CLIENT, None, None):
        recorder.add(Sample(latency_s=0.2, error=error))
    found = rate(recorder.snapshot())
    assert (4, 1, 0.25) == (found.requests, found.failures, found.error_rate)
    assert found.p50_s == pytest.approx(0.2, rel=0.02)
    assert Rate() == rate(Statistics())
    assert None is Rate().error_rate


def test_long_soak_keeps_its_newest_windows_and_some_of_the_old():
    windows: tuple[Window, ...] = ()
    for n in range(500):
        made = Window(since_s=n, until_s=n + 1, candidate=Rate(), stable=Rate())
        windows = thinned((*windows, made), most=48)
        assert len(windows) <= 48
    assert 500 == windows[-1].until_s
    assert windows == tuple(sorted(windows, key=lambda each: each.until_s))
    assert windows[0].until_s < 100

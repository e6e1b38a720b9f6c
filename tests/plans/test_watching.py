"""Windows of a step under watch: when one is whole, what it counts, and against what."""

from typing import Any

import msgspec
import pytest

from tests.builders import NODES, SERVICE, a_report, a_rollout, a_route
from vctl_plans.drift import Level
from vctl_plans.phase import NodePhase
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.plan import DriftLimits, Watch
from vctl_plans.route import Override, Route
from vctl_plans.sketch import Counts
from vctl_plans.statistics import ErrorClass, NodeStatistics, Origin, Recorder, Sample, Snapshot
from vctl_plans.verdict import Outcome, Verdict
from vctl_plans.watching import KEPT, Look, Watching, look, observe

ROLLOUT = a_rollout(P.SOAKING, has_moved=True, watches=True)
HALF = a_route(candidate=2, weight=50.0)
FULL = a_route(candidate=2, weight=100.0)
REPORTS = {node: a_report(node, rollout=ROLLOUT, r2=NodePhase.READY) for node in NODES}
WATCH = Watch(min_requests=50, interval_s=30.0)
"""Enough requests for all judges, and a window of half a minute."""


def snapshot(
    number: int, requests: int, *, failed: int = 0, revision: int = 7, boot: str = "g-a"
) -> Snapshot:
    """Return what a gateway counted of a release since it began."""
    recorder = Recorder()
    for n in range(requests):
        error = ErrorClass.SERVER if n < failed else None
        recorder.add(Sample(latency_s=0.1, error=error))
    return Snapshot(
        service=SERVICE,
        number=number,
        digest="",
        origin=Origin(boot, revision),
        statistics=recorder.snapshot(),
    )


def seen(*snapshots: Snapshot, route: Route = HALF, **more: Any) -> Look:
    """Return the look at a fleet of one gateway that counted this, at route revision 7."""
    told = NodeStatistics(node="a", boot_id="boot-a", snapshots=snapshots)
    more = {"reports": REPORTS, "queries": {}} | more
    return look(ROLLOUT, route, 7, statistics=[told], **more)


def both(requests: int, *, failed: int = 0, **more: Any) -> Look:
    """Return the look at so many requests on both releases."""
    return seen(snapshot(2, requests, failed=failed, **more), snapshot(1, requests, **more))


def outcomes(watching: Watching) -> list[Outcome]:
    """Return the whole windows' outcomes."""
    return [verdict.outcome for verdict in watching.verdicts]


def watched(*looks: tuple[float, Look], watch: Watch = WATCH) -> Watching:
    """Return the watch after looks at these times."""
    watching = Watching()
    for now_s, what in looks:
        watching = observe(watching, watch, what, now_s)
    return watching


def test_window_is_whole_when_it_has_lasted_and_has_enough() -> None:
    """Before, it is open."""
    early = watched((29.9, both(100)))
    whole = watched((30.0, both(100)))

    assert ([], 0.0) == (outcomes(early), early.since_s)
    assert early.open
    assert Outcome.PASSED is early.open.outcome
    assert ([Outcome.PASSED], 30.0, None) == (outcomes(whole), whole.since_s, whole.open)


def test_figures_are_the_last_that_say_something() -> None:
    """A window that has just begun does not wipe out what the whole one before it showed."""
    begun = watched((1.0, both(10)))
    whole = watched((30.0, both(100)))
    next_one = watched((30.0, both(100)), (31.0, both(101)))

    assert "0/10 failed, stable 0/10" == begun.figures[0].counts
    assert "0/100 failed, stable 0/100" == whole.figures[0].counts
    assert whole.figures == next_one.figures
    assert () == whole.verdicts[0].figures  # what is kept stays small


def test_quiet_service_gets_longer_windows() -> None:
    """And not windows that say nothing."""
    quiet = watched((30.0, both(30)), (60.0, both(49)), (70.0, both(50)))

    assert ([Outcome.PASSED], 70.0) == (outcomes(quiet), quiet.since_s)
    assert "of 50 requests failed on the candidate" in quiet.verdicts[0].sentence


def test_quiet_stable_makes_a_window_longer_too() -> None:
    """Enough on one side is no comparison."""
    lonely = watched((60.0, seen(snapshot(2, 500), snapshot(1, 10))))

    assert [] == outcomes(lonely)
    assert lonely.open
    assert Outcome.INCONCLUSIVE is lonely.open.outcome


def test_window_counts_only_its_own_requests() -> None:
    """What failed in the first is not held against the second."""
    watching = watched((30.0, both(100, failed=80)), (60.0, both(200, failed=80)))

    assert [Outcome.FAILED, Outcome.PASSED] == outcomes(watching)
    assert "0 of 100 requests failed on the candidate" in watching.verdicts[1].sentence


def test_breach_needs_no_requests_on_stable() -> None:
    """A probe that fails ends a window that has lasted, however quiet it is."""
    reports = dict(REPORTS)
    reports["b"] = a_report("b", rollout=ROLLOUT, r2=NodePhase.QUARANTINED)
    watching = watched((30.0, seen(reports=reports)))

    assert [Outcome.FAILED] == outcomes(watching)
    assert "probes: failed on 1 of 3 nodes: b" == watching.verdicts[0].sentence


def test_gateway_that_was_started_again_counts_anew() -> None:
    """Its new counts are all of this window; what it counted last before is not known."""
    before = both(100, failed=60)
    after = seen(
        snapshot(2, 70, boot="g-a2"), snapshot(1, 70, boot="g-a2"), snapshot(1, 100, boot="g-a")
    )
    watching = watched((30.0, before), (60.0, after))

    assert [Outcome.FAILED, Outcome.PASSED] == outcomes(watching)
    assert "0 of 70 requests failed on the candidate" in watching.verdicts[1].sentence


def test_counts_that_go_back_are_left_out() -> None:
    """They are no later look at the same gateway, and no requests below nothing."""
    back = watched((30.0, both(100)), (60.0, both(40)))

    assert [Outcome.PASSED] == outcomes(back)
    assert back.open
    assert "0 of 0 requests" in back.open.sentence


def test_new_conductor_judges_from_the_steps_beginning() -> None:
    """No request is left unjudged; and what was found before is passed on."""
    found = Verdict(Outcome.FAILED, "before")
    watching = observe(Watching(verdicts=(found,)), WATCH, both(100), 30.0)

    assert [Outcome.FAILED, Outcome.PASSED] == outcomes(watching)
    assert "of 100 requests" in watching.verdicts[1].sentence


def test_so_many_verdicts_are_kept() -> None:
    """The longest row of breaches that a plan can ask for."""
    looks = [(30.0 * n, both(100 * n)) for n in range(1, KEPT + 3)]

    assert KEPT == len(watched(*looks).verdicts)


def test_only_the_present_route_counts_for_the_candidate() -> None:
    """What it did at a lower weight was judged in that step."""
    earlier = snapshot(2, 100, failed=90, revision=5)
    found = seen(earlier, snapshot(2, 60), snapshot(1, 60), snapshot(1, 90, revision=5))

    assert [60] == [s.statistics.requests for s in found.candidate]
    assert ([60], False) == ([s.statistics.requests for s in found.stable], found.is_alone)


def test_at_full_weight_the_baseline_is_stables_last() -> None:
    """Under the newest of the routes before; it grows no more, and serves every window."""
    old = (snapshot(1, 60, revision=5), snapshot(1, 60, failed=60, revision=4))
    at = [seen(snapshot(2, n), *old, route=FULL) for n in (100, 200)]
    watching = watched((30.0, at[0]), (60.0, at[1]))

    assert [Outcome.PASSED] * 2 == outcomes(watching)
    assert "0 of 60 on stable" in watching.verdicts[1].sentence


def test_at_full_weight_behind_a_barrier_the_baseline_is_enough() -> None:
    """The newest route held all requests, but for a few that had begun before."""
    old = (snapshot(1, 2, revision=6), snapshot(1, 10, revision=5), snapshot(1, 60, revision=4))
    watching = watched((30.0, seen(snapshot(2, 100), *old, route=FULL)))

    assert [Outcome.PASSED] == outcomes(watching)
    assert "0 of 72 on stable" in watching.verdicts[0].sentence


def test_late_request_of_stable_at_full_weight_is_no_baseline() -> None:
    """It ended under the present route; a handful says nothing."""
    old = (snapshot(1, 3, failed=3), snapshot(1, 60, revision=5))
    found = seen(snapshot(2, 100), *old, route=FULL)

    assert [60] == [s.statistics.requests for s in found.stable]


def test_groups_are_compared_with_all_others() -> None:
    """Under the same route: stable gets requests still."""
    route = a_route(overrides=(Override(group="b3:g", release=2),))
    found = seen(snapshot(2, 60), snapshot(1, 90), snapshot(1, 5, revision=6), route=route)

    assert ([90], False) == ([s.statistics.requests for s in found.stable], found.is_alone)


def test_other_services_do_not_count() -> None:
    """Nor releases that are neither of the two."""
    other = msgspec.structs.replace(snapshot(2, 60), service="other")

    assert ((), ()) == (seen(other).candidate, seen(snapshot(3, 9)).stable)


def test_memory_and_queries_are_judged_where_the_plan_names_them() -> None:
    """An answer that is missing is inconclusive, and keeps a pass away."""
    watch = msgspec.structs.replace(WATCH, free_memory=0.2, queries={"up": ">= 1"})
    roomy = {n: msgspec.structs.replace(r, free_memory=0.5) for n, r in REPORTS.items()}
    tight = {n: msgspec.structs.replace(r, free_memory=0.1) for n, r in REPORTS.items()}
    counts = (snapshot(2, 100), snapshot(1, 100))
    looks = [
        seen(*counts, reports=roomy, queries={"up": 1.0}),
        seen(*counts, reports=roomy, queries={"up": None}),
        seen(*counts, reports=tight, queries={"up": 1.0}),
        seen(*counts, reports=roomy, queries={"up": 0.0}),
        seen(*counts, queries={"up": 1.0}),
    ]

    assert [
        Outcome.PASSED,
        Outcome.INCONCLUSIVE,
        Outcome.FAILED,
        Outcome.FAILED,
        Outcome.INCONCLUSIVE,
    ] == [outcomes(watched((30.0, each), watch=watch))[0] for each in looks]


def test_drift_is_measured_window_by_window() -> None:
    """Three bad ones in a row are severe, one is not."""
    watch = msgspec.structs.replace(WATCH, drift=DriftLimits())

    def drifted(windows: int) -> Look:
        pairs = [(2, Counts.of([0, 0, 900 * windows])), (1, Counts.of([900 * windows]))]
        return seen(*(_answering(number, counts, 900 * windows) for number, counts in pairs))

    once = watched((30.0, drifted(1)), watch=watch)
    thrice = watched(*((30.0 * n, drifted(n)) for n in (1, 2, 3)), watch=watch)

    assert once.finding
    assert thrice.finding
    assert (Level.P1, Level.P0) == (once.finding.level, thrice.finding.level)
    assert 3 == len(thrice.measures)
    assert None is watched((30.0, drifted(1))).finding


def _answering(number: int, answer_tokens: Counts, requests: int) -> Snapshot:
    plain = snapshot(number, 0)
    counted = msgspec.structs.replace(
        plain.statistics, requests=requests, answer_tokens=answer_tokens
    )
    return msgspec.structs.replace(plain, statistics=counted)


# -- what a decision is shown ----------------------------------------------------------------------

P_, F_, U_ = (Verdict(outcome, outcome.value) for outcome in Outcome)


@pytest.mark.parametrize(
    ("verdicts", "shown", "soaking", "soaked"),
    [
        ((), None, (), ()),
        ((), U_, (U_,), (U_,)),
        ((), P_, (P_,), (P_,)),
        ((), F_, (), (F_,)),
        ((P_,), F_, (P_,), (P_, F_)),
        ((F_,), P_, (F_,), (F_, P_)),
        ((P_,), U_, (P_,), (P_,)),
        ((F_,), None, (F_,), (F_,)),
    ],
)
def test_open_window_is_shown_once_the_soak_is_over(
    verdicts: tuple[Verdict, ...],
    shown: Verdict | None,
    soaking: tuple[Verdict, ...],
    soaked: tuple[Verdict, ...],
) -> None:
    """Where it tells something; before that no breach is made of a window that is not whole."""
    watching = Watching(verdicts=verdicts, open=shown)

    assert soaking == watching.history(is_soaked=False)
    assert soaked == watching.history(is_soaked=True)


def test_looking_often_finds_no_more_than_looking_once() -> None:
    """A bad beginning that evens out is no breach, however often it was looked at meanwhile."""
    looks = [(float(s), both(20 * s, failed=12)) for s in range(1, 30)]
    evened = (30.0, seen(snapshot(2, 600, failed=12), snapshot(1, 600, failed=12)))
    watching = Watching()
    opened: set[Outcome] = set()
    shown: set[Outcome] = set()
    for now_s, each in looks:
        watching = observe(watching, WATCH, each, now_s)
        assert watching.open
        opened.add(watching.open.outcome)
        shown.update(verdict.outcome for verdict in watching.history(is_soaked=False))

    assert Outcome.FAILED in opened
    assert Outcome.FAILED not in shown
    watching = observe(watching, WATCH, evened[1], evened[0])
    assert [Outcome.PASSED] == outcomes(watching) == outcomes(watched(evened))

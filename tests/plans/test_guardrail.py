"""Judges of a rollout's traffic: what is proven, what is fine, and what is neither."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vctl_plans.errors import PlanError
from vctl_plans.guardrail import (
    Action,
    Condition,
    Consequence,
    Limits,
    Policy,
    combine,
    condition,
    decide,
    judge_errors,
    judge_first_token,
    judge_latency,
    judge_memory,
    judge_probes,
    judge_query,
    strongest,
)
from vctl_plans.sketch import Counts, Sketch, SketchRecorder
from vctl_plans.statistics import Statistics
from vctl_plans.verdict import Figure, Outcome, Verdict

PASSED, FAILED, INCONCLUSIVE = Outcome.PASSED, Outcome.FAILED, Outcome.INCONCLUSIVE
P, F, U = (Verdict(outcome, outcome.value) for outcome in (PASSED, FAILED, INCONCLUSIVE))


def failing(count: int, requests: int) -> Statistics:
    return Statistics(requests=requests, errors=Counts.of([count]))


def timed(*latencies_s: float) -> Statistics:
    recorder = SketchRecorder()
    for latency_s in latencies_s:
        recorder.add(latency_s)
    sketch = recorder.snapshot()
    return Statistics(requests=sketch.total, latency=sketch, first_token=sketch)


@pytest.mark.parametrize(
    ("candidate", "stable", "least", "expected"),
    [
        ((1, 3), (10, 10_000), 200, INCONCLUSIVE),  # too few requests
        ((1, 3), (10, 10_000), 1, INCONCLUSIVE),  # nor does one failure prove anything by itself
        ((1, 3), (0, 3), 1, INCONCLUSIVE),
        ((0, 3), (0, 10_000), 200, INCONCLUSIVE),  # never passed
        ((0, 0), (0, 0), 0, INCONCLUSIVE),
        ((0, 1000), (0, 3), 200, INCONCLUSIVE),  # stable is to be known as well
        ((0, 200), (0, 1800), 200, PASSED),
        ((2, 200), (18, 1800), 200, PASSED),
        ((0, 200), (50, 1800), 200, PASSED),
        ((3, 200), (10, 1000), 200, PASSED),  # 1.5 is allowed
        ((4, 200), (18, 1800), 200, INCONCLUSIVE),  # twice as many, by chance or not
        ((40, 2000), (180, 18_000), 200, INCONCLUSIVE),  # from 1.4 on
        ((400, 20_000), (1800, 180_000), 200, FAILED),  # the same ratio, now proven
        ((20, 200), (18, 1800), 200, FAILED),
        ((200, 200), (0, 1800), 200, FAILED),
        ((4, 200), (0, 180_000), 200, INCONCLUSIVE),  # four failures are not five
        ((5, 200), (0, 180_000), 200, FAILED),
        ((1, 10_000), (0, 10_000_000), 200, PASSED),  # 0.01 % and not proven
        ((90, 100_000), (100, 1_000_000), 200, FAILED),  # little, but proven
    ],
)
def test_error_ratio_is_judged_by_what_is_proven(candidate, stable, least, expected) -> None:
    """Failed of all requests, on the candidate and on stable."""
    verdict = judge_errors(failing(*candidate), failing(*stable), Limits(min_requests=least))

    assert expected is verdict.outcome, verdict.sentence


def test_error_sentence_carries_figures_and_limit() -> None:
    """So that a person can judge the judge."""
    verdict = judge_errors(failing(20, 200), failing(18, 1800), Limits())

    assert verdict.sentence == (
        "error ratio: 20 of 200 requests failed on the candidate, 18 of 1800 on stable;"
        " ratio 10.00 [5.41, 18.35], limit 1.5"
    )


def test_too_few_requests_are_said_with_their_number() -> None:
    """And whose they are."""
    verdict = judge_errors(failing(1, 3), failing(0, 900), Limits())

    assert verdict.sentence == (
        "error ratio: 1 of 3 requests failed on the candidate, 0 of 900 on stable;"
        " 3 requests on candidate are fewer than 200"
    )


@given(st.integers(0, 300), st.integers(0, 300))
def test_more_failures_are_never_judged_better(count, more) -> None:
    """With everything else as it was."""
    rank = {PASSED: 0, INCONCLUSIVE: 1, FAILED: 2}
    few = judge_errors(failing(count, 600), failing(30, 3000), Limits())
    many = judge_errors(failing(count + more, 600), failing(30, 3000), Limits())

    assert rank[few.outcome] <= rank[many.outcome]


@given(st.integers(0, 199), st.integers(0, 199))
def test_too_few_requests_decide_nothing(count, requests) -> None:
    """Whatever they say."""
    verdict = judge_errors(failing(min(count, requests), requests), failing(1, 900), Limits())

    assert INCONCLUSIVE is verdict.outcome


@pytest.mark.parametrize(
    ("candidate", "stable", "expected"),
    [
        ([1.0] * 100, [1.0] * 1000, INCONCLUSIVE),  # fewer than 200
        ([1.0] * 1000, [], INCONCLUSIVE),
        ([1.0] * 1000, [1.0] * 1000, PASSED),
        ([1.15] * 1000, [1.0] * 1000, PASSED),
        ([2.0] * 1000, [1.0] * 1000, FAILED),
        ([1.0] * 980 + [2.0] * 20, [1.0] * 1000, FAILED),
        ([1.0] * 988 + [2.0] * 12, [1.0] * 1000, INCONCLUSIVE),  # 1.2 % are slow; 0.6 % could be
    ],
)
def test_p99_is_judged_by_what_is_proven(candidate, stable, expected) -> None:
    """Latency and time to the first token alike."""
    for judge in (judge_latency, judge_first_token):
        verdict = judge(timed(*candidate), timed(*stable), Limits())
        assert expected is verdict.outcome, verdict.sentence


def test_p99_sentence_carries_figures_and_limit() -> None:
    """In milliseconds, within a percent."""
    verdict = judge_latency(timed(*[2.0] * 999), timed(*[1.0] * 999), Limits())

    assert verdict.sentence == (
        "p99 latency: 1994 ms on the candidate, 990 ms on stable;"
        " ratio 2.01 [1.97, 2.05], limit 1.2"
    )


@pytest.mark.parametrize(
    ("verdict", "expected", "words"),
    [
        (judge_probes({}), INCONCLUSIVE, "none has reported"),
        (judge_probes({"a": True, "b": True}), PASSED, "passed on 2 nodes"),
        (judge_probes({"b": False, "a": True}), FAILED, "failed on 1 of 2 nodes: b"),
        (judge_memory({}, least=0.2), INCONCLUSIVE, "no node has reported"),
        (judge_memory({"a": 0.2, "b": 0.5}, least=0.2), PASSED, "at least 20.0%, limit 20.0%"),
        (judge_memory({"a": 0.19, "b": 0.5}, least=0.2), FAILED, "too little on a"),
        (judge_query("q", None, Condition("<=", 1)), INCONCLUSIVE, "query q: no value"),
        (judge_query("q", math.nan, Condition("<=", 1)), INCONCLUSIVE, "query q: NaN"),
        (judge_query("q", 1.0, Condition("<=", 1)), PASSED, "query q: 1, must be <= 1"),
        (judge_query("q", 1.5, Condition("<=", 1)), FAILED, "query q: 1.5, must be <= 1"),
    ],
)
def test_other_judges(verdict, expected, words) -> None:
    """Nothing reported is never a pass."""
    assert expected is verdict.outcome
    assert words in verdict.sentence


@pytest.mark.parametrize(
    ("text", "value", "holds"),
    [("<= 0.05", 0.05, True), ("<0.05", 0.05, False), (">= 10", 10, True), (" > 1e1", 10, False)],
)
def test_condition_is_read_and_holds(text, value, holds) -> None:
    """Four comparisons, and a number as programs write it."""
    assert holds is condition(text, path="guardrails.prometheus").holds(value)


@pytest.mark.parametrize("text", ["", "0.05", "== 1", "< ", "< one", "< 1 or 2", "< nan"])
def test_what_is_no_condition_is_refused(text) -> None:
    """The field is named."""
    with pytest.raises(PlanError) as wrong:
        condition(text, path="guardrails.prometheus")

    assert "guardrails.prometheus" == wrong.value.path


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([], Verdict(INCONCLUSIVE, "nothing was judged")),
        ([P, P], Verdict(PASSED, "passed; passed")),
        ([P, U], Verdict(INCONCLUSIVE, "inconclusive")),
        ([P, U, F], Verdict(FAILED, "failed")),
    ],
)
def test_combined_verdict_is_the_worst_with_its_sentences(verdicts, expected) -> None:
    """And of nothing, none."""
    assert expected == combine(verdicts)


def test_every_judge_tells_its_figures_in_columns() -> None:
    """And a combined verdict holds them all, of those that make it so and of the others."""
    limits = Limits()
    verdict = combine(
        (
            judge_errors(failing(20, 200), failing(18, 1800), limits),
            judge_errors(failing(0, 0), failing(0, 9), limits),
            judge_latency(timed(*[2.0] * 200), timed(*[1.0] * 200), limits),
            judge_probes({"a": True, "b": False}),
            judge_memory({"a": 0.25}, least=0.2),
            judge_query("q", None, Condition("<=", 1)),
        )
    )
    assert verdict.figures == (
        Figure("error ratio", FAILED, "10.00", "<= 1.5", "20/200 failed, stable 18/1800"),
        Figure("error ratio", INCONCLUSIVE, "", "<= 1.5", "0/0 failed, stable 0/9"),
        Figure("p99 latency", INCONCLUSIVE, "2.01", "<= 1.2", "1994 ms, stable 990 ms"),
        Figure("probes", FAILED, "1/2", "all", "b"),
        Figure("free memory", PASSED, "25.0%", ">= 20.0%"),
        Figure("q", INCONCLUSIVE, "", "<= 1"),
    )


@pytest.mark.parametrize(
    ("history", "policy", "soaked", "overdue", "expected"),
    [
        ([], {}, False, False, Action.WAIT),
        ([], {}, True, False, Action.WAIT),
        ([], {}, True, True, Action.PAUSE),
        ([P], {}, False, False, Action.WAIT),
        ([P], {}, True, False, Action.PROCEED),
        ([P], {}, True, True, Action.PROCEED),
        # A breach does not wait for the soak's end.
        ([P, F], {}, False, False, Action.ROLLBACK),
        ([F], {"on_breach": "pause"}, False, False, Action.PAUSE),
        ([F], {"consecutive": 2}, False, False, Action.WAIT),
        ([F, F], {"consecutive": 2}, False, False, Action.ROLLBACK),
        ([F, P, F], {"consecutive": 2}, True, False, Action.WAIT),  # a pass breaks the row
        ([F, U, F], {"consecutive": 2}, False, False, Action.ROLLBACK),  # this does not
        ([F, F, U], {"consecutive": 3}, False, False, Action.WAIT),
        ([F], {"consecutive": 2}, True, True, Action.PAUSE),  # never on, over a breach
        ([F], {"consecutive": 2, "on_inconclusive": "proceed"}, True, False, Action.WAIT),
        ([U], {}, False, False, Action.WAIT),
        ([U], {}, True, False, Action.WAIT),
        ([U], {}, True, True, Action.PAUSE),
        ([U], {"on_inconclusive": "pause"}, False, False, Action.WAIT),
        ([U], {"on_inconclusive": "pause"}, True, False, Action.PAUSE),
        ([U], {"on_inconclusive": "proceed"}, True, False, Action.PROCEED),
        ([P, U], {}, True, False, Action.WAIT),
    ],
)
def test_what_follows_from_a_history(history, policy, soaked, overdue, expected) -> None:
    """Newest verdict last."""
    found = decide(history, Policy(**policy), is_soaked=soaked, is_overdue=overdue)

    assert expected is found.action, found.sentence


@given(st.lists(st.sampled_from([P, F, U]), max_size=6), st.integers(1, 3), st.booleans())
def test_traffic_goes_on_only_after_a_pass_where_it_is_not_told_otherwise(
    history, consecutive, overdue
) -> None:
    """By default nothing but a pass proceeds."""
    policy = Policy(consecutive=consecutive)
    found = decide(history, policy, is_soaked=True, is_overdue=overdue)

    assert (found.action is Action.PROCEED) is (history[-1:] == [P])


def test_sentence_says_how_many_breaches_made_one() -> None:
    """With the last one's figures."""
    found = decide([F, F], Policy(consecutive=2), is_soaked=False, is_overdue=False)

    assert "guardrail breached (2 in a row): failed" == found.sentence


def test_strongest_of_many_consequences() -> None:
    """A wait is stronger than going on; of equals the first is said."""
    one, two, three = (
        Consequence(Action.PAUSE, "first"),
        Consequence(Action.PAUSE, "second"),
        Consequence(Action.PROCEED, "third"),
    )

    assert one == strongest([three, one, two])
    assert Action.WAIT is strongest([three, Consequence(Action.WAIT, "")]).action


def test_empty_sketch_is_shown_as_none() -> None:
    """No figure is invented."""
    verdict = judge_latency(Statistics(latency=Sketch()), timed(1.0), Limits())

    assert "none on the candidate" in verdict.sentence

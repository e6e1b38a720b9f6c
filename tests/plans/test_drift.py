"""Drift of answers: the figures by hand, their laws, and the levels that follow."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vctl_plans.drift import (
    Level,
    Limits,
    Measure,
    assess,
    chance_level,
    kl,
    measure,
    psi,
    respond,
    sliding,
)
from vctl_plans.guardrail import Action
from vctl_plans.sketch import Counts
from vctl_plans.statistics import Statistics
from vctl_plans.verdict import Outcome

histograms = st.lists(st.integers(0, 50), max_size=8).map(Counts.of)


def window(psi=0.0, kl=0.0, *, dimension="finish", chance=0.01) -> tuple[Measure, ...]:
    return (Measure(dimension=dimension, psi=psi, kl=kl, chance=chance),)


def counted(*, finish: list[int], answer_tokens: list[int] | None = None) -> Statistics:
    return Statistics(finish=Counts.of(finish), answer_tokens=Counts.of(answer_tokens or ()))


def test_psi_and_kl_by_hand() -> None:
    """Shares 0.3 and 0.7 against 0.5 and 0.5, with half a count added to each bin."""
    one, other = Counts.of([29, 69]), Counts.of([49, 49])  # 29.5/99, 69.5/99; 49.5/99 twice
    p, q = 29.5 / 99, 69.5 / 99

    assert 0.1731 == pytest.approx(psi(one, other), abs=1e-4)
    assert (p - 0.5) * math.log(p / 0.5) + (q - 0.5) * math.log(q / 0.5) == pytest.approx(
        psi(one, other)
    )
    assert p * math.log(p / 0.5) + q * math.log(q / 0.5) == pytest.approx(kl(one, other))


def test_empty_bin_is_smoothed_by_half_a_count() -> None:
    """10 and 0 against 5 and 5: 10.5 of 11 and 0.5 of 11 against a half each."""
    expected = 10.5 / 11 * math.log(21 / 11) + 0.5 / 11 * math.log(1 / 11)

    assert expected == pytest.approx(kl(Counts.of([10]), Counts.of([5, 5])))


def test_bins_that_neither_has_filled_count_for_nothing() -> None:
    """So that finer bins do not dilute what is found."""
    near = psi(Counts.of([9, 1]), Counts.of([1, 9]))

    assert near == pytest.approx(psi(Counts.of([9, 0, 0, 1]), Counts.of([1, 0, 0, 9])))


@given(histograms, histograms)
def test_psi_is_symmetric_and_the_sum_of_both_divergences(one, other) -> None:
    """Jeffreys' divergence; none of them is below 0."""
    assert psi(one, other) == pytest.approx(psi(other, one))
    assert psi(one, other) == pytest.approx(kl(one, other) + kl(other, one), abs=1e-9)
    assert psi(one, other) >= 0
    assert kl(one, other) >= 0
    assert 0 == psi(one, one) == kl(one, one)


@given(st.integers(0, 98))
def test_moving_more_mass_drifts_more(moved) -> None:
    """Monotone in what has moved."""
    stable = Counts.of([100, 100])

    def shift(by: int) -> Counts:
        return Counts.of([100 + by, 100 - by])

    assert psi(shift(moved), stable) < psi(shift(moved + 1), stable)
    assert kl(shift(moved), stable) < kl(shift(moved + 1), stable)


def test_chance_level_is_the_published_quantile() -> None:
    """Chi-squared of 9 degrees of freedom: 16.92 at 95 %; of 100 and 400: 0.0125 times that."""
    one, other = Counts.of([10] * 10), Counts.of([40] * 10)

    assert 0.0125 * 16.92 == pytest.approx(chance_level(one, other), rel=2e-3)
    assert math.isinf(chance_level(one, Counts()))
    assert 0.0 == chance_level(Counts.of([5]), Counts.of([9]))


def test_chance_stays_below_its_level_as_often_as_it_says() -> None:
    """Two samples of one distribution: 95 % nominal, 1000 draws."""
    draw = random.Random(19310101)  # noqa: S311  a simulation
    weights = [1, 2, 4, 6, 4, 2, 1]

    def sample(size: int) -> Counts:
        drawn = draw.choices(range(7), weights, k=size)
        return Counts.of(drawn.count(i) for i in range(7))

    pairs = [(sample(300), sample(500)) for _ in range(1000)]
    below = sum(psi(one, other) <= chance_level(one, other) for one, other in pairs)

    assert 0.93 <= below / 1000 <= 0.97


def test_measure_compares_each_distribution_that_exists() -> None:
    """Log-probabilities are not there where no client asked for them."""
    found = measure(
        counted(answer_tokens=[0, 500], finish=[300, 200]),
        counted(answer_tokens=[0, 500], finish=[300, 200]),
    )

    assert [("answer_tokens", 0.0), ("finish", 0.0)] == [(m.dimension, m.psi) for m in found]


@pytest.mark.parametrize(
    ("windows", "level"),
    [
        ([window(0.25, 0.3)], Level.NONE),
        ([window(0.26)], Level.P1),
        ([window(0.55)], Level.P1),
        ([window(0.0, 0.31)], Level.P1),
        ([window(0.56)], Level.P1),  # once is not three times
        ([window(0.56)] * 2, Level.P1),
        ([window(0.56)] * 3, Level.P0),
        ([window(0.55)] * 3, Level.P1),
        ([window(0.56)] * 2 + [window(0.1), window(0.56)], Level.P1),
        ([window(0.56)] * 3 + [window(0.1)], Level.NONE),
        ([window(0.56), window(9.0, chance=0.4), window(0.56), window(0.56)], Level.P0),
        ([window(9.0, 9.0, chance=0.4)] * 3, Level.NONE),  # too few answers say nothing
        ([window(0.56), window(0.56), window(0.56, dimension="logprobs")], Level.P1),
        ([window(0.56), (), window(0.56), window(0.56)], Level.P0),
    ],
)
def test_levels(windows, level) -> None:
    """By the newest window, and for P0 by three in a row of one distribution."""
    found = assess(windows, Limits())

    assert level is found.level, found.sentence


def test_one_distribution_is_enough() -> None:
    """And it is the one that is named."""
    found = assess([window(0.1) + window(0.4, 0.2, dimension="answer_tokens")], Limits())

    assert Level.P1 is found.level
    assert "drift of answer_tokens: PSI 0.40, limit 0.25; KL 0.20, limit 0.3" == found.sentence


@pytest.mark.parametrize(
    ("windows", "expected", "words"),
    [
        ([], Outcome.INCONCLUSIVE, "no answers to compare"),
        ([window(0.1)], Outcome.PASSED, "PSI 0.10, limit 0.25"),
        ([window(0.1, chance=0.4)], Outcome.INCONCLUSIVE, "chance alone reaches PSI 0.40"),
        (
            [window(0.1) + window(chance=0.4, dimension="logprobs")],
            Outcome.INCONCLUSIVE,
            "logprobs",
        ),
        ([window(0.3)], Outcome.PASSED, "PSI 0.30"),  # P1 alerts, and holds up nothing by itself
        ([window(0.6)] * 3, Outcome.FAILED, "over 0.55 in 3 windows in a row"),
    ],
)
def test_verdict_among_other_judges(windows, expected, words) -> None:
    """What is too little to tell is never a pass."""
    verdict = assess(windows, Limits()).verdict

    assert expected is verdict.outcome
    assert words in verdict.sentence


@pytest.mark.parametrize(
    ("windows", "pause", "action"),
    [
        ([window(0.6)] * 3, False, Action.ROLLBACK),
        ([window(0.4)], False, Action.PROCEED),
        ([window(0.4)], True, Action.PAUSE),
        ([window(0.1)], True, Action.PROCEED),
    ],
)
def test_response(windows, pause, action) -> None:
    """P0 goes back; P1 pauses where asked."""
    assert action is respond(assess(windows, Limits()), pause_on_p1=pause).action


def test_few_answers_do_not_drift() -> None:
    """Thirty of each differ by chance; three thousand with the same shares do not."""
    few = measure(counted(finish=[10, 14, 6]), counted(finish=[14, 8, 8]))
    many = measure(counted(finish=[1000, 1400, 600]), counted(finish=[1400, 800, 800]))

    assert Outcome.INCONCLUSIVE is assess([few], Limits()).verdict.outcome
    assert Outcome.PASSED is assess([many], Limits()).verdict.outcome


@pytest.mark.parametrize(
    ("size", "stride", "expected"),
    [(2, 1, [3, 5, 7, 9]), (2, 2, [5, 9]), (5, 1, [15]), (6, 1, []), (1, 2, [1, 3, 5])],
)
def test_windows_slide_and_end_at_the_newest_tick(size, stride, expected) -> None:
    """What is left over is left over at the old end."""
    ticks = [Statistics(requests=count) for count in (1, 2, 3, 4, 5)]

    assert expected == [w.requests for w in sliding(ticks, size=size, stride=stride)]

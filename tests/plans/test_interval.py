"""Intervals: published examples, exact sums, and how often they hold the truth."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vctl_plans.interval import (
    Interval,
    Share,
    binomial_quantile,
    quantile_interval,
    quantile_ratio,
    rate_ratio,
)
from vctl_plans.sketch import Sketch, SketchRecorder

shares = st.integers(1, 400).flatmap(
    lambda whole: st.builds(Share, st.integers(0, whole), st.just(whole))
)


def sketched(values_s) -> Sketch:
    recorder = SketchRecorder()
    for value_s in values_s:
        recorder.add(value_s)
    return recorder.snapshot()


def test_ratio_is_koopmans_published_example() -> None:
    """36 of 40 against 16 of 80: 4.5, from 2.94 to 7.15 (Koopman 1984)."""
    found = rate_ratio(Share(36, 40), Share(16, 80))

    assert (4.5, 2.94, 7.15) == (found.estimate, round(found.low, 2), round(found.high, 2))


@pytest.mark.parametrize(
    ("candidate", "stable", "low", "high"),
    [
        (Share(0, 200), Share(5, 200), 0.0, 0.76),
        (Share(5, 200), Share(0, 200), 1.32, math.inf),
        (Share(0, 200), Share(0, 200), 0.0, math.inf),
        (Share(0, 0), Share(3, 9), 0.0, math.inf),
        # All of all: 3 (ratio - 1) is the statistic, 3.84 its limit.
        (Share(3, 3), Share(3, 3), 0.44, 2.28),
    ],
)
def test_ratio_takes_zeros_and_wholes(candidate, stable, low, high) -> None:
    """Where the logarithm's interval has no value."""
    found = rate_ratio(candidate, stable)

    assert (low, high) == (round(found.low, 2), round(found.high, 2))


@given(shares, shares)
def test_ratio_lies_in_its_interval_and_turns_over(one, other) -> None:
    """Exchanging the two turns every figure into its inverse."""
    found, turned = rate_ratio(one, other), rate_ratio(other, one)

    if one.count and other.count:
        assert found.low <= found.estimate * (1 + 1e-9)
        assert found.estimate <= found.high * (1 + 1e-9)
        assert turned.low == pytest.approx(1 / found.high, rel=1e-6)


@given(st.integers(1, 99), shares)
def test_more_failures_never_lower_the_bounds(count, stable) -> None:
    """Monotone, so that one more error never turns a breach into a pass."""
    fewer = rate_ratio(Share(count, 100), stable)
    more = rate_ratio(Share(count + 1, 100), stable)

    assert fewer.low <= more.low * (1 + 1e-9)
    assert fewer.high <= more.high * (1 + 1e-9)


@given(st.integers(1, 120), st.floats(0.01, 0.99), st.floats(0.001, 0.999))
def test_binomial_quantile_is_that_of_the_exact_sum(n, p, probability) -> None:
    """Against the terms as integers' binomials; ties within rounding are either."""
    terms = [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
    found = binomial_quantile(n, p, probability)

    assert sum(terms[: found + 1]) >= probability - 1e-9
    assert sum(terms[:found]) < probability + 1e-9


def test_p99_of_few_values_has_no_upper_bound() -> None:
    """368 is the least n with 0.99**n <= 0.025: fewer never reach past the p99 with 97.5 %."""
    few, enough = sketched([1.0] * 367), sketched([1.0] * 368)

    assert math.isinf(quantile_interval(few, 0.99).high)
    assert 1.0 == pytest.approx(quantile_interval(enough, 0.99).high, rel=0.03)


def test_quantile_ratio_of_nothing_says_nothing() -> None:
    """It is neither high nor low."""
    found = quantile_ratio(Sketch(), sketched([1.0]), 0.99)

    assert (0.0, math.inf) == (found.low, found.high)
    assert math.isnan(found.estimate)


def test_values_off_the_scale_set_no_bound() -> None:
    """All that is known of them is that they are below or above it."""
    off, on = sketched([0.0001] * 900), sketched([1.0] * 900)

    assert 0.0 == quantile_ratio(off, on, 0.99).low
    assert math.isinf(quantile_ratio(on, off, 0.99).high)


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        (Interval(1.25, 0.5, 3.0), "1.25 [0.50, 3.00]"),
        (Interval(math.inf, 1.3, math.inf), "infinite [1.30, no limit]"),
        (Interval(math.nan, 0.0, math.inf), "undefined [0.00, no limit]"),
    ],
)
def test_interval_reads_as_estimate_and_bounds(interval, text) -> None:
    """As it stands in sentences."""
    assert text == str(interval)


def drawn(draw: random.Random, n: int, p: float) -> int:
    """Return a binomial number: the jumps between successes are geometric."""
    count, at = 0, 0
    while True:
        at += 1 + math.floor(math.log(1 - draw.random()) / math.log1p(-p))
        if at > n:
            return count
        count += 1


@pytest.mark.parametrize(
    ("rate", "times", "n", "m"),
    [(0.02, 1.5, 400, 800), (0.01, 1.0, 300, 3000), (0.2, 1.2, 60, 60), (0.005, 1.5, 1000, 9000)],
)
def test_rate_ratio_holds_the_truth_as_often_as_it_says(rate, times, n, m) -> None:
    """95 % nominal; 2000 draws leave 1.5 % of noise at three standard deviations."""
    draw = random.Random(20190801)  # noqa: S311  a simulation
    held = 0
    for _ in range(2000):
        over, under = Share(drawn(draw, n, rate * times), n), Share(drawn(draw, m, rate), m)
        found = rate_ratio(over, under)
        held += found.low <= times <= found.high

    assert 0.93 <= held / 2000 <= 0.985


@pytest.mark.parametrize(("n", "m"), [(200, 400), (600, 600)])
def test_quantile_ratio_holds_the_truth_as_often_as_it_says(n, m) -> None:
    """At least; order statistics are conservative, and the bins' edges add to it."""
    draw = random.Random(19840801)  # noqa: S311  a simulation
    held = 0
    for _ in range(400):
        over = sketched(draw.lognormvariate(0.2, 0.8) for _ in range(n))
        under = sketched(draw.lognormvariate(0.0, 0.8) for _ in range(m))
        found = quantile_ratio(over, under, 0.99)
        held += found.low <= math.exp(0.2) <= found.high

    assert held / 400 >= 0.93

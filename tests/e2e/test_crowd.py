"""What the sessions are judged by: the binomial's own quantiles, and who went back."""

from math import comb

import pytest

from tests.e2e.crowd import interval, went_back


def below(count: int, p: float, k: int) -> float:
    """Return how likely *k* or fewer are, by the definition."""
    return sum(comb(count, n) * p**n * (1 - p) ** (count - n) for n in range(k + 1))


@pytest.mark.parametrize(("count", "percent"), [(50, 10), (200, 25), (500, 50), (500, 90)])
def test_interval_is_the_smallest_that_leaves_half_a_percent_on_each_side(
    count: int, percent: float
) -> None:
    low, high = interval(count, percent)
    p = percent / 100
    assert below(count, p, low - 1) <= 0.005 < below(count, p, low)
    assert below(count, p, high - 1) < 0.995 <= below(count, p, high)


def test_interval_of_all_and_of_none_is_one_number() -> None:
    assert ((500, 500), (0, 0)) == (interval(500, 100), interval(500, 0))


@pytest.mark.parametrize(
    ("seen", "goes_back"),
    [([1, 1], False), ([1, 2, 2], False), ([2, 1], True), ([1, 2, 1, 2], True), ([], False)],
)
def test_session_went_back_if_another_answered_after_the_new_one(
    seen: list[int], goes_back: bool
) -> None:
    assert goes_back == went_back(seen, 2)

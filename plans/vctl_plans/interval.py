"""Confidence intervals for the ratio of two error rates and of two quantiles.

Both hold for few and for no events, where the textbook's normal intervals do not: a rollout's
first minutes are all small counts. `math.inf` above or 0 below says that the counts set no bound.
"""

import math
from collections.abc import Callable
from statistics import NormalDist

import msgspec

from vctl_plans.sketch import ACCURACY, Sketch

CONFIDENCE = 0.95
"""Two-sided, of every interval where nothing else is said."""

_STEPS = 80  # halvings: far past the precision of a float's logarithm
_LOG_BOUND = 40.0  # ratios are looked for between e**-40 and e**40
_TAIL_SD = 10.0  # what lies further out weighs less than 1e-20


class Interval(msgspec.Struct, frozen=True):
    """An estimate and what it may as well be."""

    estimate: float  # NaN: 0 of 0
    low: float
    high: float

    def __str__(self) -> str:
        high = "no limit" if math.isinf(self.high) else f"{self.high:.2f}"
        shown = "undefined" if math.isnan(self.estimate) else f"{self.estimate:.2f}"
        shown = "infinite" if math.isinf(self.estimate) else shown
        return f"{shown} [{self.low:.2f}, {high}]"


class Share(msgspec.Struct, frozen=True):
    """So many of so many."""

    count: int
    whole: int

    @property
    def rate(self) -> float:
        """The count over the whole; 0 of an empty one."""
        return self.count / self.whole if self.whole else 0.0


def rate_ratio(candidate: Share, stable: Share, *, confidence: float = CONFIDENCE) -> Interval:
    """Return the ratio of two proportions with Koopman's asymptotic score interval.

    It holds every ratio that Pearson's chi-squared test does not reject, so it needs no
    correction for zeros. Koopman, Biometrics 40 (1984) 513-517; recommended over Katz's
    logarithm, which has no value at zero, by Fagerland, Lydersen, Laake, Stat. Methods Med. Res.
    24 (2015) 224-254.
    """
    x, y = candidate.count, stable.count
    if not candidate.whole or not stable.whole or (not x and not y):
        return Interval(math.nan, 0.0, math.inf)
    estimate = candidate.rate / stable.rate if y else math.inf
    critical = _z(confidence) ** 2

    def is_rejected(log_ratio: float) -> bool:
        return _chi_squared(candidate, stable, ratio=math.exp(log_ratio)) > critical

    # Between 0 and infinity there is a ratio that fits best; away from it the statistic grows.
    middle = math.log(estimate) if x and y else (-_LOG_BOUND if y else _LOG_BOUND)
    low = math.exp(_edge(is_rejected, out=-_LOG_BOUND, inside=middle)) if x else 0.0
    high = math.exp(_edge(is_rejected, out=_LOG_BOUND, inside=middle)) if y else math.inf
    return Interval(estimate, low, high)


def quantile_ratio(
    candidate: Sketch, stable: Sketch, q: float, *, confidence: float = CONFIDENCE
) -> Interval:
    """Return the ratio of two samples' q-quantiles with a distribution-free interval.

    Each quantile's limits are order statistics (`quantile_interval`); the ratio's follow by
    MOVER on the logarithms (Zou, Donner, Stat. Med. 27 (2008) 1693-1702).
    """
    if not candidate.counts or not stable.counts:
        return Interval(math.nan, 0.0, math.inf)
    over = _order_statistics(candidate, q, confidence=confidence)
    under = _order_statistics(stable, q, confidence=confidence)
    estimate = over.estimate / under.estimate
    down = math.hypot(_span(over.low, over.estimate), _span(under.estimate, under.high))
    up = math.hypot(_span(over.estimate, over.high), _span(under.low, under.estimate))
    # Chance adds up in squares; the bins' width does not, it may be all to one side.
    bins = (1 + ACCURACY) / (1 - ACCURACY)
    high = math.inf if math.isinf(up) else estimate * math.exp(up) * bins
    return Interval(estimate, estimate * math.exp(-down) / bins, high)


def quantile_interval(values: Sketch, q: float, *, confidence: float = CONFIDENCE) -> Interval:
    """Return a sample's q-quantile between two order statistics.

    How many of n values lie below the true quantile is binomial (n, q), whatever the
    distribution: David, Nagaraja, Order Statistics (2003), section 7.1. The sketch's own error
    is added.

    Raises:
        IndexError: No values.
    """
    found = _order_statistics(values, q, confidence=confidence)
    return Interval(found.estimate, found.low / (1 + ACCURACY), found.high / (1 - ACCURACY))


def _order_statistics(values: Sketch, q: float, *, confidence: float) -> Interval:
    """Return the interval of the values as the sketch has them; no bound where it has none."""
    n = values.total
    tail = (1 - confidence) / 2
    below = binomial_quantile(n, q, tail)  # P(fewer lie below the true quantile) <= tail
    above = binomial_quantile(n, q, 1 - tail) + 1
    low = values.value_at(below - 1) if below and values.bounds_at(below - 1)[0] else 0.0
    is_bound = above <= n and not math.isinf(values.bounds_at(above - 1)[1])
    high = values.value_at(above - 1) if is_bound else math.inf
    return Interval(values.value_at(math.floor(q * (n - 1))), low, high)


def binomial_quantile(n: int, p: float, probability: float) -> int:
    """Return the smallest k with P(binomial(n, p) <= k) >= *probability*, for 0 < p < 1.

    The logarithms of the terms are summed over ten standard deviations to both sides of the
    mean: milliseconds for a hundred million, where a product from 0 on would underflow.
    """
    mean = n * p
    reach = _TAIL_SD * math.sqrt(mean * (1 - p)) + _TAIL_SD
    start = max(0, math.floor(mean - reach))
    total = 0.0
    for k in range(start, n + 1):
        total += math.exp(_log_binomial(n, p, k))
        if total >= probability:
            return k
    return n


def _log_binomial(n: int, p: float, k: int) -> float:
    ways = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return ways + k * math.log(p) + (n - k) * math.log1p(-p)


def _chi_squared(candidate: Share, stable: Share, *, ratio: float) -> float:
    """Return Koopman's statistic for the hypothesis that the ratio of proportions is *ratio*."""
    x, m, y, n = candidate.count, candidate.whole, stable.count, stable.whole
    b = ratio * (m + y) + x + n
    # The smaller root in the form that does not cancel: c / (b + root) instead of b - root.
    root = math.sqrt(max(b * b - 4 * ratio * (m + n) * (x + y), 0.0))
    p = 2 * ratio * (x + y) / (b + root)  # the candidate's rate, at its likeliest
    return _pearson(candidate, p) + _pearson(stable, p / ratio)


def _pearson(share: Share, p: float) -> float:
    if p >= 1.0:
        return 0.0 if share.count == share.whole else math.inf
    gap = share.count - share.whole * p
    return gap * gap / (share.whole * p * (1 - p))


def _edge(is_rejected: Callable[[float], bool], *, out: float, inside: float) -> float:
    for _ in range(_STEPS):
        middle = (out + inside) / 2
        if is_rejected(middle):
            out = middle
        else:
            inside = middle
    return inside


def _span(low: float, high: float) -> float:
    """Return the distance of two values' logarithms; 0 and infinity are infinitely far."""
    if low <= 0.0 or math.isinf(high):
        return math.inf
    return math.log(high / low)


def _z(confidence: float) -> float:
    return NormalDist().inv_cdf((1 + confidence) / 2)

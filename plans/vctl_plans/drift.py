"""Whether two releases answer alike: PSI and KL divergence of their answers' distributions.

Empty bins are smoothed by adding half a count to each bin that either release has filled: Jeffreys'
prior, the estimator of Krichevsky and Trofimov (IEEE Trans. Inf. Theory 27 (1981) 199-207). A fixed
epsilon on shares would weigh an empty bin alike after a hundred answers and after a million.

The hard decision: PSI is above 0 by chance alone, by (1/n + 1/m)(B - 1) on average over B bins, so
a hundred answers "drift" where nothing changed. A window whose chance level is not below the
limits decides nothing (Yurdakul, Naranjo, J. Risk Model Validation 14 (2020) 89-100).
"""

import math
from collections.abc import Sequence
from enum import StrEnum
from itertools import takewhile
from statistics import NormalDist

import msgspec

from vctl_plans.guardrail import Action, Consequence
from vctl_plans.sketch import Counts
from vctl_plans.statistics import Statistics
from vctl_plans.verdict import Outcome, Verdict

PRIOR = 0.5
"""Counts added to each bin."""
CHANCE = 0.95
"""How often chance alone stays below a window's chance level."""

DIMENSIONS = ("answer_tokens", "logprobs", "finish")
"""The fields of `Statistics` that are compared."""


class Level(StrEnum):
    """How much it matters, from the least."""

    NONE = "none"
    P1 = "P1"  # alert; pause where asked
    P0 = "P0"  # alert and roll back


_LEVELS = tuple(Level)


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """From where on a distribution counts as changed."""

    psi: float = 0.25
    severe_psi: float = 0.55
    kl: float = 0.3
    windows: int = 3  # in a row over `severe_psi` that make a P0


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """How one distribution of the candidate differs from stable's in one window."""

    dimension: str
    psi: float
    kl: float  # of the candidate from stable, in nats
    chance: float  # what PSI stays below by chance alone, with `CHANCE`


class Finding(msgspec.Struct, frozen=True):
    """What the windows together say."""

    level: Level
    is_open: bool  # of some distribution there are too few answers to tell
    sentence: str

    @property
    def verdict(self) -> Verdict:
        """The finding as one judge's among others.

        P1 fails nothing: it alerts, and `respond` pauses where that was asked for.
        """
        if self.level is Level.P0:
            return Verdict(Outcome.FAILED, self.sentence)
        return Verdict(Outcome.INCONCLUSIVE if self.is_open else Outcome.PASSED, self.sentence)


def psi(one: Counts, other: Counts) -> float:
    """Return the population stability index: symmetric, at least 0, the two divergences' sum.

    Siddiqi, Credit Risk Scorecards (2006); it is Jeffreys' divergence. 0 where nothing is counted.
    """
    return sum((p - q) * math.log(p / q) for p, q in _smoothed(one, other))


def kl(of: Counts, against: Counts) -> float:
    """Return the divergence of *of* from *against* in nats, at least 0 (Kullback, Leibler 1951)."""
    return max(sum(p * math.log(p / q) for p, q in _smoothed(of, against)), 0.0)


def chance_level(one: Counts, other: Counts) -> float:
    """Return what PSI stays below, with `CHANCE`, if both are samples of one distribution.

    (1/n + 1/m) times the chi-squared quantile of B - 1 degrees of freedom (Yurdakul, Naranjo
    2020), that by Wilson and Hilferty's cube (PNAS 17 (1931) 684-688). Infinite without samples.
    """
    n, m = one.total, other.total
    if not n or not m:
        return math.inf
    freedom = len(_smoothed(one, other)) - 1
    if not freedom:
        return 0.0
    spread = 2 / (9 * freedom)
    cube = 1 - spread + NormalDist().inv_cdf(CHANCE) * math.sqrt(spread)
    return (1 / n + 1 / m) * float(freedom * cube**3)


def measure(candidate: Statistics, stable: Statistics) -> tuple[Measure, ...]:
    """Return one measure a dimension that the two releases' answers in a window have."""
    pairs = ((d, getattr(candidate, d), getattr(stable, d)) for d in DIMENSIONS)
    return tuple(
        Measure(dimension=d, psi=psi(c, s), kl=kl(c, s), chance=chance_level(c, s))
        for d, c, s in pairs
        if c.counts or s.counts
    )


def sliding(ticks: Sequence[Statistics], *, size: int, stride: int) -> tuple[Statistics, ...]:
    """Return windows of *size* ticks, each *stride* after the one before, the last at the end.

    With a stride below the size windows share ticks: one bad tick is then seen in a row.
    """
    starts = range(len(ticks) - size, -1, -stride)
    return tuple(Statistics.merge(ticks[at : at + size]) for at in reversed(starts))


def assess(windows: Sequence[Sequence[Measure]], limits: Limits) -> Finding:
    """Return what the windows say, the newest last.

    P0 is a PSI over the severe limit in so many windows in a row, of one dimension. P1 is what
    is over a limit in the newest window. A window too small to tell is passed over: it neither
    counts towards a row nor breaks it, and a newest one that tells nothing leaves it open.
    """
    newest = windows[-1] if windows else ()
    found = [_assess_one(one, windows, limits) for one in newest]
    if not found:
        return Finding(Level.NONE, is_open=True, sentence="drift: no answers to compare")
    level = max((finding.level for finding in found), key=_LEVELS.index)
    is_open = any(finding.is_open for finding in found)
    # The sentence is that of what decides: the worst, or where nothing is wrong what is open.
    wanted = is_open and level is Level.NONE
    told = [f.sentence for f in found if f.level is level and f.is_open is wanted]
    return Finding(level, is_open, "; ".join(told))


def respond(finding: Finding, *, pause_on_p1: bool) -> Consequence:
    """Return what follows: P0 rolls back, P1 pauses where asked; both are to be alerted."""
    if finding.level is Level.P0:
        return Consequence(Action.ROLLBACK, f"P0: {finding.sentence}")
    if finding.level is Level.P1 and pause_on_p1:
        return Consequence(Action.PAUSE, f"P1: {finding.sentence}")
    return Consequence(Action.PROCEED, finding.sentence)


def _assess_one(one: Measure, windows: Sequence[Sequence[Measure]], limits: Limits) -> Finding:
    figures = (
        f"drift of {one.dimension}: PSI {one.psi:.2f}, limit {limits.psi:g};"
        f" KL {one.kl:.2f}, limit {limits.kl:g}"
    )
    if not _tells(one, limits):
        why = f"{figures}; too few answers, chance alone reaches PSI {one.chance:.2f}"
        return Finding(Level.NONE, is_open=True, sentence=why)
    row = _row(one.dimension, windows, limits)
    if row >= limits.windows:
        why = f"{figures}; over {limits.severe_psi:g} in {row} windows in a row"
        return Finding(Level.P0, is_open=False, sentence=why)
    if one.psi > limits.psi or one.kl > limits.kl:
        return Finding(Level.P1, is_open=False, sentence=figures)
    return Finding(Level.NONE, is_open=False, sentence=figures)


def _row(dimension: str, windows: Sequence[Sequence[Measure]], limits: Limits) -> int:
    """Return in how many windows up to the newest PSI was over the severe limit."""
    told = (
        one
        for window in reversed(windows)
        for one in window
        if one.dimension == dimension and _tells(one, limits)
    )
    return sum(1 for _ in takewhile(lambda one: one.psi > limits.severe_psi, told))


def _tells(one: Measure, limits: Limits) -> bool:
    # By chance alone KL is half of PSI.
    return one.chance < min(limits.psi, 2 * limits.kl)


def _smoothed(one: Counts, other: Counts) -> list[tuple[float, float]]:
    """Return both shares of each bin that either has filled, none of them 0."""
    low = min(one.first, other.first)
    high = max(one.first + len(one.counts), other.first + len(other.counts))
    both = [(one.at(i), other.at(i)) for i in range(low, high) if one.at(i) or other.at(i)]
    n = one.total + PRIOR * len(both)
    m = other.total + PRIOR * len(both)
    return [((a + PRIOR) / n, (b + PRIOR) / m) for a, b in both]

"""What is watched while traffic moves: judges, their verdict, and what follows from it.

The rule to keep: no evidence is never a pass. A judge fails what is proven to be over its limit
(the whole confidence interval is), passes what enough requests show to be within it, and calls
all else inconclusive: 1 error in 3 requests is neither a breach nor a pass.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Literal

import msgspec

from vctl_plans.errors import PlanError
from vctl_plans.interval import CONFIDENCE, Interval, Share, quantile_ratio, rate_ratio
from vctl_plans.rollout import listed
from vctl_plans.sketch import Sketch
from vctl_plans.statistics import Statistics
from vctl_plans.verdict import Figure, Outcome, Verdict

FEWEST_FAILURES = 5
"""Fewer failed requests prove nothing: below 5 events the chi-squared approximation under the
score interval is not to be trusted (Cochran, Biometrics 10 (1954) 417-451)."""
NEGLIGIBLE_RATE = 0.001
"""A share of failures that passes unless it is proven to be over the limit. Without it one error
in a million, of a candidate whose stable release had none, would never become a pass."""

_P99 = 0.99
_CONDITION = re.compile(r"\s*(<=|>=|<|>)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*")


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What the judges of statistics measure against."""

    error_ratio: float = 1.5
    p99_ratio: float = 1.2
    min_requests: int = 200
    confidence: float = CONFIDENCE


class Condition(msgspec.Struct, frozen=True):
    """What a number must be: ``<= 0.05``."""

    operator: Literal["<=", ">=", "<", ">"]
    threshold: float

    def holds(self, value: float) -> bool:
        """Return whether *value* is as it must be."""
        return {
            "<=": value <= self.threshold,
            ">=": value >= self.threshold,
            "<": value < self.threshold,
            ">": value > self.threshold,
        }[self.operator]

    def __str__(self) -> str:
        return f"{self.operator} {self.threshold:g}"


def condition(text: str, *, path: str) -> Condition:
    """Return the condition of ``<= 0.05``.

    Raises:
        PlanError: Not a comparison with a number.
    """
    match = _CONDITION.fullmatch(text)
    if not match:
        raise PlanError(f"{text!r} is no condition: write <= 0.05 or > 10", path=path)
    return msgspec.convert({"operator": match[1], "threshold": float(match[2])}, Condition)


def judge_errors(candidate: Statistics, stable: Statistics, limits: Limits) -> Verdict:
    """Judge the ratio of the two releases' shares of failed requests."""
    over = Share(candidate.failures, candidate.requests)
    under = Share(stable.failures, stable.requests)
    return _figured(
        _judge_errors(over, under, limits),
        "error ratio",
        value=_ratio_text(over.rate, under.rate) if over.whole and under.whole else "",
        limit=f"<= {limits.error_ratio:g}",
        counts=f"{over.count}/{over.whole} failed, stable {under.count}/{under.whole}",
    )


def _judge_errors(over: Share, under: Share, limits: Limits) -> Verdict:
    figures = (
        f"error ratio: {over.count} of {over.whole} requests failed on the candidate,"
        f" {under.count} of {under.whole} on stable"
    )
    few = _too_few(figures, over.whole, under.whole, limits)
    if few:
        return few
    if not over.count:
        return Verdict(Outcome.PASSED, figures)
    ratio = rate_ratio(over, under, confidence=limits.confidence)
    verdict = _judge_ratio(figures, ratio, limit=limits.error_ratio)
    why = verdict.sentence
    if verdict.outcome is Outcome.FAILED and over.count < FEWEST_FAILURES:
        why = f"{why}, but fewer than {FEWEST_FAILURES} failures prove nothing"
    elif verdict.outcome is not Outcome.INCONCLUSIVE:
        return verdict
    if over.rate <= NEGLIGIBLE_RATE:
        why = f"{why}, and {over.rate:.3%} is at most {NEGLIGIBLE_RATE:.1%}"
        return Verdict(Outcome.PASSED, why)
    return Verdict(Outcome.INCONCLUSIVE, why)


def judge_latency(candidate: Statistics, stable: Statistics, limits: Limits) -> Verdict:
    """Judge the ratio of the two releases' 99th percentiles of latency."""
    return _judge_p99("p99 latency", candidate.latency, stable.latency, limits)


def judge_first_token(candidate: Statistics, stable: Statistics, limits: Limits) -> Verdict:
    """Judge the ratio of the two releases' 99th percentiles of time to the first token."""
    return _judge_p99("p99 time to first token", candidate.first_token, stable.first_token, limits)


def judge_probes(probes: Mapping[str, bool]) -> Verdict:
    """Judge the probes' results by node."""
    failed = tuple(sorted(node for node, passed in probes.items() if not passed))
    verdict = _judge_probes(probes, failed)
    value = f"{len(probes) - len(failed)}/{len(probes)}" if probes else ""
    return _figured(verdict, "probes", value=value, limit="all", counts=listed(failed))


def _judge_probes(probes: Mapping[str, bool], failed: tuple[str, ...]) -> Verdict:
    if not probes:
        return Verdict(Outcome.INCONCLUSIVE, "probes: none has reported")
    if failed:
        sentence = f"probes: failed on {len(failed)} of {len(probes)} nodes: {listed(failed)}"
        return Verdict(Outcome.FAILED, sentence)
    return Verdict(Outcome.PASSED, f"probes: passed on {len(probes)} nodes")


def judge_memory(free: Mapping[str, float], *, least: float) -> Verdict:
    """Judge the share of memory that is free on each node, 0 to 1, against the *least* allowed."""
    verdict = _judge_memory(free, least=least)
    value = f"{min(free.values()):.1%}" if free else ""
    return _figured(verdict, "free memory", value=value, limit=f">= {least:.1%}")


def _judge_memory(free: Mapping[str, float], *, least: float) -> Verdict:
    short = tuple(sorted(node for node, share in free.items() if not share >= least))
    if not free:
        return Verdict(Outcome.INCONCLUSIVE, "free memory: no node has reported")
    figures = f"free memory: at least {min(free.values()):.1%}, limit {least:.1%}"
    if short:
        return Verdict(Outcome.FAILED, f"{figures}; too little on {listed(short)}")
    return Verdict(Outcome.PASSED, figures)


def judge_query(query: str, value: float | None, must_be: Condition) -> Verdict:
    """Judge the value of a Prometheus query; None (no answer, no series) and NaN decide nothing."""
    shown = "" if value is None or math.isnan(value) else f"{value:g}"
    return _figured(_judge_query(query, value, must_be), query, value=shown, limit=str(must_be))


def _judge_query(query: str, value: float | None, must_be: Condition) -> Verdict:
    if value is None or math.isnan(value):
        shown = "no value" if value is None else "NaN"
        return Verdict(Outcome.INCONCLUSIVE, f"query {query}: {shown}, must be {must_be}")
    outcome = Outcome.PASSED if must_be.holds(value) else Outcome.FAILED
    return Verdict(outcome, f"query {query}: {value:g}, must be {must_be}")


def combine(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the verdict of many: the worst, with the sentences of those that make it so.

    One failure fails; else one inconclusive leaves it open; nothing judged is not a pass.
    """
    every = tuple(verdicts)
    for outcome in (Outcome.FAILED, Outcome.INCONCLUSIVE, Outcome.PASSED):
        said = [verdict.sentence for verdict in every if verdict.outcome is outcome]
        if said:
            figures = tuple(figure for verdict in every for figure in verdict.figures)
            return Verdict(outcome, "; ".join(said), figures)
    return Verdict(Outcome.INCONCLUSIVE, "nothing was judged")


class Action(StrEnum):
    """What follows, from the mildest to the strongest."""

    PROCEED = "proceed"
    WAIT = "wait"
    PAUSE = "pause"
    ROLLBACK = "rollback"


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What the plan says shall follow."""

    consecutive: int = 1  # breaches that make one
    on_breach: Literal["rollback", "pause"] = "rollback"
    on_inconclusive: Literal["extend", "pause", "proceed"] = "extend"


class Consequence(msgspec.Struct, frozen=True):
    """An action and why."""

    action: Action
    sentence: str


def decide(
    history: Sequence[Verdict], policy: Policy, *, is_soaked: bool, is_overdue: bool
) -> Consequence:
    """Return what follows from a step's verdicts, the newest last.

    A breach acts at once, all else when the soak is over: until then few requests are no news.
    Inconclusive verdicts neither count as breaches nor break a row of them; a pass does.

    Args:
        history: One verdict an interval, of this step only.
        policy: The plan's.
        is_soaked: Whether the step's soak has passed.
        is_overdue: Whether the deadline for extending it has.
    """
    breaches = _breaches(history)
    last = history[-1] if history else Verdict(Outcome.INCONCLUSIVE, "nothing was judged")
    if breaches >= policy.consecutive and last.outcome is Outcome.FAILED:
        row = f" ({breaches} in a row)" if policy.consecutive > 1 else ""
        return Consequence(Action(policy.on_breach), f"guardrail breached{row}: {last.sentence}")
    if not is_soaked:
        return Consequence(Action.WAIT, f"soaking: {last.sentence}")
    if last.outcome is Outcome.PASSED:
        return Consequence(Action.PROCEED, f"guardrails passed: {last.sentence}")
    if last.outcome is Outcome.FAILED:
        why = f"breach {breaches} of {policy.consecutive}: {last.sentence}"
        return _extended(why, is_overdue=is_overdue)
    if policy.on_inconclusive == "extend":
        return _extended(f"inconclusive: {last.sentence}", is_overdue=is_overdue)
    return Consequence(Action(policy.on_inconclusive), f"inconclusive: {last.sentence}")


def strongest(consequences: Iterable[Consequence]) -> Consequence:
    """Return the strongest of at least one; of equal ones the first."""
    order = tuple(Action)
    return max(consequences, key=lambda c: order.index(c.action))


def _extended(why: str, *, is_overdue: bool) -> Consequence:
    if is_overdue:
        return Consequence(Action.PAUSE, f"{why}, and the time to extend is over")
    return Consequence(Action.WAIT, f"soak extended; {why}")


def _breaches(history: Sequence[Verdict]) -> int:
    """Return how many breaches there are since the last pass."""
    count = 0
    for verdict in reversed(history):
        if verdict.outcome is Outcome.PASSED:
            break
        count += verdict.outcome is Outcome.FAILED
    return count


def _judge_p99(what: str, candidate: Sketch, stable: Sketch, limits: Limits) -> Verdict:
    over, under = candidate.quantile(_P99), stable.quantile(_P99)
    return _figured(
        _p99_verdict(what, candidate, stable, limits),
        what,
        value="" if over is None or under is None else _ratio_text(over, under),
        limit=f"<= {limits.p99_ratio:g}",
        counts=f"{_ms(candidate)}, stable {_ms(stable)}",
    )


def _p99_verdict(what: str, candidate: Sketch, stable: Sketch, limits: Limits) -> Verdict:
    shown = f"{_ms(candidate)} on the candidate, {_ms(stable)} on stable"
    few = _too_few(f"{what}: {shown}", candidate.total, stable.total, limits)
    if few:
        return few
    ratio = quantile_ratio(candidate, stable, _P99, confidence=limits.confidence)
    return _judge_ratio(f"{what}: {shown}", ratio, limit=limits.p99_ratio)


def _figured(verdict: Verdict, judge: str, *, value: str, limit: str, counts: str = "") -> Verdict:
    figure = Figure(judge, verdict.outcome, value, limit, counts)
    return Verdict(verdict.outcome, verdict.sentence, (figure,))


def _ratio_text(over: float, under: float) -> str:
    if not over:
        return "0"
    return f"{over / under:.2f}" if under else "infinite"


def _ms(values: Sketch) -> str:
    value_s = values.quantile(_P99)
    return "none" if value_s is None else f"{value_s * 1000:.0f} ms"


def _too_few(figures: str, candidate: int, stable: int, limits: Limits) -> Verdict | None:
    seen = min(candidate, stable)
    # A minimum of 0 does not make nothing something.
    if seen >= max(limits.min_requests, 1):
        return None
    which = "candidate" if candidate <= stable else "stable"
    sentence = f"{figures}; {seen} requests on {which} are fewer than {limits.min_requests}"
    return Verdict(Outcome.INCONCLUSIVE, sentence)


def _judge_ratio(figures: str, ratio: Interval, *, limit: float) -> Verdict:
    sentence = f"{figures}; ratio {ratio}, limit {limit:g}"
    if ratio.low > limit:
        return Verdict(Outcome.FAILED, sentence)
    if ratio.estimate <= limit:
        return Verdict(Outcome.PASSED, sentence)
    return Verdict(Outcome.INCONCLUSIVE, f"{sentence}: over it, but not beyond chance")

"""What a rollout's plots show: series over the time since it began, made of its record.

Pure: values in, values out. A series says nothing where nothing was kept: it is then empty, and
whoever draws it says so.
"""

from collections.abc import Iterator

import msgspec

from vctl_cli.recounting import Moment, RolloutRecord
from vctl_cli.render.record import took_s
from vctl_plans.phase import RolloutPhase
from vctl_plans.seen import Rate, Traffic
from vctl_plans.share import FULL_WEIGHT

READY = "ready"
"""What nodes are waited for to be before traffic moves."""

Point = tuple[float, float]
"""Seconds since the rollout began, and a value."""


class Span(msgspec.Struct, frozen=True):
    """One phase."""

    phase: str
    since_s: float
    until_s: float


class Level(msgspec.Struct, frozen=True):
    """A value by release that holds from a time on, until the next."""

    at_s: float
    values: dict[int, float]


class Counted(msgspec.Struct, frozen=True):
    """What one release's requests came to in one window."""

    since_s: float
    until_s: float
    rate: Rate


class Arrivals(msgspec.Struct, frozen=True):
    """When nodes had done what one phase waited for."""

    what: str  # as in *ready*, or *10 %*
    began_s: float
    nodes: dict[str, float]  # by name, seconds since the rollout began; perhaps only the slowest
    curve: tuple[tuple[float, int], ...]  # the same seconds, and how many nodes had by then


def end_s(record: RolloutRecord) -> float:
    """Return where the time axis ends; never at its beginning."""
    return max(record.lasted_s, 0.001)


def spans(record: RolloutRecord) -> list[Span]:
    """Return the phases in order, each until the next begins; equal neighbours are one."""
    found: list[Span] = []
    times = [moment.at_s for moment in record.decisions] + [end_s(record)]
    for moment, until_s in zip(record.decisions, times[1:], strict=True):
        phase = moment.entry.phase.value
        if found and found[-1].phase == phase:
            found[-1] = msgspec.structs.replace(found[-1], until_s=until_s)
        else:
            found.append(Span(phase, moment.at_s, until_s))
    return found


def shares(record: RolloutRecord) -> list[Level]:
    """Return the percent of traffic by release, whatever groups have of their own."""
    return [
        Level(moment.at_s, _split(moment.entry.seen.traffic))
        for moment in record.decisions
        if moment.entry.seen
    ]


def _split(traffic: Traffic) -> dict[int, float]:
    if not traffic.stable:
        return {}
    if not traffic.candidate:
        return {traffic.stable: FULL_WEIGHT}
    split = {traffic.stable: FULL_WEIGHT - traffic.weight, traffic.candidate: traffic.weight}
    return {number: share for number, share in split.items() if share}


def holders(record: RolloutRecord) -> list[Level]:
    """Return how many nodes held each release ready; what an operator decided says nothing of it.

    What is known is known of the moment of a decision, so that is when it counts from.
    """
    return [
        Level(moment.at_s, {int(n): float(count) for n, count in moment.entry.seen.holding.items()})
        for moment in record.decisions
        if moment.entry.seen and moment.entry.seen.took_s is not None
    ]


def growing(record: RolloutRecord) -> list[Point]:
    """Return how many nodes held what the rollout brings while it was prepared."""
    first = next((each for each in arrivals(record) if each.what == READY), None)
    return [(at, float(count)) for at, count in first.curve] if first else []


def counted(record: RolloutRecord) -> dict[int, list[Counted]]:
    """Return what gateways counted, by release: the one that came, and the one before it.

    Once the one before gets no requests, what it is compared with is of earlier, and no point here.
    """
    found: dict[int, list[Counted]] = {}
    for moment, began_s in _phases(record):
        for window in moment.entry.seen.windows if moment.entry.seen else ():
            since_s, until_s = began_s + window.since_s, began_s + window.until_s
            for number, rate in (
                (record.rollout.to_release, window.candidate),
                (record.rollout.from_release, window.stable),
            ):
                is_old = window.is_earlier and rate is window.stable
                if number and rate.requests and not is_old:
                    found.setdefault(number, []).append(Counted(since_s, until_s, rate))
    return found


def arrivals(record: RolloutRecord) -> list[Arrivals]:
    """Return, by phase that waited for nodes, when they had done what it waited for."""
    found: list[Arrivals] = []
    before: Moment | None = None
    for moment, began_s in _phases(record):
        seen = moment.entry.seen
        if before and seen and seen.curve:
            found.append(
                Arrivals(
                    what=_waited_for(before),
                    began_s=began_s,
                    nodes={node: began_s + each for node, each in seen.arrivals.items()},
                    curve=tuple((began_s + each, count) for each, count in seen.curve),
                )
            )
        before = moment
    return found


def _waited_for(moment: Moment) -> str:
    """Return what nodes were waited for in the phase that *moment* began."""
    phase, seen = moment.entry.phase, moment.entry.seen
    if phase is RolloutPhase.PREPARING:
        return READY
    if phase is RolloutPhase.SETTLING:
        return "settled"
    if phase is RolloutPhase.ROLLING_BACK:
        return "back"
    weight = seen.traffic.weight if seen and seen.traffic.candidate else FULL_WEIGHT
    return f"{weight:g} %"


def _phases(record: RolloutRecord) -> Iterator[tuple[Moment, float]]:
    """Yield each decision with when the phase began that it ended."""
    for moment in record.decisions:
        yield moment, moment.at_s - took_s(moment)

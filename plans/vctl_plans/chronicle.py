"""What was seen when a decision was made: kept with its entry in the history, for people only.

The rule to keep: no decision rests on anything here, and all of it is small, however large the
fleet: it is written in the decision's own transaction. Times are elapsed times of the phase that
the decision ended, since no clocks are compared.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from vctl_plans.gate import READY, STAGED, acknowledgement, readiness
from vctl_plans.node import NodeReport
from vctl_plans.phase import NodePhase, RolloutPhase
from vctl_plans.route import Route
from vctl_plans.seen import Rate, Seen, Traffic, Window
from vctl_plans.statistics import Statistics

if TYPE_CHECKING:
    from vctl_plans.decision import State

NAMED = 64
"""Nodes whose time is kept by name, the slowest first; a fleet that is no larger is kept whole."""
POINTS = 40
"""Of the curve that says how many nodes had arrived when."""

_P50, _P99 = 0.5, 0.99
_BY_ROUTE = {RolloutPhase.SHIFTING, RolloutPhase.SETTLING, RolloutPhase.ROLLING_BACK}


def traffic(route: Route) -> Traffic:
    """Return how *route* splits traffic."""
    return Traffic(
        stable=route.stable,
        candidate=route.candidate,
        weight=route.weight,
        groups=tuple(sorted({override.release for override in route.overrides})),
    )


def rate(statistics: Statistics) -> Rate:
    """Return what a release's requests came to."""
    return Rate(
        requests=statistics.requests,
        failures=statistics.failures,
        p50_s=_rounded(statistics.latency.quantile(_P50)),
        p99_s=_rounded(statistics.latency.quantile(_P99)),
    )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 4)


def arrived(state: "State", reports: Mapping[str, NodeReport]) -> tuple[str, ...]:
    """Return the nodes of the roster that have done what the present phase waits for.

    That is to hold the release (or, of a base, to have it on disk), or to act on the route; by
    their own word.
    """
    rollout, roster, phase = state.rollout, state.roster, state.rollout.phase
    if phase is RolloutPhase.PREPARING:
        enough = STAGED if rollout.is_by_waves else READY
        number = rollout.back_to or rollout.to_release
        return readiness(roster, reports, rollout=rollout, number=number, enough=enough).done
    if phase in _BY_ROUTE and state.route_revision:
        return acknowledgement(
            roster, reports, service=rollout.service, revision=state.route_revision
        ).done
    return ()


def holders(service: str, reports: Iterable[NodeReport]) -> dict[str, int]:
    """Return, by release, how many nodes report it ready."""
    found: dict[int, int] = {}
    for report in reports:
        for said in report.releases:
            if said.service == service and said.phase is NodePhase.READY:
                found[said.number] = found.get(said.number, 0) + 1
    return {str(number): found[number] for number in sorted(found)}


def seen(
    route: Route,
    *,
    took_s: float,
    holding: Mapping[str, int],
    arrivals: Mapping[str, float],
    windows: tuple[Window, ...] = (),
) -> Seen:
    """Return what is kept of a phase that lasted *took_s* and whose decision writes *route*.

    Args:
        route: As the decision leaves it.
        took_s: The age of the phase that it ends.
        holding: See `holders`.
        arrivals: When each node had done what the phase waits for, in seconds of its age.
        windows: What gateways counted in it.
    """
    slowest = sorted(arrivals.items(), key=lambda each: (-each[1], each[0]))[:NAMED]
    return Seen(
        took_s=round(took_s, 3),
        traffic=traffic(route),
        holding=dict(holding),
        arrivals={node: round(seconds, 3) for node, seconds in slowest},
        curve=curve(arrivals.values()),
        windows=windows,
    )


def curve(times_s: Iterable[float]) -> tuple[tuple[float, int], ...]:
    """Return points (seconds, how many had arrived by then): at most `POINTS`, the last of all."""
    ordered = sorted(times_s)
    counts = {round(seconds, 3): n for n, seconds in enumerate(ordered, start=1)}
    points = tuple(counts.items())
    if len(points) <= POINTS:
        return points
    step = (len(points) - 1) / (POINTS - 1)
    return tuple(points[round(n * step)] for n in range(POINTS))


def thinned(windows: tuple[Window, ...], *, most: int) -> tuple[Window, ...]:
    """Return at most *most* windows: of a long soak every other of the older ones goes."""
    while len(windows) > most:
        half = len(windows) // 2
        windows = (*windows[:half:2], *windows[half:])
    return windows

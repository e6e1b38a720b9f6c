"""A step under watch: what gateways counted becomes verdicts, one a window (DESIGN section 7).

A window is whole when it has lasted the plan's interval and both releases have the requests that
the plan asks for: so a quiet service gets longer windows, and not windows that say nothing. What a
fleet counted under one route revision is known in full at any time; hence a new conductor's first
window reaches back to where the step began, and no request is left unjudged.

The baseline is stable's own count under the same route. Where stable gets no requests any more (at
100 %), it is what stable had under the routes before, the newest first, until there are enough: of
the newest alone there may be next to nothing, as when a barrier held all requests under it.
"""

from collections.abc import Iterable, Mapping

import msgspec

from vctl_plans import chronicle, drift, guardrail
from vctl_plans.drift import Finding, Measure
from vctl_plans.node import NodeReport
from vctl_plans.phase import NodePhase
from vctl_plans.plan import DriftLimits, Watch
from vctl_plans.rollout import Rollout
from vctl_plans.route import Route
from vctl_plans.seen import Window
from vctl_plans.share import FULL_WEIGHT
from vctl_plans.statistics import NodeStatistics, Snapshot, Statistics, window
from vctl_plans.verdict import Figure, Outcome, Verdict

KEPT = 10
"""Verdicts that are remembered: the longest row of breaches that a plan can ask for."""


KEPT_WINDOWS = 48
"""Windows of a step whose figures go into the history with the decision that ends its phase."""


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a step's traffic now; counts are from the step's beginning on."""

    candidate: tuple[Snapshot, ...] = ()
    stable: tuple[Snapshot, ...] = ()
    is_alone: bool = False  # stable is of earlier routes, of all that are known: it grows no more
    probes: Mapping[str, bool] = {}
    free: Mapping[str, float] = {}
    queries: Mapping[str, float | None] = {}


class Watching(msgspec.Struct, frozen=True, kw_only=True):
    """How far a step's watch is; pass it on from look to look."""

    verdicts: tuple[Verdict, ...] = ()  # one a whole window, the newest last
    open: Verdict | None = None  # of the window that is not whole yet
    finding: Finding | None = None  # of drift
    since_s: float = 0.0  # phase age at which the present window began
    before: Look = Look()  # and what was counted by then
    measures: tuple[tuple[Measure, ...], ...] = ()  # of drift, one a window
    figures: tuple[Figure, ...] = ()  # what the judges found last, for people to see
    windows: tuple[Window, ...] = ()  # what was counted, for the history
    open_window: Window | None = None  # of the one that is not whole yet

    def history(self, *, is_soaked: bool) -> tuple[Verdict, ...]:
        """Return the verdicts; once the soak is over with what the open window shows already.

        Not before: a window that is judged at every look is judged by the worst of many, and chance
        alone would breach it sooner or later.
        """
        shown = self.open
        if shown is None or (not is_soaked and shown.outcome is Outcome.FAILED):
            return self.verdicts
        if self.verdicts and (not is_soaked or shown.outcome is Outcome.INCONCLUSIVE):
            return self.verdicts
        return (*self.verdicts, shown)


def look(
    rollout: Rollout,
    route: Route,
    route_revision: int,
    *,
    statistics: Iterable[NodeStatistics],
    reports: Mapping[str, NodeReport],
    queries: Mapping[str, float | None],
) -> Look:
    """Return what is known of the rollout's present step.

    Args:
        rollout: A rollout that soaks.
        route: Its route.
        route_revision: The revision of *route*: what counts of the candidate.
        statistics: What the nodes wrote.
        reports: Of the nodes that are present.
        queries: The latest values of the plan's Prometheus queries.
    """
    every = [s for each in statistics for s in each.snapshots if s.service == rollout.service]
    stable = rollout.from_release
    is_alone = route.default == {rollout.to_release} or route.weight == FULL_WEIGHT
    baseline = [s for s in every if s.number == stable]
    return Look(
        candidate=tuple(
            s
            for s in every
            if s.number == rollout.to_release and s.origin.route_revision == route_revision
        ),
        stable=tuple(
            s
            for s in baseline
            if (s.origin.route_revision < route_revision) is is_alone
            and s.origin.route_revision <= route_revision
        ),
        is_alone=is_alone,
        probes=_probes(rollout, reports),
        free={n: r.free_memory for n, r in reports.items() if r.free_memory is not None},
        queries=queries,
    )


def _probes(rollout: Rollout, reports: Mapping[str, NodeReport]) -> dict[str, bool]:
    found = {n: r.release(rollout.service, rollout.to_release) for n, r in reports.items()}
    return {
        node: release.phase is not NodePhase.QUARANTINED
        for node, release in found.items()
        if release and release.phase in {NodePhase.READY, NodePhase.QUARANTINED}
    }


def observe(watching: Watching, watch: Watch, seen: Look, now_s: float) -> Watching:
    """Return the watch after one look; call it as often as you like.

    Args:
        watching: The watch so far.
        watch: What the plan says.
        seen: The look.
        now_s: The phase's age.
    """
    candidate, stable = _counted(watching.before, seen, least=watch.min_requests)
    verdict = judge(watch, seen, candidate=candidate, stable=stable)
    counted = Window(
        since_s=round(watching.since_s, 3),
        until_s=round(now_s, 3),
        candidate=chronicle.rate(candidate),
        stable=chronicle.rate(stable),
        is_earlier=seen.is_alone,
    )
    is_long = now_s - watching.since_s >= watch.interval_s
    is_enough = min(candidate.requests, stable.requests) >= watch.min_requests
    bare = Verdict(verdict.outcome, verdict.sentence)
    if not (is_long and (is_enough or verdict.outcome is Outcome.FAILED)):
        # Of a window that has just begun the figures would be of next to nothing.
        is_news = not watching.verdicts or verdict.outcome is not Outcome.INCONCLUSIVE
        figures = verdict.figures if is_news else watching.figures
        return msgspec.structs.replace(watching, open=bare, open_window=counted, figures=figures)
    measures = watching.measures
    if watch.drift:
        measures = (*measures, drift.measure(candidate, stable))[-KEPT:]
    finding = _finding(watch.drift, measures)
    return Watching(
        verdicts=(*watching.verdicts, bare)[-KEPT:],
        finding=finding,
        since_s=now_s,
        before=seen,
        measures=measures,
        figures=(*verdict.figures, *_of_drift(finding, watch.drift, measures)),
        windows=chronicle.thinned((*watching.windows, counted), most=KEPT_WINDOWS),
    )


def _of_drift(
    finding: Finding | None, limits: DriftLimits | None, measures: tuple[tuple[Measure, ...], ...]
) -> tuple[Figure, ...]:
    if finding is None or limits is None or not measures:
        return ()
    worst = max(measures[-1], key=lambda each: each.psi)
    value, counts = f"PSI {worst.psi:.2f}", f"of {worst.dimension}"
    return (Figure("drift", finding.verdict.outcome, value, f"<= {limits.psi:g}", counts),)


def _counted(before: Look, seen: Look, *, least: int) -> tuple[Statistics, Statistics]:
    """Return what both releases' requests of the window came to."""
    candidate = window(before.candidate, seen.candidate).statistics
    if seen.is_alone:
        return candidate, _newest(seen.stable, least=least)
    return candidate, window(before.stable, seen.stable).statistics


def _newest(snapshots: tuple[Snapshot, ...], *, least: int) -> Statistics:
    """Return what was counted under so many of the newest routes as have *least* requests."""
    found = Statistics()
    for revision in sorted({s.origin.route_revision for s in snapshots}, reverse=True):
        of_route = [s for s in snapshots if s.origin.route_revision == revision]
        found = Statistics.merge((found, window((), of_route).statistics))
        if found.requests >= least:
            break
    return found


def _finding(
    limits: DriftLimits | None, measures: tuple[tuple[Measure, ...], ...]
) -> Finding | None:
    if limits is None:
        return None
    return drift.assess(
        measures,
        drift.Limits(
            psi=limits.psi, severe_psi=limits.severe_psi, kl=limits.kl, windows=limits.windows
        ),
    )


def judge(watch: Watch, seen: Look, *, candidate: Statistics, stable: Statistics) -> Verdict:
    """Return the verdict of all judges that the plan names, on one window."""
    limits = guardrail.Limits(
        error_ratio=watch.error_ratio,
        p99_ratio=watch.p99_ratio,
        min_requests=watch.min_requests,
    )
    verdicts = [
        guardrail.judge_errors(candidate, stable, limits),
        guardrail.judge_latency(candidate, stable, limits),
        guardrail.judge_probes(seen.probes),
    ]
    if watch.free_memory is not None:
        verdicts.append(guardrail.judge_memory(seen.free, least=watch.free_memory))
    for query, text in watch.queries.items():
        must_be = guardrail.condition(text, path=f"guardrails.prometheus.{query}")
        verdicts.append(guardrail.judge_query(query, seen.queries.get(query), must_be))
    return guardrail.combine(verdicts)

"""What a rollout would take: bytes to fetch, places, and time at least, on one reading of a fleet.

The rule to keep: nothing is promised. Bytes are the most that a node would fetch, as blocks that it
has on disk are used again; time is the least, as fetching, loading and people take theirs. What
nobody tells is named as not told, and is never counted as nothing.
"""

from collections.abc import Iterable, Mapping

import msgspec

from vctl_plans.node import NodeReport
from vctl_plans.phase import NodePhase
from vctl_plans.plan import Plan, PlanStep
from vctl_plans.release import Artifact, Release
from vctl_plans.route import Route
from vctl_plans.snapshot import Fleet
from vctl_plans.status import HANDING_OVER, IDLE, needs, node_status

ON_DISK = frozenset(
    {
        NodePhase.STAGED,
        NodePhase.LOADING,
        NodePhase.PROBING,
        NodePhase.READY,
        NodePhase.DRAINING,
    }
)
"""Phases in which a node has all bytes of a release, verified."""

_WELL = {NodePhase.READY.value, IDLE, HANDING_OVER}


class ComponentChange(msgspec.Struct, frozen=True, kw_only=True):
    """One component before and after."""

    component: str
    before: str  # its root; empty: there was none
    after: str  # empty: it is not known before nodes have hashed it
    source: str
    size_bytes: int  # 0: not known
    counter_before: int  # of the version vector; 0: there was none
    counter: int

    @property
    def is_changed(self) -> bool:
        """Whether it is another than before."""
        return self.counter != self.counter_before


class NodeForecast(msgspec.Struct, frozen=True, kw_only=True):
    """What one node would have to do."""

    node: str
    fetch_bytes: int  # at most
    phase: str  # of the release there now; empty: it has nothing of it
    problem: str  # why it could hold the rollout up; empty: nothing is known


def changes(before: Release | None, after: Release) -> tuple[ComponentChange, ...]:
    """Return each component of *after*, and what it was *before*."""
    old = before.components if before else {}
    return tuple(
        ComponentChange(
            component=name.value,
            before=old[name].root if name in old else "",
            after=artifact.root,
            source=artifact.source,
            size_bytes=artifact.size_bytes,
            counter_before=before.vector.get(name, 0) if before else 0,
            counter=after.vector[name],
        )
        for name, artifact in sorted(after.components.items())
    )


def nodes(fleet: Fleet, target: Release) -> tuple[NodeForecast, ...]:
    """Return what each node that is present would have to do for *target*; by name."""
    wanted, present = needs(fleet), fleet.present()
    return tuple(
        NodeForecast(
            node=node,
            fetch_bytes=fetch_bytes(fleet, present.get(node), target),
            phase=_phase(present.get(node), target),
            problem=_problem(node, fleet, wanted),
        )
        for node in sorted(fleet.records)
    )


def fetch_bytes(fleet: Fleet, report: NodeReport | None, target: Release) -> int:
    """Return the most bytes of *target* that a node would fetch, by its own word."""
    held = on_disk(fleet, report)
    missing = {a.root: a.size_bytes for a in target.staged.values() if a.root not in held}
    own = report.release(target.service, target.number) if report else None
    here = own.fetched_percent if own and own.phase is NodePhase.FETCHING else 0
    return sum(missing.values()) * (100 - here) // 100


def on_disk(fleet: Fleet, report: NodeReport | None) -> frozenset[str]:
    """Return the roots of what a node has whole, of any service: one root is one folder."""
    roots = {report.base} if report and report.base else set()
    for said in report.releases if report else ():
        service = fleet.services.get(said.service)
        release = service.releases.get(said.number) if service else None
        if release and said.phase in ON_DISK and said.digest in {"", release.digest}:
            roots |= {artifact.root for artifact in release.staged.values()}
    return frozenset(roots)


def unknown_sizes(artifacts: Iterable[Artifact]) -> tuple[str, ...]:
    """Return the sources of which nobody has said how large they are."""
    return tuple(a.source for a in artifacts if not a.size_bytes)


def steps_taken(plan: Plan, route: Route, target: int) -> tuple[PlanStep, ...]:
    """Return the plan's steps as they would be taken, see `forward`.

    A rollback has no soak; where nothing serves, or the release serves already, there is nothing to
    split traffic with, and the last step is taken at once.
    """
    if plan.strategy == "rollback":
        return (PlanStep(),)
    is_whole = route.stable in {0, target} and not plan.groups
    return plan.steps[-1:] if is_whole else plan.steps


def least_s(steps: Iterable[PlanStep]) -> float:
    """Return the time that a rollout takes at least: its soaks."""
    return sum(step.soak_s for step in steps)


def _phase(report: NodeReport | None, target: Release) -> str:
    said = report.release(target.service, target.number) if report else None
    return said.phase.value if said else ""


def _problem(node: str, fleet: Fleet, wanted: Mapping[str, frozenset[int]]) -> str:
    status = node_status(node, fleet, wanted)
    if status.phase in _WELL:
        return ""
    return f"{status.phase}: {status.reason}" if status.reason else status.phase

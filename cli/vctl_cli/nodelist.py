"""What `vctl nodes` shows: each node in a line, the worst first.

Ages are by clocks of the nodes and of who asks: they are for people, and nothing is decided by
them.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import msgspec

from vctl_cli.render.table import table
from vctl_plans.diagnosis import slots_of
from vctl_plans.inspection import DrainPhase
from vctl_plans.snapshot import Fleet
from vctl_plans.status import ABSENT, STARTING, Needs, needs, node_status
from vctl_plans.summary import worst_first
from vctl_plans.units import duration_text


class NodeLine(msgspec.Struct, frozen=True, kw_only=True):
    """One node; None: it does not tell."""

    node: str
    is_present: bool
    phase: str  # as `vctl status` has it
    drain: str  # waiting, draining or drained; empty: nobody asked
    releases: tuple[str, ...]  # that its engine holds, as in support/3
    adapters: int | None  # places in use
    places: int | None
    free_memory: float | None  # share, 0 to 1
    engine: str
    version: str
    engine_since: str  # UTC, by the node's clock
    last_seen: str  # UTC, by the node's clock; empty: it is present
    labels: dict[str, str]
    reason: str


class NodesView(msgspec.Struct, frozen=True, kw_only=True):
    """All nodes of a fleet, or those that were asked for."""

    fleet: str
    nodes: tuple[NodeLine, ...]  # the worst first
    problems: tuple[str, ...] = ()


def nodes_view(fleet: Fleet, *, name: str, only: Iterable[str] = ()) -> NodesView:
    """Return the view of the fleet *name*; of *only* these nodes, where any are named."""
    names = set(only) or {*fleet.records, *fleet.reports}
    needed = needs(fleet)
    lines = [_line(node, fleet, needed) for node in names]
    return NodesView(
        fleet=name,
        nodes=tuple(sorted(lines, key=lambda line: (worst_first(line.phase), line.node))),
        problems=fleet.problems,
    )


def _line(node: str, fleet: Fleet, needed: Needs) -> NodeLine:
    status = node_status(node, fleet, needed)
    record, report = fleet.records.get(node), fleet.reports.get(node)
    facts = record.facts if record else None
    is_heard = status.phase not in {ABSENT, STARTING}
    own = report if is_heard else None
    drain = report.drain if report else None
    return NodeLine(
        node=node,
        is_present=status.is_present,
        phase=status.phase,
        drain=drain.phase.value if drain else "",
        releases=tuple(
            f"{r.service}/{r.number}" for r in (own.releases if own else ()) if r.phase.is_resident
        ),
        adapters=own.adapters if own else None,
        places=slots_of(facts),
        free_memory=own.free_memory if own else None,
        engine=(facts.kind if facts else "") or (record.engine if record else ""),
        version=facts.version if facts else "",
        engine_since=own.engine_since if own else "",
        last_seen="" if status.is_present or report is None else report.at,
        labels=record.labels if record else {},
        reason=status.reason,
    )


def nodes_text(view: NodesView, *, now: datetime) -> str:
    """Return a line for each node."""
    head = ("NODE", "PHASE", "RELEASES", "PLACES", "MEMORY", "ENGINE", "UP", "SEEN", "LABELS")
    rows = [(*_row(line, now), line.reason) for line in view.nodes]
    text = table((*head, "REASON"), rows) if rows else f"fleet {view.fleet}: no node"
    unreadable = [f"unreadable: {problem}" for problem in view.problems]
    return "\n\n".join([text, *unreadable])


def _row(line: NodeLine, now: datetime) -> tuple[str, ...]:
    used = "?" if line.adapters is None else str(line.adapters)
    places = "-" if line.places is None else f"{used}/{line.places}"
    free = "-" if line.free_memory is None else f"{line.free_memory:.0%} free"
    phase = f"{line.phase}, {line.drain}" if line.drain else line.phase
    if line.drain == DrainPhase.WAITING:
        phase = f"{line.phase}, to be drained"
    return (
        line.node,
        phase,
        ",".join(line.releases) or "-",
        places,
        free,
        f"{line.engine} {line.version}".strip() or "-",
        _age(line.engine_since, now) or "-",
        "now" if line.is_present else _ago(line.last_seen, now),
        ",".join(f"{k}={v}" for k, v in sorted(line.labels.items())) or "-",
    )


def _ago(at: str, now: datetime) -> str:
    age = _age(at, now)
    return f"{age} ago" if age else "-"


def _age(at: str, now: datetime) -> str:
    """Return how long ago *at* was, in its largest unit; empty where it is not known."""
    try:
        then = datetime.fromisoformat(at)
    except ValueError:
        return ""
    seconds = max(0.0, (now.astimezone(UTC) - then) / timedelta(seconds=1))
    for unit_s in (86_400, 3_600, 60):
        if seconds >= unit_s:
            return duration_text(seconds // unit_s * unit_s)
    return duration_text(float(int(seconds)))

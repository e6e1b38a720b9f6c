"""Tables for people: aligned columns, no frames, nothing that only a wide terminal can show.

Plain text, so that a pipe gets the same. The last column takes what it needs; the others are as
wide as their widest cell. A cell is one line, whatever a node or an engine put into it.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from vctl_cli.render.screen import harmless
from vctl_plans.held import glass_text, pins_text
from vctl_plans.phase import RolloutPhase
from vctl_plans.share import FULL_WEIGHT
from vctl_plans.status import NodeStatus, ServiceStatus, StatusView

_BY_STEPS = {RolloutPhase.SHIFTING, RolloutPhase.SOAKING, RolloutPhase.PAUSED}


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return *rows* under *head*, columns aligned."""
    cells = [head, *([harmless(cell) for cell in row] for row in rows)]
    widths = [max(len(row[n]) for row in cells) for n in range(len(head))]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in cells
    )
    return "\n".join(line.rstrip() for line in lines)


Paint = Callable[[str], str]
"""Marks what is bad, where it can be."""


def status_text(view: StatusView, bad: Paint = str) -> str:
    """Return the fleet: its services, then its nodes."""
    parts = [services_table(view.services) if view.services else f"fleet {view.fleet}: no service"]
    parts.append(nodes_table(view.nodes) if view.nodes else "no node has ever reported")
    parts += [bad(warning) for warning in warnings(view)]
    return "\n\n".join(parts)


def status_lines(view: StatusView) -> list[str]:
    """Return a line for each service and node that says all of it, for a log of changes."""
    nodes = [f"{n.node}: {n.phase}{': ' + n.reason if n.reason else ''}" for n in view.nodes]
    return [harmless(text) for text in (*services_lines(view.services), *nodes, *warnings(view))]


def services_lines(services: Iterable[ServiceStatus]) -> list[str]:
    """Return a line for each service that says all of it."""
    return [
        f"{s.service}: release {s.release or 'none'}, {service_phase(s) or 'no rollout'}, ready"
        f" {s.ready}/{s.nodes}, route {s.acting}/{s.nodes}{': ' + s.sentence if s.sentence else ''}"
        f"{''.join(f' ({note})' for note in s.notes)}"
        for s in services
    ]


def services_table(services: Iterable[ServiceStatus]) -> str:
    """Return a line for each service, and its last decision below it."""
    head = ("SERVICE", "RELEASE", "VECTOR", "PHASE", "TRAFFIC", "READY", "ROUTE")
    rows = {s.service: _service_row(s) for s in services}
    lines = table(head, rows.values()).splitlines()
    said = {
        s.service: [harmless(text) for text in (s.sentence, *s.notes, _pins(s)) if text]
        for s in services
    }
    body = ("\n  ".join([line, *said[name]]) for name, line in zip(rows, lines[1:], strict=True))
    return "\n".join([lines[0], *body])


def _service_row(service: ServiceStatus) -> tuple[str, ...]:
    release = str(service.release or "none")
    if service.target and service.target != service.release:
        release = f"{release} -> {service.target}"
    return (
        service.service,
        release,
        service.vector or "-",
        service_phase(service) or "-",
        _traffic(service),
        f"{service.ready}/{service.nodes}",
        f"{service.acting}/{service.nodes}",
    )


def _pins(service: ServiceStatus) -> str:
    return pins_text(service.pins) if service.pins else ""


def _traffic(service: ServiceStatus) -> str:
    weight = service.weight if service.candidate else FULL_WEIGHT
    serving = service.candidate or service.release
    apart = ",".join(str(n) for n in service.overrides)
    groups = f", groups on {apart}" if apart else ""
    return f"{weight:g} % on {serving}{groups}" if serving else "none"


def service_phase(service: ServiceStatus) -> str:
    """Return the phase; while one of several steps is taken, or the base changes, with that."""
    has_steps = service.steps > 1 and service.step and service.phase in _BY_STEPS
    phase = f"{service.phase} {service.step}/{service.steps}" if has_steps else service.phase
    return phase if service.based is None else f"{phase}, base {service.based}/{service.nodes}"


def nodes_table(nodes: Iterable[NodeStatus]) -> str:
    """Return a line for each node."""
    rows = [
        (
            node.node,
            node.phase,
            node.engine or "-",
            str(node.cache_epoch or "-"),
            ",".join(f"{name}@{revision}" for name, revision in sorted(node.routes.items())) or "-",
            node.reason,
        )
        for node in nodes
    ]
    return table(("NODE", "PHASE", "ENGINE", "EPOCH", "ROUTE", "REASON"), rows)


class Told(Protocol):
    """A view that may be less than the truth."""

    @property
    def is_live(self) -> bool:
        """Whether the store answers."""
        ...

    @property
    def services(self) -> tuple[ServiceStatus, ...]:
        """The services' lines."""
        ...

    @property
    def problems(self) -> tuple[str, ...]:
        """Values that could not be read."""
        ...


def warnings(view: Told) -> list[str]:
    """Return what a reader must know of the view before believing it."""
    away = [] if view.is_live else ["etcd is away: the last known state"]
    glass = [glass_text(s.service, s.glass) for s in view.services if s.glass]
    return [*away, *glass, *(f"unreadable: {problem}" for problem in view.problems)]

"""A large fleet for people: the services, how many nodes are in which phase, and the worst."""

from vctl_cli.render.screen import harmless
from vctl_cli.render.table import Paint, services_lines, services_table, table, warnings
from vctl_cli.summing import Counts, SummaryView


def summary_text(view: SummaryView, bad: Paint = str) -> str:
    """Return the fleet: its services, then its nodes, counted."""
    parts = [services_table(view.services) if view.services else f"fleet {view.fleet}: no service"]
    if view.is_there:
        counted = [f"{c.service}: {phases_text(c)}" for c in view.counts]
        parts.append("\n".join([f"{view.present} nodes present, {view.known} known", *counted]))
    named = [(c.service, w.node, w.phase, w.reason) for c in view.counts for w in c.worst]
    if named:
        parts.append(
            "\n".join([table(("SERVICE", "NODE", "PHASE", "REASON"), named), *_more(view)])
        )
    return "\n\n".join([*parts, *(bad(warning) for warning in _warnings(view))])


def summary_lines(view: SummaryView) -> list[str]:
    """Return lines that say all of it, for a log of changes."""
    counted = [f"{c.service}: {phases_text(c)}" for c in view.counts if view.is_there]
    named = [
        f"{w.node}: {c.service}: {w.phase}{': ' + w.reason if w.reason else ''}"
        for c in view.counts
        for w in c.worst
    ]
    said = [*services_lines(view.services), *counted, *named, *_more(view), *_warnings(view)]
    return [harmless(text) for text in said]


def phases_text(counts: Counts) -> str:
    """Return how many nodes are in which phase, the most first."""
    by_count = sorted(counts.phases.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count} {phase}" for phase, count in by_count) or "no node"


def _more(view: SummaryView) -> list[str]:
    return [
        f"{c.service}: and {c.unnamed} more that are not ready" for c in view.counts if c.unnamed
    ]


def _warnings(view: SummaryView) -> list[str]:
    """Return what a reader must know before believing the counts."""
    if not view.is_there:
        return ["no summary: nodes are not counted until a conductor writes one", *warnings(view)]
    older = [c.service for c in view.counts if c.is_older]
    said = f"the summary is older than the last decision of {', '.join(older)}: its counts may lag"
    return [*([said] if older else []), *warnings(view)]

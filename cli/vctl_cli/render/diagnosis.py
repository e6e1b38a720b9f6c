"""A diagnosis for people: a line for each node, and each finding once, with where it holds."""

from collections.abc import Iterable, Iterator, Mapping

from vctl_cli.diagnosing import Diagnosis, NodeHealth
from vctl_cli.render.table import table
from vctl_plans.diagnosis import Finding, Severity
from vctl_plans.rollout import listed

_NODE = "node "
_MANY = 50
"""Nodes above which only those are shown that something was found of."""


def diagnosis_text(view: Diagnosis) -> str:
    """Return all of it."""
    parts = [nodes_table(view.nodes)] if view.nodes else []
    found = [finding for finding in view.findings if finding.severity is not Severity.OK]
    parts += ["\n".join(_lines(found))] if found else []
    return "\n\n".join([*parts, _verdict(view)])


def nodes_table(nodes: tuple[NodeHealth, ...]) -> str:
    """Return a line for each node; of many, only for those that something was found of."""
    shown = [n for n in nodes if len(nodes) <= _MANY or n.severity is not Severity.OK]
    rows = (
        (
            node.node,
            node.severity if node.is_present else "absent",
            node.engine or "unknown",
            f"{_known(node.adapters)}/{_known(node.slots)}",
            _share(node.free_memory),
            _share(node.kv_used),
            _share(node.disk_used),
        )
        for node in shown
    )
    head = ("NODE", "STATE", "ENGINE", "ADAPTERS", "FREE MEMORY", "KV USED", "DISK USED")
    left = len(nodes) - len(shown)
    more = f"\nand {left} more, of which nothing was found" if left else ""
    return f"{table(head, rows)}{more}"


def _known(count: int | None) -> str:
    return "?" if count is None else str(count)


def _share(share: float | None) -> str:
    return "unknown" if share is None else f"{share:.0%}"


def _lines(findings: Iterable[Finding]) -> Iterator[str]:
    for finding, places in _grouped(findings).items():
        severity, what, remedy = finding
        yield f"{severity:<8}{places}: {what}"
        if remedy:
            yield f"{'':<8}  -> {remedy}"


def _grouped(findings: Iterable[Finding]) -> Mapping[tuple[str, str, str], str]:
    """Return where each finding holds: what is so on a thousand nodes is one line."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for each in findings:
        found.setdefault((each.severity, each.what, each.remedy), []).append(each.where)
    return {finding: _places(places) for finding, places in found.items()}


def _places(places: list[str]) -> str:
    if len(places) == 1:
        return places[0]
    nodes = tuple(place.removeprefix(_NODE) for place in places if place.startswith(_NODE))
    others = tuple(place for place in places if not place.startswith(_NODE))
    return listed((*(f"{len(nodes)} nodes, {listed(nodes)}",) * bool(nodes), *others))


def _verdict(view: Diagnosis) -> str:
    counts = {s: sum(1 for f in view.findings if f.severity is s) for s in Severity}
    said = [
        f"{counts[s]} {s}{'' if counts[s] == 1 else 's'}"
        for s in (Severity.ERROR, Severity.WARNING)
        if counts[s]
    ]
    etcd = sorted({member.version for member in view.etcd if member.version})
    of_etcd = f", etcd {', '.join(etcd)}" if etcd else ""
    present = sum(1 for node in view.nodes if node.is_present)
    nodes = "1 node" if present == 1 else f"{present} nodes"
    return f"{', '.join(said) or 'nothing is wrong'}: fleet {view.fleet}, {nodes}{of_etcd}"

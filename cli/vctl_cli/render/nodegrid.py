"""Nodes by phase, worst first: a row of cells a phase, and the names of those that are few.

Ten nodes and ten thousand take the same place: beyond so many a cell stands for several.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich.text import Text

from vctl_cli.render.fitting import cut
from vctl_cli.render.terminal import Glyphs
from vctl_plans.phase import NodePhase
from vctl_plans.status import HANDING_OVER, IDLE
from vctl_plans.summary import ORDER, ServiceSummary

GOOD, BAD, BUSY = "green", "red", "yellow"
_WELL = {NodePhase.READY.value, IDLE}
_GONE_WRONG = {"failed", "quarantined", "absent", "no engine"}
_SCALES = (1, 2, 5)  # of the nodes that a cell stands for, times powers of ten


class Named(NamedTuple):
    """A node and what there is to say of it."""

    node: str
    reason: str = ""


class Group(NamedTuple):
    """The nodes in one phase."""

    phase: str
    size: int
    named: tuple[Named, ...] = ()  # all of them, or of a large fleet the worst


def grouped(said: Iterable[tuple[str, str, str]]) -> tuple[Group, ...]:
    """Return the groups of (node, phase, reason), worst first."""
    found: dict[str, list[Named]] = {}
    for node, phase, reason in said:
        found.setdefault(phase, []).append(Named(node, reason))
    return _sorted(Group(phase, len(nodes), tuple(nodes)) for phase, nodes in found.items())


def counted(summary: ServiceSummary) -> tuple[Group, ...]:
    """Return the groups of a large fleet, of which only the worst nodes have names."""
    named: dict[str, list[Named]] = {}
    for worst in summary.worst:
        named.setdefault(worst.phase, []).append(Named(worst.node, worst.reason))
    return _sorted(
        Group(phase, count, tuple(named.get(phase, ()))) for phase, count in summary.phases.items()
    )


def _sorted(groups: Iterable[Group]) -> tuple[Group, ...]:
    order = {phase: n for n, phase in enumerate((*ORDER, IDLE, NodePhase.READY.value))}
    return tuple(sorted(groups, key=lambda group: order.get(group.phase, len(order))))


def style_of(phase: str) -> str:
    """Return the colour of a node's phase; it only repeats what the word says."""
    if phase in _WELL:
        return GOOD
    return BAD if phase in _GONE_WRONG else BUSY


def grid(groups: Sequence[Group], columns: int, *, lines: int, glyphs: Glyphs) -> list[Text]:
    """Return a row a phase, and below it what its nodes say, in at most so many lines.

    Args:
        groups: Worst first.
        columns: How wide a line may be.
        lines: How many there may be; the best phases are left out first.
        glyphs: What cells are made of.
    """
    total = sum(group.size for group in groups)
    room = max(8, min(60, columns // 3))
    per_cell = _per_cell(total, room)
    heads = [
        _row(group, groups, columns=columns, per_cell=per_cell, glyphs=glyphs)
        for group in groups[:lines]
    ]
    left = lines - len(heads)
    found: list[Text] = []
    for group, head in zip(groups, heads, strict=False):
        reasons = _reasons(group, columns, glyphs)[: max(0, left)]
        left -= len(reasons)
        found += [head, *reasons]
    if per_cell > 1 and left > 0:
        found.append(Text(f"  {glyphs.cell} is {per_cell} nodes", style="dim"))
    return found


def _per_cell(total: int, room: int) -> int:
    scale = 1
    while True:
        for step in _SCALES:
            if total <= room * step * scale:
                return step * scale
        scale *= 10


def _cells(group: Group, per_cell: int) -> int:
    return -(-group.size // per_cell)


def _row(
    group: Group, groups: Sequence[Group], *, columns: int, per_cell: int, glyphs: Glyphs
) -> Text:
    width = max(len(str(each.size)) for each in groups)
    word = max(len(each.phase) for each in groups)
    cells = max(_cells(each, per_cell) for each in groups)
    row = Text(f"  {group.phase.ljust(word)}  {group.size:>{width}}  ")
    row.stylize(style_of(group.phase), 2, 2 + len(group.phase))
    row.append((glyphs.cell * _cells(group, per_cell)).ljust(cells), style=style_of(group.phase))
    row.append("  ").append(_names(group, columns - row.cell_len - 2))
    row.rstrip()
    return cut(row, columns, glyphs)


def _names(group: Group, columns: int) -> str:
    """Return the names if they fit, else the first of those that matter and how many more."""
    names = [named.node for named in group.named]
    whole = ", ".join(names)
    if len(names) == group.size and len(whole) <= columns:
        return whole
    if group.phase in _WELL or not names:
        return ""
    for shown in range(len(names) - 1, 0, -1):
        text = f"{', '.join(names[:shown])} and {group.size - shown} more"
        if len(text) <= columns:
            return text
    return ""


def _reasons(group: Group, columns: int, glyphs: Glyphs) -> list[Text]:
    """Return a line for each thing that nodes say, with how many say it."""
    found: dict[str, list[str]] = {}
    for named in group.named:
        if named.reason:
            found.setdefault(named.reason, []).append(named.node)
    lines = []
    for reason, nodes in sorted(found.items(), key=lambda item: (-len(item[1]), item[0])):
        who = nodes[0] if len(nodes) == 1 else f"{nodes[0]} and {len(nodes) - 1} more"
        line = Text(f"    {who}: {reason}")
        lines.append(cut(line, columns, glyphs))
    return lines


def well(groups: Sequence[Group]) -> str:
    """Return how many of all are as they should be."""
    total = sum(group.size for group in groups)
    good = sum(group.size for group in groups if group.phase in _WELL)
    late = sum(group.size for group in groups if group.phase == HANDING_OVER)
    return f"{good} of {total} ready" + (f", {late} handing over" if late else "")

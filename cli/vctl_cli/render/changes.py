"""What changed between two scenes of a rollout, as lines: for logs, for CI, for programs.

Decisions come from the history, so none is skipped however fast they follow each other. Nodes that
change alike in one scene share a line, so that a large fleet stays readable.
"""

from datetime import datetime

import msgspec

from vctl_cli.follow import Scene
from vctl_plans.rollout import listed
from vctl_plans.status import ABSENT, HANDING_OVER, NO_ENGINE, STARTING, NodeStatus


class Change(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the tail."""

    kind: str  # decision, nodes, store
    service: str
    rollout: str
    phase: str = ""  # the rollout's; of kind nodes: theirs
    release: int = 0
    nodes: tuple[str, ...] = ()
    text: str = ""  # a decision's sentence, a node's reason


def changes(before: Scene | None, after: Scene) -> list[Change]:
    """Return what *after* has that *before* had not: what nodes did, then what it led to."""
    if before is None:
        return [*_store(None, after), *_decisions(None, after), *_nodes(None, after)]
    return [*_store(before, after), *_nodes(before, after), *_decisions(before, after)]


def _store(before: Scene | None, after: Scene) -> list[Change]:
    if after.is_live == (before.is_live if before else True):
        return []
    text = "etcd answers again" if after.is_live else "etcd is away: this is the last known state"
    return [_change(after, kind="store", text=text)]


def _decisions(before: Scene | None, after: Scene) -> list[Change]:
    known = {entry.seq for entry in before.entries} if before else set()
    return [
        _change(after, kind="decision", phase=entry.phase.value, text=entry.sentence)
        for entry in after.entries
        if entry.seq not in known
    ]


def _nodes(before: Scene | None, after: Scene) -> list[Change]:
    target = after.rollout.back_to or after.rollout.to_release
    was = {n.node: _said(n, target) for n in before.nodes} if before else {}
    groups: dict[tuple[str, str], list[str]] = {}
    for node in after.nodes:
        said = _said(node, target)
        if said != was.get(node.node, ("absent", "")):
            groups.setdefault(said, []).append(node.node)
    return [
        _change(after, kind="nodes", nodes=tuple(names), release=target, phase=phase, text=reason)
        for (phase, reason), names in groups.items()
    ]


def _said(node: NodeStatus, target: int) -> tuple[str, str]:
    """Return the phase and reason that a node gives for the release that matters now."""
    found = [r for r in node.releases if r.release == target]
    if not found or node.phase in {ABSENT, STARTING, NO_ENGINE, HANDING_OVER}:
        return node.phase, node.reason
    return found[0].phase, found[0].reason


def _change(scene: Scene, **fields: object) -> Change:
    return Change(service=scene.rollout.service, rollout=scene.rollout.id, **fields)  # type: ignore[arg-type]


def change_text(change: Change, now: datetime) -> str:
    """Return a change as one plain line with its time."""
    if change.kind == "nodes":
        reason = f": {change.text}" if change.text else ""
        what = f"release {change.release} {change.phase}{reason}"
        return f"{now:%H:%M:%S}  {listed(change.nodes)}: {what}"
    is_said = change.text.startswith(change.phase.replace("_", " ") or " ")
    prefix = "" if is_said else f"{change.phase or change.kind}: "
    return f"{now:%H:%M:%S}  {prefix}{change.text}"

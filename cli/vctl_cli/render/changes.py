"""What changed from scene to scene of a rollout, as lines: for logs, for CI, for programs.

Decisions come from the history, so none is skipped however fast they follow each other. Nodes that
change alike in one scene share a line, so that a large fleet stays readable.
"""

from datetime import datetime
from typing import NamedTuple

import msgspec

from vctl_cli.ending import has_ended
from vctl_cli.follow import Scene
from vctl_cli.render.screen import harmless
from vctl_plans.rollout import listed
from vctl_plans.status import HANDING_OVER, NO_ENGINE, STARTING, NodeStatus
from vctl_plans.summary import ServiceSummary

EARLIER = "earlier "
"""Stands where the time would, as wide."""


class Change(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the tail."""

    kind: str  # decision, nodes, store
    service: str
    rollout: str
    phase: str = ""  # the rollout's; of kind nodes: theirs
    release: int = 0
    nodes: tuple[str, ...] = ()  # of kind nodes; none: the text counts those of a large fleet
    text: str = ""  # a decision's sentence, a node's reason
    is_earlier: bool = False  # a decision from before whoever follows came


class Changes:
    """Compares each scene with all that was told before."""

    def __init__(self, since: int = 0) -> None:
        """*since* is the first decision that is news."""
        self._since = since
        self._seq = -1
        self._is_live = True
        self._nodes: dict[str, Said] = {}
        self._counted = ""
        self._is_first = True

    def next(self, scene: Scene) -> list[Change]:
        """Return what *scene* has that was not told: what nodes did, then what it led to.

        Of the first scene the decisions come first, unless one of them is the end: an end is last.
        """
        found = [*self._store(scene), *self._of_nodes(scene), *self._decisions(scene)]
        if self._is_first and not has_ended(scene.rollout):
            found.sort(key=lambda change: change.kind == "nodes")
        self._is_first = False
        return found

    def _store(self, scene: Scene) -> list[Change]:
        if scene.is_live == self._is_live:
            return []
        self._is_live = scene.is_live
        text = "etcd answers again" if scene.is_live else "etcd is away: the last known state"
        return [_change(scene, kind="store", text=text)]

    def _decisions(self, scene: Scene) -> list[Change]:
        new = [entry for entry in scene.entries if entry.seq > self._seq]
        self._seq = max((entry.seq for entry in new), default=self._seq)
        return [
            _change(
                scene,
                kind="decision",
                phase=e.phase.value,
                text=e.sentence,
                is_earlier=e.seq < self._since,
            )
            for e in new
        ]

    def _of_nodes(self, scene: Scene) -> list[Change]:
        if scene.counted:
            return self._of_counts(scene, scene.counted)
        target = scene.rollout.back_to or scene.rollout.to_release
        groups: dict[Said, list[str]] = {}
        for node in scene.nodes:
            if node.phase == HANDING_OVER:
                continue  # a gateway confirms after each change: *ready* is told once it is over
            said = word(node, target)
            if said != self._nodes.get(node.node, Said(target, "absent")):
                self._nodes[node.node] = said
                groups.setdefault(said, []).append(node.node)
        return [
            _change(scene, kind="nodes", nodes=tuple(names), **said._asdict())
            for said, names in groups.items()
        ]

    def _of_counts(self, scene: Scene, counted: ServiceSummary) -> list[Change]:
        """Return how the nodes of a large fleet stand, as the conductor counts them."""
        phases = sorted(counted.phases.items(), key=lambda item: (-item[1], item[0]))
        text = ", ".join(f"{count} {phase}" for phase, count in phases)
        if text == self._counted:
            return []
        self._counted = text
        return [_change(scene, kind="nodes", text=text)]


class Said(NamedTuple):
    """What a node says of the release that matters now."""

    release: int
    phase: str
    text: str = ""


def word(node: NodeStatus, target: int) -> Said:
    """Return what a node says of release *target*, or why it can say nothing."""
    if not node.is_present or node.phase in {STARTING, NO_ENGINE, HANDING_OVER}:
        return Said(target, node.phase, node.reason)
    found = [r for r in node.releases if r.release == target]
    return Said(target, found[0].phase, found[0].reason) if found else Said(target, "absent")


def _change(scene: Scene, **fields: object) -> Change:
    return Change(service=scene.rollout.service, rollout=scene.rollout.id, **fields)  # type: ignore[arg-type]


def change_text(change: Change, now: datetime) -> str:
    """Return a change as one plain line with its time, which of an earlier one is not known."""
    return harmless(_text(change, EARLIER if change.is_earlier else f"{now:%H:%M:%S}"))


def _text(change: Change, time: str) -> str:
    if change.kind == "nodes" and not change.nodes:
        return f"{time}  nodes: {change.text}"
    if change.kind == "nodes":
        reason = f": {change.text}" if change.text else ""
        is_of_node = change.phase in {STARTING, NO_ENGINE}  # whatever the release
        what = f"{'' if is_of_node else f'release {change.release} '}{change.phase}{reason}"
        return f"{time}  {listed(change.nodes)}: {what}"
    is_said = change.text.startswith(change.phase.replace("_", " ") or " ")
    prefix = "" if is_said else f"{change.phase or change.kind}: "
    return f"{time}  {prefix}{change.text}"

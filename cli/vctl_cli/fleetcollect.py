"""Every node removes the artifacts that nothing needs, and says in its report what went.

A node that is present and does not answer is named, and so is one that could not tell what it
needs: it removed nothing.
"""

from collections.abc import Callable, Collection, Mapping

import msgspec

from vctl_cli.asking import ask_nodes, present_nodes
from vctl_cli.exitcodes import ExitCode
from vctl_plans.errors import PlanError
from vctl_plans.inspection import Collected, CollectRequest
from vctl_plans.keys import Keys
from vctl_plans.names import suggestion
from vctl_plans.node import NodeReport
from vctl_plans.operate import Request
from vctl_plans.phase import Component
from vctl_plans.rollout import listed
from vctl_plans.snapshot import Fleet, read_services
from vctl_plans.store.port import Store
from vctl_plans.units import bytes_text

_SHOWN = 10
_SHOWN_ROOT = 15  # b3: and 12 of its digits


class Removed(msgspec.Struct, frozen=True, kw_only=True):
    """An artifact that went, or would go."""

    root: str
    what: str  # the newest release that it is of, as in ``release 3 of support``


class NodeCollection(msgspec.Struct, frozen=True, kw_only=True):
    """What one node removed."""

    node: str
    count: int
    removed: tuple[Removed, ...]  # the first of them
    freed_bytes: int
    kept: int
    reasons: dict[str, int]  # why what stays does
    problem: str  # why nothing went


class FleetCollection(msgspec.Struct, frozen=True, kw_only=True):
    """What all nodes removed."""

    request: str
    is_dry: bool
    nodes: tuple[NodeCollection, ...]
    unconfirmed: tuple[str, ...]  # present, and did not answer

    @property
    def exit_code(self) -> ExitCode:
        """How it ended: not well where a node did not answer, or could not tell what it needs."""
        is_done = not self.unconfirmed and not any(node.problem for node in self.nodes)
        return ExitCode.DONE if is_done else ExitCode.UNCONFIRMED


async def collect_fleet(
    store: Store,
    keys: Keys,
    *,
    nodes: Collection[str],
    is_dry: bool,
    request: Request,
    timeout_s: float | None,
    tell: Callable[[NodeCollection], None],
) -> FleetCollection:
    """Ask nodes that are present, and wait for their answers.

    Args:
        store: Where to ask.
        keys: The fleet's keys.
        nodes: Whom to ask; empty: all.
        is_dry: Only have them say what would go.
        request: Who asks.
        timeout_s: How long to wait for answers; None: until all have come.
        tell: Given each node's answer as it comes.

    Raises:
        PlanError: No node is present, or one that was named is not.
    """
    present = await present_nodes(store, keys)
    for name in nodes:
        if name not in present:
            hint = suggestion(name, present)
            raise PlanError(f"node {name!r} is not present", path="NODE", hint=hint)
    asked = set(nodes) or present
    named = _named(read_services(keys, (await store.list(keys.services)).entries))
    found = await ask_nodes(
        store,
        keys,
        CollectRequest(
            id=request.id, nodes=tuple(sorted(set(nodes))), is_dry=is_dry, by=request.by
        ),
        nodes=asked,
        answer=lambda report: _answer(report, request.id),
        timeout_s=timeout_s,
        tell=lambda node, answer: tell(_collection(node, answer, named)),
    )
    return FleetCollection(
        request=request.id,
        is_dry=is_dry,
        nodes=tuple(_collection(node, found[node], named) for node in sorted(found)),
        unconfirmed=tuple(sorted(asked - set(found))),
    )


def _answer(report: NodeReport, request: str) -> Collected | None:
    return next((each for each in report.collected if each.request == request), None)


def _named(fleet: Fleet) -> dict[str, str]:
    """Return the newest release that each root is of, in words."""
    return {
        made.root: f"release {number} of {service.name}{_part(component)}"
        for service in fleet.services.values()
        for number, release in sorted(service.releases.items())
        for component, made in release.components.items()
    }


def _part(component: Component) -> str:
    return "" if component is Component.ADAPTER else f" ({component})"


def _collection(node: str, answer: Collected, named: Mapping[str, str]) -> NodeCollection:
    return NodeCollection(
        node=node,
        count=answer.count,
        removed=tuple(
            Removed(root=root, what=named.get(root, "no release")) for root in answer.removed
        ),
        freed_bytes=answer.freed_bytes,
        kept=answer.kept,
        reasons=answer.reasons,
        problem=answer.problem,
    )


def node_text(node: NodeCollection, *, is_dry: bool) -> str:
    """Return one node's lines: what goes is named below."""
    stays = ", ".join(f"{count} {why}" for why, count in sorted(node.reasons.items()))
    rest = f"{node.kept} {'stays' if node.kept == 1 else 'stay'}{f': {stays}' if stays else ''}"
    if node.problem:
        return f"{node.node}: nothing goes: {node.problem}"
    if not node.count and not node.freed_bytes:
        return f"{node.node}: nothing to remove; {rest}"
    done = "would remove" if is_dry else "removed"
    what = f"{done} {_artifacts(node.count)}, {bytes_text(node.freed_bytes)}"
    lines = [f"  {each.root[:_SHOWN_ROOT]}  {each.what}" for each in node.removed[:_SHOWN]]
    more = node.count - len(lines)
    return "\n".join(
        [f"{node.node}: {what}; {rest}", *lines, *([f"  {more} more"] if more else [])]
    )


def verdict_text(view: FleetCollection) -> str:
    """Return the last line."""
    count = sum(node.count for node in view.nodes)
    freed = bytes_text(sum(node.freed_bytes for node in view.nodes))
    done = "would be removed" if view.is_dry else "removed"
    good = sum(1 for node in view.nodes if not node.problem)
    asked = len(view.nodes) + len(view.unconfirmed)
    missing = f"; unconfirmed: {listed(view.unconfirmed)}" if view.unconfirmed else ""
    return f"{_artifacts(count)} {done}, {freed} ({good}/{asked} nodes){missing}"


def _artifacts(count: int) -> str:
    return "1 artifact" if count == 1 else f"{count} artifacts"

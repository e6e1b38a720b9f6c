"""Every node hashes again what it serves from, and says so in its report.

A node that is present and does not answer is named; nothing passes for verified that was not.
"""

from collections.abc import Callable

import msgspec

from vctl_cli.asking import ask_nodes, present_nodes
from vctl_cli.exitcodes import ExitCode
from vctl_cli.render.stages import Stage
from vctl_plans.inspection import Checks, VerifyRequest
from vctl_plans.keys import Keys
from vctl_plans.node import NodeReport
from vctl_plans.operate import Request
from vctl_plans.rollout import listed
from vctl_plans.store.port import Store
from vctl_plans.units import bytes_text


class NodeVerification(msgspec.Struct, frozen=True, kw_only=True):
    """What one node found."""

    node: str
    artifacts: int
    size_bytes: int
    problems: tuple[str, ...]


class FleetVerification(msgspec.Struct, frozen=True, kw_only=True):
    """What all nodes found."""

    request: str
    nodes: tuple[NodeVerification, ...]
    unconfirmed: tuple[str, ...]  # present, and did not answer

    @property
    def exit_code(self) -> ExitCode:
        """How it ended: a difference outweighs a node that did not answer."""
        if any(node.problems for node in self.nodes):
            return ExitCode.FAILED
        return ExitCode.UNCONFIRMED if self.unconfirmed else ExitCode.DONE


async def verify_fleet(
    store: Store,
    keys: Keys,
    *,
    service: str,
    request: Request,
    timeout_s: float | None,
    tell: Callable[[NodeVerification], None],
) -> FleetVerification:
    """Ask all nodes that are present, and wait for their answers.

    Args:
        store: Where to ask.
        keys: The fleet's keys.
        service: Whose artifacts; empty for all.
        request: Who asks.
        timeout_s: How long to wait for answers; None: until all have come.
        tell: Given each node's answer as it comes.

    Raises:
        PlanError: No node is present.
    """
    present = await present_nodes(store, keys)
    found = await ask_nodes(
        store,
        keys,
        VerifyRequest(id=request.id, service=service, by=request.by),
        nodes=present,
        answer=lambda report: _answer(report, request.id),
        timeout_s=timeout_s,
        tell=lambda node, answer: tell(_verification(node, answer)),
    )
    return FleetVerification(
        request=request.id,
        nodes=tuple(_verification(node, found[node]) for node in sorted(found)),
        unconfirmed=tuple(sorted(present - set(found))),
    )


def _answer(report: NodeReport, request: str) -> Checks | None:
    return next((checks for checks in report.checks if checks.request == request), None)


def _verification(node: str, answer: Checks) -> NodeVerification:
    return NodeVerification(
        node=node,
        artifacts=len(answer.found),
        size_bytes=sum(found.size_bytes for found in answer.found),
        problems=tuple(found.problem_text for found in answer.found if not found.is_good),
    )


def node_text(node: NodeVerification) -> str:
    """Return one node's line; each problem has its own."""
    size = f"{node.artifacts} artifacts, {bytes_text(node.size_bytes)}"
    if not node.problems:
        return f"{node.node}: verified, {size}"
    return "\n".join(f"{node.node}: differs: {problem}" for problem in node.problems)


def node_stages(view: FleetVerification) -> tuple[Stage, ...]:
    """Return a stage for each node that was asked."""
    found = [
        Stage(node.node, "failed" if node.problems else "passed", "; ".join(node.problems))
        for node in view.nodes
    ]
    return (*found, *(Stage(node, "error", "did not answer in time") for node in view.unconfirmed))


def verdict_text(view: FleetVerification) -> str:
    """Return the last line."""
    asked = len(view.nodes) + len(view.unconfirmed)
    good = sum(1 for node in view.nodes if not node.problems)
    missing = f"; unconfirmed: {listed(view.unconfirmed)}" if view.unconfirmed else ""
    return f"verified ({good}/{asked}){missing}"

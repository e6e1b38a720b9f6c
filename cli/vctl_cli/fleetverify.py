"""Every node hashes again what it serves from, and says so in its report.

The request is a key under this command's lease: it goes with the command, however that ends, and
with it the answers. A node that is present and does not answer is named; nothing passes for
verified that was not.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing

import msgspec

from vctl_cli.exitcodes import ExitCode
from vctl_plans.codec import encode
from vctl_plans.errors import PlanError
from vctl_plans.inspection import Checks, VerifyRequest
from vctl_plans.keys import Keys
from vctl_plans.node import NodeReport
from vctl_plans.operate import Request
from vctl_plans.rollout import listed
from vctl_plans.snapshot import read_nodes
from vctl_plans.store.port import Store
from vctl_plans.units import bytes_text

LEASE_TTL_S = 30.0


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
    present = {e.key.removeprefix(keys.nodes) for e in (await store.list(keys.nodes)).entries}
    if not present:
        raise PlanError("no node is present", path="fleet", hint="see vctl status")
    lease = await store.grant(LEASE_TTL_S)
    found: dict[str, NodeVerification] = {}
    try:
        asked = VerifyRequest(id=request.id, service=service, by=request.by)
        await store.put(keys.request(request.id), encode(asked), lease_id=lease.id)
        async with asyncio.timeout(timeout_s):
            await _collect(store, keys, request.id, present, found, tell)
    except TimeoutError:
        pass  # who has not answered is named
    finally:
        await lease.revoke()
    return FleetVerification(
        request=request.id,
        nodes=tuple(found[node] for node in sorted(found)),
        unconfirmed=tuple(sorted(present - set(found))),
    )


async def _collect(
    store: Store,
    keys: Keys,
    request: str,
    present: set[str],
    found: dict[str, NodeVerification],
    tell: Callable[[NodeVerification], None],
) -> None:
    async with aclosing(store.watch(keys.reports)) as updates:  # type: ignore[type-var]
        async for update in updates:
            reports = read_nodes(keys, (), update.entries.values()).reports
            for node, answer in sorted(_answers(reports, request).items()):
                if node in present and node not in found:
                    found[node] = _verification(node, answer)
                    tell(found[node])
            if len(found) == len(present):
                return


def _answers(reports: Mapping[str, NodeReport], request: str) -> dict[str, Checks]:
    return {
        node: checks
        for node, report in reports.items()
        for checks in report.checks
        if checks.request == request
    }


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


def verdict_text(view: FleetVerification) -> str:
    """Return the last line."""
    asked = len(view.nodes) + len(view.unconfirmed)
    good = sum(1 for node in view.nodes if not node.problems)
    missing = f"; unconfirmed: {listed(view.unconfirmed)}" if view.unconfirmed else ""
    return f"verified ({good}/{asked}){missing}"

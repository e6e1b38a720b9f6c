"""Taking a node out of service and back: the request's key, and the node's own word on it."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing

import msgspec

from vctl_cli.commands.nodes import known
from vctl_cli.deciding import repeated
from vctl_plans.codec import decode, encode
from vctl_plans.errors import Conflict, Indeterminate
from vctl_plans.inspection import Drained, DrainPhase, DrainRequest, drain_id
from vctl_plans.keys import Keys
from vctl_plans.node import NodeReport
from vctl_plans.operate import Request
from vctl_plans.snapshot import Fleet, read_nodes
from vctl_plans.store.port import CreateRevisionIs, Delete, ModRevisionIs, Put, Store, Txn


class DrainView(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a request to drain a node, or to end that."""

    node: str
    is_asked: bool  # a drain stands
    is_new: bool  # this command wrote it
    is_done: bool  # the node said so
    phase: str  # of the drain, as the node says; empty: it has not answered, or it is over
    sentence: str


async def ask(store: Store, keys: Keys, node: str, request: Request) -> bool:
    """Write the request, unless one stands; return whether it was written by this command.

    Raises:
        PlanError: There is no such node.
    """
    known(await read(store, keys), (node,))
    key = keys.request(drain_id(node))
    wanted = encode(
        DrainRequest(id=drain_id(node), nodes=(node,), by=request.by, reason=request.reason)
    )

    async def once() -> bool:
        if await store.get(key):
            return False
        try:
            await store.commit(Txn((CreateRevisionIs(key, 0),), (Put(key, wanted),)))
        except Indeterminate as cause:
            held = await store.get(key)
            if held is None:
                raise Conflict("the drain was not written") from cause
            return held.value == wanted
        return True

    return await repeated(once)


async def end(store: Store, keys: Keys, node: str) -> bool:
    """Remove the request; return whether there was one.

    Raises:
        PlanError: There is no such node, and no request for one either.
    """
    key = keys.request(drain_id(node))

    async def once() -> bool:
        held = await store.get(key)
        if held is None:
            return False
        try:
            await store.commit(Txn((ModRevisionIs(key, held.mod_revision),), (Delete(key),)))
        except Indeterminate:  # whoever removed it, it is to be gone
            return await once()
        return True

    was_there = await repeated(once)
    if not was_there:
        known(await read(store, keys), (node,))
    return was_there


async def read(store: Store, keys: Keys) -> Fleet:
    """Return the nodes."""
    records, reports = await asyncio.gather(store.list(keys.nodes), store.list(keys.reports))
    return read_nodes(keys, records.entries, reports.entries)


async def asked(store: Store, keys: Keys, node: str) -> DrainRequest | None:
    """Return the request that stands."""
    held = await store.get(keys.request(drain_id(node)))
    return decode(held.value, DrainRequest, key=held.key) if held else None


async def follow(
    store: Store,
    keys: Keys,
    node: str,
    *,
    is_over: Callable[[NodeReport], bool],
    tell: Callable[[Drained | None], None],
    timeout_s: float | None,
) -> NodeReport | None:
    """Follow what the node says until *is_over*; return its last word, None when it said nothing.

    Raises:
        TimeoutError: It took longer than *timeout_s*.
    """
    last: NodeReport | None = None
    told: Drained | None = None
    async with asyncio.timeout(timeout_s):
        async with aclosing(store.watch(keys.report(node))) as updates:  # type: ignore[type-var]
            async for update in updates:
                held = update.entries.get(keys.report(node))
                if held is None or not update.is_live:
                    continue
                last = decode(held.value, NodeReport, key=held.key)
                if last.drain != told:
                    told = last.drain
                    tell(told)
                if is_over(last):
                    return last
    return last


def is_drained(report: NodeReport) -> bool:
    """Whether the node takes no request, and has none in flight."""
    return report.drain is not None and report.drain.phase is DrainPhase.DRAINED


def is_back(report: NodeReport) -> bool:
    """Whether the node is in service, and its gateway acts on that."""
    return report.drain is None and report.gateway_ok

"""Asking nodes for something that only they can do, and waiting for their answers.

The request is a key under this command's lease: it goes with the command, however that ends, and
with it the answers in the reports. Who is asked and does not answer is left for the caller to name.
"""

import asyncio
from collections.abc import Callable, Collection
from contextlib import aclosing
from typing import TypeVar

from vctl_plans.codec import encode
from vctl_plans.errors import PlanError
from vctl_plans.inspection import NodeRequest
from vctl_plans.keys import Keys
from vctl_plans.node import NodeReport
from vctl_plans.snapshot import read_nodes
from vctl_plans.store.port import Store

LEASE_TTL_S = 30.0

T = TypeVar("T")


async def present_nodes(store: Store, keys: Keys) -> set[str]:
    """Return the names of the nodes that are present.

    Raises:
        PlanError: None is.
    """
    present = {e.key.removeprefix(keys.nodes) for e in (await store.list(keys.nodes)).entries}
    if not present:
        raise PlanError("no node is present", path="fleet", hint="see vctl status")
    return present


async def ask_nodes(
    store: Store,
    keys: Keys,
    request: NodeRequest,
    *,
    nodes: Collection[str],
    answer: Callable[[NodeReport], T | None],
    timeout_s: float | None,
    tell: Callable[[str, T], None] = lambda _node, _answer: None,
) -> dict[str, T]:
    """Ask, and return the answers by node; those that are missing did not come in time.

    Args:
        store: Where to ask.
        keys: The fleet's keys.
        request: What to ask.
        nodes: Whose answers to wait for.
        answer: Finds the answer in a report; None: it is not there yet.
        timeout_s: How long to wait; None: until all have come.
        tell: Given each answer as it comes.
    """
    found: dict[str, T] = {}
    lease = await store.grant(LEASE_TTL_S)
    try:
        await store.put(keys.request(request.id), encode(request), lease_id=lease.id)
        async with asyncio.timeout(timeout_s):
            async with aclosing(store.watch(keys.reports)) as updates:  # type: ignore[type-var]
                async for update in updates:
                    reports = read_nodes(keys, (), update.entries.values()).reports
                    for node in sorted(set(nodes) - set(found)):
                        said = answer(reports[node]) if node in reports else None
                        if said is not None:
                            found[node] = said
                            tell(node, said)
                    if len(found) == len(nodes):
                        break
    except TimeoutError:
        pass  # who has not answered is missing
    finally:
        await lease.revoke()
    return found

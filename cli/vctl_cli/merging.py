"""Several watches as one: the newest state of each prefix, whenever one of them has changed."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

from vctl_plans.store.port import Store, Update

TOGETHER_S = 0.03
"""Changes within this time are shown as one: calmer to read, and nobody reads faster."""


async def merged(store: Store, prefixes: Sequence[str]) -> AsyncGenerator[list[Update]]:
    """Yield the state under each prefix, in their order, once all are known and after each change.

    Each watch is a stream of its own: what one transaction wrote under two prefixes may be seen
    in two steps.

    Raises:
        StoreError: A watch ended for good.
    """
    seen: dict[str, Update] = {}
    changed = asyncio.Event()
    pumps = [asyncio.create_task(_pump(store, p, seen, changed)) for p in prefixes]
    try:
        while True:
            await _next_change(changed, pumps)
            await asyncio.sleep(TOGETHER_S)
            changed.clear()
            if len(seen) == len(prefixes):
                yield [seen[prefix] for prefix in prefixes]
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


async def _pump(store: Store, prefix: str, seen: dict[str, Update], changed: asyncio.Event) -> None:
    async for update in store.watch(prefix):
        if update.is_live or prefix in seen:
            seen[prefix] = update
            changed.set()


async def _next_change(changed: asyncio.Event, pumps: list[asyncio.Task[None]]) -> None:
    """Wait for a change; a watch that ended raises here what ended it."""
    waiting = asyncio.create_task(changed.wait())
    try:
        await asyncio.wait({waiting, *pumps}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    for pump in pumps:
        if pump.done():
            pump.result()

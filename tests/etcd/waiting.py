"""Waiting with a deadline, for tests of things that take their time."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from vctl_plans.store.port import Update


async def eventually(
    check: Callable[[], Awaitable[bool]], what: str, *, timeout_s: float = 10.0
) -> float:
    """Wait until *check* is true; return the seconds it took."""
    start = time.monotonic()
    while not await check():
        assert time.monotonic() - start < timeout_s, f"not in {timeout_s} s: {what}"
        await asyncio.sleep(0.02)
    return time.monotonic() - start


async def next_update(updates: AsyncIterator[Update], *, timeout_s: float = 10.0) -> Update:
    """Return the next update of a watch."""
    async with asyncio.timeout(timeout_s):
        return await anext(updates)


async def update_where(
    updates: AsyncIterator[Update],
    is_wanted: Callable[[Update], bool],
    *,
    timeout_s: float = 10.0,
) -> Update:
    """Return the first update that *is_wanted*; all before it must not go back in revision."""
    seen: list[Update] = []
    try:
        async with asyncio.timeout(timeout_s):
            async for update in updates:
                assert not seen or update.revision >= seen[-1].revision
                seen.append(update)
                if is_wanted(update):
                    return update
    except TimeoutError:
        pass
    last = f"{seen[-1].revision}, {seen[-1].is_live}" if seen else "none"
    raise AssertionError(f"no such update in {timeout_s} s; {len(seen)} came, the last: {last}")

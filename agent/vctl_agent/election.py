"""Who conducts: one key under a lease. Its create_revision fences every write of the term.

An election does not make a single leader, only a single one whose writes count (Kubernetes'
client-go says so of its own): a holder that was stopped and wakes up after its lease ended still
believes that it leads. So each of its transactions compares the key's create_revision, and a term
ends on the local clock before others can see the lease gone.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import structlog

from vctl_plans.errors import Conflict, Indeterminate, LeaseLost, StoreError
from vctl_plans.keys import Keys
from vctl_plans.store.port import CreateRevisionIs, Lease, Put, Store, Txn

_RETRY_S = 1.0

_log = structlog.get_logger(__name__)

Conduct = Callable[[int], Awaitable[None]]
"""What a term consists of; given the fencing revision, and cancelled when the term ends."""


async def stand(
    store: Store, keys: Keys, *, candidate: str, ttl_s: float, conduct: Conduct
) -> None:
    """Stand for election for ever, and conduct while elected.

    The next term begins only after *conduct* has ended; the key is given up after that too.

    Args:
        store: The store.
        keys: The fleet's keys.
        candidate: Name and boot id, for people to read.
        ttl_s: How long a conductor that died stays in office, in seconds.
        conduct: The work.
    """
    while True:
        try:
            await _wait_vacant(store, keys)
            lease = await store.grant(ttl_s)
        except StoreError as cause:
            _log.warning("no election", cause=cause.message)
            await asyncio.sleep(_RETRY_S)
            continue
        pause_s = _RETRY_S / 10
        try:
            fence = await _win(store, keys, lease, candidate)
            if fence:
                _log.info("elected conductor", fence=fence)
                await _serve(lease, conduct, fence)
        except* StoreError as causes:
            _log.warning("term ended", causes=[str(cause) for cause in causes.exceptions])
            pause_s = _RETRY_S
        finally:
            with contextlib.suppress(StoreError):
                await lease.revoke()
        await asyncio.sleep(pause_s)


async def _wait_vacant(store: Store, keys: Keys) -> None:
    async with contextlib.aclosing(store.watch(keys.conductor)) as updates:  # type: ignore[type-var]
        async for update in updates:
            if update.is_live and keys.conductor not in update.entries:
                return


async def _win(store: Store, keys: Keys, lease: Lease, candidate: str) -> int:
    """Return the fencing revision, or 0 when another was faster."""
    txn = Txn(
        (CreateRevisionIs(keys.conductor, 0),),
        (Put(keys.conductor, candidate.encode(), lease_id=lease.id),),
    )
    try:
        return await store.commit(txn)
    except Conflict:
        return 0
    except Indeterminate:
        found = await store.get(keys.conductor)
        return found.create_revision if found and found.lease_id == lease.id else 0


async def _serve(lease: Lease, conduct: Conduct, fence: int) -> None:
    work = asyncio.ensure_future(conduct(fence))
    lost = asyncio.create_task(lease.wait_lost())
    try:
        await asyncio.wait({work, lost}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise LeaseLost("the conductor's lease ended")
        await work
    finally:
        for task in (work, lost):
            task.cancel()
        await asyncio.gather(work, lost, return_exceptions=True)

"""`EtcdStore`: the port over etcd's gRPC.

Only the generated messages and stubs of `etcd3` (python3-etcd3) are used. Its client is not: its
watch dies silently when a server restarts, it calls an endpoint dead for 300 s after one timeout,
and it can't send a password without TLS. What stands here instead lies beside this file:
`connection` (calls and streams), `watch`, `lease`, `reads`, each with the one rule it keeps.

Importing this costs about 150 ms (gRPC); what only reads can use `gateway`.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator

from vctl_plans.errors import Conflict, StoreUnavailable
from vctl_plans.store.connection import Connection
from vctl_plans.store.feed import Feed
from vctl_plans.store.guard import Fingerprint
from vctl_plans.store.lease import EtcdLease
from vctl_plans.store.limits import check_key, check_put, check_txn
from vctl_plans.store.messages import GRANT, PUT, TXN, grant_request, put_request, txn_request
from vctl_plans.store.port import KeyValue, Listing, Put, Txn, Update
from vctl_plans.store.reads import get_key, list_prefix
from vctl_plans.store.settings import StoreSettings
from vctl_plans.store.watch import Follower, Patience


def open_store(settings: StoreSettings, *, known: Fingerprint | None = None) -> "EtcdStore":
    """Return a store for *settings*; it connects when it is first used.

    Args:
        settings: Endpoints, certificates, user, time limit.
        known: The cluster as an earlier process knew it.
    """
    return EtcdStore(settings, known=known)


class EtcdStore:
    """A `Store` on an etcd cluster; to be used by the event loop and process that made it.

    Once it has raised `RestoredBackup` it does so for ever: a new store takes the cluster as it is.

    Args:
        settings: Endpoints, certificates, user, time limit.
        patience: How long a watch may be silent before it counts as broken.
        known: `fingerprint` of an earlier process, to notice a restore between the two.
    """

    def __init__(
        self,
        settings: StoreSettings,
        *,
        patience: Patience | None = None,
        known: Fingerprint | None = None,
    ) -> None:
        self._connection = Connection(settings, known)
        self._patience = patience or Patience()
        self._followers: dict[asyncio.Task[None], Feed] = {}
        self._leases: list[EtcdLease] = []

    @property
    def fingerprint(self) -> Fingerprint:
        """The cluster as it is known now, for the next process to start from."""
        return self._connection.guard.fingerprint

    def overdue_s(self) -> float:
        """Return for how long a watch has been silent beyond its patience; 0 while all are heard.

        It is so at once after the process was stopped for a while, before the watch itself notices.
        """
        now = time.monotonic()
        oldest = min((feed.heard_at for feed in self._followers.values()), default=now)
        return max(0.0, now - oldest - self._patience.longest_s)

    async def get(self, key: str) -> KeyValue | None:
        """Read one key, linearizably."""
        check_key(key)
        return await get_key(self._connection, key)

    async def list(self, prefix: str) -> Listing:
        """Read all keys under *prefix* at one revision, in pages."""
        return await list_prefix(self._connection, prefix)

    async def put(self, key: str, value: bytes, *, lease_id: int = 0) -> int:
        """Write one key whatever it held; return the revision. Repeating it is harmless."""
        check_put(key, value)
        answer = await self._connection.call(PUT, put_request(Put(key, value, lease_id)))
        return int(answer.header.revision)

    async def commit(self, txn: Txn) -> int:
        """Carry out a transaction; return the revision at which it was applied."""
        check_txn(txn)
        answer = await self._connection.call(TXN, txn_request(txn))
        if not answer.succeeded:
            keys = ", ".join(comparison.key for comparison in txn.comparisons)
            raise Conflict(f"something has changed meanwhile (compared: {keys})")
        return int(answer.header.revision)

    async def watch(self, prefix: str) -> AsyncIterator[Update]:
        """Yield the state under *prefix* now and after every change, for ever."""
        self._connection.check_usable()
        feed = Feed()
        follower = Follower(self._connection, feed, prefix, self._patience)
        task = asyncio.get_running_loop().create_task(follower.run())
        self._followers[task] = feed
        task.add_done_callback(self._followers.pop)
        try:
            async for update in feed.updates():
                yield update
        finally:
            task.cancel()

    async def grant(self, ttl_s: float) -> EtcdLease:
        """Get a lease of *ttl_s* seconds (etcd: whole ones), kept alive until revoked or lost."""
        request = grant_request(max(1, math.ceil(ttl_s)))
        answer, sent_at = await self._connection.timed_call(GRANT, request)
        lease = EtcdLease(self._connection, answer.ID, ttl_s=float(answer.TTL), sent_at=sent_at)
        self._leases = [known for known in self._leases if not known.is_over] + [lease]
        return lease

    async def close(self) -> None:
        """Stop all background work and connections. Leases are left to run out."""
        followers = list(self._followers)
        for task in followers:
            self._followers[task].end(StoreUnavailable("the store is closed"))
            task.cancel()
        if followers:
            await asyncio.wait(followers)
        for lease in self._leases:
            await lease.stop()
        await self._connection.close()

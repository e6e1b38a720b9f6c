"""The fake store that ships beside the port: etcd's semantics, a clock of one's own, and faults.

A `MemoryStore` is one client. `peer()` makes another one of the same cluster, as a second process
would be, so that a test can cut one agent off while the conductor goes on. Every call gives way to
other tasks once, so that races which etcd would show can show here.

Faults are methods, and each stands for something seen on a real etcd: `disconnect` / `reconnect`
(a partition), `break_watches` (a restarted member), `lose_reply` (a connection that died after the
request), `fail_next`, `mark_restored`.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from vctl_plans.errors import Indeterminate, RestoredBackup, StoreError, StoreUnavailable
from vctl_plans.store.feed import Feed
from vctl_plans.store.limits import check_key, check_put, check_txn
from vctl_plans.store.memory_cluster import GrantedLease, MemoryCluster
from vctl_plans.store.port import KeyValue, Listing, Put, Txn, Update

_TIMER_SLACK_S = 0.01  # a loop's timer may fire a tick before the clock agrees


class MemoryLease:
    """A lease of a `MemoryStore`; renewed by magic while its store is connected."""

    def __init__(self, cluster: MemoryCluster, granted: GrantedLease) -> None:
        self._cluster = cluster
        self._granted = granted

    @property
    def id(self) -> int:
        """The id to put keys under."""
        return self._granted.id

    @property
    def ttl_s(self) -> float:
        """The time to live, in seconds."""
        return self._granted.ttl_s

    def valid_for_s(self) -> float:
        """Seconds that the lease certainly lives on."""
        return self._granted.valid_for_s()

    async def wait_lost(self) -> None:
        """Return when the lease is gone; see `MemoryStore.expire` for how time passes."""
        await self._granted.lost.wait()

    async def revoke(self) -> None:
        """End the lease now, with every key under it."""
        await asyncio.sleep(0)
        self._cluster.revoke(self.id)

    def keep(self) -> None:
        """Keep the lease alive (again)."""
        self._granted.keep()

    def stop_keepalive(self) -> None:
        """Fault: keep the lease alive no longer, so that it runs out after *ttl_s* on the clock."""
        self._granted.stop()
        with suppress(RuntimeError):  # no loop is running, so nobody waits
            loop = asyncio.get_running_loop()
            loop.call_later(self.ttl_s + _TIMER_SLACK_S, self._cluster.expire)


class MemoryStore:
    """One client of a cluster in memory.

    Args:
        clock: Seconds, for leases only. With a clock that a test moves by hand, call `expire` after
            moving it (every call to the store does so as well).
        cluster: The cluster to share; a new one if not given. `peer` is the short way.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, *, cluster: MemoryCluster | None = None
    ) -> None:
        self._cluster = cluster or MemoryCluster(clock)
        self._feeds: dict[Feed, str] = {}
        self._leases: list[MemoryLease] = []
        self._failures: deque[StoreError] = deque()
        self._lost_replies: deque[bool] = deque()  # True: applied all the same
        self._is_connected = True
        self._restored: RestoredBackup | None = None

    @property
    def is_connected(self) -> bool:
        """Whether calls reach the cluster."""
        return self._is_connected

    @property
    def revision(self) -> int:
        """The cluster's revision now."""
        return self._cluster.revision

    async def get(self, key: str) -> KeyValue | None:
        """Read one key."""
        check_key(key)
        await self._reach()
        return self._cluster.get(key)

    async def list(self, prefix: str) -> Listing:
        """Read all keys under *prefix*."""
        await self._reach()
        return self._cluster.listing(prefix)

    async def put(self, key: str, value: bytes, *, lease_id: int = 0) -> int:
        """Write one key whatever it held."""
        check_put(key, value)
        await self._reach()
        return self._cluster.apply(Txn(operations=(Put(key, value, lease_id),)))

    async def commit(self, txn: Txn) -> int:
        """Carry out a transaction."""
        check_txn(txn)
        await self._reach()
        if not self._lost_replies:
            return self._cluster.apply(txn)
        if self._lost_replies.popleft():
            self._cluster.apply(txn)
        raise Indeterminate("the reply was lost: the transaction may or may not have been applied")

    async def watch(self, prefix: str) -> AsyncIterator[Update]:
        """Yield the state under *prefix* now and after every change."""
        feed = Feed()
        self._feeds[feed] = prefix
        self._connect(feed)
        try:
            async for update in feed.updates():
                yield update
        finally:
            self._cluster.unsubscribe(feed)
            self._feeds.pop(feed, None)

    async def grant(self, ttl_s: float) -> MemoryLease:
        """Get a lease, kept alive while this store is connected."""
        await self._reach()
        lease = MemoryLease(self._cluster, self._cluster.grant(ttl_s))
        self._leases.append(lease)
        return lease

    async def close(self) -> None:
        """Leave the cluster; leases run out, watches end."""
        self.disconnect()
        for feed in self._feeds:
            feed.end(StoreUnavailable("the store is closed"))

    def peer(self) -> "MemoryStore":
        """Return another client of the same cluster, with faults of its own."""
        return MemoryStore(cluster=self._cluster)

    def expire(self) -> None:
        """Revoke, cluster-wide, the leases whose time has passed."""
        self._cluster.expire()

    def disconnect(self) -> None:
        """Fault: calls raise `StoreUnavailable`, watches say so, leases run out."""
        self._is_connected = False
        for lease in self._leases:
            lease.stop_keepalive()
        for feed in self._feeds:
            self._cluster.unsubscribe(feed)
            feed.lose()

    def reconnect(self) -> None:
        """End `disconnect`: watches list again, leases that still live are kept alive."""
        self._cluster.expire()
        self._is_connected = True
        for lease in self._leases:
            lease.keep()
        for feed in self._feeds:
            self._connect(feed)

    def break_watches(self) -> None:
        """Fault: every watch of this client breaks; it is live again once it has been read."""
        for feed in self._feeds:
            self._cluster.unsubscribe(feed)
            feed.lose()
        asyncio.get_running_loop().call_soon(self._connect_all)

    def lose_reply(self, *, is_applied: bool = True) -> None:
        """Fault: the next `commit` raises `Indeterminate`; each call counts for one more."""
        self._lost_replies.append(is_applied)

    def fail_next(self, error: StoreError) -> None:
        """Fault: the next call raises *error* and does nothing; each call counts for one more."""
        self._failures.append(error)

    def mark_restored(self) -> None:
        """Fault: the cluster is a restored backup, for all calls and watches from now on."""
        self._restored = RestoredBackup("the store is not the one that was known")
        for feed in self._feeds:
            feed.end(self._restored)

    async def _reach(self) -> None:
        await asyncio.sleep(0)
        self._cluster.expire()
        if self._restored is not None:
            raise self._restored
        if not self._is_connected:
            raise StoreUnavailable("the store cannot be reached (disconnected by the test)")
        if self._failures:
            raise self._failures.popleft()

    def _connect(self, feed: Feed) -> None:
        if self._restored is not None:
            feed.end(self._restored)
        elif self._is_connected:
            self._cluster.subscribe(feed, self._feeds[feed])
        else:
            feed.lose()

    def _connect_all(self) -> None:
        for feed in self._feeds:
            self._connect(feed)

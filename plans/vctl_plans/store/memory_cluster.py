"""The server half of `MemoryStore`: keys, revisions and leases, as etcd keeps them.

Several `MemoryStore`s (one per process that a test pretends to have) share one cluster. Nothing
here waits: every method happens at once, between two steps of the event loop, as a raft entry does.

The rules that tests rely on are etcd's: a transaction that writes has one revision for all that it
writes; one that deletes nothing and puts nothing leaves the revision alone; revoking a lease
deletes its keys in one revision.
"""

import asyncio
import itertools
from collections.abc import Callable

import msgspec

from vctl_plans.errors import Conflict, LeaseLost
from vctl_plans.store.feed import Feed
from vctl_plans.store.port import (
    Comparison,
    CreateRevisionIs,
    Delete,
    KeyValue,
    Listing,
    ModRevisionIs,
    Operation,
    Put,
    Txn,
)
from vctl_plans.store.ranges import encode_key

_FIRST_LEASE_ID = 0x1000


class GrantedLease:
    """A lease as the cluster sees it; kept alive by its holder until `stop`."""

    def __init__(self, lease_id: int, ttl_s: float, clock: Callable[[], float]) -> None:
        self.id = lease_id
        self.ttl_s = ttl_s
        self.lost = asyncio.Event()
        self._clock = clock
        self._deadline: float | None = None  # None: kept alive

    def keep(self) -> None:
        """Begin (again) to keep it alive."""
        self._deadline = None

    def stop(self) -> None:
        """Stop keeping it alive: it runs out *ttl_s* from now."""
        if self._deadline is None:
            self._deadline = self._clock() + self.ttl_s

    def valid_for_s(self) -> float:
        """Seconds that it lives on; negative when it is gone."""
        if self.lost.is_set():
            return -1.0
        return self.ttl_s if self._deadline is None else self._deadline - self._clock()


class MemoryCluster:
    """One key space with revisions, shared by the `MemoryStore`s that are its clients."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.revision = 1  # an empty etcd is at revision 1
        self._entries: dict[str, KeyValue] = {}
        self._leases: dict[int, GrantedLease] = {}
        self._lease_ids = itertools.count(_FIRST_LEASE_ID)
        self._feeds: dict[Feed, str] = {}

    def get(self, key: str) -> KeyValue | None:
        """Return one key as it is now."""
        return self._entries.get(key)

    def listing(self, prefix: str) -> Listing:
        """Return all keys under *prefix*, in etcd's order."""
        found = (entry for key, entry in self._entries.items() if key.startswith(prefix))
        return Listing(self.revision, tuple(sorted(found, key=lambda e: encode_key(e.key))))

    def apply(self, txn: Txn) -> int:
        """Carry out *txn*, or nothing of it.

        Raises:
            Conflict: A comparison failed.
            LeaseLost: A put names a lease that does not exist.
        """
        for comparison in txn.comparisons:
            if not self._holds(comparison):
                raise Conflict(f"{comparison.key} has changed ({comparison!r} does not hold)")
        for operation in txn.operations:
            if isinstance(operation, Put) and operation.lease_id:
                self._lease(operation.lease_id)
        effective = [op for op in txn.operations if isinstance(op, Put) or op.key in self._entries]
        if effective:
            self.revision += 1
        for operation in effective:
            self._carry_out(operation)
        return self.revision

    def grant(self, ttl_s: float) -> GrantedLease:
        """Create a lease."""
        lease = GrantedLease(next(self._lease_ids), ttl_s, self.clock)
        self._leases[lease.id] = lease
        return lease

    def revoke(self, lease_id: int) -> None:
        """End a lease and delete its keys; one that is gone already is no error."""
        lease = self._leases.pop(lease_id, None)
        if lease is None:
            return
        held = sorted(key for key, entry in self._entries.items() if entry.lease_id == lease_id)
        self.apply(Txn(operations=tuple(Delete(key) for key in held)))
        lease.lost.set()

    def expire(self) -> None:
        """Revoke every lease whose time has passed on the clock."""
        for lease in list(self._leases.values()):
            if lease.valid_for_s() <= 0:
                self.revoke(lease.id)

    def subscribe(self, feed: Feed, prefix: str) -> None:
        """List *prefix* into *feed*, then tell it every change."""
        self._feeds[feed] = prefix
        feed.relist(self.listing(prefix))

    def unsubscribe(self, feed: Feed) -> None:
        """Tell *feed* nothing more."""
        self._feeds.pop(feed, None)

    def _lease(self, lease_id: int) -> GrantedLease:
        try:
            return self._leases[lease_id]
        except KeyError as cause:
            raise LeaseLost(f"lease {lease_id:x} does not exist") from cause

    def _holds(self, comparison: Comparison) -> bool:
        entry = self._entries.get(comparison.key)
        if isinstance(comparison, ModRevisionIs):
            return (entry.mod_revision if entry else 0) == comparison.revision
        if isinstance(comparison, CreateRevisionIs):
            return (entry.create_revision if entry else 0) == comparison.revision
        return entry is not None and entry.value == comparison.value

    def _carry_out(self, operation: Operation) -> None:
        if isinstance(operation, Delete):
            del self._entries[operation.key]
            for feed in self._interested(operation.key):
                feed.delete(operation.key, self.revision)
            return
        entry = self._written(operation)
        self._entries[entry.key] = entry
        for feed in self._interested(entry.key):
            feed.write(entry)

    def _written(self, put: Put) -> KeyValue:
        before = self._entries.get(put.key)
        if before is None:
            return KeyValue(
                put.key, put.value, self.revision, self.revision, version=1, lease_id=put.lease_id
            )
        return msgspec.structs.replace(
            before,
            value=put.value,
            mod_revision=self.revision,
            version=before.version + 1,
            lease_id=put.lease_id,
        )

    def _interested(self, key: str) -> list[Feed]:
        return [feed for feed, prefix in self._feeds.items() if key.startswith(prefix)]

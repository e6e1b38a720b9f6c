"""What vctl asks of its store: revisions, transactions, leases, watches.

Two stores keep this contract, `memory.MemoryStore` and `etcd.EtcdStore`, and one suite
(`tests/etcd/test_contract.py`) holds them to it. Keys are text, values are bytes; order is the
store's revision and never a clock.

The hard decision is `watch`: it yields whole states, not events. A watch of etcd can end in many
ways (error, silence, cancel, compaction), and each of them may have lost events; so every end is
followed by a new listing, and the reader sees the difference. Readers are level-triggered.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Protocol

import msgspec

MAX_TXN_OPS = 128
"""Operations that one etcd transaction takes (``--max-txn-ops``)."""

MAX_REQUEST_BYTES = 1_572_864
"""Bytes that one etcd request takes (``--max-request-bytes``: 1.5 MiB)."""


class KeyValue(msgspec.Struct, frozen=True):
    """One key as the store holds it."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    version: int = 1  # writes since the key was created, 1 for the first
    lease_id: int = 0  # 0: held by no lease


class Listing(msgspec.Struct, frozen=True):
    """All keys under a prefix at one revision, in key order."""

    revision: int
    entries: tuple[KeyValue, ...]


class ModRevisionIs(msgspec.Struct, frozen=True):
    """The key was last written at *revision*; 0: it does not exist."""

    key: str
    revision: int


class CreateRevisionIs(msgspec.Struct, frozen=True):
    """The key was created at *revision*; 0: it does not exist. This is the fencing comparison."""

    key: str
    revision: int


class ValueIs(msgspec.Struct, frozen=True):
    """The key exists and holds *value*."""

    key: str
    value: bytes


Comparison = ModRevisionIs | CreateRevisionIs | ValueIs


class Put(msgspec.Struct, frozen=True):
    """Write a key; *lease_id* ties its life to a lease."""

    key: str
    value: bytes
    lease_id: int = 0


class Delete(msgspec.Struct, frozen=True):
    """Remove a key, if it is there."""

    key: str


Operation = Put | Delete


class Txn(msgspec.Struct, frozen=True):
    """Carry out all *operations*, in order, if all *comparisons* hold; else nothing.

    No key may be written twice in one transaction (etcd refuses it).
    """

    comparisons: tuple[Comparison, ...] = ()
    operations: tuple[Operation, ...] = ()


class Update(msgspec.Struct, frozen=True):
    """The state of a watched prefix, whole.

    Updates of one watch never go back in revision. What happened between two looks of the reader
    is one update: states may be skipped, the newest never is. `changed` names the keys that were
    written or deleted since the update before (in the first: all keys); it is empty when only
    `is_live` changed.
    """

    revision: int
    entries: Mapping[str, KeyValue]
    changed: frozenset[str]
    is_live: bool = True  # False: the stream broke, `entries` is the last that was known


class Lease(Protocol):
    """A lease that the store keeps alive in the background until it is revoked or lost."""

    @property
    def id(self) -> int:
        """The id to put keys under."""
        ...

    @property
    def ttl_s(self) -> float:
        """The time to live that the server granted, in seconds."""
        ...

    def valid_for_s(self) -> float:
        """Seconds that the lease certainly lives on; negative when it may be gone.

        Counted from the moment the last acknowledged keepalive was *sent*, on the local monotonic
        clock, so that the holder stops before others can see the lease gone.
        """
        ...

    async def wait_lost(self) -> None:
        """Return when the lease is gone, or can be gone as far as others can see."""
        ...

    async def revoke(self) -> None:
        """End the lease now, with every key under it; a lease already gone is no error."""
        ...


class Store(Protocol):
    """A key-value store with revisions. Every call has a deadline; none waits for ever.

    Raises, in all of its methods: `StoreUnavailable`, `Rejected`, `ForkedProcess`, and
    `RestoredBackup` when the cluster is not the one that was known or its revision went back.
    """

    async def get(self, key: str) -> KeyValue | None:
        """Read one key, linearizably."""
        ...

    async def list(self, prefix: str) -> Listing:
        """Read all keys under *prefix* at one revision, in pages."""
        ...

    async def put(self, key: str, value: bytes, *, lease_id: int = 0) -> int:
        """Write one key whatever it held; return the revision. Repeating it is harmless.

        Raises:
            Indeterminate: It was repeated until the time was spent, and may have been written.
            LeaseLost: No lease *lease_id* exists.
        """
        ...

    async def commit(self, txn: Txn) -> int:
        """Carry out a transaction; return the revision at which it was applied.

        Raises:
            Conflict: A comparison failed; nothing was written.
            Indeterminate: The outcome is unknown; read again and look for one's own write.
            LeaseLost: A put names a lease that does not exist.
            Rejected: Over `MAX_TXN_OPS` or `MAX_REQUEST_BYTES`, or refused by the server.
        """
        ...

    def watch(self, prefix: str) -> AsyncIterator[Update]:
        """Yield the state under *prefix* now and after every change, for ever.

        While the store is away, one update with ``is_live=False`` says so (also as the first, with
        no entries and revision 0, when the store was never reached); then it is tried again until
        it answers. Only `Rejected` (a denied prefix), `RestoredBackup`, `ForkedProcess` and the
        store's own `close` (`StoreUnavailable`) end it.
        """
        ...

    async def grant(self, ttl_s: float) -> Lease:
        """Get a lease of *ttl_s* seconds, kept alive until revoked, lost or the store closes."""
        ...

    async def close(self) -> None:
        """Stop all background work and connections. Leases are left to run out."""
        ...

"""etcd on virtual time: one cluster, whether it can be reached, and what its watches are told.

The cluster is `MemoryCluster`, which the store's contract suite holds to a real etcd's semantics.
"""

from collections.abc import Callable
from typing import Any, Protocol

from tests.sim.kernel import Kernel
from vctl_plans.keys import Keys
from vctl_plans.snapshot import Fleet, read_services
from vctl_plans.store.memory_cluster import MemoryCluster
from vctl_plans.store.port import KeyValue, Listing, Txn, Update


class Teller(Protocol):
    """Told each state of a prefix."""

    def tell(self, state: "State") -> None:
        """Have it known a little later."""
        ...


class Feeler(Protocol):
    """Notices when the store comes and goes."""

    def feel(self) -> None:
        """Notice what has changed between here and the store."""
        ...

    def shake(self) -> None:
        """Have every watch break and list anew."""
        ...


class State:
    """What a prefix holds at one revision; shared by all that watch it."""

    __slots__ = ("_fleet", "update")

    def __init__(self, update: Update) -> None:
        self.update = update
        self._fleet: Fleet | None = None

    def fleet(self, keys: Keys) -> Fleet:
        """Return the services that it holds, read once."""
        if self._fleet is None:
            self._fleet = read_services(keys, self.update.entries.values())
        return self._fleet


class Topic:
    """A prefix that is watched: told each write by the cluster, and its states told on."""

    def __init__(self) -> None:
        self.watchers: list[Teller] = []
        self.state = State(Update(0, {}, frozenset()))
        self._entries: dict[str, KeyValue] = {}
        self._changed: set[str] = set()

    def relist(self, listing: Listing) -> None:
        """Take the whole state."""
        self._entries = {entry.key: entry for entry in listing.entries}
        self.state = State(Update(listing.revision, dict(self._entries), frozenset(self._entries)))

    def write(self, entry: KeyValue) -> None:
        """Take a write."""
        self._entries[entry.key] = entry
        self._changed.add(entry.key)

    def delete(self, key: str, revision: int) -> None:
        """Take a deletion."""
        self._entries.pop(key, None)
        self._changed.add(key)

    def flush(self, revision: int) -> None:
        """Tell on what one transaction changed."""
        if not self._changed:
            return
        update = Update(revision, dict(self._entries), frozenset(self._changed))
        self._changed.clear()
        self.state = State(update)
        for watcher in self.watchers:
            watcher.tell(self.state)


class Etcd:
    """The cluster: what it holds, whether it can be reached, and who holds leases."""

    def __init__(self, kernel: Kernel, keys: Keys) -> None:
        self.kernel = kernel
        self.keys = keys
        self.cluster_id = 1
        self.is_up = True
        self.cluster = MemoryCluster(lambda: kernel.now)
        self.topics: dict[str, Topic] = {}
        self.clients: list[Feeler] = []
        self.on_write: Callable[[Txn, int, Any, Any], None] = lambda *_: None

    def topic(self, prefix: str) -> Topic:
        """Return what watches of *prefix* share."""
        found = self.topics.get(prefix)
        if found is None:
            found = self.topics[prefix] = Topic()
            self.cluster.subscribe(found, prefix)  # type: ignore[arg-type]
        return found

    def apply(self, txn: Txn, writer: Any = None, grounds: Any = None) -> int:
        """Carry out a transaction, and tell whoever watches.

        Args:
            txn: What to do.
            writer: Who sent it.
            grounds: What its writer rested it on, for the checks.

        Raises:
            Conflict: A comparison failed.
            LeaseLost: It names a lease that is gone.
        """
        revision = self.cluster.apply(txn)
        self.on_write(txn, revision, writer, grounds)
        self._flush()
        return revision

    def expire(self) -> None:
        """End the leases whose time is over."""
        if self.is_up:
            self.cluster.expire()
            self._flush()

    def revoke(self, lease_id: int) -> None:
        """End a lease."""
        self.cluster.revoke(lease_id)
        self._flush()

    def _flush(self) -> None:
        for topic in self.topics.values():
            topic.flush(self.cluster.revision)

    def go_away(self) -> None:
        """Answer nobody; leases stand still, as in a cluster without a leader."""
        self.is_up = False
        for client in self.clients:
            client.feel()

    def come_back(self) -> None:
        """Answer again; leases count their whole time anew."""
        self.is_up = True
        for granted in self.cluster._leases.values():
            if granted._deadline is not None:
                granted.keep()
                granted.stop()
                self.kernel.after(granted.ttl_s + 0.001, None, self.expire)
        for client in self.clients:
            client.feel()

    def backup(self) -> tuple[int, dict[str, KeyValue]]:
        """Return what a backup of now holds; leases are in it too, and soon run out."""
        kept = {k: e for k, e in self.cluster._entries.items() if not e.lease_id}
        return self.cluster.revision, kept

    def restore(self, backup: tuple[int, dict[str, KeyValue]]) -> None:
        """Become another cluster, with what a backup holds."""
        self.cluster_id += 1
        self.load(backup)
        for client in self.clients:
            client.feel()

    def load(self, backup: tuple[int, dict[str, KeyValue]]) -> None:
        """Hold what a backup holds, and no lease."""
        topics, self.cluster = self.topics, MemoryCluster(lambda: self.kernel.now)
        self.cluster.revision, entries = backup
        self.cluster._entries = dict(entries)
        for prefix, topic in topics.items():
            self.cluster.subscribe(topic, prefix)  # type: ignore[arg-type]

"""Each process's way to the store: delays, lost requests and replies, watches that lag, leases.

It keeps `vctl_plans.store.port.Store`, so that the agents' and the commands' own code runs on it.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, TypeVar

from tests.sim.kernel import Event, Process
from tests.sim.network import Network
from tests.sim.store import Etcd, State, Topic
from vctl_plans.errors import (
    Indeterminate,
    LeaseLost,
    RestoredBackup,
    StoreError,
    StoreUnavailable,
)
from vctl_plans.store.memory_cluster import GrantedLease
from vctl_plans.store.port import KeyValue, Listing, Put, Txn, Update

T = TypeVar("T")

Handler = Callable[[State], None]
TIMEOUT_S = 2.0


class Watcher:
    """One stream: in order, and late."""

    def __init__(self, client: "Client", topic: Topic, handler: Handler) -> None:
        self._client = client
        self._topic = topic
        self._handler = handler
        self._last = 0.0
        self._on_way: list[State] = []  # what arrives at `_last`, if it has not yet
        self._is_live = True
        self._told = State(Update(0, {}, frozenset()))
        topic.watchers.append(self)
        if client.can_reach:
            self._list()
        else:
            self.feel(can_reach=False)

    def tell(self, state: State) -> None:
        """Have the process hear of *state* a little later."""
        client = self._client
        if client.can_reach:
            self._deliver(state)

    def _list(self) -> None:
        """List anew: what differs from what was told last has changed."""
        told, now = self._told.update.entries, self._topic.state.update
        differing = {
            key for key in now.entries.keys() | told.keys() if now.entries.get(key) != told.get(key)
        }
        self._deliver(State(Update(now.revision, now.entries, frozenset(differing))))

    def _deliver(self, state: State) -> None:
        process = self._client.process
        kernel = process.kernel
        when = max(self._last, kernel.now + self._client.network.stream_s(process))
        grid_s = self._client.network.grid_s
        when = math.ceil(when / grid_s) * grid_s if grid_s else when
        if (
            grid_s and when == self._last and self._on_way
        ):  # it comes with what is on its way already
            self._on_way[0] = _after(self._on_way[0], state)
            return
        self._last = when
        self._on_way = [state]
        kernel.at(when, process, self._arrive, self._on_way)

    def _arrive(self, on_way: list[State]) -> None:
        state = on_way.pop()
        if self not in self._topic.watchers:
            return
        if state.update.is_live and not self._client.can_reach:
            return
        if state.update.is_live:
            self._told = state
        self._handler(state)

    def feel(self, *, can_reach: bool) -> None:
        """Notice that the way to the store was lost, or is there again: then list anew."""
        if can_reach == self._is_live:
            return
        self._is_live = can_reach
        if can_reach:
            self._list()
            return
        told = self._told.update
        self._deliver(State(Update(told.revision, told.entries, frozenset(), is_live=False)))

    def shake(self) -> None:
        """Break off and list anew."""
        self.feel(can_reach=False)
        self.feel(can_reach=self._client.can_reach)

    def close(self) -> None:
        """Hear no more."""
        with suppress(ValueError):
            self._topic.watchers.remove(self)


def _after(one: State, next_one: State) -> State:
    """Return what two states, one after the other, tell whoever hears them at once."""
    update, changed = next_one.update, one.update.changed | next_one.update.changed
    return State(Update(update.revision, update.entries, changed, is_live=update.is_live))


class SimLease:
    """A lease, kept alive while its holder runs and reaches the store."""

    def __init__(self, client: "Client", granted: GrantedLease) -> None:
        self.id = granted.id
        self.ttl_s = granted.ttl_s
        self.is_over = False
        self._client = client
        self._granted = granted
        self._lost = asyncio.Event()
        self._deadline: float | None = None  # on the holder's clock, once nothing is acknowledged
        self._timers: list[Event] = []

    def valid_for_s(self) -> float:
        """Return how long it certainly lives on, by its holder's clock."""
        if self.is_over:
            return -1.0
        if self._deadline is None:
            return self.ttl_s
        return self._deadline - self._client.process.clock()

    async def wait_lost(self) -> None:
        """Return when it is gone."""
        await self._lost.wait()

    async def revoke(self) -> None:
        """End it."""
        self._give_up()
        with suppress(LeaseLost):
            await self._client.call(lambda: self._client.etcd.revoke(self.id), is_write=False)

    def feel(self, *, is_kept: bool) -> None:
        """Go on being kept alive, or begin to run out."""
        if self.is_over:
            return
        kernel, process = self._client.process.kernel, self._client.process
        if is_kept:
            if self._granted.lost.is_set():
                self._give_up()
                return
            self._deadline = None
            self._granted.keep()
            self._cancel_timers()
        elif self._deadline is None:
            self._granted.stop()
            acknowledged_ago_s = self._client.network.random.random() * self.ttl_s / 3
            self._deadline = process.clock() + self.ttl_s - acknowledged_ago_s
            left_s = self.ttl_s - acknowledged_ago_s
            self._timers = [
                kernel.after(self.ttl_s + 0.001, None, self._client.etcd.expire),
                process.after(left_s, self._give_up),
            ]

    def _cancel_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers = []

    def _give_up(self) -> None:
        if not self.is_over:
            self.is_over = True
            if self._deadline is None:  # nothing keeps it alive any more: it runs out
                self._granted.stop()
                kernel = self._client.process.kernel
                kernel.after(self.ttl_s + 0.001, None, self._client.etcd.expire)
            with suppress(ValueError):
                self._client.leases.remove(self)
            self._lost.set()


class Client:
    """One process's store, as `vctl_plans.store.port.Store` asks."""

    def __init__(self, etcd: Etcd, process: Process, network: Network) -> None:
        self.etcd = etcd
        self.process = process
        self.network = network
        self.cluster_id = etcd.cluster_id
        self.is_cut = False
        self.leases: list[SimLease] = []
        self.watchers: list[Watcher] = []
        self.grounds: Callable[[], Any] = lambda: None  # what a decision rests on
        self.before_commit: Callable[[], None] = lambda: None
        etcd.clients.append(self)

    @property
    def is_foreign(self) -> bool:
        """Whether the store is another than the one that the process knew: a restored backup."""
        return self.cluster_id != self.etcd.cluster_id

    @property
    def can_reach(self) -> bool:
        """Whether messages get through."""
        return self.etcd.is_up and not self.is_cut and not self.is_foreign

    def feel(self) -> None:
        """Notice what has changed between here and the store."""
        is_kept = self.can_reach and self.process.is_running
        for lease in list(self.leases):
            lease.feel(is_kept=is_kept)
        if self.process.is_alive:
            for watcher in self.watchers:
                watcher.feel(can_reach=self.can_reach)

    def drop(self) -> None:
        """Go away with the process, which is dead: watches end, leases run out."""
        for watcher in self.watchers:
            watcher.close()
        self.watchers.clear()
        self.feel()
        self.leases.clear()
        self.etcd.clients.remove(self)

    def shake(self) -> None:
        """Have every watch break and list anew."""
        for watcher in self.watchers:
            watcher.shake()

    def follow(self, prefix: str, handler: Handler) -> Watcher:
        """Have *handler* told the states of *prefix*."""
        watcher = Watcher(self, self.etcd.topic(prefix), handler)
        self.watchers.append(watcher)
        return watcher

    async def watch(self, prefix: str) -> AsyncIterator[Update]:
        """Yield the states of *prefix*; what was not looked at is passed over."""
        news = asyncio.Event()
        newest: list[Update] = []

        def hear(state: State) -> None:
            update = state.update
            if newest:  # not looked at yet: one update tells of all that has changed since
                changed = newest[0].changed | update.changed
                update = Update(update.revision, update.entries, changed, is_live=update.is_live)
            newest[:] = [update]
            news.set()

        watcher = self.follow(prefix, hear)
        try:
            while True:
                self._refuse_foreign()
                await news.wait()
                news.clear()
                yield newest.pop()
        finally:
            watcher.close()
            with suppress(ValueError):
                self.watchers.remove(watcher)

    async def get(self, key: str) -> KeyValue | None:
        """Read one key."""
        return await self.call(lambda: self.etcd.cluster.get(key), is_write=False)

    async def list(self, prefix: str) -> Listing:
        """Read a prefix."""
        return await self.call(lambda: self.etcd.cluster.listing(prefix), is_write=False)

    async def put(self, key: str, value: bytes, *, lease_id: int = 0) -> int:
        """Write one key."""
        txn = Txn(operations=(Put(key, value, lease_id),))
        return await self.call(lambda: self.etcd.apply(txn, self), is_write=True)

    async def commit(self, txn: Txn) -> int:
        """Carry out a transaction."""
        grounds = self.grounds()
        self.before_commit()
        await asyncio.sleep(0)  # a process that is stopped here sends when it wakes up
        return await self.call(lambda: self.etcd.apply(txn, self, grounds), is_write=True)

    async def grant(self, ttl_s: float) -> SimLease:
        """Get a lease."""
        granted = await self.call(lambda: self.etcd.cluster.grant(ttl_s), is_write=False)
        lease = SimLease(self, granted)
        self.leases.append(lease)
        lease.feel(is_kept=self.can_reach)
        return lease

    async def close(self) -> None:
        """Do nothing: a process that ends calls `drop`."""

    def _refuse_foreign(self) -> None:
        if self.is_foreign:
            raise RestoredBackup("the store is not the one that was known")

    async def call(self, act: Callable[[], T], *, is_write: bool) -> T:
        """Have the cluster do something; each way takes its time, and may be lost.

        Raises:
            StoreUnavailable: No answer, and nothing was written.
            Indeterminate: No answer to a write.
            RestoredBackup: It is another cluster.
        """
        process = self.process
        if not process.is_alive:
            raise StoreUnavailable("the process has ended")
        self._refuse_foreign()
        answer: asyncio.Future[T] = process.loop.create_future()
        kernel, network = process.kernel, self.network
        lost = Indeterminate("no answer") if is_write else StoreUnavailable("no answer")

        def arrive() -> None:
            if not self.can_reach or network.loses(process):
                process.after(TIMEOUT_S, reply, None, lost)
                return
            result, error = None, None
            try:
                result = act()
            except StoreError as refusal:
                error = refusal
            if network.loses(process):
                process.after(TIMEOUT_S, reply, None, lost)
            else:
                kernel.after(network.message_s(process), process, reply, result, error)

        def reply(result: Any, error: StoreError | None) -> None:
            if answer.done():
                return
            if error:
                answer.set_exception(error)
            else:
                answer.set_result(result)

        kernel.after(network.message_s(process), None, arrive)
        return await answer

"""Who waits for etcd is told so after a moment, not only once it has been given up.

A call tries one endpoint after the other for several seconds before it fails; until then a person
would not know whether the command works or hangs. Told once a command, on stderr.
"""

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING

from vctl_plans.store.port import KeyValue, Lease, Listing, Store, Txn, Update

if TYPE_CHECKING:
    import asyncio

PATIENCE_S = 1.0
"""A healthy etcd answers in milliseconds, one that elects a leader in a second."""

Say = Callable[[str], None]


class Patience:
    """Tells once that etcd does not answer."""

    def __init__(self, endpoints: str, say: Say, *, after_s: float = PATIENCE_S) -> None:
        self._text = f"etcd does not answer yet: {endpoints}; trying again"
        self._say = say
        self._after_s = after_s
        self._is_told = False

    def _tell(self) -> None:
        if not self._is_told:
            self._is_told = True
            self._say(self._text)

    @contextmanager
    def beside_thread(self) -> Iterator[None]:
        """Watch over what blocks this thread."""
        timer = threading.Timer(self._after_s, self._tell)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def timer(self) -> "asyncio.TimerHandle":
        """Return what tells in the running event loop, unless it is cancelled before."""
        import asyncio  # noqa: PLC0415  what reads without a store needs none

        return asyncio.get_running_loop().call_later(self._after_s, self._tell)

    @contextmanager
    def in_loop(self) -> Iterator[None]:
        """Watch over what is awaited in the running event loop."""
        timer = self.timer()
        try:
            yield
        finally:
            timer.cancel()


class PatientStore:
    """A store whose calls, when they take long, are told of; else it is the one that it holds."""

    def __init__(self, store: Store, patience: Patience) -> None:
        self._store = store
        self._patience = patience

    async def get(self, key: str) -> KeyValue | None:
        """Read one key, linearizably."""
        with self._patience.in_loop():
            return await self._store.get(key)

    async def list(self, prefix: str) -> Listing:
        """Read all keys under *prefix* at one revision, in pages."""
        with self._patience.in_loop():
            return await self._store.list(prefix)

    async def put(self, key: str, value: bytes, *, lease_id: int = 0) -> int:
        """Write one key whatever it held; return the revision."""
        with self._patience.in_loop():
            return await self._store.put(key, value, lease_id=lease_id)

    async def commit(self, txn: Txn) -> int:
        """Carry out a transaction; return the revision at which it was applied."""
        with self._patience.in_loop():
            return await self._store.commit(txn)

    async def watch(self, prefix: str) -> AsyncIterator[Update]:
        """Yield the state under *prefix* now and after every change, for ever.

        Only the wait for the first answer is told of: what comes later says itself that the store
        is away.
        """
        async with aclosing(self._store.watch(prefix)) as updates:  # type: ignore[type-var]
            timer = self._patience.timer()
            try:
                async for update in updates:
                    if update.is_live:
                        timer.cancel()
                    yield update
            finally:
                timer.cancel()

    async def grant(self, ttl_s: float) -> Lease:
        """Get a lease of *ttl_s* seconds, kept alive until revoked, lost or the store closes."""
        with self._patience.in_loop():
            return await self._store.grant(ttl_s)

    async def close(self) -> None:
        """Stop all background work and connections."""
        await self._store.close()

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from tests.gateway.support import KEYS, a_release, a_route, eventually, publish
from vctl_agent.acceptance import Acceptance
from vctl_agent.gateway import watch
from vctl_agent.gateway.live import Acted, Live
from vctl_agent.gateway.watch import Source, follow, keep_following
from vctl_plans.codec import encode
from vctl_plans.errors import Rejected
from vctl_plans.inspection import ACCEPT_RESTORE, AcceptRestore
from vctl_plans.store.guard import Fingerprint
from vctl_plans.store.memory import MemoryStore
from vctl_plans.store.port import Update


def a_live(acted: Acted | None = None) -> Live:
    return Live(acted or Acted(), prefix=KEYS.services, clock=lambda: 0.0)


@contextlib.asynccontextmanager
async def followed(live: Live, store: MemoryStore) -> AsyncIterator[list[Fingerprint]]:
    asked: list[Fingerprint] = []

    def open_store(known: Fingerprint) -> Source:
        asked.append(known)
        return Source(store, lambda: 7)

    task = asyncio.create_task(follow(live, open_store, KEYS))
    try:
        yield asked
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_route_is_acted_on_when_it_is_written():
    live, store = a_live(), MemoryStore()
    async with followed(live, store):
        revision = await publish(store, a_route(1), a_release(1))
        await eventually(lambda: live.acted.known.route_revisions() == {"support": revision})
        assert live.is_connected
        assert live.acted.cluster_id == 7


async def test_store_that_is_away_at_the_start_leaves_what_was_saved_and_is_followed_later():
    store = MemoryStore()
    first = a_live()
    async with followed(first, store):
        old = await publish(store, a_route(1), a_release(1))
        await eventually(lambda: bool(first.acted.known.routes))
    store = store.peer()
    store.disconnect()
    live = a_live(first.acted)
    async with followed(live, store) as asked:
        await asyncio.sleep(0.02)
        assert live.acted.known.route_revisions() == {"support": old}
        assert not live.is_connected
        assert asked == [Fingerprint(cluster_id=7, revision=old)]
        new = await publish(store.peer(), a_route(2), a_release(2))
        store.reconnect()
        await eventually(lambda: live.acted.known.route_revisions() == {"support": new})


async def test_restored_backup_keeps_the_last_route_for_good():
    live, store = a_live(), MemoryStore()
    async with followed(live, store):
        revision = await publish(store, a_route(1), a_release(1))
        await eventually(lambda: bool(live.acted.known.routes))
        store.mark_restored()
        await eventually(lambda: bool(live.suspended))
    assert live.acted.known.route_revisions() == {"support": revision}
    assert not live.is_connected


async def test_store_behind_what_was_saved_is_not_followed():
    ahead, behind = MemoryStore(), MemoryStore()
    first = a_live()
    async with followed(first, ahead):
        for release in (1, 2, 3):
            saved = await publish(ahead, a_route(release), a_release(release))
        await eventually(lambda: first.acted.known.route_revisions() == {"support": saved})
    live = a_live(first.acted)
    async with followed(live, behind):
        await eventually(lambda: bool(live.suspended))
    assert live.acted.known.route_revisions() == {"support": saved}
    assert "behind" in live.suspended


class DenyingStore(MemoryStore):
    """Denies its first watches, as etcd does while a role lacks the prefix."""

    denials = 2

    async def watch(self, prefix: str) -> AsyncIterator[Update]:
        if self.denials:
            self.denials -= 1
            raise Rejected("permission denied", code="PERMISSION_DENIED")
        async for update in super().watch(prefix):
            yield update


async def test_denied_watch_is_tried_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(watch, "FIRST_RETRY_S", 0.001)
    live, store = a_live(), DenyingStore()
    async with followed(live, store):
        await publish(store, a_route(1), a_release(1))
        await eventually(lambda: bool(live.acted.known.routes))
    assert store.denials == 0


async def test_restored_store_is_followed_again_once_an_operator_accepts_it():
    """The old route serves until then, though the new store is at lower revisions."""
    live, before, after = a_live(), MemoryStore(), MemoryStore()
    for number in range(5):  # so that the store that comes is behind
        await before.put(f"/elsewhere/{number}", b"")
    stores = [before]

    def open_store(_: Fingerprint) -> Source:
        return Source(stores[-1].peer(), lambda: 7)

    acceptance = Acceptance(KEYS, None)
    task = asyncio.create_task(keep_following(live, open_store, KEYS, acceptance))
    try:
        old = await publish(before, a_route(2), a_release(2))
        await eventually(lambda: live.acted.known.route_revisions() == {"support": old})
        live.suspend("as if it had been seen")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        stores.append(after)
        new = await publish(after, a_route(1), a_release(1))
        assert new < old
        task = asyncio.create_task(keep_following(live, open_store, KEYS, acceptance))
        await eventually(lambda: "behind" in live.suspended)
        assert live.acted.known.routes["support"].route.stable == 2
        await after.put(KEYS.request(ACCEPT_RESTORE), encode(AcceptRestore(id="x")))
        await eventually(lambda: live.acted.known.route_revisions() == {"support": new})
        assert live.acted.known.routes["support"].route.stable == 1
        assert (live.suspended, live.is_connected) == ("", True)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

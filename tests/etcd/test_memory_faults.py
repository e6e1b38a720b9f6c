"""The faults that other suites inject into the fake store."""

import asyncio

import pytest

from tests.etcd.waiting import next_update
from vctl_plans.errors import (
    Conflict,
    Indeterminate,
    LeaseLost,
    RestoredBackup,
    StoreUnavailable,
)
from vctl_plans.store.memory import MemoryStore
from vctl_plans.store.port import ModRevisionIs, Put, Txn


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


async def test_a_disconnected_client_fails_while_its_peer_goes_on():
    store = MemoryStore()
    peer = store.peer()
    store.disconnect()
    with pytest.raises(StoreUnavailable):
        await store.get("a")
    await peer.put("a", b"1")
    store.reconnect()
    entry = await store.get("a")
    assert entry is not None
    assert entry.value == b"1"


async def test_a_watch_says_that_it_is_cut_off_and_sees_the_difference_later():
    store = MemoryStore()
    peer = store.peer()
    await store.put("gone", b"")
    updates = store.watch("")
    await next_update(updates)
    store.disconnect()
    assert not (await next_update(updates)).is_live
    await peer.commit(Txn((ModRevisionIs("new", 0),), (Put("new", b""),)))
    store.reconnect()
    update = await next_update(updates)
    assert update.is_live
    assert update.changed == {"new"}


async def test_a_watch_opened_while_cut_off_begins_with_that():
    store = MemoryStore()
    store.disconnect()
    update = await next_update(store.watch(""))
    assert (update.revision, update.is_live) == (0, False)


async def test_broken_watches_are_lost_and_come_back():
    store = MemoryStore()
    updates = store.watch("")
    await next_update(updates)
    reading = asyncio.ensure_future(next_update(updates))
    await asyncio.sleep(0)
    store.break_watches()
    assert not (await reading).is_live
    assert (await next_update(updates)).is_live


@pytest.mark.parametrize("is_applied", [True, False])
async def test_a_lost_reply_leaves_the_outcome_open(is_applied: bool):
    store = MemoryStore()
    store.lose_reply(is_applied=is_applied)
    txn = Txn((ModRevisionIs("a", 0),), (Put("a", b"1"),))
    with pytest.raises(Indeterminate):
        await store.commit(txn)
    assert (await store.get("a") is not None) == is_applied
    if is_applied:
        with pytest.raises(Conflict):
            await store.commit(txn)
    else:
        await store.commit(txn)


async def test_the_next_call_can_be_made_to_fail():
    store = MemoryStore()
    store.fail_next(Conflict("as asked"))
    with pytest.raises(Conflict, match="as asked"):
        await store.put("a", b"")
    assert await store.get("a") is None


async def test_a_lease_that_is_not_kept_alive_runs_out_on_the_clock():
    clock = Clock()
    store = MemoryStore(clock)
    lease = await store.grant(10)
    await store.put("a", b"", lease_id=lease.id)
    clock.now += 100
    assert lease.valid_for_s() == 10
    lease.stop_keepalive()
    clock.now += 9.5
    assert lease.valid_for_s() == pytest.approx(0.5)
    assert await store.get("a") is not None
    clock.now += 1
    assert lease.valid_for_s() < 0
    store.expire()
    await asyncio.wait_for(lease.wait_lost(), 1)
    assert await store.get("a") is None


async def test_on_the_real_clock_a_lease_runs_out_by_itself():
    store = MemoryStore()
    lease = await store.grant(0.02)
    await store.put("a", b"", lease_id=lease.id)
    updates = store.peer().watch("")
    await next_update(updates)
    lease.stop_keepalive()
    await asyncio.wait_for(lease.wait_lost(), 1)
    assert (await next_update(updates)).entries == {}


async def test_a_cut_off_client_loses_its_lease_after_the_ttl_only():
    clock = Clock()
    store = MemoryStore(clock)
    peer = store.peer()
    lease = await store.grant(10)
    await store.put("a", b"", lease_id=lease.id)
    store.disconnect()
    clock.now += 6
    store.reconnect()
    clock.now += 6
    assert await peer.get("a") is not None
    store.disconnect()
    clock.now += 10
    assert await peer.get("a") is None
    store.reconnect()
    assert lease.valid_for_s() < 0
    with pytest.raises(LeaseLost):
        await store.put("a", b"", lease_id=lease.id)


async def test_a_restored_backup_stops_calls_and_watches():
    store = MemoryStore()
    updates = store.watch("")
    await next_update(updates)
    store.mark_restored()
    with pytest.raises(RestoredBackup):
        await store.list("")
    with pytest.raises(RestoredBackup):
        await next_update(updates)
    with pytest.raises(RestoredBackup):
        await next_update(store.watch(""))

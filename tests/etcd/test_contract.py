"""One suite for every store: what the port promises, the fake keeps as each etcd does."""

import asyncio
from collections.abc import Callable

import pytest

from tests.etcd.waiting import eventually, next_update, update_where
from vctl_plans.errors import Conflict, LeaseLost, Rejected, StoreUnavailable
from vctl_plans.store.port import (
    MAX_REQUEST_BYTES,
    MAX_TXN_OPS,
    Comparison,
    CreateRevisionIs,
    Delete,
    KeyValue,
    ModRevisionIs,
    Put,
    Store,
    Txn,
    ValueIs,
)

OpenClient = Callable[[], Store]


async def test_get_of_a_missing_key_is_none(store: Store, prefix: str):
    assert await store.get(prefix + "a") is None


async def test_put_and_get_carry_revisions_and_version(store: Store, prefix: str):
    first = await store.put(prefix + "a", b"1")
    second = await store.put(prefix + "a", b"2")
    assert second > first
    expected = KeyValue(prefix + "a", b"2", create_revision=first, mod_revision=second, version=2)
    assert await store.get(prefix + "a") == expected


async def test_a_deleted_and_recreated_key_starts_anew(store: Store, prefix: str):
    first = await store.put(prefix + "a", b"1")
    await store.commit(Txn(operations=(Delete(prefix + "a"),)))
    assert await store.get(prefix + "a") is None
    again = await store.put(prefix + "a", b"1")
    entry = await store.get(prefix + "a")
    assert entry == KeyValue(prefix + "a", b"1", again, again, version=1)
    assert again > first + 1


@pytest.mark.parametrize("value", [b"", b"\x00\xff\xfe", "grün".encode(), b"x" * 100_000])
async def test_values_are_bytes_unchanged(store: Store, prefix: str, value: bytes):
    await store.put(prefix + "a", value)
    entry = await store.get(prefix + "a")
    assert entry is not None
    assert entry.value == value


@pytest.mark.parametrize("name", ["grün", "日本", "a b", "x\x00y", "\udcff\udcfe", "😀"])
async def test_keys_are_any_text(store: Store, prefix: str, name: str):
    await store.put(prefix + name, b"1")
    listing = await store.list(prefix)
    assert [entry.key for entry in listing.entries] == [prefix + name]
    assert await store.get(prefix + name) == listing.entries[0]


async def test_list_is_in_byte_order_and_ends_at_the_prefix(store: Store, prefix: str):
    inside = ["b", "a", "a/b", "é", "z", "\U0001f600"]
    for name in inside:
        await store.put(prefix + "p" + name, b"")
    for outside in ["o", "q", "p"[:-1] + "P"]:
        await store.put(prefix + outside, b"")
    listing = await store.list(prefix + "p")
    expected = sorted((prefix + "p" + name for name in inside), key=str.encode)
    assert [entry.key for entry in listing.entries] == expected


async def test_list_of_nothing_has_a_revision(store: Store, prefix: str):
    revision = await store.put(prefix + "a", b"1")
    listing = await store.list(prefix + "nothing")
    assert listing.entries == ()
    assert listing.revision >= revision


async def test_list_reads_more_than_a_thousand_keys_in_pages(store: Store, prefix: str):
    names = [f"{prefix}{number:05}" for number in range(1_234)]
    for start in range(0, len(names), MAX_TXN_OPS):
        batch = names[start : start + MAX_TXN_OPS]
        await store.commit(Txn(operations=tuple(Put(name, b"v" * 100) for name in batch)))
    listing = await store.list(prefix)
    assert [entry.key for entry in listing.entries] == names


async def test_commit_applies_all_operations_at_one_revision(store: Store, prefix: str):
    await store.put(prefix + "old", b"")
    operations = (Put(prefix + "a", b"1"), Put(prefix + "b", b"2"), Delete(prefix + "old"))
    revision = await store.commit(Txn(operations=operations))
    listing = await store.list(prefix)
    assert [entry.mod_revision for entry in listing.entries] == [revision, revision]
    assert [entry.key for entry in listing.entries] == [prefix + "a", prefix + "b"]


async def test_commit_with_a_failing_comparison_writes_nothing(store: Store, prefix: str):
    revision = await store.put(prefix + "a", b"1")
    txn = Txn(
        (ModRevisionIs(prefix + "a", revision), ModRevisionIs(prefix + "b", revision)),
        (Put(prefix + "a", b"2"), Put(prefix + "c", b"")),
    )
    with pytest.raises(Conflict, match="changed"):
        await store.commit(txn)
    listing = await store.list(prefix)
    assert [(entry.key, entry.value) for entry in listing.entries] == [(prefix + "a", b"1")]


async def test_comparisons_hold_for_what_is_there(store: Store, prefix: str):
    created = await store.put(prefix + "a", b"1")
    modified = await store.put(prefix + "a", b"")
    holding = (
        CreateRevisionIs(prefix + "a", created),
        ModRevisionIs(prefix + "a", modified),
        ValueIs(prefix + "a", b""),
        CreateRevisionIs(prefix + "none", 0),
        ModRevisionIs(prefix + "none", 0),
    )
    assert await store.commit(Txn(holding, (Put(prefix + "done", b""),))) > modified


async def test_comparisons_fail_for_what_is_not(store: Store, prefix: str):
    created = await store.put(prefix + "a", b"1")
    await store.put(prefix + "a", b"2")
    failing: list[Comparison] = [
        CreateRevisionIs(prefix + "a", created + 1),
        ModRevisionIs(prefix + "a", created),
        ModRevisionIs(prefix + "a", 0),
        ValueIs(prefix + "a", b"1"),
        ValueIs(prefix + "none", b""),
    ]
    for comparison in failing:
        with pytest.raises(Conflict):
            await store.commit(Txn((comparison,), (Put(prefix + "b", b""),)))
    assert await store.get(prefix + "b") is None


async def test_a_transaction_that_changes_nothing_keeps_the_revision(store: Store, prefix: str):
    revision = await store.put(prefix + "a", b"1")
    assert await store.commit(Txn((ValueIs(prefix + "a", b"1"),))) == revision
    assert await store.commit(Txn(operations=(Delete(prefix + "none"),))) == revision


async def test_the_largest_transaction_is_taken(store: Store, prefix: str):
    operations = tuple(Put(f"{prefix}{number}", b"") for number in range(MAX_TXN_OPS))
    comparisons = tuple(ModRevisionIs(f"{prefix}{number}", 0) for number in range(MAX_TXN_OPS))
    await store.commit(Txn(comparisons, operations))
    assert len((await store.list(prefix)).entries) == MAX_TXN_OPS


async def test_too_many_operations_are_refused(store: Store, prefix: str):
    operations = tuple(Put(f"{prefix}{number}", b"") for number in range(MAX_TXN_OPS + 1))
    with pytest.raises(Rejected, match="129 operations, etcd takes 128") as caught:
        await store.commit(Txn(operations=operations))
    assert caught.value.code == "INVALID_ARGUMENT"
    comparisons = tuple(ModRevisionIs(f"{prefix}{number}", 0) for number in range(129))
    with pytest.raises(Rejected, match="129 comparisons"):
        await store.commit(Txn(comparisons))
    assert (await store.list(prefix)).entries == ()


async def test_the_largest_request_is_taken_and_a_larger_one_refused(store: Store, prefix: str):
    room = MAX_REQUEST_BYTES - len(prefix) - 1 - 600
    await store.put(prefix + "a", b"x" * room)
    with pytest.raises(Rejected, match="etcd takes 1572864") as caught:
        await store.put(prefix + "a", b"x" * MAX_REQUEST_BYTES)
    assert "digest" in caught.value.hint
    half = b"x" * (MAX_REQUEST_BYTES // 2)
    with pytest.raises(Rejected, match="bytes"):
        await store.commit(Txn(operations=(Put(prefix + "b", half), Put(prefix + "c", half))))
    assert [entry.key for entry in (await store.list(prefix)).entries] == [prefix + "a"]


async def test_many_small_operations_up_to_the_limit_are_taken(store: Store, prefix: str):
    value = b"x" * (MAX_REQUEST_BYTES // MAX_TXN_OPS - len(prefix) - 60)
    operations = tuple(Put(f"{prefix}{number:03}", value) for number in range(MAX_TXN_OPS))
    await store.commit(Txn(operations=operations))
    assert len((await store.list(prefix)).entries) == MAX_TXN_OPS


@pytest.mark.parametrize("second", [Put("", b"2"), Delete("")])
async def test_a_key_written_twice_in_a_transaction_is_refused(
    store: Store, prefix: str, second: Put | Delete
):
    key = prefix + "a"
    twice = Put(key, b"2") if isinstance(second, Put) else Delete(key)
    with pytest.raises(Rejected, match="twice"):
        await store.commit(Txn(operations=(Put(key, b"1"), twice)))
    assert await store.get(key) is None


async def test_the_empty_key_is_refused(store: Store):
    with pytest.raises(Rejected, match="empty"):
        await store.get("")
    with pytest.raises(Rejected, match="empty"):
        await store.put("", b"")
    with pytest.raises(Rejected, match="empty"):
        await store.commit(Txn((ModRevisionIs("", 0),)))


async def test_a_key_that_is_no_text_is_refused(store: Store):
    with pytest.raises(Rejected, match="no text"):
        await store.put("\ud800", b"")


async def test_concurrent_increments_lose_none(open_client: OpenClient, prefix: str):
    key = prefix + "counter"
    await open_client().put(key, b"0")

    async def increment(client: Store) -> None:
        while True:
            entry = await client.get(key)
            assert entry is not None
            value = str(int(entry.value) + 1).encode()
            try:
                txn = Txn((ModRevisionIs(key, entry.mod_revision),), (Put(key, value),))
                await client.commit(txn)
            except Conflict:
                continue
            return

    clients = [open_client() for _ in range(3)]
    await asyncio.gather(*(increment(client) for client in clients for _ in range(5)))
    entry = await clients[0].get(key)
    assert entry is not None
    assert (entry.value, entry.version) == (b"15", 16)


async def test_watch_begins_with_the_whole_state(store: Store, prefix: str):
    await store.put(prefix + "a", b"1")
    revision = await store.put(prefix + "b", b"2")
    first = await next_update(store.watch(prefix))
    assert {key: entry.value for key, entry in first.entries.items()} == {
        prefix + "a": b"1",
        prefix + "b": b"2",
    }
    assert first.changed == {prefix + "a", prefix + "b"}
    assert first.revision >= revision
    assert first.is_live


async def test_watch_tells_puts_and_deletes(store: Store, prefix: str):
    updates = store.watch(prefix)
    assert (await next_update(updates)).entries == {}
    revision = await store.put(prefix + "a", b"1")
    put = await next_update(updates)
    assert put.changed == {prefix + "a"}
    assert put.entries[prefix + "a"] == await store.get(prefix + "a")
    assert put.revision == revision
    revision = await store.commit(Txn(operations=(Delete(prefix + "a"),)))
    deleted = await next_update(updates)
    assert deleted.changed == {prefix + "a"}
    assert deleted.entries == {}
    assert deleted.revision == revision


async def test_watch_shows_a_transaction_whole(store: Store, prefix: str):
    updates = store.watch(prefix)
    await next_update(updates)
    names = [f"{prefix}{number}" for number in range(100)]
    for round_number in range(5):
        value = str(round_number).encode()
        await store.commit(Txn(operations=tuple(Put(name, value) for name in names)))
        update = await next_update(updates)
        assert {entry.value for entry in update.entries.values()} == {value}
        assert update.changed == set(names)


async def test_watch_does_not_see_other_prefixes(store: Store, prefix: str):
    updates = store.watch(prefix + "p")
    await next_update(updates)
    await store.put(prefix + "o", b"")
    await store.put(prefix + "q", b"")
    await store.put(prefix + "p", b"exactly the prefix")
    update = await next_update(updates)
    assert set(update.entries) == {prefix + "p"}


async def test_a_slow_reader_gets_the_newest_state_in_one_update(store: Store, prefix: str):
    updates = store.watch(prefix)
    await next_update(updates)
    for number in range(50):
        await store.put(f"{prefix}{number % 10}", str(number).encode())
    last = await store.put(prefix + "last", b"")

    async def is_known() -> bool:
        update = await next_update(updates)
        return update.revision == last

    await eventually(is_known, "the last revision was told")


async def test_watch_goes_never_back_and_ends_at_the_truth(store: Store, prefix: str):
    updates = store.watch(prefix)
    await next_update(updates)

    async def write() -> int:
        for number in range(100):
            await store.put(f"{prefix}{number % 7}", str(number).encode())
            if number % 10 == 0:
                await store.commit(Txn(operations=(Delete(f"{prefix}{number % 7}"),)))
        return await store.put(prefix + "end", b"")

    writing = asyncio.create_task(write())
    final = await update_where(updates, lambda update: prefix + "end" in update.entries)
    await writing
    listing = await store.list(prefix)
    assert final.entries == {entry.key: entry for entry in listing.entries}


async def test_two_watches_of_one_client_are_independent(store: Store, prefix: str):
    one, other = store.watch(prefix + "1"), store.watch(prefix + "2")
    await next_update(one)
    await next_update(other)
    await store.put(prefix + "1", b"")
    assert (await next_update(one)).changed == {prefix + "1"}
    await store.put(prefix + "2", b"")
    assert (await next_update(other)).changed == {prefix + "2"}


async def test_a_cancelled_reader_leaves_the_store_usable(store: Store, prefix: str):
    async def read() -> None:
        async for _ in store.watch(prefix):
            pass

    for _ in range(20):
        reader = asyncio.create_task(read())
        await asyncio.sleep(0)
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
    await store.put(prefix + "a", b"1")
    assert set((await next_update(store.watch(prefix))).entries) == {prefix + "a"}


async def test_keys_under_a_lease_go_when_it_is_revoked(store: Store, prefix: str):
    updates = store.watch(prefix)
    await next_update(updates)
    lease = await store.grant(30)
    await store.commit(
        Txn(operations=(Put(prefix + "a", b"", lease.id), Put(prefix + "b", b"", lease.id)))
    )
    await store.put(prefix + "kept", b"")
    entry = await store.get(prefix + "a")
    assert entry is not None
    assert entry.lease_id == lease.id
    await update_where(updates, lambda update: len(update.entries) == 3)
    await lease.revoke()
    gone = await update_where(updates, lambda update: set(update.entries) == {prefix + "kept"})
    assert gone.changed == {prefix + "a", prefix + "b"}


async def test_a_put_without_the_lease_frees_the_key_of_it(store: Store, prefix: str):
    lease = await store.grant(30)
    await store.put(prefix + "a", b"1", lease_id=lease.id)
    await store.put(prefix + "a", b"2")
    await lease.revoke()
    entry = await store.get(prefix + "a")
    assert entry is not None
    assert entry.lease_id == 0


async def test_a_lease_lives_while_it_is_kept_and_ends_with_its_holder(
    open_client: OpenClient, prefix: str
):
    holder, other = open_client(), open_client()
    lease = await holder.grant(2)
    await holder.put(prefix + "a", b"", lease_id=lease.id)
    assert 0 < lease.valid_for_s() <= lease.ttl_s
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(lease.ttl_s + 0.7):
            await lease.wait_lost()
    assert lease.valid_for_s() > 0
    assert await other.get(prefix + "a") is not None
    await holder.close()

    async def is_gone() -> bool:
        return await other.get(prefix + "a") is None

    await eventually(is_gone, "the key went with its lease")


async def test_a_revoked_lease_is_lost_and_takes_no_keys(store: Store, prefix: str):
    lease = await store.grant(30)
    await lease.revoke()
    async with asyncio.timeout(5):
        await lease.wait_lost()
    assert lease.valid_for_s() <= 0
    await lease.revoke()
    with pytest.raises(LeaseLost):
        await store.put(prefix + "a", b"", lease_id=lease.id)
    with pytest.raises(LeaseLost):
        await store.commit(Txn(operations=(Put(prefix + "a", b"", lease.id),)))
    assert await store.get(prefix + "a") is None


async def test_a_failing_comparison_comes_before_a_lost_lease(store: Store, prefix: str):
    txn = Txn((ModRevisionIs(prefix + "a", 7),), (Put(prefix + "a", b"", lease_id=12345),))
    with pytest.raises(Conflict):
        await store.commit(txn)


async def test_a_closed_store_says_so(store: Store, prefix: str):
    updates = store.watch(prefix)
    await next_update(updates)
    await store.close()
    with pytest.raises(StoreUnavailable):
        await store.put(prefix + "a", b"")
    with pytest.raises(StoreUnavailable):
        await next_update(updates)
    await store.close()

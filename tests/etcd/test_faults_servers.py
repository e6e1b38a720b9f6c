"""F1, F2, F3 of the fault matrix: servers that die, change their leader, or stop answering."""

import asyncio
import time
from functools import partial
from pathlib import Path

import pytest

from tests.etcd.conftest import ClusterMaker, ServerMaker, StoreMaker
from tests.etcd.waiting import eventually, next_update, update_where
from vctl_plans.errors import Conflict, Indeterminate, StoreError, StoreUnavailable
from vctl_plans.store.etcd import EtcdStore
from vctl_plans.store.port import KeyValue, ModRevisionIs, Put, Txn, Update
from vctl_plans.store.watch import Patience

pytestmark = pytest.mark.etcd
QUICK = Patience(probe_s=0.5, grace_s=0.5)


async def write_until_stopped(store: EtcdStore, prefix: str, stop: asyncio.Event) -> list[float]:
    """Put numbers into one key until *stop*; return how long each took, failures included."""
    durations = []
    number = 0
    while not stop.is_set():
        start = time.monotonic()
        try:
            await store.put(prefix + "number", str(number).encode())
            number += 1
        except (StoreUnavailable, Indeterminate):
            pass
        durations.append(time.monotonic() - start)
        await asyncio.sleep(0.01)
    return durations


async def test_f1_a_killed_and_restarted_server_is_followed_again(
    binary: Path, make_server: ServerMaker, make_store: StoreMaker, prefix: str
):
    server = make_server(binary)
    store = make_store(server.endpoint)
    await store.put(prefix + "before", b"1")
    updates = store.watch(prefix)
    await next_update(updates)
    server.kill()
    lost = await update_where(updates, lambda update: not update.is_live)
    assert set(lost.entries) == {prefix + "before"}
    with pytest.raises(StoreError):
        await make_store(server.endpoint, timeout_s=0.3).put(prefix + "x", b"")

    await asyncio.to_thread(server.start)
    start = time.monotonic()
    await make_store(server.endpoint).put(prefix + "after", b"2")
    back = await update_where(
        updates, lambda update: update.is_live and prefix + "after" in update.entries, timeout_s=8
    )
    listing = await store.list(prefix)
    assert back.entries == {entry.key: entry for entry in listing.entries}
    assert time.monotonic() - start < 8


async def test_f2_steps_go_on_once_each_when_the_leader_is_killed(
    binary: Path, make_cluster: ClusterMaker, make_store: StoreMaker, prefix: str
):
    cluster = await asyncio.to_thread(make_cluster, binary)
    store = make_store(*cluster.endpoints, timeout_s=2.0)
    reader = make_store(*cluster.endpoints, timeout_s=2.0)
    lease = await store.grant(10)
    updates = reader.watch(prefix)
    await next_update(updates)
    leader = await asyncio.to_thread(cluster.leader)

    longest_s = 0.0
    for step in range(40):
        if step == 15:
            leader.kill()
        start = time.monotonic()
        await take_step(store, prefix, step)
        longest_s = max(longest_s, time.monotonic() - start)
    final = await update_where(updates, lambda update: value(update.entries, prefix) == b"39")
    assert final.entries[prefix + "step"].version == 40
    history = await store.list(prefix + "history/")
    assert len(history.entries) == 40
    assert {entry.version for entry in history.entries} == {1}
    assert longest_s < 10 + 5
    assert lease.valid_for_s() > 0


def value(entries: object, prefix: str) -> bytes | None:
    assert isinstance(entries, dict)
    entry = entries.get(prefix + "step")
    return entry.value if isinstance(entry, KeyValue) else None


async def take_step(store: EtcdStore, prefix: str, step: int) -> None:
    """Write one step as a conductor does: after an unknown outcome it looks for its own write."""
    key = prefix + "step"
    while True:
        try:
            entry = await store.get(key)
            if entry is not None and entry.value == str(step).encode():
                return
            expected = ModRevisionIs(key, entry.mod_revision if entry else 0)
            operations = (
                Put(key, str(step).encode()),
                Put(f"{prefix}history/{step:03}", b""),
            )
            await store.commit(Txn((expected,), operations))
        except (StoreUnavailable, Indeterminate, Conflict):
            continue
        return


async def test_f3_a_stopped_single_server_is_noticed_with_the_default_patience(
    newest: Path, make_server: ServerMaker, make_store: StoreMaker, prefix: str
):
    server = make_server(newest)
    store = make_store(server.endpoint)
    updates = store.watch(prefix)
    await next_update(updates)
    await store.put(prefix + "a", b"")
    assert (await next_update(updates)).changed == {prefix + "a"}  # the stream is there
    server.pause()
    start = time.monotonic()
    await update_where(updates, lambda update: not update.is_live, timeout_s=12)
    assert time.monotonic() - start < 10  # 5 + 3 s, and the machine's own slowness
    server.resume()
    await update_where(updates, lambda update: update.is_live, timeout_s=12)


async def test_f3_writes_and_watches_move_on_when_members_stop_in_turn(
    newest: Path, make_cluster: ClusterMaker, make_store: StoreMaker, prefix: str
):
    cluster = await asyncio.to_thread(make_cluster, newest)
    store = make_store(*cluster.endpoints, timeout_s=1.0, patience=QUICK)
    watcher = make_store(*cluster.endpoints, timeout_s=1.0, patience=QUICK)
    updates = watcher.watch(prefix)
    await next_update(updates)
    stop = asyncio.Event()
    writing = asyncio.create_task(write_until_stopped(store, prefix, stop))
    for member in cluster.members:
        member.pause()
        await asyncio.sleep(3)
        member.resume()
        mark = await put_somehow(store, prefix + "mark", member.name)
        await update_where(updates, partial(is_live_at, mark))
    stop.set()
    durations = await writing
    assert max(durations) < 5
    entry = await store.get(prefix + "number")
    assert entry is not None
    await eventually(lambda: agrees(watcher, store, prefix), "watch and store agree")


def is_live_at(revision: int, update: Update) -> bool:
    return update.is_live and update.revision >= revision


async def put_somehow(store: EtcdStore, key: str, text: str) -> int:
    while True:
        try:
            return await store.put(key, text.encode())
        except (StoreUnavailable, Indeterminate):
            continue


async def agrees(watcher: EtcdStore, store: EtcdStore, prefix: str) -> bool:
    first = await next_update(watcher.watch(prefix))
    listing = await store.list(prefix)
    return first.entries == {entry.key: entry for entry in listing.entries}

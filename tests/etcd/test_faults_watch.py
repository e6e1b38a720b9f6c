"""F10, F11, F12 and silent cuts: whatever ends a watch, the reader arrives at the truth."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.etcd.conftest import ServerMaker, StoreMaker
from tests.etcd.proxy import Proxy
from tests.etcd.servers import EtcdServer
from tests.etcd.waiting import eventually, next_update, update_where
from vctl_plans.store.etcd import EtcdStore
from vctl_plans.store.port import Delete, Txn, Update
from vctl_plans.store.watch import Patience

pytestmark = pytest.mark.etcd


class Cut:
    """A server, a store that reaches it directly, and one that is behind a proxy."""

    def __init__(self, server: EtcdServer, direct: EtcdStore, behind: EtcdStore, proxy: Proxy):
        self.server = server
        self.direct = direct
        self.behind = behind
        self.proxy = proxy


@pytest.fixture
async def cut(binary: Path, make_server: ServerMaker, make_store: StoreMaker) -> AsyncIterator[Cut]:
    server = make_server(binary)
    async with Proxy(server.port) as proxy:
        behind = make_store(
            proxy.endpoint, timeout_s=6.0, patience=Patience(probe_s=0.5, grace_s=0.5)
        )
        yield Cut(server, make_store(server.endpoint), behind, proxy)
        await behind.close()


async def listed_but_not_yet_watching(cut: Cut, prefix: str) -> AsyncIterator[Update]:
    """Return a watch that has listed, and whose stream waits for its connection."""
    await cut.behind.get(prefix)
    known = cut.proxy.connections
    cut.proxy.hold_new()
    updates = cut.behind.watch(prefix)
    await next_update(updates)

    async def has_connected() -> bool:
        return cut.proxy.connections > known

    await eventually(has_connected, "the watch's own connection")
    return updates


async def watching(cut: Cut, prefix: str) -> AsyncIterator[Update]:
    """Return a watch whose stream is known to be open."""
    updates = cut.behind.watch(prefix)
    await next_update(updates)
    await cut.direct.put(prefix + "first", b"")
    assert (await next_update(updates)).changed == {prefix + "first"}
    return updates


async def assert_arrives(cut: Cut, updates: AsyncIterator[Update], prefix: str) -> None:
    """Assert that the watch arrives at what the server holds."""
    listing = await cut.direct.list(prefix)
    truth = {entry.key: entry for entry in listing.entries}
    update = await update_where(
        updates, lambda update: update.is_live and update.entries == truth, timeout_s=20
    )
    assert update.entries == truth


async def test_f10_a_watch_from_a_compacted_revision_lists_again(cut: Cut, prefix: str):
    await cut.direct.put(prefix + "gone", b"1")
    updates = await listed_but_not_yet_watching(cut, prefix)
    await cut.direct.commit(Txn(operations=(Delete(prefix + "gone"),)))
    revision = await cut.direct.put(prefix + "new", b"2")
    revision = await cut.direct.put(prefix + "new", b"3")
    await asyncio.to_thread(cut.server.ctl, "compact", str(revision))
    cut.proxy.release_new()
    update = await update_where(updates, lambda update: prefix + "new" in update.entries)
    assert set(update.entries) == {prefix + "new"}
    assert update.changed == {prefix + "gone", prefix + "new"}
    assert update.is_live


async def test_f10_changes_behind_a_cut_and_a_compaction_are_found(cut: Cut, prefix: str):
    await cut.direct.put(prefix + "gone", b"1")
    updates = await watching(cut, prefix)
    cut.proxy.hold_new()
    cut.proxy.cut()
    await update_where(updates, lambda update: not update.is_live)
    await cut.direct.commit(Txn(operations=(Delete(prefix + "gone"),)))
    revision = await cut.direct.put(prefix + "new", b"2")
    await asyncio.to_thread(cut.server.ctl, "compact", str(revision))
    cut.proxy.release_new()
    await assert_arrives(cut, updates, prefix)


async def test_f11_no_key_is_missing_after_a_kill_during_catch_up(cut: Cut, prefix: str):
    updates = await listed_but_not_yet_watching(cut, prefix)
    half = 2_500
    for start in range(0, 2 * half, 500):
        await asyncio.gather(
            *(cut.direct.put(f"{prefix}{n:05}", b"x" * 200) for n in range(start, start + 500))
        )
    listing = await cut.direct.list(prefix)
    cut.proxy.release_new()
    await update_where(updates, lambda update: bool(update.entries))
    cut.server.kill()
    await asyncio.to_thread(cut.server.start)
    await asyncio.to_thread(cut.server.ctl, "compact", str(listing.revision))
    await cut.direct.put(prefix + "last", b"")
    await assert_arrives(cut, updates, prefix)


async def test_f12_a_backlog_of_more_than_4_mib_arrives(cut: Cut, prefix: str):
    updates = await listed_but_not_yet_watching(cut, prefix)
    await asyncio.gather(*(cut.direct.put(f"{prefix}{n}", b"x" * 20_000) for n in range(400)))
    cut.proxy.release_new()
    await assert_arrives(cut, updates, prefix)


async def test_a_silently_cut_client_notices_and_lists_again(cut: Cut, prefix: str):
    updates = await watching(cut, prefix)
    cut.proxy.freeze()
    start = time.monotonic()
    await update_where(updates, lambda update: not update.is_live)
    assert time.monotonic() - start < 5
    await cut.direct.put(prefix + "new", b"")
    cut.proxy.cut()
    cut.proxy.thaw()
    await assert_arrives(cut, updates, prefix)


async def test_turning_to_another_endpoint_leaves_open_streams_alone(cut: Cut, prefix: str):
    updates = await watching(cut, prefix)
    channels = cut.behind._connection.channels
    for number in range(3):
        channels.rotate(channels.generation)
        await cut.behind.put(f"{prefix}{number}", b"")
        update = await next_update(updates)
        assert update.changed == {f"{prefix}{number}"}
        assert update.is_live


async def test_an_idle_watch_stays_alive_by_asking_for_progress(cut: Cut, prefix: str):
    updates = await watching(cut, prefix)
    reading = asyncio.ensure_future(next_update(updates))
    await asyncio.sleep(2)  # four times as long as it may be silent unasked
    assert not reading.done()
    await cut.direct.put(prefix + "a", b"")
    assert (await reading).changed == {prefix + "a"}


async def test_watch_of_a_process_that_was_stopped_is_overdue_at_once(cut: Cut, prefix: str):
    """Before the event loop has turned once, so before anything can be done by what is known."""
    updates = await watching(cut, prefix)
    assert cut.behind.overdue_s() == 0.0
    time.sleep(1.8)  # noqa: ASYNC251  as SIGSTOP does; longer than patience lasts (1.5 s)
    assert cut.behind.overdue_s() > 0.2

    async def is_heard() -> bool:
        return cut.behind.overdue_s() == 0.0

    await eventually(is_heard, "the watch to be heard again")
    await cut.direct.put(prefix + "key", b"after")
    await assert_arrives(cut, updates, prefix)


async def test_watch_that_is_heard_is_never_overdue(cut: Cut, prefix: str):
    """Neither while nothing happens, for it is asked, nor while nothing is watched."""
    assert cut.behind.overdue_s() == 0.0
    updates = await watching(cut, prefix)
    await asyncio.sleep(3.0)  # twice as long as patience lasts

    async def is_heard() -> bool:
        return cut.behind.overdue_s() == 0.0

    await eventually(is_heard, "the watch to be heard")
    await cut.direct.put(prefix + "key", b"after")
    await assert_arrives(cut, updates, prefix)


async def test_watch_that_is_cut_off_in_silence_becomes_overdue(cut: Cut, prefix: str):
    """And is heard again once it has listed."""
    updates = await watching(cut, prefix)
    cut.proxy.freeze()

    async def is_overdue() -> bool:
        return cut.behind.overdue_s() > 0.5

    await eventually(is_overdue, "the silence to be noticed")
    await cut.direct.put(prefix + "key", b"after")
    cut.proxy.cut()
    cut.proxy.thaw()
    await assert_arrives(cut, updates, prefix)
    assert cut.behind.overdue_s() == 0.0

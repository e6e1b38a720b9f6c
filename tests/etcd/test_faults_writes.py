"""F13, F14, F23, F24: writes whose outcome is unknown, that do not fit, or come from a fork."""

import asyncio
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

from tests.etcd.conftest import ServerMaker, StoreMaker
from tests.etcd.proxy import Proxy
from tests.etcd.waiting import eventually, next_update
from vctl_plans.errors import Conflict, ForkedProcess, Indeterminate, Rejected, StoreUnavailable
from vctl_plans.store.etcd import EtcdStore
from vctl_plans.store.port import ModRevisionIs, Put, Txn

pytestmark = pytest.mark.etcd


async def test_f23_a_lost_reply_is_indeterminate_and_leads_to_exactly_one_step(
    binary: Path, make_server: ServerMaker, make_store: StoreMaker, prefix: str
):
    server = make_server(binary)
    async with Proxy(server.port) as proxy:
        store = make_store(proxy.endpoint, timeout_s=1.0)
        await store.put(prefix + "step", b"0")
        entry = await store.get(prefix + "step")
        assert entry is not None
        txn = Txn(
            (ModRevisionIs(prefix + "step", entry.mod_revision),), (Put(prefix + "step", b"1"),)
        )
        proxy.drop_replies()
        with pytest.raises(Indeterminate, match="may have been carried out"):
            await store.commit(txn)
        assert proxy.dropped_bytes > 0
        proxy.cut()

        after = await store.get(prefix + "step")
        assert after is not None
        assert (after.value, after.version) == (b"1", 2)
        with pytest.raises(Conflict):
            await store.commit(txn)
        await store.close()


async def test_f23_a_put_is_repeated_until_it_is_answered(
    binary: Path, make_server: ServerMaker, make_store: StoreMaker, prefix: str
):
    server = make_server(binary)
    async with Proxy(server.port) as proxy:
        store = make_store(proxy.endpoint, timeout_s=0.5)
        await store.get(prefix)
        proxy.drop_replies()
        putting = asyncio.create_task(store.put(prefix + "a", b"1"))
        direct = make_store(server.endpoint)

        async def is_written() -> bool:
            return await direct.get(prefix + "a") is not None

        await eventually(is_written, "the put arrived")
        proxy.cut()
        revision = await putting
        entry = await direct.get(prefix + "a")
        assert entry is not None
        assert (entry.value, entry.mod_revision) == (b"1", revision)
        await store.close()


async def test_f23_a_put_that_is_never_answered_is_indeterminate(
    newest: Path, make_server: ServerMaker, make_store: StoreMaker, prefix: str
):
    server = make_server(newest)
    async with Proxy(server.port) as proxy:
        store = make_store(proxy.endpoint, timeout_s=0.3)
        await store.get(prefix)
        proxy.freeze()
        with pytest.raises(Indeterminate):
            await store.put(prefix + "a", b"1")
        with pytest.raises(StoreUnavailable):
            await store.get(prefix + "a")
        await store.close()


async def test_a_commit_that_reaches_nobody_is_certainly_not_applied(
    newest: Path, make_server: ServerMaker, make_store: StoreMaker, prefix: str
):
    server = make_server(newest)
    server.stop()
    store = make_store(server.endpoint, timeout_s=0.3)
    with pytest.raises(StoreUnavailable, match=server.endpoint) as caught:
        await store.commit(Txn(operations=(Put(prefix + "a", b""),)))
    assert "endpoints" in caught.value.hint


async def test_f13_a_range_of_many_mib_is_read_in_pages(
    newest: Path, make_server: ServerMaker, make_store: StoreMaker, prefix: str
):
    server = make_server(newest)
    store = make_store(server.endpoint, timeout_s=10.0)
    value = b"x" * 1_500_000
    for number in range(48):  # 72 MB: more than one page may have
        await store.put(f"{prefix}{number:02}", value)
    listing = await store.list(prefix)
    assert [len(entry.value) for entry in listing.entries] == [len(value)] * 48


async def fill(store: EtcdStore, prefix: str) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:  # the server knows its size a moment later
        await store.put(prefix + "big", os.urandom(1_000_000))


async def test_f14_a_full_etcd_is_told_apart_and_repaired(
    binary: Path, make_server: ServerMaker, make_store: StoreMaker, prefix: str
):
    server = make_server(binary, args=["--quota-backend-bytes", str(16 * 1024 * 1024)])
    store = make_store(server.endpoint)
    lease = await store.grant(3)
    await store.put(prefix + "leased", b"", lease_id=lease.id)
    with pytest.raises(Rejected, match="etcd is full") as caught:
        await fill(store, prefix)
    assert caught.value.code == "RESOURCE_EXHAUSTED"
    assert "defrag" in caught.value.hint
    with pytest.raises(Rejected, match="etcd is full"):
        await store.commit(Txn(operations=(Put(prefix + "a", b""),)))
    with pytest.raises(Rejected, match="etcd is full"):
        await store.grant(10)
    await asyncio.sleep(4)  # longer than the lease: it is kept alive all the same
    assert lease.valid_for_s() > 0
    assert await store.get(prefix + "leased") is not None

    revision = (await store.list(prefix)).revision
    for command in (["compact", str(revision)], ["defrag"], ["alarm", "disarm"]):
        await asyncio.to_thread(server.ctl, *command)
    await store.put(prefix + "after", b"")


def in_fork(store: EtcdStore, prefix: str) -> int:
    """Use *store* in a forked child; return 0 if each use was refused at once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    txn = Txn(operations=(Put(prefix, b""),))
    calls = [
        store.get(prefix),
        store.list(prefix),
        store.put(prefix, b""),
        store.commit(txn),
        store.grant(5),
        store.watch(prefix).__anext__(),
    ]
    refused = 0
    for call in calls:
        try:
            call.__await__().send(None)
        except ForkedProcess:
            refused += 1
        except BaseException:  # noqa: BLE001  the child may not return
            os._exit(2)
    os._exit(0 if refused == len(calls) else 1)


async def test_f24_a_fork_is_refused_and_a_subprocess_harmless(
    newest: Path, make_server: ServerMaker, make_store: StoreMaker, prefix: str
):
    server = make_server(newest)
    store = make_store(server.endpoint)
    updates = store.watch(prefix)
    await next_update(updates)
    assert in_fork(store, prefix) == 0
    for _ in range(10):
        process = await asyncio.create_subprocess_exec(sys.executable, "-S", "-c", "pass")
        assert await process.wait() == 0
        subprocess.run([sys.executable, "-S", "-c", "pass"], check=True)  # noqa: ASYNC221
        await store.put(prefix + "a", b"")
        assert (await next_update(updates)).changed == {prefix + "a"}

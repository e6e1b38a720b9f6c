"""F18, F20, and what a lease's holder knows: it stops before others see the lease gone."""

import ast
import asyncio
import time
from pathlib import Path

import pytest

import vctl_plans.store
from tests.etcd.conftest import ClusterMaker, ServerMaker, StoreMaker
from tests.etcd.waiting import eventually, next_update
from vctl_plans.errors import LeaseLost
from vctl_plans.store.watch import Patience

pytestmark = pytest.mark.etcd
WALL_CLOCKS = {"time.time", "time.time_ns", "time.localtime", "time.gmtime", "time.ctime"}


async def test_f20_a_lease_revoked_by_somebody_else_is_lost_by_the_next_keepalive(
    binary: Path, make_server: ServerMaker, make_store: StoreMaker, prefix: str
):
    server = make_server(binary)
    store = make_store(server.endpoint)
    lease = await store.grant(3)
    await store.put(prefix + "a", b"", lease_id=lease.id)
    await asyncio.sleep(1.2)  # a first keepalive has been answered
    await asyncio.to_thread(server.ctl, "lease", "revoke", f"{lease.id:x}")
    start = time.monotonic()
    async with asyncio.timeout(3):
        await lease.wait_lost()
    assert time.monotonic() - start < 2
    assert lease.valid_for_s() <= 0
    with pytest.raises(LeaseLost):
        await store.put(prefix + "a", b"", lease_id=lease.id)


async def test_the_holder_knows_that_its_lease_is_gone_before_others_do(
    newest: Path, make_cluster: ClusterMaker, make_store: StoreMaker, prefix: str
):
    cluster = await asyncio.to_thread(make_cluster, newest)
    leader = await asyncio.to_thread(cluster.leader)
    others = [member.endpoint for member in cluster.members if member is not leader]
    holder = make_store(leader.endpoint, timeout_s=1.0)
    lease = await holder.grant(3)
    await holder.put(prefix + "a", b"", lease_id=lease.id)
    observer = make_store(*others, timeout_s=1.0)
    leader.pause()
    start = time.monotonic()
    async with asyncio.timeout(6):
        await lease.wait_lost()
    known_after_s = time.monotonic() - start

    async def is_gone() -> bool:
        return await observer.get(prefix + "a") is None

    await eventually(is_gone, "the key went with its lease", timeout_s=20)
    assert known_after_s < lease.ttl_s + 1
    assert known_after_s < time.monotonic() - start


async def test_a_holder_that_was_stopped_itself_knows_at_once(
    newest: Path, make_server: ServerMaker, make_store: StoreMaker
):
    server = make_server(newest)
    store = make_store(server.endpoint)
    lease = await store.grant(2)
    time.sleep(lease.ttl_s + 0.5)  # noqa: ASYNC251  as SIGSTOP would stop the whole process
    assert lease.valid_for_s() < 0
    async with asyncio.timeout(2):
        await lease.wait_lost()


async def test_a_lease_survives_a_server_restart_within_its_time(
    binary: Path, make_server: ServerMaker, make_store: StoreMaker, prefix: str
):
    server = make_server(binary)
    store = make_store(server.endpoint)
    lease = await store.grant(6)
    await store.put(prefix + "a", b"", lease_id=lease.id)
    server.kill()
    await asyncio.to_thread(server.start)

    async def is_renewed() -> bool:
        return lease.valid_for_s() > lease.ttl_s - 1

    await eventually(is_renewed, "the lease is renewed")
    assert await store.get(prefix + "a") is not None


@pytest.mark.parametrize("jump_s", [-3600.0, 3600.0])
async def test_f18_a_jump_of_the_wall_clock_changes_nothing(
    newest: Path,
    make_server: ServerMaker,
    make_store: StoreMaker,
    prefix: str,
    jump_s: float,
    monkeypatch: pytest.MonkeyPatch,
):
    server = make_server(newest)
    store = make_store(server.endpoint, patience=Patience(probe_s=0.3, grace_s=0.5))
    updates = store.watch(prefix)
    await next_update(updates)
    lease = await store.grant(2)
    wall_clock = time.time
    monkeypatch.setattr(time, "time", lambda: wall_clock() + jump_s)
    await asyncio.sleep(1.0)
    assert 0 < lease.valid_for_s() <= lease.ttl_s
    await store.put(prefix + "a", b"", lease_id=lease.id)
    update = await next_update(updates)
    assert (update.is_live, set(update.entries)) == (True, {prefix + "a"})


def test_f18_the_store_never_reads_the_wall_clock():
    folder = Path(vctl_plans.store.__file__).parent
    found = []
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and ast.unparse(node) in WALL_CLOCKS:
                found.append(f"{path.name}:{node.lineno}")
            if isinstance(node, ast.ImportFrom) and node.module in {"time", "datetime"}:
                found.append(f"{path.name}:{node.lineno}")
            if isinstance(node, ast.Import) and any(name.name == "datetime" for name in node.names):
                found.append(f"{path.name}:{node.lineno}")
    assert found == []

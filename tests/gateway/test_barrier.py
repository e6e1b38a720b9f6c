"""Behind a barrier requests wait for the next route or are sent away; none is served by a guess."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from structlog.testing import capture_logs

from tests.gateway.support import (
    KEYS,
    SERVICE,
    Bench,
    StubEngine,
    a_release,
    a_route,
    bench,
    event,
    eventually,
    gateway_alone,
    overridden,
    publish,
    publish_groups,
    ready,
    serving,
)
from tests.gateway.test_cancellation import CuttingProxy, attempt
from vctl_agent.gateway import program
from vctl_plans.groups import Group, Groups
from vctl_plans.route import Hold, Route, Stage
from vctl_plans.store.memory import MemoryStore
from vctl_plans.store.port import Delete, Txn

LONG_S = 30.0
STAFF = Groups(groups=(Group(name="staff", users=("ann",)),))


def held(
    stable: int = 1,
    stage: Stage = Stage.HOLD,
    *,
    fence_s: float = LONG_S,
    limit_s: float = LONG_S,
    **fields: Any,
) -> Route:
    hold = Hold(stage=stage, fence_s=fence_s, limit_s=limit_s)
    return a_route(stable, hold=hold, **fields)


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Bench]:
    async with serving(tmp_path, has_access_log=False) as made:
        yield made
        assert made.gateway.references.listing() == ()
        assert made.gateway.barrier.held == {}
        assert made.gateway.barrier._turns == {}


async def answer_of(gateway: Bench, **asked: Any) -> tuple[int, str]:
    """Return the status, and the release that served or the code of the refusal."""
    async with gateway.ask(**asked) as answer:
        document = await answer.json()
        if answer.status == 200:
            return 200, answer.headers["x-vctl-release"]
        assert answer.status != 503 or answer.headers["Retry-After"] == "1"
        return answer.status, document["error"]["code"]


@contextlib.asynccontextmanager
async def waiting(gateway: Bench, *asked: dict[str, Any]) -> AsyncIterator[list[asyncio.Task[Any]]]:
    """Have requests wait: one for each of *asked*."""
    tasks = [asyncio.create_task(answer_of(gateway, **each)) for each in asked]
    await eventually(lambda: gateway.gateway.barrier.held.get(SERVICE) == len(asked))
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_fenced_service_serves_as_ever_while_in_contact(gateway: Bench):
    revision = await gateway.route(held(stage=Stage.FENCED, fence_s=0.0))
    assert await answer_of(gateway) == (200, "1")
    await eventually(lambda: gateway.agent.last.routes == {SERVICE: revision})


@pytest.mark.parametrize("stage", list(Stage))
async def test_without_contact_for_longer_than_the_fence_all_are_sent_away(
    gateway: Bench, stage: Stage
):
    later_s, live = 0.0, gateway.gateway.live
    live._clock = lambda: time.monotonic() + later_s
    await gateway.route(held(stage=stage))
    gateway.store.disconnect()
    await eventually(lambda: not live.is_connected)
    if stage is Stage.FENCED:
        assert await answer_of(gateway) == (200, "1")
    later_s = LONG_S + 0.1
    assert await answer_of(gateway) == (503, "fenced")
    assert await answer_of(gateway, headers={"x-vctl-release": "1"}) == (503, "fenced")
    async with gateway.client.get(f"{gateway.admin_url}/readyz") as answer:
        assert answer.status == 200
    gateway.store.reconnect()
    await eventually(lambda: live.is_connected)
    await gateway.route(held(stage=Stage.FENCED))
    assert await answer_of(gateway) == (200, "1")


async def test_service_without_a_barrier_is_served_however_long_contact_is_lost(gateway: Bench):
    await gateway.route(a_route(2, service="chat"), a_release(2, service="chat"))
    await gateway.route(held(fence_s=0.0))
    gateway.gateway.live.accept(
        ready(a_release(1), a_release(2, service="chat"), engine_url=gateway.engine.url)
    )
    gateway.store.disconnect()
    await eventually(lambda: not gateway.gateway.live.is_connected)
    assert await answer_of(gateway, model="chat") == (200, "2")
    assert await answer_of(gateway) == (503, "fenced")


@pytest.mark.parametrize(
    ("after", "release"),
    [
        (a_route(2), "2"),
        (a_route(1), "1"),
        (held(2, Stage.FENCED), "2"),
        (a_route(1, candidate=2, weight=100.0), "2"),
    ],
    ids=["flip", "undo", "back to fenced", "flip by weight"],
)
async def test_requests_wait_and_all_choose_by_the_route_that_ends_the_hold(
    gateway: Bench, after: Route, release: str
):
    revision = await gateway.route(held())
    await eventually(lambda: gateway.agent.last.routes == {SERVICE: revision})
    async with waiting(gateway, *({"headers": {"x-vctl-session": f"s{n}"}} for n in range(20))):
        pass  # clients that went away are let go
    await eventually(lambda: gateway.gateway.barrier.held == {})
    asked: list[dict[str, Any]] = [{"headers": {"x-vctl-session": f"s{n}"}} for n in range(20)]
    async with waiting(gateway, *asked) as tasks:
        assert gateway.gateway.references.total == 0
        assert f'vctl_gateway_held_requests{{service="{SERVICE}"}} 20.0' in await gateway.metrics()
        await gateway.route(after)
        assert await asyncio.gather(*tasks) == [(200, release)] * 20
    assert f'vctl_gateway_held_requests{{service="{SERVICE}"}} 0.0' in await gateway.metrics()
    assert len(gateway.engine.bodies) == 20


async def test_named_and_overridden_requests_wait_as_well(gateway: Bench):
    await publish_groups(gateway.store, STAFF)
    await gateway.route(held(1, candidate=2, weight=1.0))
    named, ann = {"headers": {"x-vctl-release": "1"}}, {"headers": {"x-vctl-user": "ann"}}
    async with waiting(gateway, named, ann) as tasks:
        await gateway.route(overridden(2, (STAFF, 1)))
        assert await asyncio.gather(*tasks) == [(200, "1"), (200, "1")]
    await gateway.route(held())
    async with waiting(gateway, named) as tasks:
        await gateway.route(a_route(2))
        assert await asyncio.gather(*tasks) == [(409, "release_not_served")]


async def test_requests_that_are_under_way_go_on(gateway: Bench):
    go = asyncio.Event()

    async def wait_then_end(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(event(body["model"], "t0"))
        await go.wait()
        await response.write(event(body["model"], "t1"))
        return response

    gateway.engine.answer = wait_then_end
    async with gateway.ask(stream=True) as answer:
        await answer.content.readuntil(b"\n\n")
        await gateway.route(held())
        go.set()
        assert await answer.content.read() == event(SERVICE, "t1")


async def test_hold_that_is_too_long_ends_in_503_counted_from_the_requests_own_start(
    gateway: Bench,
):
    await gateway.route(held(limit_s=0.04))
    assert await answer_of(gateway) == (503, "hold_timeout")
    assert await answer_of(gateway) == (503, "hold_timeout")
    line = f'vctl_gateway_hold_timeouts_total{{service="{SERVICE}"}} 2.0'
    assert line in await gateway.metrics()
    assert gateway.engine.bodies == []


async def test_hold_that_is_written_again_counts_from_when_a_request_began_to_wait(gateway: Bench):
    await gateway.route(held())
    async with waiting(gateway, {}) as tasks:
        await gateway.route(held(limit_s=60.0))
        assert gateway.gateway.barrier.held == {SERVICE: 1}
        await gateway.route(held(limit_s=0.0))
        assert await asyncio.gather(*tasks) == [(503, "hold_timeout")]


async def test_contact_that_is_lost_while_requests_wait_sends_them_away_at_the_fence(
    gateway: Bench,
):
    await gateway.route(held(fence_s=0.03))
    async with waiting(gateway, {}, {}) as tasks:
        gateway.store.disconnect()
        assert await asyncio.gather(*tasks) == [(503, "fenced")] * 2
        assert gateway.gateway.live.last_contact_s() > 0.03
    assert "vctl_gateway_hold_timeouts_total{" not in await gateway.metrics()


async def test_contact_that_comes_back_before_the_fence_lets_requests_wait_on(gateway: Bench):
    await gateway.route(held(fence_s=10.0))
    async with waiting(gateway, {}) as tasks:
        for _ in range(3):
            gateway.store.disconnect()
            await eventually(lambda: not gateway.gateway.live.is_connected)
            gateway.store.reconnect()
            await eventually(lambda: gateway.gateway.live.is_connected)
        assert gateway.gateway.barrier.held == {SERVICE: 1}
        await gateway.route(a_route(2))
        assert await asyncio.gather(*tasks) == [(200, "2")]


async def test_service_that_is_removed_while_requests_wait_is_no_model(gateway: Bench):
    await gateway.route(held())
    async with waiting(gateway, {}) as tasks:
        await gateway.store.commit(Txn(operations=(Delete(KEYS.route(SERVICE)),)))
        assert await asyncio.gather(*tasks) == [(404, "model_not_found")]


async def test_more_requests_than_may_wait_are_sent_away(tmp_path: Path):
    async with serving(tmp_path, has_access_log=False) as gateway:
        gateway.gateway.barrier._most_held = 2
        await gateway.route(held())
        async with waiting(gateway, {}, {}) as tasks:
            assert await answer_of(gateway) == (503, "hold_full")
            await gateway.route(a_route(1))
            assert await asyncio.gather(*tasks) == [(200, "1")] * 2


async def test_process_that_was_stopped_refuses_before_its_watch_has_noticed(gateway: Bench):
    await gateway.route(held(stage=Stage.FENCED, fence_s=1.0))
    live = gateway.gateway.live
    live.overdue_s = lambda: 2.0
    assert live.is_connected
    assert await answer_of(gateway) == (503, "fenced")
    live.overdue_s = lambda: 0.5
    assert await answer_of(gateway) == (200, "1")


@pytest.mark.parametrize("stage", list(Stage))
async def test_restart_behind_a_barrier_refuses_until_the_store_has_spoken(
    tmp_path: Path, stage: Stage
):
    store = MemoryStore()
    async with StubEngine().running() as engine, aiohttp.ClientSession() as client:
        async with bench(tmp_path, store=store, has_access_log=False) as before:
            await before.route(held(stage=stage), a_release(1))
            before.gateway.live.accept(ready(a_release(1), engine_url=engine.url))
        store = store.peer()
        store.disconnect()
        async with gateway_alone(tmp_path, store, has_access_log=False) as (made, at, _):
            ask = {"url": f"http://{at.clients}/v1/completions", "json": {"model": SERVICE}}
            async with client.post(**ask) as answer:  # type: ignore[arg-type]
                assert answer.status == 503
                assert (await answer.json())["error"]["code"] == "fenced"
            store.reconnect()
            await eventually(lambda: made.live.is_connected)
            await publish(store, a_route(1))
            await eventually(lambda: made.live.acted.known.routes[SERVICE].route.hold is None)
            async with client.post(**ask) as answer:  # type: ignore[arg-type]
                assert answer.status == 200


async def test_log_says_how_long_a_request_waited(tmp_path: Path):
    async with serving(tmp_path) as gateway:
        await gateway.route(held())
        with capture_logs() as logs:
            async with waiting(gateway, {}) as tasks:
                await asyncio.sleep(0.02)
                await gateway.route(a_route(2))
                assert await asyncio.gather(*tasks) == [(200, "2")]
            await eventually(lambda: any(line["event"] == "request" for line in logs))
        (line,) = [line for line in logs if line["event"] == "request"]
        assert (line["release"], line["why"]) == (2, "stable")
        assert 10 <= line["held_ms"] <= line["ms"]


async def test_no_request_is_chosen_for_while_the_service_is_held(gateway: Bench):
    """Many switches under many clients: each answer is by a route that holds nobody back."""
    serves: dict[str, str] = {}  # route revision -> the release that it serves
    has_ended = asyncio.Event()

    async def ask_on() -> list[tuple[str, str]]:
        got = []
        while not has_ended.is_set():
            async with gateway.ask() as answer:
                assert answer.status == 200
                got.append((answer.headers["x-vctl-route"], answer.headers["x-vctl-release"]))
        return got

    first = gateway.gateway.live.acted.known.route_revisions()[SERVICE]
    serves[str(first)] = "1"
    tasks = [asyncio.create_task(ask_on()) for _ in range(8)]
    for n in range(10):
        before, after = (1, 2) if n % 2 == 0 else (2, 1)
        serves[str(await gateway.route(held(before, Stage.FENCED)))] = str(before)
        await gateway.route(held(before))
        await eventually(lambda: gateway.gateway.barrier.held.get(SERVICE) == len(tasks))
        assert gateway.gateway.references.total == 0
        serves[str(await gateway.route(a_route(after)))] = str(after)
    has_ended.set()
    got = [each for task in tasks for each in await task]
    assert [serves[route] for route, _ in got] == [release for _, release in got]


async def test_request_that_is_cancelled_anywhere_behind_a_barrier_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(program, "Proxy", CuttingProxy)
    async with serving(tmp_path, has_access_log=False) as gateway:
        await gateway.route(held(limit_s=0.005))
        for step in range(1, 200):
            CuttingProxy.step = step
            await attempt(gateway)
            await eventually(lambda: gateway.gateway.barrier.held == {})
            if not CuttingProxy.reached:
                break
        assert step > 2
        CuttingProxy.step = 0
        await gateway.route(a_route(1))
        assert await answer_of(gateway) == (200, "1")
        assert gateway.gateway.references.listing() == ()

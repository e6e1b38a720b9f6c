"""Who is in a group gets the group's release, through a real gateway; everybody else by weight."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs

from tests.gateway.support import (
    FLEET,
    KEYS,
    SERVICE,
    Bench,
    StubEngine,
    a_release,
    a_route,
    bench,
    eventually,
    gateway_alone,
    overridden,
    publish_groups,
    ready,
)
from vctl_agent.gateway.persist import load
from vctl_plans.groups import Group, Groups
from vctl_plans.route import Consistency
from vctl_plans.share import share
from vctl_plans.store.memory import MemoryStore

STAFF = Groups(groups=(Group(name="staff", users=("ann", "bo")),))
ACME = Groups(
    groups=(Group(name="acme", tenant="acme"), Group(name="beta", header={"x-tier": "beta"}))
)
ROUTE = overridden(1, (STAFF, 2), (ACME, 3))
RELEASES = tuple(a_release(n) for n in (1, 2, 3))


async def overriding(gateway: Bench) -> None:
    await publish_groups(gateway.store, STAFF, ACME)
    await gateway.route(ROUTE, *RELEASES)
    await gateway.ready(*RELEASES)


async def released_to(gateway: Bench, fields: dict[str, str], **body: Any) -> str:
    async with gateway.ask(headers=fields, **body) as answer:
        assert answer.status == 200
        document = await answer.json()
        number = answer.headers["x-vctl-release"]
        assert document["choices"][0]["text"] == f"by {a_release(int(number)).engine_name}"
        own = {name.lower() for name in answer.headers if name.lower().startswith("x-vctl-")}
        assert own == {"x-vctl-release", "x-vctl-route", "x-vctl-vector"}
        return str(number)


@pytest.mark.parametrize(
    ("fields", "body", "release", "why", "group"),
    [
        ({}, {}, "1", "stable", ""),
        ({"x-vctl-user": "ann"}, {}, "2", "override", "staff"),
        ({"X-VCTL-User": "bo"}, {"user": "cy"}, "2", "override", "staff"),
        ({}, {"user": "bo"}, "2", "override", "staff"),
        ({"x-vctl-user": "cy"}, {"user": "bo"}, "1", "stable", ""),
        ({}, {"user": 7}, "1", "stable", ""),
        ({"x-vctl-tenant": "acme"}, {}, "3", "override", "acme"),
        ({"X-Tier": "beta"}, {}, "3", "override", "beta"),
        ({"X-Tier": "BETA"}, {}, "1", "stable", ""),
        ({"x-vctl-user": "ann", "x-vctl-release": "3"}, {}, "3", "named", ""),
    ],
)
async def test_group_gets_its_release_and_the_log_says_why(
    tmp_path: Path, fields: dict[str, str], body: dict[str, Any], release: str, why: str, group: str
):
    async with bench(tmp_path) as gateway:
        await overriding(gateway)
        with capture_logs() as logs:
            assert await released_to(gateway, fields, **body) == release
            await eventually(lambda: any(line["event"] == "request" for line in logs))
        (line,) = [line for line in logs if line["event"] == "request"]
        assert (line["why"], line.get("group", "")) == (why, group)
        assert "held_ms" not in line
        (got,) = gateway.engine.headers
        assert not [name for name in got if name.lower().startswith("x-vctl-")]


async def test_field_that_is_no_utf8_decides_like_any_other(tmp_path: Path):
    async with bench(tmp_path, has_access_log=False) as gateway:
        await overriding(gateway)
        await gateway.route(overridden(1, (STAFF, 2), candidate=3, weight=50.0))
        host, port = gateway.url.removeprefix("http://").split(":")
        body = json.dumps({"model": SERVICE}).encode()
        for name in (b"x-vctl-user", b"x-vctl-session", b"x-vctl-tenant"):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(
                b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                + name
                + b": \xff\r\nContent-Length: %d\r\n\r\n" % len(body)
                + body
            )
            assert (await reader.read()).startswith(b"HTTP/1.1 200 OK\r\n")
            writer.close()
            await writer.wait_closed()


async def test_releases_of_overrides_count_wherever_releases_that_serve_do(tmp_path: Path):
    """Ready here or not, named or not, listed and kept on disk."""
    async with bench(tmp_path, has_access_log=False) as gateway:
        await publish_groups(gateway.store, STAFF)
        await gateway.route(overridden(0, (STAFF, 2)), *RELEASES)
        await gateway.ready()
        live = gateway.gateway.live
        assert live.obstacle() == f"not ready here: {SERVICE}/2"
        await gateway.ready(a_release(2), a_release(3))
        assert live.obstacle() == ""
        assert set(live.targets) == {(SERVICE, 2)}
        async with gateway.client.get(f"{gateway.url}/v1/models") as answer:
            assert [card["id"] for card in (await answer.json())["data"]] == [SERVICE]
        async with gateway.ask() as answer:
            assert answer.status == 503
        assert await released_to(gateway, {"x-vctl-release": "2"}) == "2"
        await eventually(lambda: live.acknowledged is live.acted)
        assert set(load(tmp_path / "state", FLEET).known.releases) == {(SERVICE, 2)}


async def test_agent_hears_of_a_route_only_once_its_groups_are_here(tmp_path: Path):
    async with bench(tmp_path, has_access_log=False) as gateway:
        before = await gateway.route(a_route(1), *RELEASES)
        await gateway.ready(*RELEASES)
        await eventually(lambda: gateway.agent.last.routes == {SERVICE: before})
        await gateway.store.put(KEYS.route(SERVICE), b"")  # what is unreadable holds nothing up
        await publish_groups(gateway.store, ACME)
        waiting = asyncio.create_task(gateway.route(ROUTE))
        live = gateway.gateway.live
        await eventually(lambda: SERVICE in live.acted.known.waiting)
        async with gateway.client.get(f"{gateway.admin_url}/readyz") as answer:
            found = await answer.json()
        assert answer.status == 200
        assert found["waiting"] == {SERVICE: live.acted.known.waiting[SERVICE].revision}
        assert found["routes"] == gateway.agent.last.routes == {SERVICE: before}
        assert await released_to(gateway, {"x-vctl-user": "ann"}) == "1"
        await publish_groups(gateway.store, STAFF)
        after = await waiting
        await eventually(lambda: gateway.agent.last.routes == {SERVICE: after})
        assert await released_to(gateway, {"x-vctl-user": "ann"}) == "2"


async def test_restart_with_the_store_away_decides_alike(tmp_path: Path):
    store = MemoryStore()
    async with StubEngine().running() as engine, aiohttp.ClientSession() as client:
        async with bench(tmp_path, store=store, has_access_log=False) as gateway:
            await overriding(gateway)
            gateway.gateway.live.accept(ready(*RELEASES, engine_url=engine.url))
            await gateway.gateway._saver.save()
        away = store.peer()
        away.disconnect()
        async with gateway_alone(tmp_path, away, has_access_log=False) as (_, at, _):
            for user, release in (("ann", "2"), ("cy", "1")):
                async with client.post(
                    f"http://{at.clients}/v1/completions",
                    json={"model": SERVICE},
                    headers={"x-vctl-user": user},
                ) as answer:
                    assert (answer.status, answer.headers["x-vctl-release"]) == (200, release)


async def test_eventual_splits_one_session_by_request(tmp_path: Path):
    async with bench(tmp_path, has_access_log=False) as gateway:
        await gateway.route(
            a_route(1, candidate=2, weight=30.0, consistency=Consistency.EVENTUAL), *RELEASES
        )
        await gateway.ready(*RELEASES)
        got: dict[str, int] = {}
        for n in range(200):
            fields = {"x-vctl-session": "s1", "x-request-id": f"r{n}"}
            got[f"r{n}"] = int(await released_to(gateway, fields))
        assert got == {request: 2 if share("salt", request) < 30 else 1 for request in got}
        # Within four standard deviations of 60 (binomial, of 200).
        assert abs(sum(release == 2 for release in got.values()) - 60) < 26

"""A new gateway takes the place of the one that runs: nothing is refused, no stream is cut."""

import asyncio
import signal
import socket
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.gateway.support import StubAgent, StubEngine, a_release, event, eventually, ready
from tests.gateway.test_program import BODY, process, save_state
from vctl_agent.gateway.control import Control
from vctl_agent.gateway.handover import control_path, merged, take_over
from vctl_agent.local import InFlight
from vctl_agent.unixpath import within_reach

STREAMS = 32


class Held:
    """An engine whose streams end when they are told to."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def answer(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if not body.get("stream"):
            return web.json_response({"model": body["model"], "choices": []})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(event(body["model"], "one"))
        await self.go.wait()
        await response.write(event(body["model"], "two"))
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response


class Clients:
    """Clients that ask again and again, over connections that they keep."""

    def __init__(self, client: aiohttp.ClientSession, url: str) -> None:
        self._client = client
        self._url = url
        self.answered = 0
        self.failures: list[str] = []
        self._tasks = [asyncio.create_task(self._ask()) for _ in range(8)]

    async def _ask(self) -> None:
        while True:
            try:
                async with self._client.post(self._url, json=BODY) as answer:
                    await answer.read()
                    if answer.status != 200:
                        self.failures.append(str(answer.status))
            except aiohttp.ClientError as cause:
                self.failures.append(repr(cause))
            self.answered += 1

    async def answered_more(self, count: int) -> None:
        wanted = self.answered + count
        await eventually(lambda: self.answered >= wanted, deadline_s=30)

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _stream(client: aiohttp.ClientSession, url: str, begun: list[int]) -> str:
    async with client.post(url, json=BODY | {"stream": True}) as answer:
        first = await answer.content.readline()
        begun.append(answer.status)
        return (first + await answer.read()).decode()


async def _agent(folder: Path, engine_url: str) -> StubAgent:
    agent = StubAgent(folder / "gw.sock")
    await agent.connect()
    await agent.say(ready(a_release(1), engine_url=engine_url))
    return agent


def _counted(agent: StubAgent) -> int:
    return sum(each.count for each in agent.last.in_flight) if agent.heard else -1


@pytest.mark.timeout(180)
async def test_upgrade_under_streams_and_load_costs_nothing(tmp_path: Path):
    held = Held()
    engine = StubEngine()
    engine.answer = held.answer
    async with (
        engine.running(),
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as c,
    ):
        await save_state(tmp_path, engine.url)
        async with process(tmp_path, "--access-log", "off") as old:
            url = f"{old.url}/v1/chat/completions"
            agent = await _agent(tmp_path, engine.url)
            begun: list[int] = []
            streams = [asyncio.create_task(_stream(c, url, begun)) for _ in range(STREAMS)]
            await eventually(lambda: len(begun) == STREAMS, deadline_s=30)
            clients = Clients(c, url)
            await clients.answered_more(50)

            async with process(tmp_path, "--access-log", "off", "--take-over", "on") as new:
                assert old.url == new.url
                await clients.answered_more(50)
                await eventually(lambda: agent.is_cut, deadline_s=30)
                await agent.vanish()
                agent = await _agent(tmp_path, engine.url)
                await eventually(lambda: _counted(agent) >= STREAMS, deadline_s=30)
                await clients.answered_more(50)
                await clients.end()
                held.go.set()
                texts = await asyncio.gather(*streams)
                assert 0 == await old.ended()
                await eventually(lambda: _counted(agent) == 0, deadline_s=30)
                async with c.get(f"{new.admin_url}/readyz") as answer:
                    assert 200 == answer.status
                await agent.vanish()
    assert [] == clients.failures
    assert [200] * STREAMS == begun
    assert all("one" in text and "two" in text and "[DONE]" in text for text in texts)


@pytest.mark.timeout(120)
async def test_heir_that_dies_before_it_serves_changes_nothing(tmp_path: Path):
    async with StubEngine().running() as engine, aiohttp.ClientSession() as client:
        await save_state(tmp_path, engine.url)
        async with process(tmp_path, "--access-log", "off") as old:
            heir = await asyncio.to_thread(take_over, tmp_path / "state")
            assert heir is not None
            for each in (heir.clients, heir.admin, heir._connection):
                each.close()
            for _ in range(3):
                async with client.post(f"{old.url}/v1/completions", json=BODY) as answer:
                    assert 200 == answer.status
            agent = await _agent(tmp_path, engine.url)
            await eventually(lambda: bool(agent.heard) and bool(agent.last.accepted))
            await agent.vanish()
            assert 0 == await old.end(signal.SIGTERM)


@pytest.mark.timeout(120)
async def test_former_gateway_that_is_killed_leaves_all_to_the_new_one(tmp_path: Path):
    async with StubEngine().running() as engine, aiohttp.ClientSession() as client:
        await save_state(tmp_path, engine.url)
        async with (
            process(tmp_path, "--access-log", "off") as old,
            process(tmp_path, "--access-log", "off", "--take-over", "on") as new,
        ):
            await old.end(signal.SIGKILL)
            async with client.post(f"{new.url}/v1/completions", json=BODY) as answer:
                assert 200 == answer.status
            await eventually(lambda: _is_listened_on(tmp_path), deadline_s=30)
            agent = await _agent(tmp_path, engine.url)
            await eventually(lambda: bool(agent.heard) and _counted(agent) == 0)
            await agent.vanish()


def _is_listened_on(folder: Path) -> bool:
    from vctl_agent.gateway.agentlink import _is_listened_on as probe

    return probe(folder / "gw.sock")


async def test_nobody_to_take_over_from_is_a_plain_start(tmp_path: Path):
    async with StubEngine().running() as engine, aiohttp.ClientSession() as client:
        await save_state(tmp_path, engine.url)
        async with (
            process(tmp_path, "--take-over", "on") as gateway,
            client.post(f"{gateway.url}/v1/completions", json=BODY) as answer,
        ):
            assert 200 == answer.status


async def test_control_socket_is_for_this_user_alone(tmp_path: Path):
    async with StubEngine().running() as engine:
        await save_state(tmp_path, engine.url)
        async with process(tmp_path):
            path = control_path(tmp_path / "state")
            await eventually(path.exists)
            assert 0o600 == path.stat().st_mode & 0o777


def test_counts_of_both_processes_are_summed():
    def count(service: str, number: int, count: int) -> InFlight:
        return InFlight(service=service, number=number, count=count)

    both = merged([count("a", 1, 2), count("b", 1, 1)], [count("a", 1, 3), count("a", 2, 1)])

    assert (count("a", 1, 5), count("a", 2, 1), count("b", 1, 1)) == both


async def test_state_folder_may_lie_as_deep_as_it_likes(tmp_path: Path) -> None:
    """A Unix socket's own path holds 107 bytes (unix(7)); the folder's depth is not ours."""
    deep = tmp_path / ("deep" * 30)
    deep.mkdir()
    asked: list[str] = []

    async def act(what: str, connection: socket.socket) -> None:
        asked.append(what)
        connection.sendall(b"answer")

    control = Control(control_path(deep), act)
    control.open()
    serving = asyncio.create_task(control.run())
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client,
        within_reach(control_path(deep)) as near,
    ):
        client.setblocking(False)
        await asyncio.get_running_loop().sock_connect(client, near)
        await asyncio.get_running_loop().sock_sendall(client, b"what\n")
        assert b"answer" == await asyncio.get_running_loop().sock_recv(client, 100)
    serving.cancel()
    assert ["what"] == asked
    assert control_path(deep).is_socket()

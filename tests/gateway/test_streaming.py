"""Streams: nothing is held back, nothing outlives its client, nothing cut short looks whole."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.gateway.support import Bench, a_release, event, eventually, serving
from vctl_agent.local import InFlight

MODEL = a_release(1).engine_name


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Bench]:
    async with serving(tmp_path, has_access_log=False) as made:
        yield made
        await eventually(lambda: made.gateway.references.total == 0)


class Steps:
    """An engine that sends an event each time it is told to."""

    def __init__(self) -> None:
        self.go: asyncio.Queue[bytes] = asyncio.Queue()

    async def answer(self, request: web.Request, _: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        while chunk := await self.go.get():
            await response.write(chunk)
        return response


async def test_event_arrives_before_the_engine_sends_the_next(gateway: Bench):
    steps = Steps()
    gateway.engine.answer = steps.answer
    steps.go.put_nowait(event(MODEL, "t0"))
    async with gateway.ask(stream=True) as answer:
        for n in range(1, 4):
            assert await answer.content.readuntil(b"\n\n") == event("support", f"t{n - 1}")
            steps.go.put_nowait(event(MODEL, f"t{n}"))
        steps.go.put_nowait(b"")
        assert await answer.content.read() == event("support", "t3")


async def test_stream_holds_its_release_and_the_agent_hears_it(gateway: Bench):
    steps = Steps()
    gateway.engine.answer = steps.answer
    steps.go.put_nowait(event(MODEL, "t0"))
    async with gateway.ask(stream=True) as answer:
        await answer.content.readuntil(b"\n\n")
        one = (InFlight(service="support", number=1, count=1),)
        await eventually(lambda: gateway.agent.last.in_flight == one)
        assert (
            'vctl_gateway_in_flight{release="1",service="support"} 1.0' in await gateway.metrics()
        )
        steps.go.put_nowait(b"")
        await answer.read()
    await eventually(lambda: gateway.agent.last.in_flight == ())


async def test_release_is_held_on_after_the_agent_takes_it_back(gateway: Bench):
    steps = Steps()
    gateway.engine.answer = steps.answer
    steps.go.put_nowait(event(MODEL, "t0"))
    async with gateway.ask(stream=True) as answer:
        await answer.content.readuntil(b"\n\n")
        await gateway.ready(a_release(2))
        await eventually(lambda: [r.number for r in gateway.agent.last.accepted] == [2])
        assert gateway.agent.last.in_flight[0].count == 1
        async with gateway.ask() as refused:
            assert refused.status == 503
        steps.go.put_nowait(event(MODEL, "t1"))
        assert await answer.content.readuntil(b"\n\n") == event("support", "t1")
        steps.go.put_nowait(b"")


@pytest.mark.parametrize("is_begun", [True, False])
async def test_client_that_goes_away_frees_the_count_and_aborts_the_engine(
    gateway: Bench, is_begun: bool
):
    steps = Steps()
    gateway.engine.answer = steps.answer
    steps.go.put_nowait(event(MODEL, "t0"))
    if is_begun:
        answer = await gateway.ask(stream=True)
        await answer.content.readuntil(b"\n\n")
        answer.close()
    else:
        steps.go.get_nowait()
        request = asyncio.create_task(_asked(gateway))
        await eventually(lambda: gateway.engine.open == 1)
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
    await eventually(lambda: gateway.gateway.references.total == 0, deadline_s=0.5)
    await eventually(lambda: gateway.engine.aborted == 1, deadline_s=0.5)
    assert 'status="499"' in await gateway.metrics()


async def _asked(gateway: Bench) -> None:
    async with gateway.ask(stream=True) as answer:
        await answer.read()


async def test_stream_that_the_engine_breaks_off_breaks_off_here(gateway: Bench):
    async def break_off(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(event(body["model"], "t0"))
        assert request.transport is not None
        request.transport.close()
        return response

    gateway.engine.answer = break_off
    async with gateway.ask(stream=True) as answer:
        assert answer.status == 200
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()
    await eventually(lambda: gateway.gateway.references.total == 0)
    assert 'status="502"' in await gateway.metrics()


async def test_client_that_reads_slowly_slows_the_engine(gateway: Bench):
    sent = 0

    async def flood(request: web.Request, _: dict[str, Any]) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        while True:
            await response.write(event(MODEL, "x" * 60_000))
            sent += 60_000

    gateway.engine.answer = flood
    answer = await gateway.ask(stream=True)
    await asyncio.sleep(0.3)
    before = sent
    await asyncio.sleep(0.2)
    assert sent == before
    assert sent < 30 * 2**20
    answer.close()
    await eventually(lambda: gateway.engine.open == 0)


async def test_answer_of_another_kind_passes_as_it_is(gateway: Bench):
    sound = bytes(range(256)) * 100

    async def speak(_: web.Request, __: dict[str, Any]) -> web.Response:
        return web.Response(body=sound, content_type="audio/wav")

    gateway.engine.answer = speak
    async with gateway.ask() as answer:
        assert await answer.read() == sound
        assert answer.content_type == "audio/wav"

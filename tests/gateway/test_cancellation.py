"""A reference is given back on every path out: requests of each kind, cancelled at each await."""

import asyncio
import contextlib
import types
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

from tests.gateway.support import (
    Answer,
    Bench,
    a_release,
    answer_plainly,
    event,
    eventually,
    nobody_url,
    ready,
    serving,
)
from vctl_agent.gateway import program
from vctl_agent.gateway.proxy import Proxy
from vctl_agent.gateway.wire.message import Answer as Reply
from vctl_agent.gateway.wire.message import Request
from vctl_plans.statistics import ErrorClass


@types.coroutine
def cancelled_at(step: int, work: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Run *work*, and cancel its task at its *step*-th wait, counted from 1."""
    resume: Callable[[Any], Any] = work.send
    value: Any = None
    waits = 0
    while True:
        try:
            awaited = resume(value)
        except StopIteration as end:
            return end.value
        waits += 1
        if waits == step:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        try:
            value = yield awaited
            resume = work.send
        except BaseException as error:  # noqa: BLE001  handed on to the coroutine, as a task does
            resume, value = work.throw, error


class CuttingProxy(Proxy):
    """A proxy whose next request is cancelled at its `step`-th wait."""

    step = 0
    reached = False  # whether the last request waited as often as that

    async def answer(self, request: Request) -> Reply:
        CuttingProxy.reached = False
        try:
            response: Reply = await cancelled_at(CuttingProxy.step, super().answer(request))
        except asyncio.CancelledError:
            CuttingProxy.reached = True
            raise
        return response


async def slowly(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    """Stream with a pause before every part, so that each part is waited for."""
    await asyncio.sleep(0.002)
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for n in range(3):
        await asyncio.sleep(0.002)
        await response.write(event(body["model"], f"t{n}" * 40_000))
    return response


async def failing(request: web.Request, _: dict[str, Any]) -> web.StreamResponse:
    await asyncio.sleep(0.002)
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def refusing(*_: Any) -> web.StreamResponse:
    return web.json_response({"error": {"message": "no"}}, status=400)


KINDS: dict[str, Answer] = {
    "plain": answer_plainly,
    "stream": slowly,
    "failing": failing,
    "refusing": refusing,
}


async def in_pieces() -> AsyncIterator[bytes]:
    """A body that has to be waited for."""
    for piece in (b'{"model": "supp', b'ort", "stream"', b": true}"):
        yield piece
        await asyncio.sleep(0.002)


async def _chosen(gateway: Bench) -> float:
    """Return how many requests have ended that a release was chosen for."""
    families = text_string_to_metric_families(await gateway.metrics())
    return sum(
        sample.value
        for family in families
        for sample in family.samples
        if sample.name == "vctl_gateway_requests_total" and sample.labels["release"] != "0"
    )


async def attempt(gateway: Bench) -> None:
    url = f"{gateway.url}/v1/completions"
    with contextlib.suppress(aiohttp.ClientError):
        async with asyncio.timeout(5), gateway.client.post(url, data=in_pieces()) as answer:
            await answer.read()


@pytest.mark.parametrize("kind", [*KINDS, "unreachable"])
async def test_count_returns_to_zero_wherever_a_request_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
):
    monkeypatch.setattr(program, "Proxy", CuttingProxy)
    async with serving(tmp_path, has_access_log=False) as gateway:
        if kind == "unreachable":
            gateway.gateway.live.accept(ready(a_release(1), engine_url=nobody_url()))
        else:
            gateway.engine.answer = KINDS[kind]
        await gateway.watch("support", engine_url=gateway.gateway.live.engine_url)
        cuts = 0
        for step in range(1, 200):
            CuttingProxy.step = step
            await attempt(gateway)
            await eventually(lambda: gateway.gateway.references.listing() == ())
            await eventually(lambda: gateway.engine.open == 0)
            if not CuttingProxy.reached:
                break
            cuts += 1
        assert cuts >= 2
        assert await _chosen(gateway) == gateway.counted().requests
        assert 0 < gateway.counted().error_count(ErrorClass.CANCELLED) < cuts
        CuttingProxy.step = 0
        gateway.engine.answer = answer_plainly
        gateway.gateway.live.accept(ready(a_release(1), engine_url=gateway.engine.url))
        async with gateway.ask() as answer:
            assert answer.status == 200

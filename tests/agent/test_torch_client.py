"""What the engine's adapter makes of answers that a healthy engine would not give."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from vctl_agent.engines import torch_client
from vctl_agent.engines.port import Question
from vctl_agent.engines.torch_client import TorchEngine
from vctl_plans.errors import PermanentEngineError, TemporaryEngineError


class Answering:
    """A server that answers everything alike."""

    def __init__(self) -> None:
        self.status = 200
        self.body = "{}"
        self.pause_s = 0.0  # between two bytes

    async def answer(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=self.status)
        await response.prepare(request)
        for byte in self.body.encode():
            await response.write(bytes([byte]))
            await asyncio.sleep(self.pause_s)
        return response


@pytest.fixture
def server() -> Answering:
    return Answering()


@pytest.fixture
async def engine(server: Answering) -> AsyncIterator[TorchEngine]:
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", server.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with TorchEngine(f"http://127.0.0.1:{runner.addresses[0][1]}") as made:
        yield made
    await runner.cleanup()


@pytest.mark.parametrize(
    "body",
    [
        "nonsense",
        "{}",
        '{"choices": []}',
        '{"choices": [{"logprobs": {"tokens": ["a"], "token_logprobs": [null]}}]}',
        '{"choices": [{"logprobs": {"tokens": ["a"], "token_logprobs": "x"}}]}',
    ],
)
async def test_question_to_an_engine_that_answers_otherwise_fails_by_name(
    engine: TorchEngine, server: Answering, body: str
) -> None:
    """No foreign exception crosses the port."""
    server.body = body

    with pytest.raises(PermanentEngineError, match="does not answer as vctl's engine"):
        await engine.answer("support@1", Question(prompt="hello"))


@pytest.mark.parametrize("status", [408, 429, 500, 503])
async def test_engine_that_is_busy_is_asked_again(
    engine: TorchEngine, server: Answering, status: int
) -> None:
    """Its status says that it may work later."""
    server.status = status

    with pytest.raises(TemporaryEngineError):
        await engine.unload("support@1")


async def test_answer_that_trickles_has_a_deadline(
    engine: TorchEngine, server: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte now and then kept a call alive for ever."""
    monkeypatch.setattr(torch_client, "DESCRIBE_S", 0.2)
    server.body, server.pause_s = " " * 100, 0.05

    with pytest.raises(TemporaryEngineError, match="TimeoutError"):
        async with asyncio.timeout(2):
            await engine.describe()

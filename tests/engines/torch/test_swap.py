"""Another base under a running engine: what runs finishes on the old one, what comes waits."""

import asyncio
import json

import pytest
from aiohttp.test_utils import TestClient, TestServer

from vctl_agent.engines.torch import service as services
from vctl_agent.engines.torch.checkpoint import load_base
from vctl_agent.engines.torch.generate import Engine, Order, answer
from vctl_agent.engines.torch.making import make_base
from vctl_agent.engines.torch.registry import Limits, Registry
from vctl_agent.engines.torch.sampling import Sampling
from vctl_agent.engines.torch.scheduler import Scheduler
from vctl_agent.engines.torch.server import application
from vctl_agent.engines.torch.service import Service
from vctl_agent.engines.torch.tokenizer import encode

pytestmark = pytest.mark.torch

PROMPT = "How do I return a pair of shoes that do not fit, and who pays for it?"
LONG = 40


@pytest.fixture
def other(folders):
    path = folders / "other"
    if not path.exists():
        make_base(path, seed=2)
    return str(path)


@pytest.fixture
async def client(base):
    registry = Registry(base, name="base", limits=Limits(max_loras=2, max_rank=64))
    scheduler = Scheduler(max_running=8, token_delay_s=0.01)
    service = Service(Engine(base, cache_blocks=64), registry=registry, scheduler=scheduler)
    scheduler.start()
    async with TestClient(TestServer(application(service))) as client:
        yield client
    scheduler.close()


async def ask(client, tokens=6):
    body = {"model": "base", "prompt": PROMPT, "max_tokens": tokens, "temperature": 0}
    body |= {"return_token_ids": True, "ignore_eos": True}
    response = await client.post("/v1/completions", json=body)
    return response.status, json.loads(await response.read())


async def swap(client, path):
    response = await client.post("/engine/base", json={"path": path})
    return response.status, await response.text()


def said(base, tokens=6):
    order = Order(tuple(encode(PROMPT)), tokens, Sampling(), ignore_eos=True)
    return [piece.token.id for piece in answer(Engine(base, cache_blocks=0), order, adapter=None)]


async def told(client):
    return await (await client.get("/engine")).json()


async def test_answers_are_the_new_bases_and_nothing_of_the_old_cache(base, client, other):
    new = load_base(other, device=base.model.device)
    assert said(base) != said(new)
    for path, model in (("", base), (other, new), ("", base)):
        assert 200 == (await swap(client, path))[0]
        for _ in range(2):  # the second from the cache
            _, body = await ask(client)
            assert said(model) == body["choices"][0]["token_ids"]
            assert model.digest[:12] == body["system_fingerprint"]


async def test_running_request_finishes_on_its_base_and_new_ones_are_refused(base, client, other):
    running = asyncio.create_task(ask(client, LONG))
    while not (await told(client))["inflight"]:
        await asyncio.sleep(0.01)
    swapping = asyncio.create_task(swap(client, other))
    while (await ask(client, 1))[0] == 200:
        await asyncio.sleep(0)
    status, body = await ask(client, 1)

    assert (503, "ServiceUnavailableError") == (status, body["error"]["type"])
    assert said(base, LONG) == (await running)[1]["choices"][0]["token_ids"]
    assert 200 == (await swapping)[0]
    assert 200 == (await ask(client, 1))[0]


async def test_swap_gives_up_on_requests_that_do_not_end(client, other, monkeypatch):
    monkeypatch.setattr(services, "_FINISH_S", 0.02)
    running = asyncio.create_task(ask(client, LONG))
    while not (await told(client))["inflight"]:
        await asyncio.sleep(0.01)
    before = await told(client)
    status, text = await swap(client, other)

    assert 503 == status
    assert "1 requests still run after 0.02 s" in text
    assert before["incarnation"] == (await told(client))["incarnation"]
    assert 200 == (await running)[0]
    assert 200 == (await ask(client, 1))[0]


async def test_relative_path_is_refused(client):
    assert 400 == (await swap(client, "other"))[0]

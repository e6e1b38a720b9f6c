import asyncio
import io
import json

import pytest
from aiohttp.test_utils import TestClient, TestServer

from vctl_agent.engines.torch import service as services
from vctl_agent.engines.torch.faults import Faults
from vctl_agent.engines.torch.generate import Engine, Order, answer
from vctl_agent.engines.torch.registry import Limits, Registry
from vctl_agent.engines.torch.sampling import Sampling
from vctl_agent.engines.torch.scheduler import Scheduler
from vctl_agent.engines.torch.server import application
from vctl_agent.engines.torch.service import Service
from vctl_agent.engines.torch.tokenizer import encode

pytestmark = pytest.mark.torch

PROMPT = "How do I return a pair of shoes that do not fit?"
ASK = {"model": "base", "prompt": PROMPT, "max_tokens": 6, "temperature": 0}


@pytest.fixture
def service(base):
    registry = Registry(base, name="base", limits=Limits(max_loras=2, max_rank=64))
    engine = Engine(base, cache_blocks=64)
    return Service(engine, registry=registry, scheduler=Scheduler(max_running=8))


@pytest.fixture
async def client(service):
    service.scheduler.start()
    async with TestClient(TestServer(application(service))) as client:
        yield client
    service.scheduler.close()


@pytest.fixture
def post(client):
    async def posted(path, body):
        sent = io.BytesIO(json.dumps(body).encode())
        response = await client.post(path, data=sent)
        raw = await response.read()
        is_json = response.content_type == "application/json"
        return response.status, json.loads(raw) if is_json else raw.decode()

    return posted


@pytest.fixture
def load_into(post, folders):
    async def loaded(name, folder):
        body = {"lora_name": name, "lora_path": str(folders / folder)}
        return await post("/v1/load_lora_adapter", body)

    return loaded


async def events(client, path, body):
    response = await client.post(path, json={**body, "stream": True})
    assert (response.status, response.content_type) == (200, "text/event-stream")
    lines = (await response.text()).split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]


async def get(client, path):
    return await (await client.get(path)).json()


async def test_a_completion_is_what_the_model_says(base, load, post, load_into):
    await load_into("support@1", "a")
    order = Order(tuple(encode(PROMPT)), 6, Sampling(top_logprobs=0))
    for name, adapter in (("base", None), ("support@1", load("a"))):
        said = answer(Engine(base, cache_blocks=0), order, adapter=adapter)
        ask = {**ASK, "model": name, "logprobs": 0, "return_token_ids": True}
        status, body = await post("/v1/completions", ask)
        choice = body["choices"][0]
        assert (status, body["object"], body["model"]) == (200, "text_completion", name)
        assert choice["token_ids"] == [piece.token.id for piece in said]
        assert choice["text"] == "".join(piece.text for piece in said)
        assert choice["logprobs"]["token_logprobs"] == [piece.token.logprob for piece in said]
        assert choice["logprobs"]["text_offset"] == list(range(6))
        assert choice["finish_reason"] == "length"


async def test_usage_tells_cached_tokens_and_a_salt_separates(post):
    async def cached(**more):
        usage = (await post("/v1/completions", {**ASK, **more}))[1]["usage"]
        assert (usage["prompt_tokens"], usage["total_tokens"]) == (49, 55)
        return usage["prompt_tokens_details"]["cached_tokens"]

    assert [await cached(), await cached()] == [0, 48]
    assert [await cached(cache_salt="t"), await cached(cache_salt="t")] == [0, 48]


async def test_a_stream_says_what_the_whole_response_says(client, post):
    ask = {**ASK, "logprobs": 2, "stop": "~~~"}
    whole = (await post("/v1/completions", ask))[1]["choices"][0]
    chunks = await events(client, "/v1/completions", ask)
    choices = [chunk["choices"][0] for chunk in chunks]
    assert "".join(choice["text"] for choice in choices) == whole["text"]
    for field, expected in whole["logprobs"].items():
        assert [one for c in choices for one in c["logprobs"][field]] == expected
    assert [c["finish_reason"] for c in choices] == [None] * 5 + ["length"]
    assert "usage" not in chunks[0]


async def test_a_chat_stream_begins_with_the_role_and_ends_with_usage(client, post):
    ask = {
        "model": "base",
        "messages": [{"role": "user", "content": "Hi"}],
        "max_completion_tokens": 4,
        "temperature": 1.0,
        "seed": 3,
        "logprobs": True,
        "top_logprobs": 2,
    }
    whole = (await post("/v1/chat/completions", ask))[1]
    ask["stream_options"] = {"include_usage": True}
    chunks = await events(client, "/v1/chat/completions", ask)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks[:-1]]
    assert deltas[0] == {"role": "assistant", "content": ""}
    message = whole["choices"][0]["message"]
    assert message["content"] == "".join(delta["content"] for delta in deltas)
    assert len(whole["choices"][0]["logprobs"]["content"][0]["top_logprobs"]) == 2
    assert (chunks[-1]["choices"], chunks[0]["usage"]) == ([], None)
    assert chunks[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"] == 4


async def test_models_are_listed_as_vllm_lists_them(client, load_into, folders):
    await load_into("support@1", "a")
    cards = (await get(client, "/v1/models"))["data"]
    assert [(c["id"], c["root"], c["parent"], c["max_model_len"]) for c in cards] == [
        ("base", str(folders / "base"), None, 512),
        ("support@1", str(folders / "a"), "base", None),
    ]


async def test_loading_and_unloading(client, post, load_into):
    status, text = await load_into("one", "a")
    assert (status, text) == (200, "Success: LoRA adapter 'one' added successfully.")
    assert (await post("/v1/completions", {**ASK, "model": "one"}))[0] == 200
    status, text = await post("/v1/unload_lora_adapter", {"lora_name": "one"})
    assert (status, text) == (200, "Success: LoRA adapter 'one' removed successfully.")
    status, body = await post("/v1/completions", {**ASK, "model": "one"})
    assert (status, body["error"]["param"]) == (404, "model")
    assert (await post("/v1/unload_lora_adapter", {"lora_name": "one"}))[0] == 404
    assert (await get(client, "/engine"))["adapters"] == []


async def test_loads_that_are_refused_register_nothing(client, post, load_into, folders, tmp_path):
    await load_into("one", "a")
    path = str(folders / "b")
    (tmp_path / "adapter_config.json").write_text("{}")
    (tmp_path / "adapter_model.safetensors").write_bytes(b"")
    for body, status, message in (
        ({"lora_name": "one", "lora_path": path}, 400, "has already been loaded"),
        ({"lora_name": "base", "lora_path": path}, 400, "conflicts with the served base"),
        ({"lora_name": "two", "lora_path": "b"}, 400, "not absolute"),
        ({"lora_name": "two", "lora_path": path + "-gone"}, 404, "no adapter found"),
        ({"lora_name": "two", "lora_path": str(tmp_path)}, 400, "peft_type"),
        ({"lora_name": "one", "lora_path": "b", "load_inplace": True}, 400, "not absolute"),
        ({"lora_name": "base", "lora_path": path, "load_inplace": True}, 400, "conflicts with"),
        ({"lora_name": "two"}, 400, "lora_path"),
        ({"lora_name": "", "lora_path": path}, 400, "lora_name"),
    ):
        got, answered = await post("/v1/load_lora_adapter", body)
        assert (got, answered["error"]["code"]) == (status, status)
        assert message in answered["error"]["message"]
    assert [a["name"] for a in (await get(client, "/engine"))["adapters"]] == ["one"]


async def test_a_name_gets_another_adapter_where_that_is_asked_for(client, post, folders):
    paths = {name: str(folders / name) for name in ("a", "b")}
    answers = {}
    for name, path in paths.items():
        body = {"lora_name": name, "lora_path": path}
        assert (await post("/v1/load_lora_adapter", body))[0] == 200
        said = await post("/v1/completions", {**ASK, "model": name, "logprobs": 1})
        answers[name] = said[1]["choices"][0]["logprobs"]["token_logprobs"]
    swapped = {"lora_name": "a", "lora_path": paths["b"], "load_inplace": True}
    assert (await post("/v1/load_lora_adapter", swapped))[0] == 200
    said = await post("/v1/completions", {**ASK, "model": "a", "logprobs": 1})
    assert said[1]["choices"][0]["logprobs"]["token_logprobs"] == answers["b"] != answers["a"]
    listed = {a["name"]: a["path"] for a in (await get(client, "/engine"))["adapters"]}
    assert listed == {"a": paths["b"], "b": paths["b"]}


async def test_a_replaced_adapter_finishes_its_requests(post, load_into, service, folders):
    await load_into("one", "a")
    ask = {**ASK, "model": "one", "max_tokens": 300, "ignore_eos": True}
    alone = await post("/v1/completions", ask)
    running = asyncio.create_task(post("/v1/completions", {**ask, "cache_salt": "x"}))
    while not service.registry.inflight:
        await asyncio.sleep(0.001)
    body = {"lora_name": "one", "lora_path": str(folders / "b"), "load_inplace": True}
    assert (await post("/v1/load_lora_adapter", body))[0] == 200
    assert (await running)[1]["choices"][0]["text"] == alone[1]["choices"][0]["text"]


async def test_a_reset_empties_the_cache_under_a_running_request(client, post, service):
    await post("/v1/completions", ASK)
    ask = {**ASK, "max_tokens": 300, "ignore_eos": True}
    before = service.cache_counts()
    running = asyncio.create_task(post("/v1/completions", ask))
    while service.cache_counts() == before:  # it has not looked there yet
        await asyncio.sleep(0.001)
    assert await post("/reset_prefix_cache", {}) == (200, {"success": True})
    assert (await running)[0] == 200
    assert (await get(client, "/engine"))["cache"]["blocks"] == 0
    again = await post("/v1/completions", ASK)
    assert again[1]["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


async def test_a_reset_that_was_not_done_says_so(post, service, monkeypatch):
    monkeypatch.setattr(services, "_FLUSH_S", 0.05)
    await post("/v1/completions", ASK)
    service.scheduler.close()
    assert await post("/reset_prefix_cache", {}) == (200, {"success": False})


async def test_a_full_engine_says_so(load_into):
    assert [(await load_into(name, "a"))[0] for name in ("one", "two", "three")] == [200, 200, 400]
    assert "--max-loras is 2" in (await load_into("three", "a"))[1]["error"]["message"]


async def test_of_two_loads_of_one_name_at_a_time_one_is_refused(load_into):
    answers = await asyncio.gather(load_into("one", "a"), load_into("one", "b"))
    assert sorted(status for status, _ in answers) == [200, 400]


async def test_an_unloaded_adapter_finishes_its_requests(client, post, load_into, service):
    await load_into("one", "a")
    ask = {**ASK, "model": "one", "max_tokens": 400, "ignore_eos": True}
    undisturbed = (await post("/v1/completions", ask))[1]["choices"][0]["text"]
    running = asyncio.create_task(post("/v1/completions", ask))
    while not service.registry.inflight:
        await asyncio.sleep(0)
    assert (await get(client, "/engine"))["inflight"] == {"one": 1}
    await post("/v1/unload_lora_adapter", {"lora_name": "one"})
    await load_into("one", "b")
    assert not running.done()
    assert (await running)[1]["choices"][0]["text"] == undisturbed
    assert (await post("/v1/completions", ask))[1]["choices"][0]["text"] != undisturbed
    assert (await get(client, "/engine"))["inflight"] == {}


async def test_the_engine_describes_itself(client, base, folders):
    told = await get(client, "/engine")
    assert (told["kind"], told["device"], told["max_loras"]) == ("torch", "cpu", 2)
    assert told["free_memory"] is None, "a CPU's memory is not the engine's alone"
    assert told["base"] == {
        "name": "base",
        "path": str(folders / "base"),
        "digest": base.digest,
        "is_first": True,
    }
    assert told["cache"] == dict.fromkeys(("blocks", "hits", "misses", "evictions"), 0) | {
        "capacity": 64
    }


async def test_metrics_count_by_outcome(client, post):
    await post("/v1/completions", ASK)
    await post("/v1/completions", {**ASK, "prompt": 3})
    text = await (await client.get("/metrics")).text()
    for line in (
        'vctl_engine_requests_total{endpoint="completions",outcome="completed"} 1.0',
        'vctl_engine_requests_total{endpoint="completions",outcome="refused"} 1.0',
        'vctl_engine_tokens_total{kind="generated"} 6.0',
        "vctl_engine_cache_blocks 3.0",
    ):
        assert line in text.splitlines()


async def test_errors_have_openais_shape(client, post):
    for status, path, body in (
        (404, "/nowhere", {}),
        (405, "/health", {}),
        (400, "/v1/completions", []),
        (413, "/v1/completions", {**ASK, "prompt": "x" * 2**20}),
    ):
        got, answered = await post(path, body)
        assert (got, answered["error"]["code"]) == (status, status)
        assert set(answered["error"]) == {"message", "type", "param", "code"}
    assert (await client.get("/health")).status == 200


async def test_a_fault_in_inference_is_a_500_and_the_engine_lives(client, post, service):
    service.engine.eos, kept = None, service.engine.base
    service.engine.base = None
    assert (await post("/v1/completions", ASK))[0] == 500
    service.engine.base = kept
    assert (await post("/v1/completions", ASK))[0] == 200


async def test_health_fails_when_the_inference_thread_is_gone(client, service):
    service.scheduler.close()
    assert (await client.get("/health")).status == 503


async def test_model_that_the_fault_file_names_fails_while_it_does(client, post, service, tmp_path):
    file = tmp_path / "faults"
    service.faults = Faults(file)
    assert (await post("/v1/completions", ASK))[0] == 200, "there is no file yet"
    file.write_text("other\nbase\n")
    status, answered = await post("/v1/completions", ASK)
    assert (status, answered["error"]["code"]) == (500, 500)
    file.write_text("other\n")
    assert (await post("/v1/completions", ASK))[0] == 200

import asyncio
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from tests.gateway.support import (
    Bench,
    a_release,
    a_route,
    eventually,
    nobody_url,
    ready,
    serving,
)
from vctl_agent.gateway.proxy import FORWARDED
from vctl_plans.route import Mode
from vctl_plans.routing import cache_salt
from vctl_plans.share import share

MODELS = {n: a_release(n).engine_name for n in (1, 2)}


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Bench]:
    async with serving(tmp_path, has_access_log=False, max_body_bytes=4 * 2**20) as made:
        yield made
        assert made.gateway.references.listing() == ()


async def error_of(answer: Any) -> dict[str, Any]:
    document: dict[str, dict[str, Any]] = await answer.json()
    assert set(document) == {"error"}
    assert set(document["error"]) == {"message", "type", "param", "code"}
    return document["error"]


@pytest.mark.parametrize("path", sorted(FORWARDED))
async def test_request_reaches_the_engine_under_its_own_name_and_comes_back_public(
    gateway: Bench, path: str
):
    async with gateway.ask(path, headers={"x-request-id": "r-1"}, n=1) as answer:
        document = await answer.json()
    assert (answer.status, document["model"]) == (200, "support")
    assert document["choices"][0]["text"] == f"by {MODELS[1]}"
    revision = gateway.gateway.live.acted.known.route_revisions()["support"]
    assert answer.headers["x-vctl-release"] == "1"
    assert answer.headers["x-vctl-vector"] == "adapter=1"
    assert answer.headers["x-vctl-route"] == str(revision)
    assert answer.headers["x-request-id"] == "r-1"
    (asked,) = gateway.engine.asked
    assert (asked["model"], asked["n"]) == (MODELS[1], 1)
    salt = cache_salt(
        tenant="default",
        weights_root="",
        adapter_root=a_release(1).components["adapter"].root,  # type: ignore[index]
        client_salt="",
    )
    assert asked["cache_salt"] == salt
    assert gateway.engine.paths == [path]
    assert gateway.engine.headers[0]["x-request-id"] == "r-1"


async def test_stream_comes_back_public_and_whole(gateway: Bench):
    async with gateway.ask(stream=True) as answer:
        lines = (await answer.text()).splitlines()
    assert answer.headers["Content-Type"] == "text/event-stream"
    assert answer.headers["x-vctl-release"] == "1"
    events = [json.loads(line.removeprefix("data: ")) for line in lines[:-2:2]]
    assert [event["model"] for event in events] == ["support"] * 3
    assert [event["choices"][0]["text"] for event in events] == ["t0", "t1", "t2"]
    assert lines[-2:] == ["data: [DONE]", ""]


async def test_named_release_serves_or_is_refused_and_no_other_serves(gateway: Bench):
    await gateway.route(a_route(1, candidate=2, weight=0.0, revoked=(3,)))
    async with gateway.ask(headers={"x-vctl-release": "2"}) as answer:
        assert (answer.status, answer.headers["x-vctl-release"]) == (200, "2")
    for named, status in (("3", 409), ("4", 409), ("x", 400)):
        async with gateway.ask(headers={"x-vctl-release": named}) as answer:
            assert answer.status == status
            await error_of(answer)
    assert [asked["model"] for asked in gateway.engine.asked] == [MODELS[2]]


async def test_release_is_the_one_that_routing_chooses(gateway: Bench):
    await gateway.route(a_route(1, candidate=2, weight=40.0))
    for n in range(30):
        session = f"s{n}"
        async with gateway.ask(headers={"x-vctl-session": session}) as answer:
            expected = 2 if share("salt", f"session:{session}") < 40 else 1
            assert answer.headers["x-vctl-release"] == str(expected)
            assert (await answer.json())["choices"][0]["text"] == f"by {MODELS[expected]}"


async def test_unknown_model_is_404_in_openais_shape(gateway: Bench):
    async with gateway.ask(model="gpt-9") as answer:
        error = await error_of(answer)
    assert (answer.status, error["code"], error["param"]) == (404, "model_not_found", "model")
    assert gateway.engine.bodies == []


async def test_service_that_serves_nothing_yet_is_503(gateway: Bench):
    await gateway.route(a_route(0, service="chat"))
    async with gateway.ask(model="chat") as answer:
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")


async def test_release_that_is_not_ready_is_503_and_nothing_is_asked(gateway: Bench):
    changed = msgspec.structs.replace(a_release(1), digest="b3:other")
    for agent in (ready(), ready(a_release(2)), ready(changed)):
        gateway.gateway.live.accept(agent)
        async with gateway.ask() as answer:
            error = await error_of(answer)
        assert (answer.status, error["code"]) == (503, "release_not_ready")
        assert answer.headers["Retry-After"] == "1"
    assert gateway.engine.bodies == []


@pytest.mark.parametrize("body", [b"{", b"[]", b"{}", b'{"model": "\xff"}', b'{"model": 3}', b""])
async def test_malformed_body_is_400_in_openais_shape(gateway: Bench, body: bytes):
    async with gateway.client.post(f"{gateway.url}/v1/completions", data=body) as answer:
        error = await error_of(answer)
    assert (answer.status, error["type"]) == (400, "invalid_request_error")


async def test_body_over_the_limit_is_413_announced_or_not(gateway: Bench):
    async def pieces() -> AsyncIterator[bytes]:
        yield b'{"model": "support", "x": "'
        for _ in range(5):
            yield b"x" * 2**20

    for data in (io.BytesIO(b"x" * (4 * 2**20 + 1)), pieces()):
        async with gateway.client.post(f"{gateway.url}/v1/completions", data=data) as answer:
            error = await error_of(answer)
        assert (answer.status, error["code"]) == (413, "body_too_large")


async def test_body_of_the_largest_size_passes(tmp_path: Path):
    async with serving(tmp_path, has_access_log=False) as gateway:
        head, tail = b'{"model": "support", "prompt": "', b'"}'
        body = head + b"x" * (32 * 2**20 - len(head) - len(tail)) + tail
        url = f"{gateway.url}/v1/completions"
        async with gateway.client.post(url, data=io.BytesIO(body)) as answer:
            assert answer.status == 200
        assert len(gateway.engine.bodies[0]) > 32 * 2**20


async def test_engines_administration_cannot_be_reached(gateway: Bench):
    for path in (
        "/v1/load_lora_adapter",
        "/reset_prefix_cache",
        "/v1/chat/completions/../../collective_rpc",
        "/v1/completions/",
        "//v1/completions",
        "/metrics",
    ):
        async with gateway.client.post(f"{gateway.url}{path}", json={"model": "support"}) as answer:
            assert answer.status == 404
            await error_of(answer)
    async with gateway.client.get(f"{gateway.url}/v1/completions") as answer:
        assert answer.status == 405
    assert gateway.engine.paths == []


async def test_models_are_the_services_that_route_something(gateway: Bench):
    await gateway.route(a_route(0, service="chat"))
    async with gateway.client.get(f"{gateway.url}/v1/models") as answer:
        document = await answer.json()
    assert [card["id"] for card in document["data"]] == ["support"]
    assert "@" not in json.dumps(document)


async def test_health_says_that_the_gateway_lives(gateway: Bench):
    async with gateway.client.get(f"{gateway.url}/health") as answer:
        assert answer.status == 200


async def test_header_fields_of_one_hop_and_vctls_own_do_not_pass(gateway: Bench):
    async def answer_with_fields(request: web.Request, body: dict[str, Any]) -> web.Response:
        fields = {"x-vctl-release": "99", "Server": "uvicorn", "x-engine": "e"}
        return web.json_response({"model": body["model"]}, headers=fields)

    gateway.engine.answer = answer_with_fields
    sent = {"x-vctl-more": "1", "Authorization": "Bearer k", "Connection": "x-hop", "x-hop": "1"}
    async with gateway.ask(headers=sent) as answer:
        assert answer.headers["x-vctl-release"] == "1"
        assert answer.headers["x-engine"] == "e"
        assert answer.headers["Server"] == "vctl-gateway"
    (got,) = gateway.engine.headers
    assert got["Authorization"] == "Bearer k"
    assert got["Accept-Encoding"] == "identity"
    assert not {name for name in got if name.lower() in {"x-vctl-more", "x-hop"}}


async def test_engines_errors_pass_through_under_the_public_name(gateway: Bench):
    async def refuse(_: web.Request, body: dict[str, Any]) -> web.Response:
        message = f"The model `{body['model']}` does not exist."
        return web.json_response({"error": {"message": message, "code": 404}}, status=404)

    gateway.engine.answer = refuse
    async with gateway.ask() as answer:
        assert answer.status == 404
        assert (await answer.json())["error"]["message"] == "The model `support` does not exist."


async def test_engine_that_is_not_there_is_503(gateway: Bench):
    gateway.gateway.live.accept(ready(a_release(1), engine_url=nobody_url()))
    async with gateway.ask() as answer:
        error = await error_of(answer)
    assert (answer.status, error["code"]) == (503, "engine_unavailable")
    assert answer.headers["Retry-After"] == "1"


async def test_engine_that_dies_before_its_answer_is_503(gateway: Bench):
    async def die(request: web.Request, _: dict[str, Any]) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    gateway.engine.answer = die
    async with gateway.ask() as answer:
        assert answer.status == 503


async def test_engine_that_is_silent_is_504(tmp_path: Path):
    async def sleep(*_: Any) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    async with serving(tmp_path, engine_timeout_s=0.05) as gateway:
        gateway.engine.answer = sleep
        async with gateway.ask() as answer:
            assert (answer.status, (await error_of(answer))["code"]) == (504, "engine_timeout")
        assert gateway.gateway.references.total == 0


async def test_body_that_is_announced_first_is_asked_for(gateway: Bench):
    host, port = gateway.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    body = b'{"model": "support"}'
    head = (
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        f"Expect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode())
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(body)
    assert (await reader.read()).startswith(b"HTTP/1.1 200 OK\r\n")
    writer.close()
    await writer.wait_closed()


async def test_models_that_are_no_service_pass_unchanged_when_asked_to(tmp_path: Path):
    async with serving(tmp_path, has_passthrough=True) as gateway:
        body = b'{ "model" : "llama",  "n":1 }'
        url = f"{gateway.url}/v1/completions?api-version=1"
        async with gateway.client.post(url, data=body) as answer:
            assert (await answer.json())["model"] == "llama"
            assert "x-vctl-release" not in answer.headers
        assert gateway.engine.bodies == [body]
        assert gateway.engine.paths == ["/v1/completions?api-version=1"]
        for engine_name in (MODELS[1], "support@000000000000", f"llama:{MODELS[1]}",
                            "s3://models/llama:support@000000000000"):  # fmt: skip
            async with gateway.ask(model=engine_name) as answer:
                assert answer.status == 404
        for other in (MODELS[1], [None, MODELS[1]]):
            sneaky = json.dumps({"model": "llama", "lora_path": other})
            as_json = {"Content-Type": "application/json"}
            async with gateway.client.post(url, data=sneaky, headers=as_json) as answer:
                assert answer.status == 404
        assert len(gateway.engine.bodies) == 1
        assert 'service="(passed through)"' in await gateway.metrics()


async def test_requests_are_counted_by_release_and_status(gateway: Bench):
    async with gateway.ask():
        pass
    async with gateway.ask(headers={"x-vctl-release": "9"}):
        pass
    text = await gateway.metrics()
    revision = gateway.gateway.live.acted.known.route_revisions()["support"]
    for line in (
        'vctl_gateway_requests_total{release="1",service="support",status="200"} 1.0',
        'vctl_gateway_requests_total{release="0",service="support",status="409"} 1.0',
        'vctl_gateway_request_seconds_count{release="1",service="support"} 1.0',
        f'vctl_gateway_route_revision{{service="support"}} {float(revision)}',
        "vctl_gateway_last_contact_seconds 0.0",
    ):
        assert line in text


async def test_service_in_direct_mode_is_nobodys_here(gateway: Bench):
    """Its clients call the engine itself: as if it were not there, with the reason."""
    await gateway.route(a_route(1, mode=Mode.DIRECT))
    async with gateway.ask() as answer:
        error = await error_of(answer)
    assert (answer.status, error["code"], error["param"]) == (404, "model_not_found", "model")
    assert error["message"].endswith("its clients call the engines themselves")
    async with gateway.client.get(f"{gateway.url}/v1/models") as answer:
        assert (await answer.json())["data"] == []
    assert gateway.engine.asked == []


async def test_gateway_that_may_not_serve_alone_refuses_until_etcd_is_back(tmp_path: Path):
    async with serving(tmp_path, has_access_log=False, isolation_s=0.05) as gateway:
        async with gateway.ask() as answer:
            assert 200 == answer.status
        gateway.store.disconnect()
        await eventually(lambda: gateway.gateway.live.is_isolated)
        async with gateway.ask() as answer:
            assert (503, "1") == (answer.status, answer.headers["Retry-After"])
            assert "isolated" == (await error_of(answer))["code"]
        async with gateway.client.get(f"{gateway.admin_url}/readyz") as answer:
            assert 503 == answer.status
        gateway.store.reconnect()
        await eventually(lambda: not gateway.gateway.live.is_isolated)
        async with gateway.ask() as answer:
            assert 200 == answer.status

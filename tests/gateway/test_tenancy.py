"""Tenants: whose key reaches what, and that nothing but a key says whose a request is."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.gateway.hopping import KEY, gateways, hops
from tests.gateway.support import KEYS, Bench, a_release, a_route, eventually, overridden, serving
from tests.gateway.test_apikeys import ACME, ACME_NEW, BLUE, a_line
from tests.gateway.test_proxy import error_of
from tests.gateway.test_state import an_update, support
from vctl_agent.gateway.apikeys import KeysFile, hash_of, parse
from vctl_agent.gateway.hop import Hop, Message, headers_of
from vctl_agent.gateway.live import Acted, Live
from vctl_agent.gateway.persist import FILE_NAME, Saver, load
from vctl_agent.gateway.state import Known, applied
from vctl_plans.codec import encode
from vctl_plans.groups import Group, Groups
from vctl_plans.rollout import ServiceSpec
from vctl_plans.route import Hold, Stage
from vctl_plans.routing import cache_salt

HELD = {hash_of(ACME): "acme", hash_of(ACME_NEW): "acme", hash_of(BLUE): "blue"}
FILE = KeysFile(Path("/nowhere"), HELD)
AS_ACME, AS_BLUE = ({"Authorization": f"Bearer {key}"} for key in (ACME, BLUE))


async def give(gateway: Bench, service: str, tenant: str) -> None:
    """Have the gateway learn that a service is the tenant's."""
    spec = encode(ServiceSpec(service=service, tenant=tenant))
    await gateway.store.put(KEYS.spec(service), spec)
    await eventually(lambda: gateway.gateway.live.acted.known.tenant(service) == tenant)


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Bench]:
    """A gateway that asks for keys, with `support` of acme and `chat` of blue."""
    path = tmp_path / "keys"
    path.write_text(a_line("acme", ACME) + a_line("acme", ACME_NEW) + a_line("blue", BLUE))
    file = KeysFile(path, parse(path.read_text()))
    async with serving(tmp_path, has_access_log=False, api_keys=file, fleet_key=KEY) as made:
        await give(made, "support", "acme")
        await give(made, "chat", "blue")
        both = a_release(1), a_release(2), a_release(1, service="chat")
        await made.route(a_route(1, service="chat"), both[2])
        await made.ready(*both)
        yield made
        assert made.gateway.references.listing() == ()


@pytest.mark.parametrize(
    "headers",
    [
        AS_ACME,
        {"authorization": f"bearer   {ACME_NEW} "},
        {"x-api-key": ACME},
        {"x-api-key": ACME, "Authorization": f"Bearer {ACME}"},
        {"x-api-key": ACME, "Authorization": "Basic dTpw"},
    ],
)
async def test_key_of_the_tenant_reaches_its_service(gateway: Bench, headers: dict[str, str]):
    async with gateway.ask(headers=headers) as answer:
        assert (200, "1") == (answer.status, answer.headers["x-vctl-release"])


FORGED: list[list[tuple[str, str]]] = [
    [],
    [("Authorization", "Bearer")],
    [("Authorization", "Bearer ")],
    [("Authorization", f"Basic {ACME}")],
    [("Authorization", ACME)],
    [("Authorization", f"Bearer {hash_of(ACME).hex()}")],
    [("Authorization", f"Bearer {ACME}x")],
    [("Authorization", f"Bearer {ACME},{BLUE}")],
    [("Authorization", "Bearer k\u00e4\u00ff")],
    [("Authorization", f"Bearer {ACME}"), ("Authorization", f"Bearer {BLUE}")],
    [("Authorization", f"Bearer {ACME}"), ("Authorization", "Bearer unknown")],
    [("Authorization", f"Bearer {ACME}"), ("Authorization", f"Bearer {ACME_NEW}")],
    [("Authorization", f"Bearer {ACME}"), ("x-api-key", BLUE)],
    [("x-api-key", ACME), ("x-api-key", BLUE)],
    [("x-vctl-tenant", "acme")],
    [("Cookie", f"api-key={ACME}")],
]


@pytest.mark.parametrize("headers", FORGED)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/models"])
async def test_request_without_one_right_key_is_401_and_nothing_is_asked(
    gateway: Bench, path: str, headers: list[tuple[str, str]]
):
    method = "GET" if path == "/v1/models" else "POST"
    body = None if method == "GET" else b'{"model": "support", "messages": []}'
    asking = gateway.client.request(method, f"{gateway.url}{path}", data=body, headers=headers)
    async with asking as answer:
        error = await error_of(answer)
    assert (401, "Bearer") == (answer.status, answer.headers["WWW-Authenticate"])
    assert ("invalid_request_error", "invalid_api_key") == (error["type"], error["code"])
    assert ACME not in error["message"]
    assert gateway.engine.bodies == []


async def test_raw_bytes_in_a_key_are_401_and_the_connection_goes_on(gateway: Bench):
    host, port = gateway.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    body = b'{"model": "support"}'
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"
    head += b"Content-Length: %d\r\n\r\n"
    for key, status in ((b"\xff\xfe\x80", b"401"), (ACME.encode(), b"200")):
        writer.write(head % (key, len(body)) + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 " + status)
        length = int(answer.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        await reader.readexactly(length)
    writer.close()
    await writer.wait_closed()


async def test_service_of_another_tenant_is_404_just_as_one_that_does_not_exist(gateway: Bench):
    told = []
    for model in ("chat", "nope"):
        async with gateway.ask(headers=AS_ACME, model=model) as answer:
            error = await error_of(answer)
            error["message"] = error["message"].replace(model, "M")
            fields = {name for name in answer.headers if name.lower() != "content-length"}
            told.append((answer.status, error, fields))
    assert 404 == told[0][0]
    assert told[0] == told[1]
    assert gateway.engine.bodies == []


async def test_no_header_reaches_another_tenants_service(gateway: Bench):
    """Neither a named release, nor a pin of it, nor what only our gateways may say."""
    async with gateway.ask(headers=AS_BLUE, model="chat") as answer:
        assert 200 == answer.status
        given = answer.headers.get("x-vctl-session", "")
    asked = len(gateway.engine.bodies)
    hop = Hop(fleet="dev", sender="n1", service="chat", number=1, digest="", route=1,
              request_id="r", tenant="blue")  # fmt: skip
    body = json.dumps({"model": "chat"}).encode()
    forged = headers_of(hop, Message("POST", "/v1/chat/completions", body), KEY)
    for headers, status in (
        ({"x-vctl-release": "1"}, 404),
        ({"x-vctl-session": given or "p1.x"}, 404),
        ({"x-vctl-tenant": "blue", "x-vctl-user": "ann"}, 404),
        (forged | {"x-vctl-hop-proof": "0" * 64}, 403),
    ):
        async with gateway.ask(headers=AS_ACME | headers, model="chat") as answer:
            assert status == answer.status
    assert asked == len(gateway.engine.bodies)


async def test_request_that_waits_while_its_service_is_handed_over_is_not_served(gateway: Bench):
    """Else its answer would come under the salt of the new tenant's caches."""
    await gateway.route(a_route(1, hold=Hold(stage=Stage.HOLD, fence_s=60.0, limit_s=60.0)))
    asked = asyncio.create_task(_status(gateway, AS_ACME))
    await eventually(lambda: gateway.gateway.barrier.held == {"support": 1})
    await give(gateway, "support", "blue")
    await gateway.route(a_route(1))
    assert 404 == await asked
    assert [] == gateway.engine.bodies


async def _status(gateway: Bench, headers: dict[str, str]) -> int:
    async with gateway.ask(headers=headers) as answer:
        status: int = answer.status
        return status


async def test_models_are_the_tenants_own(gateway: Bench):
    for headers, services in ((AS_ACME, ["support"]), (AS_BLUE, ["chat"])):
        async with gateway.client.get(f"{gateway.url}/v1/models", headers=headers) as answer:
            assert services == [card["id"] for card in (await answer.json())["data"]]


async def test_health_and_probes_need_no_key(gateway: Bench):
    for url in (f"{gateway.url}/health", f"{gateway.admin_url}/readyz"):
        async with gateway.client.get(url) as answer:
            assert 200 == answer.status
    async with gateway.client.get(f"{gateway.admin_url}/readyz") as answer:
        told = await answer.json()
    assert (True, "") == (told["checks_keys"], told["api_keys_problem"])


async def test_key_ends_here_and_the_engine_gets_its_own(tmp_path: Path):
    sent = AS_ACME | {"x-api-key": ACME, "x-more": "1"}
    for engine_key, expected in (("", None), ("engine-key", "Bearer engine-key")):
        folder = tmp_path / f"with{engine_key}"
        folder.mkdir()
        fields = {"api_keys": FILE, "engine_key": engine_key, "has_access_log": False}
        async with serving(folder, **fields) as gateway:
            await give(gateway, "support", "acme")
            async with gateway.ask(headers=sent) as answer:
                assert 200 == answer.status
            (got,) = gateway.engine.headers
        assert (expected, "1") == (got.get("Authorization"), got["x-more"])
        assert "x-api-key" not in got


async def test_engines_key_is_sent_also_where_nobody_is_asked_for_one(tmp_path: Path):
    async with serving(tmp_path, engine_key="engine-key", has_access_log=False) as gateway:
        async with gateway.ask(headers={"Authorization": "Bearer theirs"}) as answer:
            assert 200 == answer.status
        (got,) = gateway.engine.headers
        assert ["Bearer engine-key"] == got.getall("Authorization")


async def test_salt_holds_the_tenant_and_a_clients_own_salt_cannot_be_anothers(gateway: Bench):
    """The same adapter, and every salt that a client could send to meet the other's cache."""
    root = a_release(1).components["adapter"].root  # type: ignore[index]

    def salt(tenant: str, own: str) -> str:
        return cache_salt(tenant=tenant, weights_root="", adapter_root=root, client_salt=own)

    given = ["", "blue", salt("blue", ""), "acmeblue", f"blue{root}"]
    for headers, model in ((AS_ACME, "support"), (AS_BLUE, "chat")):
        for own in given:
            more = {"cache_salt": own} if own else {}
            async with gateway.ask(headers=headers, model=model, **more) as answer:
                assert 200 == answer.status
    salts = [asked["cache_salt"] for asked in gateway.engine.asked]
    assert [salt(tenant, own) for tenant in ("acme", "blue") for own in given] == salts
    assert len(set(salts)) == 2 * len(given)


async def test_group_by_tenant_is_told_by_the_key_and_not_by_a_header(gateway: Bench):
    groups = Groups(groups=(Group(name="ours", tenant="acme"), Group(name="b", tenant="blue")))
    await gateway.store.put(KEYS.groups(groups.digest), encode(groups))
    await gateway.route(overridden(1, (groups, 2)))
    async with gateway.ask(headers=AS_ACME | {"x-vctl-tenant": "nobody"}) as answer:
        assert (200, "2") == (answer.status, answer.headers["x-vctl-release"])


async def test_unmanaged_models_need_a_key_and_get_a_salt_of_the_tenant(tmp_path: Path):
    fields = {"api_keys": FILE, "has_passthrough": True, "has_access_log": False}
    async with serving(tmp_path, **fields) as gateway:
        await give(gateway, "support", "acme")
        await give(gateway, "gone", "blue")  # let go: a spec, and no route
        async with gateway.ask(model="llama") as answer:
            assert 401 == answer.status
        for headers, own in ((AS_ACME, "x"), (AS_BLUE, "x")):
            async with gateway.ask(headers=headers, model="llama", cache_salt=own) as answer:
                assert 200 == answer.status
        told = [(asked["model"], asked["cache_salt"]) for asked in gateway.engine.asked]
        assert ["llama", "llama"] == [model for model, _ in told]
        assert 3 == len({"x", *(salt for _, salt in told)})
        for model in ("gone", "llama:gone", "gone@000000000000"):
            async with gateway.ask(headers=AS_ACME, model=model) as answer:
                assert 404 == answer.status
        async with gateway.ask(headers=AS_BLUE, model="gone") as answer:
            assert 200 == answer.status
        async with gateway.ask(headers=AS_ACME, model="llama", cache_salt=7) as answer:
            assert 400 == answer.status


async def test_service_without_a_spec_is_the_default_tenants_and_an_unreadable_one_nobodys(
    tmp_path: Path,
):
    held = KeysFile(Path("/nowhere"), {hash_of(ACME): "default"})
    async with serving(tmp_path, api_keys=held, has_access_log=False) as gateway:
        async with gateway.ask(headers=AS_ACME) as answer:
            assert 200 == answer.status
        await gateway.store.put(KEYS.spec("support"), b"{")
        await eventually(lambda: gateway.gateway.live.acted.known.tenant("support") == "")
        async with gateway.ask(headers=AS_ACME) as answer:
            assert 404 == answer.status


def test_unreadable_spec_keeps_the_tenant_that_was_known():
    def values(spec: bytes, at: int) -> dict[str, tuple[bytes, int]]:
        return support() | {"support/spec": (spec, at)}

    spec = encode(ServiceSpec(service="support", tenant="acme"))
    known = applied(Known(), an_update(9, **values(spec, 2)), KEYS.services)
    assert "acme" == known.tenant("support")
    for broken in (
        b"{",
        encode(ServiceSpec(service="other")),
        b'{"service":"support","tenant":""}',
    ):
        after = applied(known, an_update(10, **values(broken, 10)), KEYS.services)
        assert ("acme", 1) == (after.tenant("support"), len(after.unreadable))


async def test_tenants_outlive_a_restart_with_etcd_away(tmp_path: Path):
    live = Live(Acted(), prefix=KEYS.services, clock=lambda: 0.0)
    spec = encode(ServiceSpec(service="support", tenant="acme"))
    live.learn(an_update(9, **support(), **{"support/spec": (spec, 2)}))
    await Saver(live, tmp_path, "dev").save()
    assert "acme" == load(tmp_path, "dev").known.tenant("support")
    assert "default" == load(tmp_path, "dev").known.tenant("chat")


async def test_services_of_a_state_that_knows_no_tenants_are_nobodys_until_etcd_has_told(
    tmp_path: Path,
):
    """It was left by a gateway that did not keep them: `default` would be a guess."""
    live = Live(Acted(), prefix=KEYS.services, clock=lambda: 0.0)
    live.learn(an_update(9, **support()))
    await Saver(live, tmp_path, "dev").save()
    path = tmp_path / FILE_NAME
    kept = json.loads(path.read_bytes())
    del kept["tenants"]
    path.write_text(json.dumps(kept))
    found = load(tmp_path, "dev")
    assert "" == found.known.tenant("support")
    told = applied(found.known, an_update(9, **support()), KEYS.services)
    assert "default" == told.tenant("support")


def test_engine_names_of_two_services_never_meet():
    """Names of services are unique in a fleet, and stand in front of the adapter's root."""
    names = {
        a_release(number, service=service).engine_name
        for service in ("a", "a.b", "a-b", "ab")
        for number in (1, 2)
    }
    assert 8 == len(names)
    assert all(name.count("@") == 1 for name in names)  # no service's name may hold one


async def test_hop_carries_the_tenant_and_no_key(tmp_path: Path):
    async with gateways(tmp_path, 2, api_keys=FILE) as (sender, peer):
        for each in (sender, peer):
            await give(each, "support", "acme")
        async with sender.ask(headers=AS_ACME | {"x-api-key": ACME}) as answer:
            assert (200, "1") == (answer.status, answer.headers["x-vctl-release"])
        assert [0, 1] == [len(each.engine.bodies) for each in (sender, peer)]
        got = peer.engine.headers[0]
        assert not {"authorization", "x-api-key"} & {name.lower() for name in got}
        async with sender.ask(headers=AS_BLUE) as answer:
            assert 404 == answer.status


async def test_peer_serves_no_hop_of_another_tenant_nor_of_one_who_checks_no_key(tmp_path: Path):
    async with gateways(tmp_path, 2, api_keys=FILE) as (sender, peer):
        await give(sender, "support", "acme")
        await give(peer, "support", "blue")  # the sender has yet to learn it, or the peer has
        async with sender.ask(headers=AS_ACME) as answer:
            assert (503, "1") == (answer.status, answer.headers["Retry-After"])
        assert {("sent", "refused"): 1} == await hops(sender)
        assert [] == peer.engine.bodies
        sender.gateway._tenancy._keys = None
        await give(peer, "support", "acme")
        async with sender.ask() as answer:
            assert 503 == answer.status
        assert [] == peer.engine.bodies


async def test_without_a_file_of_keys_nobody_is_asked_and_tenants_do_not_matter(tmp_path: Path):
    async with serving(tmp_path, has_access_log=False) as gateway:
        await give(gateway, "support", "acme")
        for headers in ({}, AS_BLUE, {"x-vctl-tenant": "blue"}):
            async with gateway.ask(headers=headers) as answer:
                assert 200 == answer.status
        got: list[Any] = [each.get("Authorization") for each in gateway.engine.headers]
        assert [None, AS_BLUE["Authorization"], None] == got


async def test_changed_file_lets_in_and_keeps_out_without_a_restart(tmp_path: Path):
    path = tmp_path / "keys"
    path.write_text(a_line("acme", ACME))
    held = KeysFile(path, parse(path.read_text()))
    async with serving(tmp_path, api_keys=held, has_access_log=False) as gateway:
        await give(gateway, "support", "acme")
        path.write_text(a_line("acme", ACME_NEW))
        assert gateway.gateway.api_keys is not None
        gateway.gateway.api_keys.reread()
        for key, status in ((ACME, 401), (ACME_NEW, 200)):
            async with gateway.ask(headers={"x-api-key": key}) as answer:
                assert status == answer.status
        path.write_text("acme\n")
        gateway.gateway.api_keys.reread()
        async with gateway.ask(headers={"x-api-key": ACME_NEW}) as answer:
            assert 200 == answer.status
        async with gateway.client.get(f"{gateway.admin_url}/readyz") as answer:
            assert str(path) in (await answer.json())["api_keys_problem"]


async def test_refused_body_is_not_read(gateway: Bench):
    """Who has no key cannot have a large body kept here."""

    async def pieces() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 2**16
            await asyncio.sleep(0)

    url = f"{gateway.url}/v1/completions"
    try:
        async with gateway.client.post(url, data=pieces()) as answer:
            assert 401 == answer.status
    except aiohttp.ClientError:
        pass  # the connection ends, since the client goes on sending
    assert gateway.engine.bodies == []

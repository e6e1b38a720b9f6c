"""A request whose release is not ready here is served by a peer, by that very release, or not."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import structlog
from aiohttp import web

from tests.gateway.hopping import (
    KEY,
    OTHER_KEY,
    gateways,
    hops,
    name_peers,
    name_urls,
    peers_at,
)
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
    nobody_url,
    ready,
)
from tests.gateway.test_state import an_update, support
from tests.gateway.test_streaming import Steps, _asked
from vctl_agent.gateway.barrier import Barrier
from vctl_agent.gateway.hop import (
    HOP_HEADER,
    PROOF_HEADER,
    Hop,
    Message,
    Outcome,
    _signed,
    headers_of,
    receipt,
)
from vctl_agent.gateway.hopsender import ASIDE_S, HopSender
from vctl_agent.gateway.inflight import References
from vctl_agent.gateway.live import Acted, Live
from vctl_agent.gateway.metrics import Metrics
from vctl_agent.gateway.upstream import Upstream
from vctl_agent.local import InFlight
from vctl_plans.codec import encode
from vctl_plans.peers import Peer

MODELS = {n: a_release(n).engine_name for n in (1, 2)}
SENT, RECEIVED = "sent", "received"


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[list[Bench]]:
    async with gateways(tmp_path, 2) as made:
        yield made


@pytest.fixture
async def three(tmp_path: Path) -> AsyncIterator[list[Bench]]:
    async with gateways(tmp_path, 3) as made:
        yield made


async def code_of(answer: Any) -> tuple[int, str]:
    return answer.status, (await answer.json())["error"]["code"]


def served(*benches: Bench) -> list[int]:
    return [len(each.engine.bodies) for each in benches]


async def test_request_is_served_by_the_peer_as_if_it_were_here(pair: list[Bench]):
    sender, peer = pair
    revision = await sender.route(a_route(1, weight=0.0))
    headers = {"x-request-id": 'r-"1', "Authorization": "Bearer k", "x-vctl-session": "s"}
    async with sender.ask("/v1/completions?a=%20b&c=d+e", headers=headers, n=1) as answer:
        document = await answer.json()
    assert (200, SERVICE) == (answer.status, document["model"])
    assert f"by {MODELS[1]}" == document["choices"][0]["text"]
    assert "1" == answer.headers["x-vctl-release"]
    assert str(revision) == answer.headers["x-vctl-route"]
    assert 'r-"1' == answer.headers["x-request-id"]
    assert not {HOP_HEADER, PROOF_HEADER} & {name.lower() for name in answer.headers}
    assert [0, 1] == served(sender, peer)
    (asked,) = peer.engine.asked
    assert (MODELS[1], 1) == (asked["model"], asked["n"])
    assert ["/v1/completions?a=%20b&c=d+e"] == peer.engine.paths
    assert "Bearer k" == peer.engine.headers[0]["Authorization"]
    assert not [name for name in peer.engine.headers[0] if name.lower().startswith("x-vctl-")]
    assert {(SENT, "served"): 1} == await hops(sender)
    assert {(RECEIVED, "served"): 1} == await hops(peer)


async def test_release_is_the_senders_choice_though_the_peer_routes_another(pair: list[Bench]):
    """The peer has not seen the new route yet: it does not choose."""
    sender, peer = pair
    await sender.route(a_route(1, candidate=2, weight=0.0))
    async with sender.ask(headers={"x-vctl-release": "2"}) as answer:
        assert "2" == answer.headers["x-vctl-release"]
        assert f"by {MODELS[2]}" == (await answer.json())["choices"][0]["text"]
    assert frozenset({1}) == peer.gateway.live.acted.known.routes[SERVICE].route.serving


async def test_ready_release_is_never_passed_on(pair: list[Bench]):
    sender, peer = pair
    await sender.ready(a_release(1))
    async with sender.ask() as answer:
        assert 200 == answer.status
    assert [1, 0] == served(sender, peer)


async def test_engine_that_is_away_is_as_one_that_is_not_ready(pair: list[Bench]):
    sender, peer = pair
    sender.gateway.live.accept(ready(a_release(1), engine_url=nobody_url()))
    async with sender.ask() as answer:
        assert 200 == answer.status
    assert [0, 1] == served(sender, peer)
    assert 0 == sender.gateway.references.total


async def lost(*_: Any) -> web.Response:
    return web.json_response({"error": {"message": "no such model"}}, status=404)


async def test_engine_that_has_lost_the_release_is_as_one_that_is_not_ready(pair: list[Bench]):
    """It started again, and the agent has not noticed yet: a 404 has cost and changed nothing."""
    sender, peer = pair
    await sender.ready(a_release(1))
    sender.engine.answer = lost
    async with sender.ask() as answer:
        assert 200 == answer.status
    assert [1, 1] == served(sender, peer)


@pytest.mark.parametrize("has_peer", [False, True])
async def test_what_no_engine_finds_is_404_in_the_engines_words(pair: list[Bench], has_peer: bool):
    """As a path that the engine does not know."""
    sender, peer = pair
    await sender.ready(a_release(1))
    await name_peers(sender, sender, *([peer] if has_peer else []))
    sender.engine.answer = peer.engine.answer = lost
    async with sender.ask() as answer:
        assert 404 == answer.status
        assert "no such model" == (await answer.json())["error"]["message"]


async def test_engine_that_died_of_a_request_is_not_followed_by_another(pair: list[Bench]):
    async def die(request: web.Request, _: dict[str, Any]) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    sender, peer = pair
    await sender.ready(a_release(1))
    sender.engine.answer = die
    async with sender.ask() as answer:
        assert (503, "engine_unavailable") == await code_of(answer)
    assert [1, 0] == served(sender, peer)


# -- peers that do not serve ---------------------------------------------------------------------


async def test_second_peer_is_asked_when_the_first_refuses_and_no_third(three: list[Bench]):
    sender, *peers = three
    for refusing in peers:
        await refusing.ready()
        for _ in range(8):
            async with sender.ask() as answer:
                assert 200 == answer.status
        await refusing.ready(a_release(1))
    for peer in peers:
        await peer.ready()
    before = await hops(sender)
    async with sender.ask() as answer:
        assert (503, "release_not_ready") == await code_of(answer)
        assert "1" == answer.headers["Retry-After"]
    assert before[SENT, "refused"] + 2 == (await hops(sender))[SENT, "refused"]


async def test_no_more_than_two_are_asked(tmp_path: Path):
    async with gateways(tmp_path, 4) as (sender, *peers):
        for peer in peers:
            await peer.ready()
        async with sender.ask() as answer:
            assert 503 == answer.status
        assert {(SENT, "refused"): 2} == await hops(sender)


async def test_peer_that_is_down_costs_no_request(pair: list[Bench]):
    sender, peer = pair
    await name_urls(sender, [sender.url, nobody_url(), peer.url])
    asked = 0
    while (SENT, "unreachable") not in await hops(sender) and asked < 100:
        async with sender.ask() as answer:
            assert 200 == answer.status
        asked += 1
    assert {(SENT, "served"): asked, (SENT, "unreachable"): 1} == await hops(sender)


async def test_peer_that_was_down_is_left_aside_for_a_while():
    values = support()
    urls = [f"http://n{n}" for n in range(1, 5)]
    values[f"{SERVICE}/peers"] = (encode(peers_at(urls)), 4)
    live = Live(Acted(), prefix=KEYS.services, clock=lambda: 0.0)
    live.learn(an_update(9, **values))
    now = 0.0
    upstream = Upstream(1.0)
    metrics = Metrics(live, References(lambda: None), Barrier(live))
    sender = HopSender(live, upstream, metrics, fleet="dev", node="n1", key=KEY, clock=lambda: now)
    hop = sender.hop(SERVICE, 1, route=5, request_id="r")

    def picked() -> set[str]:
        return {peer.node for _ in range(60) for peer in sender._picked(hop)}

    assert {"n2", "n3", "n4"} == picked()
    sender._note(Peer(node="n2", url="http://n2"), hop, Outcome.UNREACHABLE)
    assert {"n3", "n4"} == picked()
    sender._note(Peer(node="n3", url="http://n3"), hop, Outcome.DENIED)
    assert {"n4"} == {sender._picked(hop)[0].node for _ in range(60)}
    assert {"n2", "n3"} == {sender._picked(hop)[1].node for _ in range(60)}
    now = ASIDE_S
    assert {"n2", "n3", "n4"} == picked()
    upstream.close()


async def test_down_peers_alone_are_503_and_tried_each_time(pair: list[Bench]):
    sender, _ = pair
    await name_urls(sender, [sender.url, nobody_url(), nobody_url(), nobody_url()])
    for _ in range(2):
        async with sender.ask() as answer:
            assert (503, "release_not_ready") == await code_of(answer)
    assert {(SENT, "unreachable"): 4} == await hops(sender)


async def test_no_peers_no_hop(pair: list[Bench]):
    sender, _ = pair
    await name_peers(sender, sender)
    async with sender.ask() as answer:
        assert (503, "release_not_ready") == await code_of(answer)
    assert {} == await hops(sender)


async def test_peers_engine_that_is_away_is_a_refusal(three: list[Bench]):
    sender, broken, sound = three
    broken.gateway.live.accept(ready(a_release(1), engine_url=nobody_url()))
    for _ in range(8):
        async with sender.ask() as answer:
            assert 200 == answer.status
    assert [0, 0, 8] == served(sender, broken, sound)


@pytest.mark.parametrize("status", [400, 429, 503])
async def test_error_of_the_peers_engine_is_the_answer(three: list[Bench], status: int):
    async def fail(*_: Any) -> web.Response:
        return web.json_response({"error": {"message": "no"}}, status=status)

    sender, *peers = three
    for peer in peers:
        peer.engine.answer = fail
    async with sender.ask() as answer:
        assert status == answer.status
    assert 1 == sum(served(*peers))


async def test_what_the_peer_finds_wrong_with_a_request_is_the_answer(three: list[Bench]):
    sender, *_ = three
    async with sender.ask(cache_salt=7) as answer:
        assert (400, "invalid_value") == await code_of(answer)
    assert {(SENT, "served"): 1} == await hops(sender)


async def test_peer_that_is_silent_is_504_and_asked_once(tmp_path: Path):
    async def sleep(*_: Any) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    async with gateways(tmp_path, 3, engine_timeout_s=0.1) as (sender, *peers):
        for peer in peers:
            peer.engine.answer = sleep
        async with sender.ask() as answer:
            assert 504 == answer.status
        assert 1 == sum(served(*peers))


# -- streams -------------------------------------------------------------------------------------


async def test_event_arrives_before_the_peers_engine_sends_the_next(pair: list[Bench]):
    sender, peer = pair
    steps = Steps()
    peer.engine.answer = steps.answer
    steps.go.put_nowait(event(MODELS[1], "t0"))
    async with sender.ask(stream=True) as answer:
        for n in range(1, 4):
            assert event(SERVICE, f"t{n - 1}") == await answer.content.readuntil(b"\n\n")
            steps.go.put_nowait(event(MODELS[1], f"t{n}"))
        one = (InFlight(service=SERVICE, number=1, count=1),)
        assert one == peer.gateway.references.listing()
        assert () == sender.gateway.references.listing()
        steps.go.put_nowait(b"")
        assert event(SERVICE, "t3") == await answer.content.read()


@pytest.mark.parametrize("is_begun", [True, False])
async def test_client_that_goes_away_aborts_the_peers_engine(pair: list[Bench], is_begun: bool):
    sender, peer = pair
    steps = Steps()
    peer.engine.answer = steps.answer
    if is_begun:
        steps.go.put_nowait(event(MODELS[1], "t0"))
        answer = await sender.ask(stream=True)
        await answer.content.readuntil(b"\n\n")
        answer.close()
    else:
        request = asyncio.create_task(_asked(sender))
        await eventually(lambda: peer.engine.open == 1)
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
    await eventually(lambda: peer.engine.aborted == 1)
    await eventually(lambda: peer.gateway.references.total == 0)
    assert {(SENT, "broken"): 1} == await hops(sender)
    await _until_counted(peer, RECEIVED, "broken")


async def _until_counted(gateway: Bench, *name: str) -> None:
    async with asyncio.timeout(5):
        while name not in await hops(gateway):
            await asyncio.sleep(0.005)


async def test_stream_that_the_peer_cuts_is_cut_here_and_asked_once(three: list[Bench]):
    async def break_off(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(event(body["model"], "t0"))
        assert request.transport is not None
        request.transport.close()
        return response

    sender, *peers = three
    for peer in peers:
        peer.engine.answer = break_off
    async with sender.ask(stream=True) as answer:
        assert 200 == answer.status
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()
    assert 1 == sum(served(*peers))
    assert {(SENT, "broken"): 1} == await hops(sender)


async def test_answer_that_a_peer_cuts_before_it_was_passed_on_is_another_peers_turn(
    pair: list[Bench],
):
    """It is read whole before anything of it is sent, so the client never knows."""
    sender, sound = pair
    cut = 0

    async def cut_off(request: web.Request, _: dict[str, Any]) -> web.StreamResponse:
        nonlocal cut
        cut += 1
        mark = receipt(request.headers[PROOF_HEADER], KEY)
        response = web.StreamResponse(headers={HOP_HEADER: mark, "Content-Length": "1000"})
        response.content_type = "application/json"
        await response.prepare(request)
        await response.write(b'{"model": ')
        assert request.transport is not None
        request.transport.abort()
        return response

    async with StubEngine().running() as cutting:
        cutting.answer = cut_off
        await name_peers(sender, sender, cutting, sound)
        asked = 0
        while not cut and asked < 100:
            async with sender.ask() as answer:
                assert (200, SERVICE) == (answer.status, (await answer.json())["model"])
            asked += 1
    assert (1, asked) == (cut, len(sound.engine.bodies))


async def test_client_that_reads_slowly_slows_the_peers_engine(pair: list[Bench]):
    sent = 0

    async def flood(request: web.Request, _: dict[str, Any]) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        while True:
            await response.write(event(MODELS[1], "x" * 60_000))
            sent += 60_000

    sender, peer = pair
    peer.engine.answer = flood
    answer = await sender.ask(stream=True)
    before = -1
    async with asyncio.timeout(5):
        while sent != before:  # until nothing more gets through
            before = sent
            await asyncio.sleep(0.05)
    assert sent < 40 * 2**20
    answer.close()
    await eventually(lambda: peer.engine.open == 0)


# -- who may ask ---------------------------------------------------------------------------------


def a_hop(**more: Any) -> Hop:
    plain = Hop(
        fleet="dev",
        sender="n9",
        service=SERVICE,
        number=1,
        digest=a_release(1).digest,
        route=3,
        request_id="r",
    )
    return msgspec.structs.replace(plain, **more)


PATH = "/v1/completions"
BODY = json.dumps({"model": SERVICE, "prompt": "x"}).encode()


async def post(gateway: Bench, headers: dict[str, str], *, path: str = PATH, body: bytes = BODY):
    url = f"{gateway.url}{path}"
    async with gateway.client.post(url, data=body, headers=headers) as answer:
        await answer.read()
        return answer


def signed(hop: Hop, *, path: str = PATH, body: bytes = BODY, key: Any = KEY) -> dict[str, str]:
    return headers_of(hop, Message("POST", path, body), key)


async def test_hop_that_is_signed_is_served_also_a_second_time(pair: list[Bench]):
    """Who sends a recorded one again gets one more answer of the same release."""
    _, peer = pair
    for _ in range(2):
        answer = await post(peer, signed(a_hop()))
        assert (200, "1", "3") == (
            answer.status,
            answer.headers["x-vctl-release"],
            answer.headers["x-vctl-route"],
        )


@pytest.mark.parametrize(
    ("headers", "path", "body"),
    [
        (signed(a_hop(), key=OTHER_KEY), PATH, BODY),
        (signed(a_hop(fleet="other")), PATH, BODY),
        (signed(a_hop()), PATH, BODY + b" "),
        (signed(a_hop()), "/v1/chat/completions", BODY),
        (signed(a_hop()), PATH + "?a=b", BODY),
        (signed(a_hop()) | {HOP_HEADER: signed(a_hop(number=2))[HOP_HEADER]}, PATH, BODY),
        ({HOP_HEADER: signed(a_hop())[HOP_HEADER]}, PATH, BODY),
        ({PROOF_HEADER: signed(a_hop())[PROOF_HEADER]}, PATH, BODY),
        ({HOP_HEADER: "1"}, PATH, BODY),
        ({HOP_HEADER: "{}", PROOF_HEADER: "é"}, PATH, BODY),
    ],
)
async def test_hop_without_a_right_proof_is_403_and_no_request_of_any_kind(
    pair: list[Bench], headers: dict[str, str], path: str, body: bytes
):
    _, peer = pair
    answer = await post(peer, headers, path=path, body=body)
    assert 403 == answer.status
    assert [] == peer.engine.bodies
    assert {(RECEIVED, "denied"): 1} == await hops(peer)


async def test_signed_hop_that_says_nothing_is_403(pair: list[Bench]):
    _, peer = pair
    proof = KEY.sign(*_signed("[]", Message("POST", PATH, BODY)))
    assert 403 == (await post(peer, {HOP_HEADER: "[]", PROOF_HEADER: proof})).status


async def test_gateway_without_a_key_takes_no_hops_and_sends_none(tmp_path: Path):
    async with gateways(tmp_path, 2, fleet_key=None) as (sender, peer):
        async with sender.ask() as answer:
            assert (503, "release_not_ready") == await code_of(answer)
        assert 403 == (await post(peer, signed(a_hop()))).status
        assert [] == peer.engine.bodies
        assert {} == await hops(sender)


@pytest.mark.parametrize("theirs", [{"fleet_key": OTHER_KEY}, {"fleet_key": None}])
async def test_peer_with_another_key_denies_and_another_is_asked(
    pair: list[Bench], tmp_path: Path, theirs: dict[str, Any]
):
    sender, sound = pair
    (tmp_path / "x").mkdir()
    async with bench(tmp_path / "x", node="x", **theirs) as stranger:
        await stranger.route(a_route(1), a_release(1))
        await stranger.ready(a_release(1))
        await name_peers(sender, sender, stranger, sound)
        for _ in range(8):
            async with sender.ask() as answer:
                assert 200 == answer.status
        assert [] == stranger.engine.bodies
    assert 8 == len(sound.engine.bodies)


async def test_other_fleet_with_the_same_key_denies(pair: list[Bench], tmp_path: Path):
    sender, _ = pair
    (tmp_path / "x").mkdir()
    async with bench(tmp_path / "x", node="x", fleet="other", fleet_key=KEY) as stranger:
        await name_peers(sender, sender, stranger)
        async with sender.ask() as answer:
            assert (503, "release_not_ready") == await code_of(answer)
        assert {(RECEIVED, "denied"): 1} == await hops(stranger)
        assert {(SENT, "denied"): 1} == await hops(sender)


async def test_what_listens_at_a_peers_address_and_is_no_peer_answers_nobody(pair: list[Bench]):
    sender, _ = pair
    async with StubEngine().running() as impostor:
        await name_peers(sender, sender, impostor)
        async with sender.ask() as answer:
            assert (503, "release_not_ready") == await code_of(answer)
        assert 1 == len(impostor.bodies)
    assert {(SENT, "denied"): 1} == await hops(sender)


# -- what a peer serves --------------------------------------------------------------------------


async def test_hop_is_never_passed_on(three: list[Bench]):
    """Two gateways that are not ready list each other: one hop, and an answer."""
    first, second, third = three
    await second.ready()
    await name_peers(second, first, third)
    await name_peers(first, first, second)
    async with first.ask() as answer:
        assert (503, "release_not_ready") == await code_of(answer)
    assert {(RECEIVED, "refused"): 1} == await hops(second)
    assert [0, 0, 0] == served(*three)


async def test_revoked_release_is_refused_by_a_peer_that_has_seen_it(pair: list[Bench]):
    """Though the sender has not, and the engine still holds it (invariant I6)."""
    sender, peer = pair
    await peer.route(a_route(2, revoked=(1,)))
    async with sender.ask() as answer:
        assert (503, "release_not_ready") == await code_of(answer)
    assert [] == peer.engine.bodies
    assert {(RECEIVED, "refused"): 1} == await hops(peer)


async def test_release_that_was_revoked_after_it_was_chosen_is_asked_of_nobody(
    pair: list[Bench],
):
    """By a sender that has seen it, of a peer that has not (I6): it is chosen once more."""
    sender, peer = pair

    async def revoke(*_: Any) -> web.Response:
        await sender.route(a_route(2, revoked=(1,)))
        return await lost()

    await sender.ready(a_release(1))
    sender.engine.answer = revoke
    async with sender.ask() as answer:
        assert (200, "2") == (answer.status, answer.headers["x-vctl-release"])
    assert [1, 1] == served(sender, peer)
    assert MODELS[2] == peer.engine.asked[0]["model"]


@pytest.mark.parametrize(
    ("hop", "code"),
    [
        (a_hop(digest="b3:other"), "hop_not_ready"),
        (a_hop(digest=""), "hop_not_ready"),
        (a_hop(number=3), "hop_not_ready"),
        (a_hop(service="chat"), "hop_not_ready"),
        (a_hop(number=2, digest=a_release(2).digest), "hop_revoked"),
    ],
)
async def test_peer_says_why_it_refuses(pair: list[Bench], hop: Hop, code: str):
    _, peer = pair
    await peer.route(a_route(1, revoked=(2,)))
    url = f"{peer.url}{PATH}"
    async with peer.client.post(url, data=BODY, headers=signed(hop)) as answer:
        assert (503, code) == await code_of(answer)
        assert "refused" == answer.headers[HOP_HEADER]
    assert [] == peer.engine.bodies


async def _readiness(gateway: Bench) -> dict[str, Any]:
    async with gateway.client.get(f"{gateway.admin_url}/readyz") as answer:
        found: dict[str, Any] = await answer.json()
        return found | {"status": answer.status}


async def test_gateway_that_was_ready_stays_so_while_it_can_pass_on(pair: list[Bench]):
    sender, _ = pair
    assert "not ready here: support/1" == (await _readiness(sender))["reason"]
    await sender.ready(a_release(1))
    await sender.ready()
    assert (200, ["support/1"]) == (
        (await _readiness(sender))["status"],
        (await _readiness(sender))["not_ready"],
    )
    await name_peers(sender, sender)
    assert 503 == (await _readiness(sender))["status"]


async def test_access_log_names_both_ends(tmp_path: Path):
    with structlog.testing.capture_logs() as lines:
        async with gateways(tmp_path, 2, has_access_log=True) as (sender, peer):
            async with sender.ask(headers={"x-request-id": "r-1"}):
                pass
            await eventually(lambda: len([e for e in lines if e["event"] == "request"]) == 2)
            assert peer.engine.bodies
    found = {(line["request_id"], line["peer"], line["hop"], line["status"]) for line in lines
             if line["event"] == "request"}  # fmt: skip
    assert {("r-1", "n2", "", 200), ("r-1", "", "n1", 200)} == found


async def test_request_that_came_too_late_for_its_release_is_chosen_once_more(pair: list[Bench]):
    """Its release was left once all gateways acted on the next route: here it had been chosen."""
    sender, peer = pair
    await peer.ready(a_release(2))
    asked = []

    async def left(*_: Any) -> web.Response:
        asked.append(1)
        await sender.route(a_route(2), a_release(2))
        await name_peers(sender, sender, peer)
        return web.json_response({}, status=503)

    async with StubEngine().running() as gone:
        gone.answer = left
        await name_peers(sender, sender, gone)
        async with sender.ask() as answer:
            assert (200, "2") == (answer.status, answer.headers["x-vctl-release"])
        assert [1] == asked


async def test_request_whose_release_is_nowhere_is_not_chosen_again(pair: list[Bench]):
    """While nothing else is known it would come to the same."""
    sender, peer = pair
    await peer.ready(a_release(2))
    async with sender.ask() as answer:
        assert (503, "release_not_ready") == await code_of(answer)
    assert {(SENT, "refused"): 1} == await hops(sender)

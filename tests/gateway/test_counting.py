"""Each request that a release was chosen for is one sample, of the class that its end was."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gateway.support import (
    Answer,
    Bench,
    a_release,
    a_route,
    event,
    eventually,
    nobody_url,
    ready,
    serving,
)
from vctl_agent.gateway.agentlink import COALESCE_S
from vctl_agent.gateway.barrier import Barrier
from vctl_agent.gateway.counting import (
    KEPT_RELEASES,
    KEPT_ROUTES,
    MAX_BYTES,
    Counting,
    fitted,
)
from vctl_agent.gateway.inflight import References
from vctl_agent.gateway.live import Acted, Live
from vctl_agent.gateway.metrics import Metrics
from vctl_agent.gateway.observation import MAX_LOGPROBS, Counted, Observation
from vctl_agent.local import MAX_LINE_BYTES, GatewayStatistics, from_line, to_line
from vctl_plans.codec import encode
from vctl_plans.sketch import Counts, Sketch
from vctl_plans.statistics import (
    ErrorClass,
    FinishReason,
    NodeStatistics,
    Origin,
    Sample,
    Snapshot,
    Statistics,
    latest,
    length_bin,
    logprob_bin,
)
from vctl_plans.store.port import MAX_REQUEST_BYTES

SERVICE = "support"


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Bench]:
    async with serving(tmp_path, has_access_log=False, engine_timeout_s=0.2) as made:
        await made.watch(SERVICE)
        yield made


def saying(document: dict[str, Any], *, status: int = 200) -> Answer:
    async def answer(_: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return web.json_response({"model": body["model"], **document}, status=status)

    return answer


def streaming(*lines: bytes, is_broken: bool = False, pause_s: float = 0.0) -> Answer:
    async def answer(request: web.Request, _: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for line in lines:
            await response.write(line)
        await asyncio.sleep(pause_s)
        if is_broken:
            assert request.transport is not None
            request.transport.abort()
        return response

    return answer


async def dying(request: web.Request, _: dict[str, Any]) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def sleeping(*_: Any) -> web.StreamResponse:
    await asyncio.sleep(30)
    return web.Response()


def data(document: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(document) + b"\n\n"


DONE = b"data: [DONE]\n\n"
TOKEN = event("m", "t0")
FAILURE = data({"error": {"message": "no", "code": 500}})
REFUSAL = data({"error": {"message": "too long", "code": 400}})

ENDS: dict[str, tuple[Answer, ErrorClass | None]] = {
    "answered": (saying({"choices": []}), None),
    "failed": (saying({"error": {}}, status=500), ErrorClass.SERVER),
    "overloaded": (saying({"error": {}}, status=503), ErrorClass.SERVER),
    "refused": (saying({"error": {}}, status=400), ErrorClass.CLIENT),
    "good status, failed": (saying({"error": {"code": "x"}}), ErrorClass.SERVER),
    "good status, no error": (saying({"error": None}), None),
    "died": (dying, ErrorClass.BROKEN),
    "late": (sleeping, ErrorClass.TIMEOUT),
    "streamed": (streaming(TOKEN, DONE), None),
    "stream cut": (streaming(TOKEN, is_broken=True), ErrorClass.BROKEN),
    "stream without its last word": (streaming(TOKEN), ErrorClass.BROKEN),
    "stream that ends in nonsense": (streaming(TOKEN, b"data: x\n\n"), ErrorClass.BROKEN),
    "stream stalled": (streaming(TOKEN, pause_s=5), ErrorClass.TIMEOUT),
    "stream failed": (streaming(TOKEN, FAILURE), ErrorClass.SERVER),
    "stream failed and ended": (streaming(TOKEN, FAILURE, DONE), ErrorClass.SERVER),
    "stream refused": (streaming(REFUSAL, DONE), ErrorClass.CLIENT),
}


async def ask(gateway: Bench, **more: Any) -> None:
    with contextlib.suppress(aiohttp.ClientError):
        async with gateway.ask(**more) as answer:
            await answer.read()


@pytest.mark.parametrize("end", ENDS)
async def test_end_counts_as_its_class(gateway: Bench, end: str):
    gateway.engine.answer, wanted = ENDS[end]
    await ask(gateway, stream=end.startswith("stream"))
    await eventually(lambda: gateway.counted().requests == 1)

    errors = {kind: gateway.counted().error_count(kind) for kind in ErrorClass}
    assert {kind: int(kind is wanted) for kind in ErrorClass} == errors
    assert gateway.counted().latency.total == (wanted is None)
    said = await gateway.metrics()
    if wanted:
        labels = f'class="{wanted.value}",release="1",service="support"'
        assert f"vctl_gateway_errors_total{{{labels}}} 1.0" in said


async def test_client_that_goes_away_is_no_failure_of_the_release(gateway: Bench):
    gateway.engine.answer = streaming(TOKEN, pause_s=0.1)
    answer = await gateway.ask(stream=True)
    await answer.content.readuntil(b"\n\n")
    answer.close()
    await eventually(lambda: gateway.counted().requests == 1)

    assert gateway.counted().error_count(ErrorClass.CANCELLED) == 1
    assert gateway.counted().failures == 0


async def test_engine_that_is_not_there_counts_as_broken(gateway: Bench):
    await gateway.watch(SERVICE, engine_url=nobody_url())
    await ask(gateway)

    assert gateway.counted().error_count(ErrorClass.BROKEN) == 1


async def test_release_that_is_not_ready_here_counts_as_broken(gateway: Bench):
    said = ready(a_release(2), watched=(SERVICE,), engine_url=gateway.engine.url)
    gateway.gateway.live.accept(said)
    await ask(gateway)

    assert gateway.counted().error_count(ErrorClass.BROKEN) == 1


async def test_salt_that_is_no_text_is_the_clients_fault(gateway: Bench):
    await ask(gateway, cache_salt=7)

    assert gateway.counted().error_count(ErrorClass.CLIENT) == 1


async def test_refusal_before_a_release_was_chosen_counts_for_none(gateway: Bench):
    await ask(gateway, headers={"x-vctl-release": "2"})
    await ask(gateway, headers={"x-vctl-release": "two"})
    await ask(gateway, model="unknown")
    async with gateway.client.post(f"{gateway.url}/v1/completions", data=b"{") as answer:
        assert answer.status == 400

    assert gateway.gateway.counting.snapshots() == ()


CHAT_LOGPROBS = {"content": [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": None}]}
PLAIN_LOGPROBS = {"tokens": ["a", "b"], "token_logprobs": [None, -0.5]}
USAGE = {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}


def choice(finish: str | None, logprobs: Any, index: int = 0) -> dict[str, Any]:
    return {"index": index, "text": "x", "finish_reason": finish, "logprobs": logprobs}


TOLD: dict[str, Answer] = {
    "chat": saying({"choices": [choice("length", CHAT_LOGPROBS)], "usage": USAGE}),
    "completions": saying({"choices": [choice("length", PLAIN_LOGPROBS)], "usage": USAGE}),
    "chat stream": streaming(
        data({"choices": [choice(None, CHAT_LOGPROBS)], "usage": None}),
        data({"choices": [choice("length", None)]}),
        data({"choices": [choice("stop", None, index=1)]}),
        data({"choices": [], "usage": USAGE}),
        DONE,
    ),
    "completions stream": streaming(
        data({"choices": [choice(None, PLAIN_LOGPROBS)], "usage": {"completion_tokens": 1}}),
        data({"choices": [choice("length", None)], "usage": USAGE}),
        DONE,
    ),
}


@pytest.mark.parametrize("kind", TOLD)
async def test_answer_tells_its_length_its_end_and_its_logprobs(gateway: Bench, kind: str):
    gateway.engine.answer = TOLD[kind]
    await ask(gateway, stream=kind.endswith("stream"))
    found = gateway.counted()

    assert (1, 1) == (found.requests, found.answer_tokens.at(length_bin(5)))
    assert 1 == found.finish.total == found.finish_count(FinishReason.LENGTH)
    assert 1 == found.logprobs.total == found.logprobs.at(logprob_bin(-0.5))
    assert kind.endswith("stream") == found.first_token.total


async def test_stream_that_does_not_tell_its_length_is_not_guessed(gateway: Bench):
    gateway.engine.answer = streaming(data({"choices": [choice("abort", None)]}), DONE)
    await ask(gateway, stream=True)

    assert gateway.counted().answer_tokens == Counts()
    assert gateway.counted().finish_count(FinishReason.OTHER) == 1


async def test_answer_of_another_shape_comes_through_and_counts(gateway: Bench):
    strange = {"usage": [1], "choices": {"a": 1}}
    gateway.engine.answer = saying(strange)
    async with gateway.ask() as answer:
        assert (await answer.json())["usage"] == [1]

    assert gateway.counted().requests == 1
    assert gateway.counted().finish == Counts()


async def test_answer_that_failed_tells_nothing_of_the_release_but_its_failure(gateway: Bench):
    gateway.engine.answer = streaming(
        data({"choices": [choice("length", CHAT_LOGPROBS)], "usage": USAGE}), is_broken=True
    )
    await ask(gateway, stream=True)
    found = gateway.counted()

    assert (found.requests, found.failures, found.first_token.total) == (1, 1, 1)
    assert (Counts(), Counts(), Counts()) == (found.answer_tokens, found.finish, found.logprobs)


async def test_service_that_is_not_watched_is_neither_read_nor_kept(gateway: Bench):
    await gateway.watch("another")
    gateway.engine.answer = TOLD["chat stream"]
    await ask(gateway, stream=True)

    assert gateway.gateway.counting.snapshots() == ()
    said = await gateway.metrics()
    assert 'vctl_gateway_first_token_seconds_count{release="1",service="support"} 1.0' in said


def observed(taken: list[Sample], *, is_read: bool = True) -> Observation:
    def ended(seen: Observation, error: ErrorClass | None) -> None:
        taken.append(seen.sample(error))

    return Observation(Counted(SERVICE, 1, "d", 7), ended, lambda: 0.0, is_read, 0.0)


def test_answer_is_read_only_where_that_was_asked_for():
    answer = {"usage": msgspec.Raw(b'{"completion_tokens": 5}')}
    taken: list[Sample] = []
    for is_read in (False, True):
        with observed(taken, is_read=is_read) as seen:
            seen.read(answer)

    assert [None, 5] == [sample.answer_tokens for sample in taken]


@pytest.mark.parametrize("statuses", [(404, 200), (200, 404), (404, 500)])
def test_last_of_several_answers_counts(statuses: tuple[int, ...]):
    taken: list[Sample] = []
    with observed(taken) as seen:
        for status in statuses:
            seen.answered(status)

    wanted = {200: None, 404: ErrorClass.CLIENT, 500: ErrorClass.SERVER}
    assert [wanted[statuses[-1]]] == [sample.error for sample in taken]


def test_logprobs_of_a_long_answer_are_bounded():
    many = msgspec.json.encode([{"logprobs": {"token_logprobs": [-0.1] * MAX_LOGPROBS}}])
    taken: list[Sample] = []
    with observed(taken) as seen:
        for _ in range(3):
            seen.read({"choices": msgspec.Raw(many)})

    assert [MAX_LOGPROBS] == [len(sample.logprobs) for sample in taken]


async def test_counts_are_kept_by_release_digest_and_route(gateway: Bench):
    first = gateway.gateway.live.acted.known.routes[SERVICE].revision
    await ask(gateway)
    second = await gateway.route(a_route(2))
    await ask(gateway)
    await ask(gateway)
    found = gateway.gateway.counting.snapshots()

    assert [
        (1, a_release(1).digest, first, 1),
        (2, a_release(2).digest, second, 2),
    ] == [(s.number, s.digest, s.origin.route_revision, s.statistics.requests) for s in found]


async def test_agent_is_told_while_something_is_watched_and_not_after(gateway: Bench):
    await ask(gateway)
    await eventually(lambda: bool(gateway.agent.counted and gateway.agent.counted[-1].snapshots))
    (told,) = gateway.agent.counted[-1].snapshots
    assert (SERVICE, 1, 1) == (told.service, told.number, told.statistics.requests)

    await gateway.watch()
    before = len(gateway.agent.counted)
    await asyncio.sleep(4 * (0.02 + COALESCE_S))
    assert len(gateway.agent.counted) <= before + 1


async def test_agent_that_comes_back_is_told_all(gateway: Bench):
    await ask(gateway)
    await gateway.agent.vanish()
    gateway.agent.counted.clear()
    await gateway.agent.connect()

    await eventually(lambda: bool(gateway.agent.counted))
    assert 1 == gateway.agent.counted[0].snapshots[0].statistics.requests


def counting() -> Counting:
    live = Live(Acted(), prefix="/", clock=lambda: 0.0)
    made = Counting(
        "boot", Metrics(live, References(lambda: None), Barrier(live)), clock=lambda: 0.0
    )
    made.watch((SERVICE,))
    return made


def count(made: Counting, *, number: int = 1, route: int = 1, service: str = SERVICE) -> None:
    with made.observe(Counted(service, number, f"d{number}", route)):
        pass


def kept(made: Counting) -> list[tuple[int, int, int]]:
    return [(s.number, s.origin.route_revision, s.statistics.requests) for s in made.snapshots()]


def test_newest_routes_of_a_release_are_kept_and_a_late_request_revives_none():
    made = counting()
    for route in (5, 6, 7, 8):
        count(made, route=route)
    for late in (5, 4, 7):
        count(made, route=late)

    assert KEPT_ROUTES == 3
    assert [(1, 6, 1), (1, 7, 2), (1, 8, 1)] == kept(made)


def test_releases_with_the_newest_routes_are_kept():
    made = counting()
    for number in range(1, KEPT_RELEASES + 3):
        count(made, number=number, route=number)

    assert list(range(3, KEPT_RELEASES + 3)) == [number for number, _, _ in kept(made)]


def test_count_that_begins_anew_has_another_name():
    made = counting()
    count(made)
    before = made.snapshots()
    count(made)
    assert [1, 2] == [s.statistics.requests for s in (*before, *made.snapshots())]
    made.watch(())
    assert made.snapshots() == ()
    made.watch((SERVICE,))
    count(made)

    (after,) = made.snapshots()
    assert after.origin != before[0].origin
    assert 2 == len(latest([*before, after]))


def test_watching_another_service_leaves_the_first_ones_counts():
    made = counting()
    count(made)
    made.watch((SERVICE, "other"))
    count(made)
    count(made, service="other")

    assert [(1, 1, 1), (1, 1, 2)] == kept(made)


_steps = st.lists(
    st.tuples(
        st.sampled_from(["count", "watch", "unwatch"]), st.integers(1, 12), st.integers(1, 6)
    ),
    max_size=60,
)


@settings(deadline=None)
@given(_steps)
def test_no_count_ever_goes_back_under_one_name(steps: list[tuple[str, int, int]]):
    made = counting()
    seen: dict[tuple[int, Origin], int] = {}
    for what, number, route in steps:
        if what == "count":
            count(made, number=number, route=route)
        else:
            made.watch((SERVICE,) if what == "watch" else ())
        for each in made.snapshots():
            name = (each.number, each.origin)
            assert each.statistics.requests >= seen.get(name, 0)
            seen[name] = each.statistics.requests


def _largest(services: int, releases: int) -> tuple[Snapshot, ...]:
    """Return snapshots as large as they can be."""
    full = Sketch.of([10**9] * 756, first=-345)
    worst = Statistics(
        requests=10**12,
        errors=Counts.of([10**12] * 5),
        latency=full,
        first_token=full,
        answer_tokens=Counts.of([10**12] * 21),
        logprobs=Counts.of([10**12] * 16),
        finish=Counts.of([10**12] * 6),
    )
    return tuple(
        Snapshot(
            service=f"s{service}" + "x" * 60,
            number=number,
            digest=a_release(1).digest,
            origin=Origin("b" * 32 + f".{number}", route),
            statistics=worst,
        )
        for service, number, route in itertools.product(
            range(services), range(releases), range(1, KEPT_ROUTES + 1)
        )
    )


def test_largest_counts_fit_a_line_and_a_value_of_etcd():
    every = _largest(services=10, releases=KEPT_RELEASES)
    told = fitted(every, MAX_BYTES)
    line = to_line(GatewayStatistics(boot_id="b" * 32, snapshots=told))
    value = encode(NodeStatistics(node="n" * 60, boot_id="b" * 32, snapshots=told))

    assert len(to_line(GatewayStatistics(boot_id="b", snapshots=every))) > MAX_LINE_BYTES / 2
    assert MAX_BYTES / 2 < len(line) < MAX_LINE_BYTES
    assert len(value) < MAX_REQUEST_BYTES - 1024
    assert from_line(line) == GatewayStatistics(boot_id="b" * 32, snapshots=told)


def test_newest_route_of_every_release_is_told_first():
    every = _largest(services=2, releases=4)
    size = len(encode(every[0])) + 2
    told = fitted(every, size * 12)

    assert {2, 3} == {each.origin.route_revision for each in told}
    assert 8 == sum(each.origin.route_revision == 3 for each in told)
    assert list(told) == [each for each in every if each in told]
    assert fitted(every, MAX_LINE_BYTES) == every

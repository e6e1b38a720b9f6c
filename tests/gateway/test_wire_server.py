"""What clients do on the wire: each thing has one defined answer, and none holds anything."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from vctl_agent.gateway.answers import json_answer, unreadable
from vctl_agent.gateway.wire import server as wire
from vctl_agent.gateway.wire.message import Answer, BodyBroken, BodyTooLarge, Limits, Request
from vctl_agent.gateway.wire.server import Listener

GET = b"GET /health HTTP/1.1\r\nHost: h\r\n\r\n"


def post(body: bytes, *fields: bytes, target: bytes = b"/x") -> bytes:
    lines = [b"POST %b HTTP/1.1" % target, b"Host: h", b"Content-Length: %d" % len(body), *fields]
    return b"\r\n".join([*lines, b"", body])


@dataclass
class Served:
    """A listener on a real socket, whose handler echoes, streams or waits."""

    port: int = 0
    listener: Any = None
    seen: list[tuple[str, str, str, bytes]] = field(default_factory=list)
    hold: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: int = 0

    async def answer(self, request: Request) -> Answer:
        if request.path == "/early":
            return json_answer({"early": True}, status=404)
        try:
            body = await request.read()
        except BodyTooLarge:
            return json_answer({}, status=413)
        except BodyBroken as cause:
            return json_answer({"broken": str(cause)}, status=400)
        self.seen.append((request.method, request.path, request.query, body))
        if request.path == "/hold":
            try:
                await self.hold.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        if request.path == "/stream":
            answer = Answer()
            await request.begin(answer)
            for piece in (b"one", b"", b"two"):
                await request.write(piece)
            await request.end()
            return answer
        return Answer(body=body or b"empty")

    async def talk(self, *parts: bytes, pause_s: float = 0.0, is_closing: bool = True) -> bytes:
        """Send the parts, and return all that comes until the other side closes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            for part in parts:
                with contextlib.suppress(ConnectionError):
                    writer.write(part)
                    await writer.drain()
                await asyncio.sleep(pause_s)
            if is_closing:
                writer.write(b"GET /bye HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
            async with asyncio.timeout(10):
                with contextlib.suppress(ConnectionError):
                    return await reader.read()
            return b""
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


@contextlib.asynccontextmanager
async def serving(**limits: Any) -> AsyncIterator[Served]:
    made = Served()
    made.listener = Listener(made.answer, unreadable, Limits(**limits))
    server = await asyncio.get_running_loop().create_server(made.listener, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    sweeping = asyncio.create_task(made.listener.sweep())
    try:
        yield made
    finally:
        server.close()
        made.listener.abort()
        sweeping.cancel()
        await asyncio.gather(sweeping, return_exceptions=True)


@pytest.fixture
async def served(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    monkeypatch.setattr(wire, "_SWEEP_S", 0.02)
    async with serving(max_body_bytes=1000, linger_s=0.2) as made:
        yield made


def statuses(said: bytes) -> list[int]:
    return [int(part[:3]) for part in said.split(b"HTTP/1.1 ")[1:]]


async def test_requests_of_one_connection_are_answered_in_turn(served: Served):
    said = await served.talk(post(b"a") + post(b"b", target=b"/y?q=1") + GET)

    assert [200] * 4 == statuses(said)
    assert said.index(b"\r\n\r\na") < said.index(b"\r\n\r\nb") < said.index(b"\r\n\r\nempty")
    assert ("POST", "/y", "q=1", b"b") == served.seen[1]


async def test_request_may_come_a_byte_at_a_time(served: Served):
    said = await served.talk(*(bytes([byte]) for byte in post(b"slow")))

    assert b"slow" in said
    assert [200, 200] == statuses(said)


async def test_streamed_answer_comes_in_chunks_and_the_connection_stays(served: Served):
    said = await served.talk(post(b"", target=b"/stream"))

    assert b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n" in said
    assert [200, 200] == statuses(said)


async def test_old_client_gets_a_body_that_ends_with_the_connection(served: Served):
    said = await served.talk(b"POST /stream HTTP/1.0\r\n\r\n", is_closing=False)

    assert said.endswith(b"\r\n\r\nonetwo")
    assert b"Connection: close" in said
    assert b"Transfer-Encoding" not in said


async def test_head_gets_no_body(served: Served):
    said = await served.talk(b"HEAD /x HTTP/1.1\r\nHost: h\r\n\r\n")

    assert said.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Length: 5\r\n" in said
    assert b"\r\n\r\nHTTP/1.1" in said


async def test_client_that_waits_to_be_asked_is_asked_once(served: Served):
    head, body = post(b"body", b"Expect: 100-continue").split(b"\r\n\r\n")
    said = await served.talk(head + b"\r\n\r\n", body, pause_s=0.1)

    assert [100, 200, 200] == statuses(said)


async def test_chunked_body_is_read_and_its_trailer_decides_nothing(served: Served):
    chunked = b"POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    said = await served.talk(chunked + b"2\r\nhe\r\n3;a=b\r\nllo\r\n0\r\nx-vctl-release: 9\r\n\r\n")

    assert b"hello" in said
    assert [200, 200] == statuses(said)


MALFORMED = {
    "two lengths": b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n"
    b"Content-Length: 4\r\n\r\nabc",
    "length and chunks": b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "negative length": b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n",
    "signed length": b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: +3\r\n\r\nabc",
    "folded field": b"GET /x HTTP/1.1\r\nHost: h\r\nA: b\r\n c\r\n\r\n",
    "space before the colon": b"GET /x HTTP/1.1\r\nHost : h\r\n\r\n",
    "bare newlines": b"GET /x HTTP/1.1\nHost: h\n\n",
    "a field with a zero byte": b"GET /x HTTP/1.1\r\nHost: h\r\nA: b\0c\r\n\r\n",
    "no host": b"GET /x HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /x HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "a target that is not ASCII": b"GET /\xc3\xa9 HTTP/1.1\r\nHost: h\r\n\r\n",
    "chunks in HTTP/1.0": b"POST /x HTTP/1.0\r\nConnection: keep-alive\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks of another coding": b"POST /x HTTP/1.1\r\nHost: h\r\n"
    b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "another protocol's version": b"GET /x HTTP/2.0\r\nHost: h\r\n\r\n",
    "no HTTP at all": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "a verb that nobody knows": b"BREW /pot HTTP/1.1\r\nHost: h\r\n\r\n",
}


@pytest.mark.parametrize("raw", MALFORMED.values(), ids=MALFORMED)
async def test_malformed_request_is_400_and_ends_the_connection(served: Served, raw: bytes):
    said = await served.talk(raw + GET)

    assert [400] == statuses(said)
    assert b"Connection: close" in said
    assert [] == served.seen


async def test_what_came_before_a_malformed_request_is_answered_first(served: Served):
    said = await served.talk(post(b"good") + b"nonsense\r\n\r\n")

    assert [200, 400] == statuses(said)


@pytest.mark.parametrize("raw", [b"zz\r\n", b"5\r\nhelloworld", b"-1\r\n"])
async def test_body_whose_chunks_lie_is_broken(served: Served, raw: bytes):
    head = b"POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    said = await served.talk(head + raw)

    assert [400] == statuses(said)


async def test_change_of_protocol_is_refused(served: Served):
    said = await served.talk(
        b"GET /x HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    )

    assert [501] == statuses(said)


@pytest.mark.parametrize(
    "fields",
    [b"A: " + b"x" * 200_000, b"\r\n".join(b"A%d: x" % n for n in range(500)), b"x" * 200_000],
    ids=["a long field", "many fields", "a long name"],
)
async def test_head_that_is_too_large_is_431(served: Served, fields: bytes):
    said = await served.talk(b"GET /x HTTP/1.1\r\nHost: h\r\n" + fields + b"\r\n\r\n")

    assert [431] == statuses(said)
    assert [] == served.seen


async def test_head_that_never_ends_is_431_before_it_was_read_whole(served: Served):
    piece = b"A: " + b"x" * 50_000 + b"\r\n"
    said = await served.talk(b"GET /x HTTP/1.1\r\nHost: h\r\n", *[piece] * 8)

    assert [431] == statuses(said)


@pytest.mark.parametrize(
    "raw",
    [
        post(b"x" * 1001),
        b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999\r\n\r\nabc",
        b"POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"400\r\n" + b"x" * 1024 + b"\r\n0\r\n\r\n",
    ],
    ids=["sent", "announced", "in chunks"],
)
async def test_body_that_is_too_large_is_413(served: Served, raw: bytes):
    said = await served.talk(raw)

    assert [413] == statuses(said)
    assert [] == served.seen


async def test_refused_client_that_still_sends_reads_its_answer(served: Served):
    said = await served.talk(post(b"x" * 1001), *[b"y" * 60_000] * 20, is_closing=False)

    assert [413] == statuses(said)


async def test_answer_before_the_body_ends_the_connection(served: Served):
    raw = b"POST /early HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nabc"
    said = await served.talk(raw, is_closing=False)

    assert [404] == statuses(said)
    assert b"Connection: close" in said


async def test_head_that_trickles_is_408_and_a_silent_connection_closes(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(wire, "_SWEEP_S", 0.02)
    async with serving(head_s=0.2, idle_s=0.2) as served:
        assert [408] == statuses(await served.talk(b"GET /x HT", is_closing=False))
        assert b"" == await served.talk(is_closing=False)
        assert [200] == statuses(await served.talk(GET, is_closing=False))


async def test_body_that_trickles_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(wire, "_SWEEP_S", 0.02)
    async with serving(head_s=0.1, linger_s=0.1) as served:
        head = b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n"
        said = await served.talk(head, b"a", b"b", pause_s=0.1, is_closing=False)

    assert [400] == statuses(said)
    assert b"too slowly" in said


async def test_body_that_we_did_not_read_is_not_called_slow(monkeypatch: pytest.MonkeyPatch):
    """Nothing is read while enough waits: its time begins when it can come."""
    monkeypatch.setattr(wire, "_SWEEP_S", 0.01)
    async with serving(head_s=0.1) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        last = post(b"x" * 60)
        writer.write(post(b"a", target=b"/hold") + post(b"b") * 4 + last[:-10])
        await _connections(served)
        await asyncio.sleep(0.3)
        served.hold.set()
        writer.write(last[-10:])
        writer.write(b"GET /bye HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        said = await reader.read()
        writer.close()

    assert [200] * 7 == statuses(said)


async def test_client_that_takes_nothing_of_its_answer_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
):
    """It would hold its request, and the release that this is on, for as long as it likes."""
    monkeypatch.setattr(wire, "_SWEEP_S", 0.02)
    ends: list[type[BaseException]] = []

    async def flood(request: Request) -> Answer:
        try:
            await request.begin(Answer())
            while True:
                await request.write(b"x" * 2**16)
        except BaseException as end:
            ends.append(type(end))
            raise

    async with serving(take_s=0.2) as served:
        served.listener.handler = flood
        _, writer = await asyncio.open_connection("127.0.0.1", served.port, limit=1)
        writer.write(GET)
        try:
            async with asyncio.timeout(5):
                while not ends:
                    await asyncio.sleep(0.01)
        finally:
            writer.close()

    assert [asyncio.CancelledError] == ends


async def test_client_that_goes_away_cancels_its_request(served: Served):
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(post(b"a", target=b"/hold"))
    async with asyncio.timeout(5):
        while not served.seen:
            await asyncio.sleep(0.005)
        writer.close()
        while not served.cancelled:
            await asyncio.sleep(0.005)
        while served.listener.connections:
            await asyncio.sleep(0.005)
    assert (1, b"") == (len(served.seen), await reader.read())


async def test_many_requests_at_once_are_not_all_read_before_the_first_is_answered(served: Served):
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(post(b"a", target=b"/hold"))
    for _ in range(200):
        writer.write(post(b"x" * 900))
    (connection,) = await _connections(served)
    await asyncio.sleep(0.2)
    waiting = len(connection.waiting)
    served.hold.set()
    writer.write(b"GET /bye HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
    said = await reader.read()
    writer.close()

    assert waiting < 200
    assert [200] * 202 == statuses(said)


async def _connections(served: Served) -> list[Any]:
    async with asyncio.timeout(5):
        while not served.seen:
            await asyncio.sleep(0.005)
    return list(served.listener.connections)


async def test_field_of_ours_can_not_begin_another(served: Served):
    """Whatever stands in a value, it ends no line."""

    async def answer(_: Request) -> Answer:
        made = Answer()
        made.add("X-Told", "a\r\nSet-Cookie: b")
        return made

    served.listener.handler = answer
    said = await served.talk(GET)

    assert b"X-Told: a  Set-Cookie: b\r\n" in said

"""Whatever bytes a client sends, in whatever pieces: a defined answer, no hang, no bug's answer.

The real proxy, on a connection whose other end is this test; its engine is one that is not there.
"""

import asyncio
import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.gateway.support import a_release, a_route, nobody_url, ready
from tests.gateway.test_state import an_update, support
from vctl_agent.gateway.barrier import Barrier
from vctl_agent.gateway.counting import Counting
from vctl_agent.gateway.fleetkey import FleetKey
from vctl_agent.gateway.hopreceiver import HopReceiver
from vctl_agent.gateway.hopsender import HopSender
from vctl_agent.gateway.inflight import References
from vctl_agent.gateway.live import Acted, Live
from vctl_agent.gateway.metrics import Metrics
from vctl_agent.gateway.pins import Pins
from vctl_agent.gateway.proxy import FORWARDED, Proxy
from vctl_agent.gateway.upstream import Upstream
from vctl_plans.keys import Keys

DEFINED = {200, 400, 403, 404, 405, 408, 409, 413, 415, 431, 501, 503}
KEY = FleetKey([b"k" * 32])
URL = nobody_url()


class Wire:
    """A transport that keeps what is sent."""

    def __init__(self) -> None:
        self.sent = b""
        self.is_closed = False
        self.protocol: Any = None

    def write(self, data: bytes) -> None:
        self.sent += data

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    abort = close

    def write_eof(self) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


def a_proxy() -> Proxy:
    live = Live(Acted(), prefix=Keys("dev").services, clock=lambda: 0.0)
    route = a_route(1, candidate=2, weight=50.0, pinnable=(1, 2), revoked=(3,))
    values = support(route) | {k: v for k, v in support(number=2).items() if "releases" in k}
    live.learn(an_update(9, **values))
    live.accept(ready(a_release(1), a_release(2), engine_url=URL))
    references, barrier = References(lambda: None), Barrier(live)
    metrics, upstream = Metrics(live, references, barrier), Upstream(5.0)
    return Proxy(
        live,
        references,
        upstream,
        metrics,
        counting=Counting("boot", metrics),
        barrier=barrier,
        receiver=HopReceiver(live, metrics, fleet="dev", key=KEY),
        sender=HopSender(live, upstream, metrics, fleet="dev", node="n1", key=KEY),
        max_body_bytes=10_000,
        pins=Pins(KEY, fleet="dev", digest=lambda s, n: live.acted.known.digest((s, n))),
    )


async def _said(pieces: list[bytes]) -> tuple[bytes, bool]:
    """Send the pieces; return what is answered, and whether a request is still being handled."""
    proxy = a_proxy()
    wire, connection = Wire(), proxy.listener()()
    wire.protocol = connection
    connection.connection_made(wire)  # type: ignore[arg-type]
    for piece in pieces:
        if not wire.is_closed:
            connection.data_received(piece)
        await asyncio.sleep(0)
    async with asyncio.timeout(5):
        while proxy.open and not _waits_for_the_body(connection):
            await asyncio.sleep(0.001)
    stuck = bool(proxy.open) and not _waits_for_the_body(connection)
    connection.connection_lost(None)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert 0 == proxy.open, "a client that has gone away leaves nothing"
    return wire.sent, stuck


def _waits_for_the_body(connection: Any) -> bool:
    request = connection.reading.request
    return request is not None and not request.is_whole and not request.problem


def statuses(said: bytes) -> list[int]:
    """Return the statuses of the answers; no body of ours holds what looks like one."""
    found = [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", said)]
    return [status for status in found if status != 100]


def in_pieces(raw: bytes, cuts: list[int]) -> list[bytes]:
    at = sorted({0, len(raw), *(cut % (len(raw) + 1) for cut in cuts)})
    return [raw[a:b] for a, b in pairwise(at)]


NAMES = st.sampled_from(
    [
        *("host", "content-length", "transfer-encoding", "expect", "connection", "te", "upgrade"),
        *("cookie", "content-type", "content-encoding", "x-request-id", "x-vctl-release"),
        *("x-vctl-session", "x-vctl-hop", "x-vctl-hop-proof", "x-vctl-tenant", "x-vctl-user"),
    ]
)
VALUES = st.one_of(
    st.sampled_from(
        [
            *("h", "0", "5", "-1", "99999999999999999999", "chunked", "gzip,chunked", "1", "2"),
            *("100-continue", "close", "keep-alive", "upgrade", "3", "x", "p1.1.YQ.00", "p1."),
            *("{}", "é", ""),
        ]
    ),
    st.text(max_size=40),
)
BODIES = st.one_of(
    st.binary(max_size=60),
    st.sampled_from(
        [
            b'{"model":"support"}',
            b'{"model":"support","messages":[{"role":"user","content":"hi"}],"stream":true}',
            b'{"model":"support","messages":{"a":[1,{}]}}',
            b'{"model":"other"}',
            b'{"model":5}',
            b'{"model":"support","cache_salt":7}',
            b'{"model":"support@5e5e5e5e5e5e"}',
            b"[" * 3000,
            b'{"model":"\xff"}',
            b"5\r\nhello\r\n0\r\n\r\n",
        ]
    ),
)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """Draw what looks like a request, more or less."""
    method = draw(st.sampled_from(["POST", "POST", "POST", "GET", "HEAD", "PUT", "BREW", ""]))
    paths = [*sorted(FORWARDED), "/v1/models", "/health", "/", "*", "//", "http://h/v1/models"]
    path = draw(st.sampled_from(paths) | st.text(max_size=20).map("/".__add__))
    body = draw(BODIES)
    fields = draw(st.lists(st.tuples(NAMES, VALUES), max_size=5))
    fields += draw(st.sampled_from([[], [("Host", "h")], [("Host", "h")]]))
    length = ("Content-Length", str(len(body)))
    fields += draw(st.sampled_from([[], [length], [length], [length]]))
    lines = [f"{method} {path} HTTP/{draw(st.sampled_from(['1.1', '1.1', '1.0', '2']))}"]
    lines += [f"{name}: {value}" for name, value in fields]
    end = draw(st.sampled_from(["\r\n", "\r\n", "\r\n", "\n"]))
    return (end.join(lines) + end * 2).encode("utf-8", "surrogateescape") + body


FUZZ = settings(
    max_examples=80,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@FUZZ
@given(st.lists(requests(), min_size=1, max_size=3), st.lists(st.integers(0), max_size=4))
@example([b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n"], [])
def test_what_looks_like_requests_gets_defined_answers(sent: list[bytes], cuts: list[int]):
    said, stuck = asyncio.run(_said(in_pieces(b"".join(sent), cuts)))

    assert not stuck
    assert set(statuses(said)) <= DEFINED


@FUZZ
@given(st.lists(st.binary(max_size=200), max_size=5))
def test_any_bytes_get_defined_answers(pieces: list[bytes]):
    said, stuck = asyncio.run(_said(pieces))

    assert not stuck
    assert set(statuses(said)) <= DEFINED


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers to the malformed are logged, which is not looked at here."""
    for place in ("answers._log.warning", "live._log.info"):
        monkeypatch.setattr(f"vctl_agent.gateway.{place}", lambda *_, **__: None)

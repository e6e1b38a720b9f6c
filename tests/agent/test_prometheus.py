"""A query comes to one value or to none, and no decision waits for it."""

import asyncio
import contextlib
import json
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from vctl_agent import prometheus
from vctl_agent.prometheus import NoValue, Prometheus, Where, one_value, opened
from vctl_agent.queries import Occasion, Queries

QUERY = 'sum(rate(errors{release="2"}[1m])) > 0'
OCCASION = Occasion("r2", 0, 7)


def vector(*values: str) -> dict[str, Any]:
    result = [{"metric": {"a": str(n)}, "value": [1.5, v]} for n, v in enumerate(values)]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


def scalar(value: str) -> dict[str, Any]:
    return {"status": "success", "data": {"resultType": "scalar", "result": [1.5, value]}}


@pytest.mark.parametrize(
    ("document", "value"),
    [
        (vector("0.25"), 0.25),
        (scalar("3"), 3.0),
        (vector("+Inf"), math.inf),
        (vector("1e-05"), 1e-05),
    ],
)
def test_one_series_or_a_scalar_is_a_value(document: dict[str, Any], value: float) -> None:
    """As text, since JSON has no infinity."""
    assert value == one_value(json.dumps(document).encode())


def test_nan_is_handed_on() -> None:
    """Whoever judges it calls it inconclusive."""
    assert math.isnan(one_value(json.dumps(vector("NaN")).encode()))


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (vector(), "0 series"),
        (vector("1", "2"), "2 series where one was asked for"),
        ({"status": "error", "errorType": "bad_data", "error": "parse error"}, "parse error"),
        ({"status": "success", "data": {"resultType": "matrix", "result": []}}, "matrix"),
        ({"status": "success"}, "not Prometheus's"),
        ({"hello": "world"}, "not Prometheus's"),
        ([1], "cannot be read"),
        (vector("many"), "cannot be read"),
    ],
)
def test_what_is_not_one_value_says_why(document: object, why: str) -> None:
    """For the log."""
    with pytest.raises(NoValue, match=why):
        one_value(json.dumps(document).encode())


class Server:
    """A stand-in for Prometheus with exact answers."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[str] = []
        self.tokens: list[str] = []
        self.document: object = vector("0.5")
        self.status = 200
        self.delay_s = 0.0

    async def _answer(self, request: web.Request) -> web.Response:
        self.asked.append(request.query["query"])
        self.tokens.append(request.headers.get("authorization", ""))
        await asyncio.sleep(self.delay_s)
        return web.json_response(self.document, status=self.status)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Server"]:
        app = web.Application()
        app.router.add_get("/prom/api/v1/query", self._answer)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/prom"
        try:
            yield self
        finally:
            await runner.cleanup()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server().running() as made:
        yield made


@contextlib.asynccontextmanager
async def asking(url: str, token_file: Path | None = None) -> AsyncIterator[Prometheus]:
    async with opened(Where(url, token_file)) as made:
        assert made is not None
        yield made


@pytest.mark.parametrize("where", [None, Where("")])
async def test_without_an_address_there_is_none(where: Where | None) -> None:
    """And no query has a value."""
    async with opened(where) as source:
        assert source is None


async def test_query_is_asked_under_the_address_and_its_value_returned(server: Server) -> None:
    """Whole, whatever signs it has."""
    async with asking(server.url) as source:
        assert 0.5 == await source.value(QUERY)

    assert ([QUERY], [""]) == (server.asked, server.tokens)


async def test_token_is_read_anew_for_each_query(server: Server, tmp_path: Path) -> None:
    """It is renewed while we run."""
    file = tmp_path / "token"
    async with asking(server.url, file) as source:
        for token in ("one", "two"):
            file.write_text(f"{token}\n")
            await source.value(QUERY)
        file.unlink()
        assert None is await source.value(QUERY)

    assert ["Bearer one", "Bearer two"] == server.tokens


@pytest.mark.parametrize("status", [400, 500, 503])
async def test_server_that_fails_gives_no_value(server: Server, status: int) -> None:
    """Not even when its body would be one."""
    server.status = status
    async with asking(server.url) as source:
        assert None is await source.value(QUERY)


async def test_server_that_is_away_or_late_gives_no_value(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within its time."""
    monkeypatch.setattr(prometheus, "_WITHIN_S", 0.05)
    server.delay_s = 5
    async with asking(server.url) as late, asking("http://127.0.0.1:1") as away:
        assert [None, None] == [await source.value(QUERY) for source in (late, away)]


class Source:
    """Answers when it is let."""

    def __init__(self) -> None:
        self.answers: asyncio.Queue[float | None] = asyncio.Queue()
        self.asked = 0

    async def value(self, query: str) -> float | None:
        self.asked += 1
        return await self.answers.get()


async def _until(queries: Queries, value: float | None, occasion: Occasion = OCCASION) -> None:
    async with asyncio.timeout(5):
        while queries.values("s", occasion, [QUERY], every_s=10).get(QUERY) != value:
            await asyncio.sleep(0.005)


async def test_values_are_asked_for_again_and_of_an_earlier_step_count_for_none() -> None:
    """Nor does anybody wait for them."""
    now, source = 0.0, Source()
    queries = Queries(source, clock=lambda: now)
    task = asyncio.create_task(queries.run())
    assert {} == queries.values("s", OCCASION, [QUERY], every_s=10)
    source.answers.put_nowait(1.0)
    await _until(queries, 1.0)
    assert 1 == source.asked

    source.answers.put_nowait(2.0)
    later = OCCASION._replace(step=1)
    assert {} == queries.values("s", later, [QUERY], every_s=10)
    await _until(queries, 2.0, later)

    queries.keep([])
    again = later._replace(step=2)
    source.answers.put_nowait(None)
    queries.values("s", again, [QUERY], every_s=10)
    await _until(queries, None, again)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_value_is_renewed_after_the_interval() -> None:
    """On its own clock."""
    source = Source()
    queries = Queries(source)
    task = asyncio.create_task(queries.run())
    for value in (1.0, 2.0, 3.0):
        source.answers.put_nowait(value)
    queries.values("s", OCCASION, [QUERY], every_s=0.02)
    await _until(queries, 3.0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_without_a_source_no_query_has_a_value() -> None:
    """Which is inconclusive, and never a pass."""
    queries = Queries(None)
    task = asyncio.create_task(queries.run())
    queries.values("s", OCCASION, [QUERY], every_s=0.01)
    await asyncio.sleep(0.03)

    assert {} == queries.values("s", OCCASION, [QUERY], every_s=0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

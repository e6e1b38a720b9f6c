"""Under load: routes move, agents die, stores break, and every answer is by the release it says."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from math import sqrt
from pathlib import Path
from typing import Self

import pytest

from tests.gateway.support import Bench, a_release, a_route, eventually, serving
from vctl_plans.share import share

MODELS = {n: a_release(n).engine_name for n in (1, 2)}
CLIENTS = 8


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Bench]:
    async with serving(tmp_path, has_access_log=False) as made:
        yield made
        await eventually(lambda: made.gateway.references.total == 0)


class Load:
    """Clients that ask without pause until told to stop."""

    def __init__(self, gateway: Bench) -> None:
        self._gateway = gateway
        self._is_over = False
        self.seen: Counter[tuple[int, str]] = Counter()  # status and release

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._ask(n)) for n in range(CLIENTS)]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_over = True
        await asyncio.gather(*self._tasks)

    async def more(self, count: int = 40) -> None:
        """Wait until *count* more requests have ended."""
        ends = self.seen.total() + count
        await eventually(lambda: self.seen.total() >= ends)

    async def _ask(self, client: int) -> None:
        number = 0
        while not self._is_over:
            number += 1
            headers = {"x-vctl-session": f"{client}-{number}"}
            is_stream = number % 2 == 0
            async with self._gateway.ask(headers=headers, stream=is_stream) as answer:
                text = await answer.text()
                release = answer.headers.get("x-vctl-release", "")
                self.seen[answer.status, release] += 1
                assert "@" not in text or f"by {MODELS[int(release)]}" in text


async def test_every_answer_is_by_the_release_that_it_names_while_the_route_moves(gateway: Bench):
    async with Load(gateway) as load:
        for weight in (10.0, 50.0, 90.0):
            await load.more()
            await gateway.route(a_route(1, candidate=2, weight=weight))
        await load.more()
        await gateway.route(a_route(2))
        await load.more()
    assert set(load.seen) == {(200, "1"), (200, "2")}
    by_engine = Counter(each["model"] for each in gateway.engine.asked)
    assert by_engine == {MODELS[n]: load.seen[200, str(n)] for n in (1, 2)}


async def test_share_is_the_weights_and_no_session_goes_back_as_it_grows(gateway: Bench):
    sessions = [f"session-{n}" for n in range(150)]
    moved: set[str] = set()
    for weight in (10.0, 25.0, 50.0, 75.0, 100.0):
        await gateway.route(a_route(1, candidate=2, weight=weight))
        answers = [await _release_of(gateway, session) for session in sessions]
        now = {s for s, release in zip(sessions, answers, strict=True) if release == "2"}
        assert now == {s for s in sessions if share("salt", f"session:{s}") < weight}
        assert now >= moved
        bound = 4 * sqrt(weight * (100 - weight) / len(sessions))
        assert abs(100 * len(now) / len(sessions) - weight) <= bound
        moved = now
    await gateway.route(a_route(1))  # as an abort does
    assert {"1"} == {await _release_of(gateway, session) for session in sessions}


async def _release_of(gateway: Bench, session: str) -> str:
    async with gateway.ask(headers={"x-vctl-session": session}) as answer:
        assert answer.status == 200
        return str(answer.headers["x-vctl-release"])


async def test_route_write_decides_the_next_request(gateway: Bench):
    for release in (2, 1, 2, 1):
        await gateway.route(a_route(release))
        async with gateway.ask() as answer:
            assert answer.headers["x-vctl-release"] == str(release)


async def test_agent_that_is_killed_and_comes_back_costs_no_request(gateway: Bench):
    async with Load(gateway) as load:
        for _ in range(3):
            await load.more()
            await gateway.agent.vanish()
            await load.more()
            await gateway.agent.connect()
            await gateway.ready(a_release(1), a_release(2))
    assert set(load.seen) == {(200, "1")}


async def test_store_that_goes_away_costs_no_request_and_is_followed_again(gateway: Bench):
    async with Load(gateway) as load:
        gateway.store.disconnect()
        await eventually(lambda: not gateway.gateway.live.is_connected)
        await eventually(lambda: not gateway.agent.last.is_connected)
        await load.more()
        gateway.store.reconnect()
        await gateway.route(a_route(2))
        await load.more()
    assert {status for status, _ in load.seen} == {200}
    assert load.seen[200, "2"] > 0


async def test_agent_hears_the_route_revision_once_it_is_acted_on(gateway: Bench):
    revision = await gateway.route(a_route(2))
    await eventually(lambda: gateway.agent.last.routes == {"support": revision})

"""What a report hands on of its gateway's word, and that sessions cause no write of their own."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec

from tests.agent.test_daemon import KEYS, Denying, make_agent, running
from vctl_agent.gatewayword import told_by, with_pins
from vctl_agent.local import GatewayState
from vctl_plans.codec import decode, encode
from vctl_plans.node import NodeReport
from vctl_plans.route import Route

HEARD = GatewayState(
    boot_id="g",
    routes={"support": 3},
    overrides={"support": 7},
    checks_keys=True,
    pins={"support": {1: 5, 2: 3}},
)
REPORT = NodeReport(node="n1", boot_id="b")


def test_what_root_has_said_is_news_and_a_gateway_that_is_away_says_nothing() -> None:
    assert {"overrides": {"support": 7}, "checks_keys": True} == told_by(HEARD)
    assert {"overrides": {}, "checks_keys": None} == told_by(None)


def test_sessions_go_along_with_a_report_and_come_back_from_the_store() -> None:
    written = with_pins(REPORT, HEARD)
    assert HEARD.pins == written.pins
    assert written == decode(encode(written), NodeReport)
    assert REPORT == with_pins(REPORT, None)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():
            await asyncio.sleep(0.01)


async def test_override_is_reported_at_once_and_sessions_only_beside_it(tmp_path: Path) -> None:
    store = Denying()
    agent = make_agent(tmp_path, store)
    agent._link.run = asyncio.Event().wait  # type: ignore[method-assign,assignment]
    await store.put(KEYS.route("support"), encode(Route(service="support")))
    written: list[NodeReport] = []

    async def collect() -> None:
        async for update in store.peer().watch(KEYS.reports):
            changed = update.changed & update.entries.keys()
            written.extend(decode(update.entries[key].value, NodeReport) for key in changed)

    def say(heard: GatewayState) -> None:
        agent._link.heard = heard
        agent._reconciler.wake()

    collecting = asyncio.create_task(collect())
    async with running(agent):
        await until(lambda: bool(written))
        say(HEARD)
        await until(lambda: bool(written[-1].overrides))
        assert ({"support": 7}, HEARD.pins) == (written[-1].overrides, written[-1].pins)
        await asyncio.sleep(0.05)
        count = len(written)
        for n in range(5):
            say(msgspec.structs.replace(HEARD, pins={"support": {2: n}}))
            await asyncio.sleep(0.02)
        assert count == len(written)
        say(msgspec.structs.replace(HEARD, pins={"support": {2: 40}}, overrides={}))
        await until(lambda: not written[-1].overrides)
        assert {"support": {2: 40}} == written[-1].pins
    collecting.cancel()
    await asyncio.gather(collecting, return_exceptions=True)
    await store.close()

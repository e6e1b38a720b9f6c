"""Rollouts on engines that are not vctl's own: behind a hook, and one that answers as SGLang."""

import asyncio
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.support import SERVICE, Fleet, Load, a_fleet, ask
from tests.engines.sglang_stub import SglangStub
from vctl_plans.capability import Capability, EngineFacts
from vctl_plans.node import NodeRecord
from vctl_plans.phase import NodePhase

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.etcd,
    pytest.mark.torch,
    pytest.mark.timeout(400),
]

EXAMPLES = Path(__file__).parents[2] / "examples" / "hooks"


def facts_of(record: NodeRecord) -> EngineFacts:
    assert record.facts is not None
    return record.facts


def start(fleet: Fleet, adapter: str, *more: str) -> None:
    said = fleet.vctl("rollout", "start", "--adapter", str(fleet.adapter(adapter)), *more)
    assert said.code == 0, (said, fleet.logs())


def test_engine_behind_a_hook_takes_a_rollout_under_load(tmp_path: Path) -> None:
    """Nothing fails, all is answered by what the route says, and a restart is got over."""
    hook = f"{sys.executable} {EXAMPLES / 'lora-server.py'}"
    flags = ("--engine", "hook", "--engine-hook", hook)
    with a_fleet(tmp_path, nodes=2, agent_arguments=flags) as fleet:
        start(fleet, "v1", "--new-service", "--strategy", "full-switch")
        urls = list(fleet.dev.gateway_urls.values())
        with Load(urls).running() as load:
            start(fleet, "v2", "--strategy", "full-switch")
        after = {ask(url)[0] for url in urls}
        (node, *_) = fleet.dev.read().records
        before = fleet.dev.read().present()[node].incarnation
        fleet.dev.kill(node, "engine")
        fleet.dev.restart(node, "engine")
        fleet.until(lambda: _is_back(fleet, node, before), within_s=120)
        back = {ask(url)[0] for url in urls}
        kinds = {facts_of(record).kind for record in fleet.dev.read().records.values()}

    assert [] == load.failures
    assert {1, 2} >= {release for release, _ in load.answers}
    assert {2} == after == back
    assert {"lora-server"} == kinds


@contextmanager
def sglang() -> Iterator[tuple[SglangStub, str]]:
    """Serve the stub in a thread of its own."""
    stub, address, loop = SglangStub(), [""], asyncio.new_event_loop()
    is_up, ends = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with stub.serving() as address[0]:
            is_up.set()
            await ends.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert is_up.wait(10)
    try:
        yield stub, address[0]
    finally:
        loop.call_soon_threadsafe(ends.set)
        thread.join(10)
        loop.close()


def test_sglang_answers_each_release_by_its_own_adapter(tmp_path: Path) -> None:
    """By the whole name; by the adapter's alone, the base would."""
    with (
        sglang() as (stub, url),
        a_fleet(
            tmp_path, nodes=1, agent_arguments=("--engine", "sglang", "--engine-url", url)
        ) as fleet,
    ):
        start(fleet, "v1", "--new-service")
        (gateway,) = fleet.dev.gateway_urls.values()
        first = ask(gateway)
        start(fleet, "v2", "--strategy", "full-switch")
        second = ask(gateway)
        of_base = stub.digest("", "Hello").hex()
        sneaky = ask(gateway, lora_path=next(iter(stub.known)))
        stub.restart()
        fleet.until(lambda: len(stub.adapters) > 0)
        fleet.until(lambda: _answers(gateway) == second)
        (record,) = fleet.dev.read().records.values()

    names = list(stub.known)
    assert [SERVICE, SERVICE] == [name.partition("@")[0] for name in names]
    assert (1, 2) == (first[0], second[0])
    assert len({first[1], second[1], of_base}) == 3
    assert second == sneaky
    assert facts_of(record).can(Capability.ADAPTERS)
    assert not facts_of(record).can(Capability.REPLACE)


def _is_back(fleet: Fleet, node: str, before: str) -> bool:
    """Whether a node's engine started anew and has what is served, and its gateway knows."""
    report = fleet.dev.read().present().get(node)
    if report is None or report.incarnation in {"", before} or not report.gateway_ok:
        return False
    release = report.release(SERVICE, 2)
    return release is not None and release.phase is NodePhase.READY


def _answers(gateway: str) -> tuple[int, str] | None:
    """Ask; nothing while the engine was started anew and the agent has yet to see it."""
    try:
        return ask(gateway)
    except AssertionError:
        return None

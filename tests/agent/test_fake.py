"""The fake fails as it is scripted, and only so."""

import asyncio
from pathlib import Path

import pytest

from tests.agent.support import Node, a_fleet, a_rollout, make_releases
from vctl_agent.engines.fake import ANY, FakeEngine, Trouble
from vctl_plans.errors import PermanentEngineError, TemporaryEngineError
from vctl_plans.phase import NodePhase


async def test_refusal_is_for_good_and_does_nothing() -> None:
    engine = FakeEngine()
    engine.troubles["load"] = Trouble.REFUSES
    with pytest.raises(PermanentEngineError):
        await engine.load("a@1", "/a")

    assert {} == engine.adapters


async def test_hanging_call_is_given_up_and_does_nothing() -> None:
    engine = FakeEngine()
    engine.troubles["load"] = Trouble.HANGS
    with pytest.raises(TemporaryEngineError, match=r"within 0\.02 s"):
        await engine.load("a@1", "/a")

    assert {} == engine.adapters


async def test_slow_call_is_done_in_the_end() -> None:
    engine = FakeEngine()
    engine.troubles[ANY] = Trouble.IS_SLOW
    loading = asyncio.create_task(engine.load("a@1", "/a"))
    await asyncio.sleep(0)
    while_slow = dict(engine.adapters)
    await loading

    assert ({}, {"a@1": "/a"}) == (while_slow, engine.adapters)


async def test_death_in_the_middle_loses_what_was_done() -> None:
    engine = FakeEngine()
    before = engine.incarnation
    engine.troubles["load"] = Trouble.DIES
    with pytest.raises(TemporaryEngineError):
        await engine.load("a@1", "/a")

    assert {} == engine.adapters
    assert before != engine.incarnation


async def test_restart_before_the_call_loses_the_rest() -> None:
    engine = FakeEngine()
    await engine.load("a@1", "/a")
    before = engine.incarnation
    engine.troubles["load"] = Trouble.RESTARTS
    await engine.load("a@2", "/b")

    assert {"a@2": "/b"} == engine.adapters
    assert before != engine.incarnation


@pytest.mark.parametrize("trouble", [Trouble.DIES, Trouble.HANGS, Trouble.LIES, Trouble.RESTARTS])
@pytest.mark.parametrize("method", ["load", "answer"])
async def test_agent_gets_over_it_once_it_is_over(
    tmp_path: Path, trouble: Trouble, method: str
) -> None:
    """Whatever went wrong, the release gets ready when nothing does any more."""
    node = Node(tmp_path)
    node.engine.troubles[method] = trouble
    node.reconciler.want(a_fleet(make_releases(tmp_path, 1), rollout=a_rollout(1)))
    await node.settle(lambda: method in node.engine.met)
    node.engine.troubles.clear()

    def is_ready() -> bool:
        node.now += 10.0  # every wait between two tries ends some time
        return node.phase(1) is NodePhase.READY

    await node.settle(is_ready)

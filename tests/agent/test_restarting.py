"""An engine that must serve nothing is restarted by the operator's command: once a run."""

import asyncio
import json
import os
from pathlib import Path

import msgspec
import pytest

from vctl_agent.engines.fake import FakeEngine
from vctl_agent.engines.restarting import Restarter
from vctl_agent.engines.suspect import Suspect
from vctl_agent.engines.watch import EngineWatch
from vctl_agent.hook import Hook
from vctl_agent.probed import Probed


class Node:
    """An engine that is watched, and a command that notes what it was told."""

    def __init__(self, state: Path, script: str) -> None:
        self.state = state
        self.told = state / "told"
        self.engine = FakeEngine()
        suspect = Suspect(state / "suspect.json")
        suspect.open()
        self.watch = EngineWatch(self.engine, self._wake, suspect=suspect)
        begun = Probed(state / "restarted.json")
        begun.open()
        command = ("/bin/sh", "-c", f"cat >> {self.told}; {script}")
        hook = Hook(command, timeout_s=20.0, environment={"PATH": os.environ["PATH"]})
        self.restarter = Restarter(
            hook, self.watch, begun, node="n1", engine_url="http://127.0.0.1:8000"
        )

    def _wake(self) -> None:
        self.restarter.look()

    async def condemn(self) -> None:
        """Find the engine unfit and let the restarter do what it does."""
        await self.watch.refresh()
        self.watch.condemn(self.engine.incarnation, "its base half changed")
        await self.until_reported()

    async def until_reported(self) -> None:
        running = asyncio.create_task(self.restarter.run())
        try:
            async with asyncio.timeout(20):
                while "hook" not in self.problem:
                    await asyncio.sleep(0.01)
        finally:
            running.cancel()

    @property
    def problem(self) -> str:
        assert self.watch.latest
        return self.watch.latest.problem


async def test_command_is_told_why_and_its_end_is_reported(tmp_path: Path) -> None:
    """On stdin, with the engine that it is about."""
    node = Node(tmp_path, "exit 0")
    await node.condemn()
    told = json.loads(node.told.read_text())

    assert "its base half changed; the restart hook was run" == node.problem
    assert ("restart", "n1", "fake-1", "its base half changed") == (
        told["event"], told["node"], told["incarnation"], told["reason"],
    )  # fmt: skip


async def test_command_that_fails_is_reported_and_not_repeated(tmp_path: Path) -> None:
    """Also by the next agent; a run of the engine is restarted once."""
    node = Node(tmp_path, "echo no such unit >&2; exit 5")
    await node.condemn()
    later = Node(tmp_path, "exit 0")
    await later.watch.refresh()
    await later.until_reported()

    assert "the hook failed on restart (exit code 5): no such unit" in node.problem
    assert node.problem == later.problem
    assert 1 == node.told.read_text().count("incarnation")


async def test_restarted_engine_is_fit_and_may_be_restarted_again(tmp_path: Path) -> None:
    """Its next run is another."""
    node = Node(tmp_path, "exit 0")
    await node.condemn()
    node.engine.restart()
    await node.watch.refresh()
    cured = node.problem
    await node.condemn()

    assert "" == cured
    assert 2 == node.told.read_text().count("incarnation")


async def test_engine_that_a_restart_does_not_help_is_left(tmp_path: Path) -> None:
    """One that somebody has paused goes on when they say so."""
    node = Node(tmp_path, "exit 0")

    async def paused() -> msgspec.Struct:
        return msgspec.structs.replace(await FakeEngine().describe(), problem="paused")

    node.engine.describe = paused  # type: ignore[method-assign,assignment]
    await node.watch.refresh()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await node.restarter.run()

    assert not node.told.exists()

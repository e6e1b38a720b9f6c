"""A flush on a real engine under a real reconciler: all is probed again, and serves meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.agent.support import SERVICE, Node, a_fleet, next_release
from tests.engines.kinds import TorchProcess, torch_process
from vctl_agent.artifacts.stage import ArtifactStore
from vctl_agent.engines.torch_client import TorchEngine
from vctl_plans import weights
from vctl_plans.phase import NodePhase
from vctl_plans.release import Artifact, Release
from vctl_plans.route import Route

__all__ = ["torch_process"]  # a fixture

pytestmark = pytest.mark.torch


@pytest.fixture
async def engine(torch_process: TorchProcess) -> AsyncIterator[TorchEngine]:
    async with TorchEngine(torch_process.url) as made:
        yield made
        for resident in (await made.describe()).adapters:
            await made.unload(resident.name)


async def settled(node: Node, holds: Callable[[], bool]) -> None:
    """Run cycles until something holds, as long as a busy machine takes for a few probes."""
    async with asyncio.timeout(60):
        while not holds():
            await node.watch.refresh()
            node.reconciler.cycle(node.link)  # type: ignore[arg-type]
            await asyncio.sleep(0.01)


async def test_flush_has_an_adapter_probed_again_while_it_serves(
    torch_process: TorchProcess, engine: TorchEngine, tmp_path: Path
) -> None:
    """The first answer after it comes from no cache, and the probe says what it saw."""
    folder = torch_process.folder
    artifacts = ArtifactStore(tmp_path / "state", [folder])
    node = Node(tmp_path, engine, artifacts=artifacts)  # type: ignore[arg-type]
    adapter = folder / "first"
    releases: dict[int, Release] = {}
    next_release(
        releases, adapter=Artifact(root=weights.scan(adapter).root, source=f"file://{adapter}")
    )
    name = releases[1].engine_name
    node.reconciler.want(a_fleet(releases, route=Route(service=SERVICE, stable=1)))
    await settled(node, lambda: node.phase(1) is NodePhase.READY)
    run = (await engine.describe()).incarnation

    await node.counted.flush()
    assert 0 == (await engine.describe()).cached
    assert not node.probed.is_current(run, name)
    node.reports.clear()
    await settled(node, lambda: node.probed.is_current(run, name))

    assert (await engine.describe()).cached
    assert "prompt tokens from the cache" in node.probed.note(run, name)
    assert {NodePhase.READY} == {each.phase for report in node.reports for each in report.releases}
    assert node.link.told is not None
    assert [1] == [ready.number for ready in node.link.told.ready]

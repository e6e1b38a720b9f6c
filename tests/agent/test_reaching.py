"""A node says which artifacts it could not read again at their sources."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.support import make_adapter, make_files
from tests.builders import SERVICE, a_release, a_route
from tests.sources.servers import serving
from vctl_agent.artifacts import reach
from vctl_agent.artifacts.reach import Sought, Trouble, look, look_for_all
from vctl_agent.artifacts.stage import ArtifactStore
from vctl_agent.reaching import Reacher
from vctl_plans import weights
from vctl_plans.inspection import Reached, ReachRequest
from vctl_plans.phase import Component
from vctl_plans.release import Artifact, Release
from vctl_plans.snapshot import Fleet, Service


def a_fleet(artifact: Artifact, component: Component = Component.ADAPTER) -> Fleet:
    """Return a fleet that serves *artifact*."""
    made = a_release(1)
    release = Release(
        service=SERVICE, number=1, components={component: artifact}, vector=made.vector
    )
    return Fleet(
        services={SERVICE: Service(name=SERVICE, releases={1: release}, route=a_route(stable=1))}
    )


async def answered(reacher: Reacher, holds: Callable[[], bool] | None = None) -> Reached:
    """Let a node answer."""
    reacher.requests.ask([ReachRequest(id="q1")])
    task = asyncio.create_task(reacher.requests.run())
    try:
        async with asyncio.timeout(30):
            while not reacher.requests.answers:
                await asyncio.sleep(0.01)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return reacher.requests.answers[0]


def a_reacher(folder: Path, fleet: Fleet, *, allowed: Path | None = None) -> Reacher:
    """Return one whose node may read below *folder*."""
    artifacts = ArtifactStore(folder / "state", [allowed or folder])
    artifacts.open()
    return Reacher(artifacts.reach, lambda: fleet, lambda: None)


async def test_what_is_there_is_well_and_what_went_is_named(tmp_path: Path) -> None:
    """Asked in a process of its own, as an agent does."""
    made = make_adapter(tmp_path / "v1")
    fleet = a_fleet(made)
    well = await answered(a_reacher(tmp_path, fleet))
    assert Reached(request="q1", asked=1) == well

    shutil.rmtree(tmp_path / "v1")
    gone = await answered(a_reacher(tmp_path, fleet))
    assert (1, 1) == (gone.asked, gone.unreached)
    assert (SERVICE, 1) == (gone.problems[0].service, gone.problems[0].number)
    assert "is not there on this machine" in gone.problems[0].problem


async def test_source_that_a_node_may_not_read_is_not_asked(tmp_path: Path) -> None:
    """And what would allow it is said."""
    made = make_adapter(tmp_path / "v1")
    said = await answered(a_reacher(tmp_path, a_fleet(made), allowed=tmp_path / "models"))
    assert "outside the allowed roots" in said.problems[0].problem
    assert "--allowed-root" in said.problems[0].hint


async def test_node_that_does_not_know_the_fleet_yet_waits_for_it(tmp_path: Path) -> None:
    """Nothing passes for readable that nobody looked for."""
    fleets = [None, a_fleet(make_adapter(tmp_path / "v1"))]

    async def found(_needed: object) -> list[Trouble | None]:
        return [None]

    reacher = Reacher(found, lambda: fleets.pop(0) if len(fleets) > 1 else fleets[0], lambda: None)
    assert 1 == (await answered(reacher)).asked


def sought(made: Artifact, source: str = "", kind: weights.Kind = "adapter") -> Sought:
    return Sought(source or made.source, made.root, kind)


@pytest.mark.parametrize("has_manifest", [True, False])
def test_folder_that_lost_a_file_is_told(tmp_path: Path, has_manifest: bool) -> None:
    """By its manifest, or by what an adapter must have."""
    made = make_adapter(tmp_path / "v1")
    if has_manifest:
        weights.save(weights.scan(tmp_path / "v1"), weights.manifest_path(tmp_path / "v1"))
    assert look(sought(made), None) is None

    (tmp_path / "v1" / "adapter_config.json").unlink()
    found = look(sought(made), None)
    assert found is not None
    assert "adapter_config.json" in found.problem


def test_folder_that_holds_a_file_of_another_size_is_told(tmp_path: Path) -> None:
    """It was written over, and its manifest was not."""
    made = make_files(tmp_path / "p", {"system.txt": "You are kind."})
    manifest = weights.scan(tmp_path / "p", kind="plain")
    weights.save(manifest, weights.manifest_path(tmp_path / "p"))
    (tmp_path / "p" / "system.txt").write_text("You are terse and kind.")
    found = look(sought(made, kind="plain"), None)
    assert found is not None
    assert "system.txt has 23 bytes, and not 13" in found.problem


def test_web_server_is_asked_for_its_manifest_and_one_byte(tmp_path: Path) -> None:
    """However large the artifact is."""
    made = make_files(tmp_path / "p", {"a": "x" * 5000, "b": "y"})
    manifest = weights.scan(tmp_path / "p", kind="plain")
    weights.save(manifest, weights.manifest_path(tmp_path / "p"))
    with serving(tmp_path) as (url, about):
        assert look(sought(made, f"{url}/p", "plain"), None) is None
        assert "'bytes=0-0'" in str(about.requests[-1])
        other = Sought(f"{url}/p", "b3:" + "1" * 64, "plain")
        found = look(other, None)
        missing = look(sought(made, f"{url}/q", "plain"), None)
    assert found is not None
    assert missing is not None
    assert "b3:1111" in found.problem
    assert "has no vctl.manifest.json" in missing.problem


def test_source_that_hangs_costs_only_its_own_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mount whose server is away blocks who asks it, for ever."""
    made = make_adapter(tmp_path / "v1")
    import threading

    ends = threading.Event()

    def slow(one: Sought, credentials: object) -> Trouble | None:
        if one.source.endswith("hangs"):
            ends.wait(10)
        return look(one, None)

    monkeypatch.setattr(reach, "look", slow)
    places = [sought(made, "file:///hangs"), sought(made)]
    found = look_for_all(places, None, limit_s=0.2)
    ends.set()
    assert [Trouble("file:///hangs: did not answer in 0.2 s"), None] == found

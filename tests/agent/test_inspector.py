"""What lies on a node's disk is hashed again when asked, and by itself."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.agent.support import SERVICE, make_files, make_releases, next_release
from vctl_agent.artifacts.stage import ArtifactStore
from vctl_agent.inspector import Inspector
from vctl_plans.inspection import SCRUB, VerifyRequest
from vctl_plans.phase import Component
from vctl_plans.release import Release

TENSOR = "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight"


class Disk:
    """A node's disk with the artifacts of some releases staged on it."""

    def __init__(self, folder: Path) -> None:
        self.releases = make_releases(folder, 2)
        self.artifacts = ArtifactStore(folder / "state", [folder])
        self.artifacts.open()
        for release in self.releases.values():
            assert release.adapter is not None
            self.artifacts.stage(release.adapter, lambda _phase, _done, _size: None)
        self.wakes = 0
        self.inspector = Inspector(self.artifacts, self._known, self._wake)

    def _known(self) -> list[Release]:
        return list(self.releases.values())

    def _wake(self) -> None:
        self.wakes += 1

    def root(self, number: int) -> str:
        adapter = self.releases[number].adapter
        assert adapter is not None
        return adapter.root

    def rot(self, number: int) -> None:
        """Flip a bit of the last tensor of a staged copy."""
        file = self.artifacts.path(self.root(number)) / "adapter_model.safetensors"
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.chmod(0o644)
        file.write_bytes(content)
        file.chmod(0o444)

    def ask(self, *requests: VerifyRequest) -> None:
        self.inspector.requests.ask(requests)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


async def _while_running(
    work: Callable[[], Coroutine[Any, Any, None]], until: Callable[[], bool]
) -> None:
    task = asyncio.create_task(work())
    try:
        async with asyncio.timeout(30):
            while not until():
                await asyncio.sleep(0.01)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_request_is_answered_with_every_artifact(disk: Disk) -> None:
    """Each with what it is, and that it is whole."""
    disk.ask(VerifyRequest(id="q1"))
    await _while_running(disk.inspector.requests.run, lambda: bool(disk.inspector.checks))

    (answer,) = disk.inspector.checks
    assert "q1" == answer.request
    assert {disk.root(1), disk.root(2)} == {found.root for found in answer.found}
    assert all(found.is_good and found.size_bytes for found in answer.found)


async def test_request_for_another_service_is_answered_with_nothing(disk: Disk) -> None:
    """So that nobody waits for a node that holds nothing of it."""
    disk.ask(VerifyRequest(id="q1", service="other"))
    await _while_running(disk.inspector.requests.run, lambda: bool(disk.inspector.checks))

    assert () == disk.inspector.checks[0].found


async def test_rot_is_found_and_named(disk: Disk) -> None:
    """By tensor; the copy is not trusted any more, the other is."""
    disk.rot(1)
    disk.ask(VerifyRequest(id="q1", service=SERVICE))
    await _while_running(disk.inspector.requests.run, lambda: bool(disk.inspector.checks))

    answer = disk.inspector.checks[0]
    problems = {found.number: found.problem for found in answer.found}
    assert TENSOR in problems[1]
    assert "" == problems[2]
    assert not disk.artifacts.is_staged(disk.root(1))
    assert disk.artifacts.is_staged(disk.root(2))
    assert [1] == [found.number for found in disk.inspector.rotten]


async def test_answer_goes_with_its_request(disk: Disk) -> None:
    """A report does not grow with what was asked once."""
    disk.ask(VerifyRequest(id="q1"))
    await _while_running(disk.inspector.requests.run, lambda: bool(disk.inspector.checks))
    disk.ask()

    assert () == disk.inspector.checks


async def test_scrub_tells_only_of_what_has_rotted(disk: Disk) -> None:
    """A disk that is whole writes nothing to etcd."""
    await _while_running(lambda: disk.inspector.scrub(0.2), _after(1.5))
    assert (0, ()) == (disk.wakes, disk.inspector.checks)

    disk.rot(2)
    await _while_running(lambda: disk.inspector.scrub(0.2), lambda: bool(disk.inspector.checks))

    (told,) = disk.inspector.checks
    assert SCRUB == told.request
    assert [2] == [found.number for found in told.found]


async def test_artifact_that_was_brought_anew_is_not_told_any_more(disk: Disk) -> None:
    """Trust returns with the bytes."""
    disk.rot(1)
    await _while_running(lambda: disk.inspector.scrub(0.1), lambda: bool(disk.inspector.checks))
    adapter = disk.releases[1].adapter
    assert adapter is not None
    disk.artifacts.stage(adapter, lambda _phase, _done, _size: None)

    assert () == disk.inspector.checks


def _after(seconds: float) -> Callable[[], bool]:
    loop_time = asyncio.get_event_loop().time
    end = loop_time() + seconds
    return lambda: loop_time() >= end


class PromptDisk(Disk):
    """A disk with a prompt and an index as well, both such as would be refused as weights."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        prompt = make_files(folder / "p1", {"system.txt": "You are kind.", "x.pkl": b"\x80\x04."})
        index = make_files(folder / "i1", {"index.pkl": b"\x80\x04.", "w.safetensors": b"none"})
        self.both = next_release(self.releases, prompt=prompt, index=index)
        for artifact in (prompt, index):
            self.artifacts.stage(artifact, lambda _phase, _done, _size: None, kind="plain")


async def test_request_is_answered_with_every_component(tmp_path: Path) -> None:
    """Each as the component that it is; the adapter that two releases share once."""
    disk = PromptDisk(tmp_path)
    disk.ask(VerifyRequest(id="q1", service=SERVICE))
    await _while_running(disk.inspector.requests.run, lambda: bool(disk.inspector.checks))

    found = disk.inspector.checks[0].found
    assert ["adapter", "adapter", "index", "prompt"] == sorted(each.component for each in found)
    assert [""] * 4 == [each.problem for each in found]


async def test_scrub_finds_rot_in_a_prompt(tmp_path: Path) -> None:
    """It is named by component and file, and not trusted any more."""
    disk = PromptDisk(tmp_path)
    prompt = disk.both.components[Component.PROMPT]
    file = disk.artifacts.path(prompt.root) / "system.txt"
    file.chmod(0o644)
    file.write_text("You are rude.")
    await _while_running(lambda: disk.inspector.scrub(0.2), lambda: bool(disk.inspector.checks))

    (told,) = disk.inspector.checks
    (found,) = told.found
    assert (SCRUB, Component.PROMPT, 3) == (told.request, found.component, found.number)
    assert "system.txt" in found.problem_text
    assert "release 3 of support: prompt: " in found.problem_text
    assert not disk.artifacts.is_staged(prompt.root)

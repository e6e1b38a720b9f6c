"""What lies at a source is hashed when an operator asks, and nothing is kept of it."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.support import RANK, make_adapter, make_files
from tests.sources.servers import serving
from vctl_agent.artifacts.describe import Description
from vctl_agent.artifacts.stage import ArtifactStore
from vctl_agent.hasher import Hasher
from vctl_plans import weights
from vctl_plans.inspection import HashRequest, VerifyRequest
from vctl_plans.phase import Component
from vctl_plans.weights import Kind


class Node:
    """A node whose allowed root is a folder."""

    def __init__(self, folder: Path, *, allowed: Path | None = None) -> None:
        self.state = folder / "state"
        artifacts = ArtifactStore(self.state, [allowed or folder])
        artifacts.open()
        self.wakes = 0
        self.hasher = Hasher(artifacts.describe, self._wake)

    def _wake(self) -> None:
        self.wakes += 1


async def until(hasher: Hasher, holds: Callable[[], bool]) -> None:
    """Let a hasher answer until something holds."""
    task = asyncio.create_task(hasher.requests.run())
    try:
        async with asyncio.timeout(30):
            while not holds():
                await asyncio.sleep(0.01)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def asked(source: str, component: Component = Component.ADAPTER, name: str = "q1") -> HashRequest:
    return HashRequest(id=name, source=source, component=component)


async def test_adapter_is_described_and_nothing_is_kept_of_it(tmp_path: Path) -> None:
    """With its root, and what a release says of an adapter beside that."""
    made = make_adapter(tmp_path / "v1")
    node = Node(tmp_path)
    node.hasher.requests.ask([asked(made.source)])
    await until(node.hasher, lambda: bool(node.hasher.requests.answers))

    (answer,) = node.hasher.requests.answers
    size = sum(file.stat().st_size for file in (tmp_path / "v1").iterdir())
    assert ("q1", made.root, size) == (answer.request, answer.root, answer.size_bytes)
    assert (RANK, "base", "") == (answer.rank, answer.base_name, answer.problem)
    assert [] == list((node.state / "artifacts").iterdir())
    assert node.wakes == 1


async def test_prompt_is_hashed_as_plain_files(tmp_path: Path) -> None:
    """A component decides which files belong."""
    made = make_files(tmp_path / "p", {"system.txt": "x", "w.safetensors": b"none"})
    node = Node(tmp_path)
    node.hasher.requests.ask([asked(made.source, Component.PROMPT)])
    await until(node.hasher, lambda: bool(node.hasher.requests.answers))

    assert [made.root] == [answer.root for answer in node.hasher.requests.answers]


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("file:///etc", "outside the allowed roots"),
        ("file://{}/none", "No such file or directory"),
        ("file://{}/empty", "adapter_config.json is missing"),
        ("ftp://host/v1", "ftp://"),
    ],
)
async def test_what_cannot_be_hashed_is_answered_with_why(
    source: str, problem: str, tmp_path: Path
) -> None:
    """An operator need not wait for a node that will never say a root."""
    (tmp_path / "models" / "empty").mkdir(parents=True)
    node = Node(tmp_path, allowed=tmp_path / "models")
    node.hasher.requests.ask([asked(source.format(tmp_path / "models"))])
    await until(node.hasher, lambda: bool(node.hasher.requests.answers))

    (answer,) = node.hasher.requests.answers
    assert "" == answer.root
    assert problem in answer.problem


async def test_answer_goes_with_its_request_and_other_requests_are_not_ours(
    tmp_path: Path,
) -> None:
    """A report does not grow with what was asked once."""
    node = Node(tmp_path)
    node.hasher.requests.ask([asked("file:///etc"), VerifyRequest(id="q2")])
    await until(node.hasher, lambda: bool(node.hasher.requests.answers))
    assert ["q1"] == [answer.request for answer in node.hasher.requests.answers]
    node.hasher.requests.ask([])

    assert () == node.hasher.requests.answers
    assert node.wakes == 2


@pytest.mark.parametrize("has_manifest", [True, False])
async def test_source_on_a_web_server_is_copied_hashed_and_removed(
    tmp_path: Path, has_manifest: bool
) -> None:
    """All its bytes are read, whatever its manifest says; without one it cannot be listed."""
    made = make_files(tmp_path / "served" / "p", {"a/system.txt": "You are kind.", "z": "xy"})
    if has_manifest:
        manifest = weights.scan(tmp_path / "served" / "p", kind="plain")
        weights.save(manifest, weights.manifest_path(tmp_path / "served" / "p"))
    node = Node(tmp_path)
    with serving(tmp_path / "served") as (url, about):
        node.hasher.requests.ask([asked(f"{url}/p", Component.PROMPT)])
        await until(node.hasher, lambda: bool(node.hasher.requests.answers))

    (answer,) = node.hasher.requests.answers
    assert (made.root if has_manifest else "") == answer.root
    assert ("cannot be listed" in answer.problem) != has_manifest
    assert (15 if has_manifest else 0) == about.sent_bytes()
    assert [] == list((node.state / "artifacts").iterdir())


async def test_source_below_none_of_the_allowed_is_refused(tmp_path: Path) -> None:
    """Nothing is asked of it."""
    artifacts = ArtifactStore(tmp_path, [], allowed_sources=["https://models.example/"])
    artifacts.open()
    hasher = Hasher(artifacts.describe, lambda: None)
    with serving(tmp_path) as (url, about):
        hasher.requests.ask([asked(f"{url}/p", Component.PROMPT)])
        await until(hasher, lambda: bool(hasher.requests.answers))

    assert "below none of the allowed sources" in hasher.requests.answers[0].problem
    assert [] == about.requests


async def test_disk_that_takes_no_scratch_folder_is_told(tmp_path: Path) -> None:
    """And the agent goes on."""
    made = make_adapter(tmp_path / "v1")
    node = Node(tmp_path)
    (node.state / "artifacts").rmdir()
    node.hasher.requests.ask([asked(made.source)])
    await until(node.hasher, lambda: bool(node.hasher.requests.answers))

    assert (
        "cannot be hashed here: No such file or directory"
        in node.hasher.requests.answers[0].problem
    )


class Slow:
    """Work that ends when it is told to, and knows what was begun and cut short."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.may_end = asyncio.Event()

    async def describe(self, source: str, _kind: Kind) -> Description:
        self.begun.append(source)
        try:
            await self.may_end.wait()
        finally:
            self.ended.append(source)
        return Description(root=f"root of {source}")


async def test_one_request_at_a_time() -> None:
    """Hashing takes disk and processor of a node that serves."""
    work = Slow()
    hasher = Hasher(work.describe, lambda: None)
    hasher.requests.ask([asked("a", name="q1"), asked("b", name="q2")])
    begun_first: list[str] = []

    def both() -> bool:
        if work.begun and not begun_first:
            begun_first.extend(work.begun)
            work.may_end.set()
        return len(hasher.requests.answers) == 2

    await until(hasher, both)
    assert ["a"] == begun_first
    assert ["root of a", "root of b"] == [answer.root for answer in hasher.requests.answers]


async def test_work_for_a_request_that_is_gone_ends() -> None:
    """And the next request has its turn."""
    work = Slow()
    hasher = Hasher(work.describe, lambda: None)
    hasher.requests.ask([asked("a", name="q1"), asked("b", name="q2")])

    def leave() -> bool:
        if work.begun == ["a"]:
            hasher.requests.ask([asked("b", name="q2")])
        return "b" in work.begun

    await until(hasher, leave)
    assert ["a", "b"] == work.ended  # the second as this test ended
    assert () == hasher.requests.answers

"""A removed artifact is gone at once and in whole, wherever the agent is killed; no other goes."""

import errno
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.support import make_adapter
from vctl_agent.artifacts import collect
from vctl_agent.artifacts.collect import Collector
from vctl_agent.artifacts.stage import ArtifactStore
from vctl_plans.errors import NoRoom
from vctl_plans.phase import NodePhase
from vctl_plans.release import Artifact


class Shelf:
    """A state directory with one staged artifact, and one beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store, self.collector = self.opened()
        self.one = self.staged(1)
        self.two = self.staged(2)

    def opened(self) -> tuple[ArtifactStore, Collector]:
        """Open it as the next agent process does."""
        store = ArtifactStore(self.folder / "state", [self.folder])
        store.open()
        collector = Collector(store)
        collector.open()
        return store, collector

    def staged(self, number: int) -> Artifact:
        artifact = make_adapter(self.folder / f"v{number}", fill_byte=number)
        self.store.stage(artifact, _ignore)
        return artifact

    def left(self) -> list[str]:
        """Return the names of what lies there, of artifacts and manifests."""
        state = self.folder / "state"
        found = [*(state / "artifacts").iterdir(), *(state / "manifests").iterdir()]
        return sorted(path.name for path in found)

    def names(self, *artifacts: Artifact) -> list[str]:
        """Return the names that these artifacts have there."""
        digits = [artifact.root.removeprefix("b3:") for artifact in artifacts]
        return sorted([*digits, *(f"{each}.json" for each in digits)])


def _ignore(_phase: NodePhase, _done: int, _size: int) -> None:
    pass


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def test_survey_tells_roots_sizes_and_ages(shelf: Shelf) -> None:
    """Of each, what its files take."""
    found = shelf.collector.survey()

    assert {shelf.one.root, shelf.two.root} == {each.root for each in found.whole}
    size = sum(f.stat().st_size for f in shelf.store.path(shelf.one.root).iterdir())
    assert {size} == {each.size_bytes for each in found.whole}
    assert found.used_bytes == 2 * size
    assert 0 < found.free_bytes <= found.size_bytes


def test_artifact_in_use_is_younger_than_one_that_is_not(shelf: Shelf) -> None:
    """Else that which serves for a year would be the first to go once it serves no more."""
    for artifact in (shelf.one, shelf.two):
        os.utime(shelf.store.path(artifact.root), (1000, 1000))
    shelf.collector.delete(in_use=[shelf.two.root])
    ages = {each.root: each.age_s for each in shelf.collector.survey().whole}

    assert ages[shelf.two.root] < 1000 < ages[shelf.one.root]


def test_removed_artifact_is_gone_with_its_manifest(shelf: Shelf) -> None:
    """At once for all who ask, and from the disk when it was deleted; the other stays."""
    assert shelf.collector.set_aside(shelf.one.root)
    assert not shelf.store.is_staged(shelf.one.root)
    assert not shelf.store.path(shelf.one.root).exists()

    shelf.collector.delete()
    assert shelf.names(shelf.two) == shelf.left()
    assert shelf.store.is_staged(shelf.two.root)


def test_removed_artifact_can_be_brought_anew(shelf: Shelf) -> None:
    """As if it had never been there; also while the old one still waits to be deleted."""
    shelf.collector.set_aside(shelf.one.root)
    shelf.store.stage(shelf.one, _ignore)
    shelf.collector.set_aside(shelf.one.root)
    shelf.store.stage(shelf.one, _ignore)
    shelf.collector.delete()

    assert shelf.names(shelf.one, shelf.two) == shelf.left()


class Killed(BaseException):
    """The process ends here."""


def _cut(monkeypatch: pytest.MonkeyPatch, at: int) -> Callable[[], int]:
    """End the process right before the change of the disk of this number; count them."""
    done = 0

    def cutting(change: Callable[..., object]) -> Callable[..., object]:
        def changed(*arguments: object, **more: object) -> object:
            nonlocal done
            done += 1
            if done >= at:
                raise Killed
            return change(*arguments, **more)

        return changed

    for owner, name in (
        (Path, "rename"), (Path, "unlink"), (Path, "chmod"), (os, "unlink"), (os, "rmdir"),
    ):  # fmt: skip
        monkeypatch.setattr(owner, name, cutting(getattr(owner, name)))
    return lambda: done


def test_kill_at_any_change_of_the_disk_leaves_all_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next agent finds the artifact whole, or none of it; and sweeps what is left."""
    outcomes = set()
    for at in range(1, 100):
        shelf = Shelf(tmp_path / str(at))
        with monkeypatch.context() as patched:
            changes = _cut(patched, at)
            try:
                shelf.collector.set_aside(shelf.one.root)
                shelf.collector.delete()
            except Killed:
                pass
            done = changes()
        store, _ = shelf.opened()
        is_there = store.path(shelf.one.root).exists()
        outcomes.add(is_there)
        if is_there:
            store.stage(shelf.one, _must_be_whole)
        kept = (shelf.one, shelf.two) if is_there else (shelf.two,)
        assert shelf.names(*kept) == shelf.left(), f"killed before change {at}"
        if done < at:
            break

    assert {True, False} == outcomes
    assert at > 6, "a rename, a manifest, and each file and folder"


def _must_be_whole(phase: NodePhase, _done: int, _size: int) -> None:
    assert phase is not NodePhase.FETCHING


def test_artifact_that_is_being_staged_is_not_touched(shelf: Shelf) -> None:
    """By a thread that holds its lock; and later it may go."""
    shelf.store.distrust(shelf.one.root)
    at_work, go_on = threading.Event(), threading.Event()

    def wait(_phase: NodePhase, _done: int, _size: int) -> None:
        at_work.set()
        assert go_on.wait(30)

    staging = threading.Thread(target=shelf.store.stage, args=(shelf.one, wait))
    staging.start()
    assert at_work.wait(30)
    assert not shelf.collector.set_aside(shelf.one.root)
    assert not shelf.collector.give_up(shelf.one.root)
    go_on.set()
    staging.join()

    assert shelf.store.is_staged(shelf.one.root)
    assert shelf.collector.set_aside(shelf.one.root)


def test_links_are_removed_and_not_followed(shelf: Shelf, tmp_path: Path) -> None:
    """What lies outside is no artifact, whoever put a link to it."""
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o555)
    (tmp_path / "precious").write_text("x")
    copy = shelf.store.path(shelf.one.root)
    copy.chmod(0o755)
    (copy / "folder").symlink_to(outside)
    (copy / "file").symlink_to(tmp_path / "precious")
    copy.chmod(0o555)
    whole = shelf.store.path("b3:" + "7" * 64)
    whole.symlink_to(outside)
    for root in (shelf.one.root, "b3:" + "7" * 64):
        assert shelf.collector.set_aside(root)
    shelf.collector.delete()

    assert shelf.names(shelf.two) == shelf.left()
    assert 0o555 == stat.S_IMODE(outside.stat().st_mode)
    assert "x" == (tmp_path / "precious").read_text()


def test_strange_names_are_left_alone(shelf: Shelf) -> None:
    """They are nobody's, and not ours to remove."""
    (shelf.store.directory / "lost+found").mkdir()

    assert "lost+found" not in str(shelf.collector.survey())
    shelf.opened()
    assert (shelf.store.directory / "lost+found").is_dir()


def test_what_was_begun_is_seen_and_given_up(shelf: Shelf) -> None:
    """Its age is that of its last write; its manifest goes with it, and no other's does."""
    root = "b3:" + "5" * 64
    begun = shelf.store.directory / f".fetching-{'5' * 64}"
    begun.mkdir()
    (begun / "model.safetensors").write_bytes(b"x" * 8192)
    os.utime(begun / "model.safetensors", (1000, 1000))
    shelf.store.manifest_path(root).write_text("{}")
    (found,) = shelf.collector.survey().begun
    assert (root, True) == (found.root, found.age_s > 1000)

    assert shelf.collector.give_up(root)
    shelf.collector.delete()
    assert shelf.names(shelf.one, shelf.two) == shelf.left()


def test_disk_that_refuses_to_rename_keeps_the_artifact(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is there, to be verified anew before it is used again."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, "read-only file system")

    monkeypatch.setattr(Path, "rename", refuse)
    assert not shelf.collector.set_aside(shelf.one.root)
    assert shelf.store.manifest_path(shelf.one.root).exists()
    assert shelf.store.path(shelf.one.root).is_dir()


def test_full_disk_is_an_error_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that room is made before the next try."""
    shelf = Shelf(tmp_path)
    artifact = make_adapter(tmp_path / "v3", fill_byte=3)

    def refuse(_fd: int) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(NoRoom):
        shelf.store.stage(artifact, _ignore)


def test_collector_names_no_other_folder_than_the_stores() -> None:
    """The two modules agree on what a folder that is begun is called."""
    assert collect._root_of(Path(f".fetching-{'0' * 64}")) == "b3:" + "0" * 64
    assert "" == collect._root_of(Path(f".removing-{'0' * 64}-0"))

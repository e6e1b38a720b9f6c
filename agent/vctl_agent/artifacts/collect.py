"""Removes artifacts, so that a kill at any point leaves none that is half there.

An artifact is renamed first and deleted then: from the rename on there is none of its root, and
what a kill leaves is swept when the next agent starts. The rename is done between two looks of the
event loop, by the caller that has just decided it, and never while a thread stages the same root.
Links are removed and never followed.
"""

import os
import re
import shutil
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import structlog

from vctl_agent.artifacts.stage import ArtifactStore
from vctl_plans.names import is_root
from vctl_plans.retention import Lying

_REMOVING = ".removing-"
_BEGUN = re.compile(r"\.fetching-([0-9a-f]{64})")

_BLOCK_BYTES = 512
"""What `st_blocks` counts (stat(2))."""

_log = structlog.get_logger(__name__)


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """What lies on the disk."""

    whole: tuple[Lying, ...]
    begun: tuple[Lying, ...]
    free_bytes: int  # that the disk has for us
    size_bytes: int  # of the disk

    @property
    def used_bytes(self) -> int:
        """What the artifacts take."""
        return sum(each.size_bytes for each in (*self.whole, *self.begun))


class Collector:
    """Looks at the artifacts of one agent and removes some.

    Args:
        artifacts: Where they are.
    """

    def __init__(self, artifacts: ArtifactStore) -> None:
        self._artifacts = artifacts

    def open(self) -> None:
        """Sweep what a process that was killed was removing, and manifests of what is gone."""
        self._delete_aside()
        lying = {self._artifacts.manifest_path(root).name for root in self.lying()}
        for manifest in self._artifacts.manifests.iterdir():
            if manifest.name not in lying:
                manifest.unlink(missing_ok=True)

    def lying(self) -> Iterator[str]:
        """Yield the roots of the artifacts that are here, whole or begun."""
        for path in self._artifacts.directory.iterdir():
            root = _root_of(path)
            if root:
                yield root

    def survey(self) -> Survey:
        """Look at all that is here; blocking, for a thread. What vanishes meanwhile is left out."""
        now = time.time()
        whole: list[Lying] = []
        begun: list[Lying] = []
        for path in sorted(self._artifacts.directory.iterdir()):
            root = _root_of(path)
            if root:
                is_whole = path == self._artifacts.path(root)
                size, latest = _measured(path, is_whole=is_whole)
                used = _used_at(path) if is_whole else latest
                (whole if is_whole else begun).append(Lying(root, size, max(0.0, now - used)))
        disk = os.statvfs(self._artifacts.directory)
        return Survey(
            whole=tuple(whole),
            begun=tuple(begun),
            free_bytes=disk.f_bavail * disk.f_frsize,
            size_bytes=disk.f_blocks * disk.f_frsize,
        )

    def set_aside(self, root: str) -> bool:
        """Have no artifact of *root*; return whether it was here and nobody stages it.

        What is left is to be deleted by `delete`.
        """
        lock: threading.Lock = self._artifacts.lock(root)
        if not lock.acquire(blocking=False):
            return False
        try:
            self._artifacts.distrust(root)
            is_aside = self._rename(self._artifacts.path(root))
            if is_aside:
                self._artifacts.manifest_path(root).unlink(missing_ok=True)
            return is_aside
        finally:
            lock.release()

    def give_up(self, root: str) -> bool:
        """Do the same to what was begun to be fetched of *root*."""
        lock: threading.Lock = self._artifacts.lock(root)
        if not lock.acquire(blocking=False):
            return False
        try:
            found = [p for p in self._artifacts.directory.iterdir() if _is_begun(p, root)]
            aside = [path for path in found if self._rename(path)]
            if aside and not self._artifacts.path(root).exists():
                self._artifacts.manifest_path(root).unlink(missing_ok=True)
            return aside == found
        finally:
            lock.release()

    def delete(self, in_use: Iterable[str] = ()) -> None:
        """Delete what was set aside, and note what is in use; blocking, for a thread."""
        for root in in_use:
            _note_use(self._artifacts.path(root))
        self._delete_aside()

    def _rename(self, path: Path) -> bool:
        n = 0
        while (aside := path.with_name(f"{_REMOVING}{path.name.strip('.')}-{n}")).exists():
            n += 1
        try:
            path.rename(aside)
        except FileNotFoundError:
            return False
        except OSError as cause:
            _log.warning("not removed", path=str(path), cause=str(cause))
            return False
        return True

    def _delete_aside(self) -> None:
        leftovers = list(self._artifacts.directory.glob(f"{_REMOVING}*"))
        if leftovers:
            _flush(self._artifacts.directory)  # no power cut brings a name back to what is half
        for leftover in leftovers:
            _delete(leftover)
            if leftover.exists():
                _log.warning("not deleted", path=str(leftover))


def _root_of(path: Path) -> str:
    """Return the root that a folder is of; empty for anything else."""
    begun = _BEGUN.match(path.name)
    root = f"b3:{begun[1] if begun else path.name}"
    return root if is_root(root) else ""


def _is_begun(path: Path, root: str) -> bool:
    return path.name.startswith(".") and _root_of(path) == root


def _measured(path: Path, *, is_whole: bool) -> tuple[int, float]:
    """Return what a folder takes, and when something in it was last written.

    A file that has several names is shared out among them; one that is begun may have holes.
    """
    size, latest = 0.0, 0.0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                found = (Path(folder) / name).lstat()
            except FileNotFoundError:
                continue
            taken = found.st_size if is_whole else found.st_blocks * _BLOCK_BYTES
            size += taken / max(1, found.st_nlink)
            latest = max(latest, found.st_mtime)
    return round(size), latest or _used_at(path)


def _used_at(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except FileNotFoundError:
        return 0.0


def _note_use(path: Path) -> None:
    """Set the folder's own time, which nothing else changes."""
    try:
        os.utime(path, follow_symlinks=False)
    except OSError as cause:
        _log.debug("use not noted", path=str(path), cause=str(cause))


def _delete(path: Path) -> None:
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    for folder, _, _ in os.walk(path):
        Path(folder).chmod(0o700)
    shutil.rmtree(path, ignore_errors=True)


def _flush(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

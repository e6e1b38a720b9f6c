"""Bring an artifact to `<state>/artifacts/<root>/`: whole and verified, or not at all.

The copy is made under another name, flushed, verified on the very files that the engine will read,
made read-only, and only then renamed: the rename is the one moment at which it exists. What an
earlier try left half done is swept away. Nothing that lies outside the allowed roots is read, and
no link is followed.
"""

import errno
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from vctl_plans import weights
from vctl_plans.errors import ArtifactError, NoRoom, NotAllowed, PlanError, RootMismatch
from vctl_plans.names import check_root, root_hex
from vctl_plans.phase import NodePhase
from vctl_plans.release import Artifact
from vctl_plans.weights import files, selection

Progress = Callable[[NodePhase, int, int], None]
"""Told (fetching or verifying, bytes done, bytes in all or 0); what it raises stops it."""

_TEMPORARY = ".fetching-"
_COPY_BYTES = 1024 * 1024
_FULL = {errno.ENOSPC, errno.EDQUOT}
_READ_ONLY_FILE = 0o444
_READ_ONLY_DIRECTORY = 0o555


class ArtifactStore:
    """The artifacts of one agent. `<state>` is locked to it, so no other writes here."""

    def __init__(self, state: Path, allowed_roots: Sequence[Path]) -> None:
        self._directory = state / "artifacts"
        self._manifests = state / "manifests"
        self._allowed = tuple(root.resolve() for root in allowed_roots)
        self._verified: set[str] = set()
        self._locks: dict[str, threading.Lock] = {}  # by root: two services may share one

    def open(self) -> None:
        """Make the directory and sweep what an earlier process left half done."""
        self._directory.mkdir(parents=True, exist_ok=True)
        self._manifests.mkdir(exist_ok=True)
        for leftover in self._directory.glob(f"{_TEMPORARY}*"):
            _remove(leftover)

    @property
    def directory(self) -> Path:
        """Where all artifacts lie."""
        return self._directory

    @property
    def manifests(self) -> Path:
        """Where all manifests lie."""
        return self._manifests

    def lock(self, root: str) -> threading.Lock:
        """Return what a thread holds while it stages *root*."""
        return self._locks.setdefault(root, threading.Lock())

    def path(self, root: str) -> Path:
        """Return where an artifact of *root* lies once it is staged."""
        return self._directory / root_hex(root)

    def manifest_path(self, root: str) -> Path:
        """Return where the manifest of a staged artifact lies: apart, for it is no part of it."""
        return self._manifests / f"{root_hex(root)}.json"

    def distrust(self, root: str) -> None:
        """Count an artifact as not verified: it is read again, and brought anew where it rotted."""
        self._verified.discard(root)

    def is_staged(self, root: str) -> bool:
        """Whether the artifact lies here, and this process has verified it."""
        return root in self._verified and self.path(root).is_dir()

    def stage(
        self, artifact: Artifact, progress: Progress, *, kind: weights.Kind = "adapter"
    ) -> Path:
        """Bring *artifact* here, or find it here, and verify it; blocking, for a thread.

        Args:
            artifact: What to bring.
            progress: Told as it goes, from this thread.
            kind: What it must be: which of the source's files belong, and what they may hold.

        Raises:
            RootMismatch: Its bytes are others than its root names.
            NotAllowed: Its root is none, or its source of a kind, or at a place, that is refused.
            ArtifactError: It cannot be read or written now; trying again may help.
        """
        _refuse_other_than_root(artifact.root)
        final = self.path(artifact.root)
        with self._locks.setdefault(artifact.root, threading.Lock()):
            if self.is_staged(artifact.root):
                return final
            try:
                if not _is_whole(final, artifact, progress, kind=kind):
                    self._bring(artifact, final, progress, kind=kind)
            except OSError as cause:
                kind_of = NoRoom if cause.errno in _FULL else ArtifactError
                raise kind_of(
                    f"{artifact.source}: cannot be brought to {self._directory}:"
                    f" {cause.strerror or cause}"
                ) from cause
            self._verified.add(artifact.root)
        return final

    def _bring(
        self, artifact: Artifact, final: Path, progress: Progress, *, kind: weights.Kind
    ) -> None:
        """Copy and verify; what lay there before makes way only for what is whole."""
        source = self._source(artifact)
        temporary = self._directory / f"{_TEMPORARY}{root_hex(artifact.root)}"
        _remove(temporary)
        try:
            _copy(source, temporary, progress, kind=kind)
            known = _manifest(source, artifact.root)
            manifest = _verify(temporary, artifact, progress, kind=kind, manifest=known)
            weights.save(manifest, self.manifest_path(artifact.root))
            _freeze(temporary)
            _remove(final)
            temporary.rename(final)
            _flush(self._directory)
        finally:
            _remove(temporary)

    def _source(self, artifact: Artifact) -> Path:
        url = urlsplit(artifact.source)
        if url.scheme != "file" or url.netloc not in {"", "localhost"}:
            raise NotAllowed(
                f"{artifact.source}: only file:// sources can be read yet",
                hint="put the artifact on a mount that all nodes share",
            )
        path = Path(unquote(url.path))
        if not path.exists():
            raise ArtifactError(f"{path}: is not there on this node")
        real = path.resolve()
        if not any(real.is_relative_to(root) for root in self._allowed):
            allowed = ", ".join(map(str, self._allowed)) or "none"
            raise NotAllowed(
                f"{path}: outside the allowed roots ({allowed})",
                hint="start vctl-agent with --allowed-root",
            )
        return path


def _refuse_other_than_root(root: str) -> None:
    """Refuse what is no root: it would be a path, and lead out of our directory."""
    try:
        check_root(root, what="root")
    except PlanError as cause:
        raise NotAllowed(cause.message) from cause


def _is_whole(final: Path, artifact: Artifact, progress: Progress, *, kind: weights.Kind) -> bool:
    """Whether a copy that another process made is there and has not rotted; read in whole."""
    if not final.exists():
        return False
    try:
        _verify(final, artifact, progress, kind=kind)
    except ArtifactError:
        return False
    return True


def _manifest(source: Path, root: str) -> weights.Manifest | None:
    """Return the manifest beside the source, when there is one of this root that can be read."""
    try:
        return weights.load(weights.manifest_path(source), root=root)
    except ArtifactError:
        return None


def _verify(
    path: Path,
    artifact: Artifact,
    progress: Progress,
    *,
    kind: weights.Kind,
    manifest: weights.Manifest | None = None,
) -> weights.Manifest:
    try:
        return weights.verify(
            path,
            manifest or artifact.root,
            kind=kind,
            progress=lambda done, size: progress(NodePhase.VERIFYING, done, size),
        )
    except RootMismatch as mismatch:
        raise RootMismatch(
            mismatch.message.replace(str(path), artifact.source), tensors=mismatch.tensors
        ) from mismatch


def _copy(path: Path, target: Path, progress: Progress, *, kind: weights.Kind) -> None:
    """Copy the artifact's files, and no others, each flushed to disk."""
    target.mkdir()
    done = 0
    with files.open_source(path) as source:
        for name in selection.select(source, kind).files:
            destination = target / name
            destination.parent.mkdir(parents=True, exist_ok=True)
            reader = os.fdopen(files.open_file(source, name), "rb")
            with reader, destination.open("xb") as writer:
                while piece := reader.read(_COPY_BYTES):
                    writer.write(piece)
                    done += len(piece)
                    progress(NodePhase.FETCHING, done, 0)
                writer.flush()
                os.fsync(writer.fileno())


def _freeze(directory: Path) -> None:
    for folder, _, names in os.walk(directory, topdown=False):
        for name in names:
            (Path(folder) / name).chmod(_READ_ONLY_FILE)
        _flush(Path(folder))
        Path(folder).chmod(_READ_ONLY_DIRECTORY)


def _flush(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _remove(directory: Path) -> None:
    """Remove a directory of ours, read-only or not; one that is not there is no error."""
    for folder, _, _ in os.walk(directory):
        Path(folder).chmod(0o700)
    shutil.rmtree(directory, ignore_errors=True)

"""Bring an artifact to `<state>/artifacts/<root>/`: whole and verified, or not at all.

The copy is made under another name, flushed, verified on the very files that the engine will read,
made read-only, and only then renamed: the rename is the one moment at which it exists. What an
earlier try left half done is swept away. Nothing that lies outside the allowed roots is read, and
no link is followed.
"""

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from vctl_plans import weights
from vctl_plans.errors import ArtifactError, NotAllowed, RootMismatch
from vctl_plans.names import root_hex
from vctl_plans.phase import NodePhase
from vctl_plans.release import Artifact
from vctl_plans.weights import files, selection

Progress = Callable[[NodePhase, int, int], None]
"""Told (fetching or verifying, bytes done, bytes in all or 0); what it raises stops it."""

_TEMPORARY = ".fetching-"
_COPY_BYTES = 1024 * 1024
_READ_ONLY_FILE = 0o444
_READ_ONLY_DIRECTORY = 0o555


class ArtifactStore:
    """The artifacts of one agent. `<state>` is locked to it, so no other writes here."""

    def __init__(self, state: Path, allowed_roots: Sequence[Path]) -> None:
        self._directory = state / "artifacts"
        self._allowed = tuple(root.resolve() for root in allowed_roots)
        self._verified: set[str] = set()

    def open(self) -> None:
        """Make the directory and sweep what an earlier process left half done."""
        self._directory.mkdir(parents=True, exist_ok=True)
        for leftover in self._directory.glob(f"{_TEMPORARY}*"):
            _remove(leftover)

    def path(self, root: str) -> Path:
        """Return where an artifact of *root* lies once it is staged."""
        return self._directory / root_hex(root)

    def is_staged(self, root: str) -> bool:
        """Whether this process has verified the artifact where it lies."""
        return root in self._verified

    def stage(self, artifact: Artifact, progress: Progress) -> Path:
        """Bring *artifact* here, or find it here, and verify it; blocking, for a thread.

        Args:
            artifact: What to bring.
            progress: Told as it goes, from this thread.

        Raises:
            RootMismatch: Its bytes are others than its root names.
            NotAllowed: Its source is of a kind, or at a place, that is refused.
            ArtifactError: It cannot be read now; trying again may help.
        """
        final = self.path(artifact.root)
        if final.exists():
            self._verify_staged(final, artifact, progress)
            return final
        source = self._source(artifact)
        temporary = self._directory / f"{_TEMPORARY}{root_hex(artifact.root)}"
        _remove(temporary)
        try:
            _copy(source, temporary, progress)
            _verify(temporary, artifact, progress, manifest=_manifest(source, artifact.root))
            _freeze(temporary)
            temporary.rename(final)
            _flush(self._directory)
        except OSError as cause:
            raise ArtifactError(f"{artifact.source}: {cause.strerror or cause}") from cause
        finally:
            _remove(temporary)
        self._verified.add(artifact.root)
        return final

    def _verify_staged(self, final: Path, artifact: Artifact, progress: Progress) -> None:
        """Read a copy again that another process made; one that rotted is brought anew."""
        try:
            _verify(final, artifact, progress)
        except ArtifactError:
            _remove(final)
            raise
        self._verified.add(artifact.root)

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


def _manifest(source: Path, root: str) -> weights.Manifest | None:
    """Return the manifest beside the source, when there is one of this root that can be read."""
    try:
        return weights.load(weights.manifest_path(source), root=root)
    except ArtifactError:
        return None


def _verify(
    path: Path, artifact: Artifact, progress: Progress, *, manifest: weights.Manifest | None = None
) -> None:
    try:
        weights.verify(
            path,
            manifest or artifact.root,
            progress=lambda done, size: progress(NodePhase.VERIFYING, done, size),
        )
    except RootMismatch as mismatch:
        raise RootMismatch(
            mismatch.message.replace(str(path), artifact.source), tensors=mismatch.tensors
        ) from mismatch


def _copy(path: Path, target: Path, progress: Progress) -> None:
    """Copy the artifact's files, and no others, each flushed to disk."""
    target.mkdir()
    done = 0
    with files.open_source(path) as source:
        for name in selection.select(source, None).files:
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

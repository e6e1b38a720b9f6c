"""Bring an artifact to `<state>/artifacts/<root>/`: whole and verified, or not at all.

The copy is made under another name (see `fetch`), flushed, verified on the very files that the
engine will read, made read-only, and only then renamed: the rename is the one moment at which it
exists. What an earlier try left half done is gone on from. Nothing is read that lies outside the
allowed roots, or at a source that is not allowed, and no link is followed.
"""

import asyncio
import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote

from vctl_agent.artifacts import fetch, leftovers
from vctl_agent.artifacts.describe import Description, describe_apart
from vctl_agent.artifacts.fetch import Progress
from vctl_agent.artifacts.leftovers import remove
from vctl_agent.artifacts.reach import Sought, Trouble, reach_apart
from vctl_agent.artifacts.reuse import Donor
from vctl_plans import sources, weights
from vctl_plans.errors import (
    ArtifactError,
    MalformedWeights,
    NoRoom,
    NotAllowed,
    PlanError,
    RootMismatch,
)
from vctl_plans.location import checked, is_under, shown
from vctl_plans.names import check_root, root_hex
from vctl_plans.phase import NodePhase
from vctl_plans.reachability import Needed
from vctl_plans.release import Artifact
from vctl_plans.sources.file import FileSource

_READ_ONLY_FILE = 0o444
_READ_ONLY_DIRECTORY = 0o555


class ArtifactStore:
    """The artifacts of one agent. `<state>` is locked to it, so no other writes here."""

    def __init__(
        self,
        state: Path,
        allowed_roots: Sequence[Path],
        *,
        allowed_sources: Sequence[str] = (),
        credentials: sources.Credentials | None = None,
    ) -> None:
        """Take where to keep artifacts, and from where they may come.

        Args:
            state: The agent's folder.
            allowed_roots: The folders that `file://` sources must lie in.
            allowed_sources: What other sources must lie below; empty: they may be any.
            credentials: What lets us in at web servers.
        """
        self._directory = state / "artifacts"
        self._manifests = state / "manifests"
        self._allowed = tuple(root.resolve() for root in allowed_roots)
        self._allowed_sources = tuple(allowed_sources)
        self._credentials = credentials
        self._verified: set[str] = set()
        self._locks: dict[str, threading.Lock] = {}  # by root: two services may share one

    def open(self) -> None:
        """Make the directory, and remove what nobody could go on from."""
        self._directory.mkdir(parents=True, exist_ok=True)
        self._manifests.mkdir(exist_ok=True)
        leftovers.remove_strange(self._directory)

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

    def adapter_facts(self, root: str) -> weights.AdapterFacts:
        """Read what a staged adapter says of itself; only configuration and headers are read.

        Raises:
            ArtifactError: It cannot be read.
        """
        return weights.adapter_facts(self.path(root))

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
        with self.lock(artifact.root):
            if self.is_staged(artifact.root):
                return final
            try:
                if not _is_whole(final, artifact, progress, kind=kind):
                    self._bring(artifact, final, progress, kind=kind)
            except OSError as cause:
                kind_of = NoRoom if fetch.is_full(cause) else ArtifactError
                raise kind_of(
                    f"{shown(artifact.source)}: cannot be brought to {self._directory}:"
                    f" {cause.strerror or cause}"
                ) from cause
            self._verified.add(artifact.root)
        return final

    async def describe(self, uri: str, kind: weights.Kind) -> Description:
        """Hash what lies at a source, if it may be read; nothing is kept of it.

        Raises:
            NotAllowed: It may not be read.
            ArtifactError: Nobody could say what is there.
        """
        self._check_source(uri)
        try:
            scratch = leftovers.scratch(self._directory)
            try:
                return await describe_apart(
                    uri, kind=kind, scratch=scratch, credentials=self._credentials
                )
            finally:
                await asyncio.to_thread(remove, scratch)
        except OSError as cause:
            rule = cause.strerror or cause
            raise ArtifactError(f"{shown(uri)}: cannot be hashed here: {rule}") from cause

    async def reach(self, needed: Sequence[Needed]) -> list[Trouble | None]:
        """Return of each artifact why it cannot be read at its source now; None: it can.

        Raises:
            ArtifactError: Nobody could say.
        """
        found: list[Trouble | None] = [self._forbidden(each.artifact.source) for each in needed]
        open_places = [at for at, trouble in enumerate(found) if trouble is None]
        sought = [
            Sought(each.artifact.source, each.artifact.root, weights.KIND_OF[each.component])
            for each in (needed[at] for at in open_places)
        ]
        answers = await reach_apart(sought, self._credentials)
        for at, trouble in zip(open_places, answers, strict=True):
            found[at] = trouble
        return found

    def _forbidden(self, uri: str) -> Trouble | None:
        try:
            self._check_source(uri)
        except NotAllowed as problem:
            return Trouble(problem.message, problem.hint)
        return None

    def _bring(
        self, artifact: Artifact, final: Path, progress: Progress, *, kind: weights.Kind
    ) -> None:
        """Fetch and verify; what lay there before makes way only for what is whole."""
        temporary = leftovers.unfinished(self._directory, artifact.root)
        with self._connected(artifact.source) as source:
            known = _loaded(self.manifest_path(artifact.root), artifact.root)
            manifest = fetch.manifest_of(source, artifact.root, kind=kind, known=known)
            if manifest:
                self._fetch(temporary, manifest, source, kind=kind, progress=progress)
            else:
                manifest = _copied(temporary, artifact, source, kind=kind, progress=progress)
        weights.save(manifest, self.manifest_path(artifact.root))
        _freeze(temporary)
        remove(final)
        temporary.rename(final)
        _flush(self._directory)

    def _fetch(
        self,
        temporary: Path,
        manifest: weights.Manifest,
        source: sources.Source,
        *,
        kind: weights.Kind,
        progress: Progress,
    ) -> None:
        """Make the copy; when that fails it stays, unless its bytes may never be served."""
        weights.save(manifest, self.manifest_path(manifest.root))
        try:
            fetch.fetch(temporary, manifest, source, donors=self._donors, progress=progress)
            with _named(source.uri, temporary):
                fetch.verify(temporary, manifest, source, kind=kind, progress=progress)
        except (NotAllowed, MalformedWeights):
            remove(temporary)
            raise

    def _donors(self) -> Iterator[Donor]:
        """Give the artifacts that lie here, rotten or not: what is taken from them is verified."""
        for folder in self._directory.iterdir():
            if folder.name.startswith("."):
                continue
            root = f"b3:{folder.name}"
            manifest = _loaded(self.manifest_path(root), root)
            if manifest:
                yield Donor(folder, manifest)

    def _connected(self, uri: str) -> sources.Source:
        is_mount = uri.startswith("file:")
        if not is_mount and self._allowed_sources:
            self._check_allowed(uri)
        source = sources.connect(uri, self._credentials)
        if isinstance(source, FileSource):
            self._check_mount(source.path)
        return source

    def _check_source(self, uri: str) -> None:
        try:
            parts = checked(uri)
        except PlanError as cause:
            raise NotAllowed(cause.message) from cause
        if parts.scheme == "file":
            self._check_mount(Path(unquote(parts.path)))
        elif self._allowed_sources:
            self._check_allowed(uri)

    def _check_allowed(self, uri: str) -> None:
        if not any(is_under(uri, prefix) for prefix in self._allowed_sources):
            allowed = ", ".join(self._allowed_sources)
            raise NotAllowed(
                f"{shown(uri)}: below none of the allowed sources ({allowed})",
                hint="start vctl-agent with --allowed-source",
            )

    def _check_mount(self, path: Path) -> None:
        real = path.resolve()
        if not any(real.is_relative_to(root) for root in self._allowed):
            allowed = ", ".join(map(str, self._allowed)) or "none"
            raise NotAllowed(
                f"{path}: outside the allowed roots ({allowed})",
                hint="start vctl-agent with --allowed-root",
            )


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


def _loaded(place: Path, root: str) -> weights.Manifest | None:
    """Return a manifest that lies here, when there is one of this root that can be read."""
    try:
        return weights.load(place, root=root)
    except ArtifactError:
        return None


def _verify(
    path: Path, artifact: Artifact, progress: Progress, *, kind: weights.Kind
) -> weights.Manifest:
    with _named(artifact.source, path):
        return weights.verify(
            path,
            artifact.root,
            kind=kind,
            progress=lambda done, size: progress(NodePhase.VERIFYING, done, size),
        )


@contextlib.contextmanager
def _named(uri: str, path: Path) -> Iterator[None]:
    """Have a mismatch name the source: the copy that differs will be gone."""
    try:
        yield
    except RootMismatch as mismatch:
        raise RootMismatch(
            mismatch.message.replace(str(path), uri), tensors=mismatch.tensors
        ) from mismatch


def _copied(
    temporary: Path,
    artifact: Artifact,
    source: sources.Source,
    *,
    kind: weights.Kind,
    progress: Progress,
) -> weights.Manifest:
    """Copy in whole what has no manifest, and verify it; what is not the artifact is not kept."""
    try:
        was_begun = fetch.copy_whole(temporary, source, kind=kind, progress=progress)
        try:
            return _verify(temporary, artifact, progress, kind=kind)
        except (RootMismatch, MalformedWeights):
            if not was_begun:
                raise
        remove(temporary)  # what an earlier try had left was no beginning of this
        fetch.copy_whole(temporary, source, kind=kind, progress=progress)
        return _verify(temporary, artifact, progress, kind=kind)
    except (NotAllowed, RootMismatch, MalformedWeights):
        remove(temporary)
        raise


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

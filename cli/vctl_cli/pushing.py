"""Copying an artifact that lies here to where nodes read it: every file, and at last its manifest.

It goes to a folder of its own, named by its root, so two versions never share a place. Nothing that
lies there is ever overwritten: a file that is there already is read and compared, which is also how
a push that was cut off goes on. As the manifest is written last, where one lies all files do: then
they are only looked for, for reading a base model back at each run would take long.
"""

import io
import os
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import msgspec
from blake3 import blake3

from vctl_cli.artifacts import Local
from vctl_cli.remote import credentials
from vctl_cli.render.progress import hashing
from vctl_cli.session import Session
from vctl_plans import sources, weights
from vctl_plans.errors import (
    ArtifactError,
    FileChanged,
    InvariantError,
    NotAllowed,
    SourceError,
    SourceMissing,
    SourceRefused,
)
from vctl_plans.names import root_hex
from vctl_plans.release import Artifact
from vctl_plans.sources import Entry, Source
from vctl_plans.units import bytes_text
from vctl_plans.weights import Block, Manifest, files
from vctl_plans.weights.manifest import FileRecord
from vctl_plans.weights.selection import MANIFEST_NAME

ROOT_CHARS = 12

_UNUSUAL = re.compile(r"[^A-Za-z0-9._-]+")
_REST_HINT = "what lies there is never overwritten: if it is the rest of another upload, remove it"

Tell = Callable[[int], None]


def place_of(to: str, path: Path, root: str) -> str:
    """Return the URI of the folder that the artifact at *path* is copied to, below *to*."""
    name = _UNUSUAL.sub("-", path.name).strip("-.") or "artifact"
    return f"{to.rstrip('/')}/{name}-{root_hex(root)[:ROOT_CHARS]}"


def pushed(session: Session, local: Local, *, to: str) -> Artifact:
    """Copy the artifact to below *to*, and return it as it is there.

    A crash or an error leaves files and no manifest; the next push goes on from them.

    Args:
        session: Its screen, and what lets it in.
        local: What lies here.
        to: The URI of a place for artifacts.

    Raises:
        NotAllowed: Something else lies there.
        FileChanged: What lies here was written meanwhile.
        SourceError: It cannot be written to.
    """
    if local.manifest is None:
        raise InvariantError("what does not lie here cannot be pushed")
    uri = place_of(to, local.path, local.artifact.root)
    size = local.artifact.size_bytes
    with sources.connect(uri, credentials(session)) as target:
        is_there = _has_manifest(target, local.manifest)
        with hashing(session.screen, local.path.name, doing="pushing") as report:
            tell = _counted(report, size)
            push = _Push(target, local.path, local.manifest, tell, is_vouched=is_there)
            written = push.run()
        if not is_there:
            target.write_manifest(local.manifest)
    total = len(local.manifest.files)
    amount = f"{bytes_text(size)} in {total} files, {total - written} of them were there"
    session.screen.say(f"{local.path.name}: pushed to {uri}: {amount}")
    return msgspec.structs.replace(local.artifact, source=uri)


def _counted(report: Callable[[int, int], None] | None, size: int) -> Tell:
    done = 0

    def tell(more: int) -> None:
        nonlocal done
        done += more
        if report:
            report(min(done, size), size)

    return tell


def _has_manifest(target: Source, manifest: Manifest) -> bool:
    """Whether the manifest is there; another one is refused, whatever can't be told is no."""
    try:
        there = target.manifest()
    except SourceError:  # nothing is there yet, or it may be written and not read
        return False
    except ArtifactError as problem:
        raise NotAllowed(f"{target.uri}: {problem.message}", hint=_REST_HINT) from problem
    if there and there.root != manifest.root:
        raise NotAllowed(f"{target.uri}: {there.root} is there, another artifact", hint=_REST_HINT)
    return there is not None


class _Push:
    """One push of one artifact.

    Args:
        target: Where to.
        path: Where it lies here.
        manifest: What it is.
        tell: Told how many bytes more were copied or compared.
        is_vouched: Whether the manifest is there, so that all files were.
    """

    def __init__(
        self, target: Source, path: Path, manifest: Manifest, tell: Tell, *, is_vouched: bool
    ) -> None:
        self._target = target
        self._path = path
        self._manifest = manifest
        self._tell = tell
        self._is_vouched = is_vouched
        self._blocks: dict[str, list[Block]] = defaultdict(list)
        for block in weights.blocks(manifest):
            self._blocks[block.path].append(block)

    def run(self) -> int:
        """Copy what is not there; return how many files that were."""
        there = self._listed()
        missing = [file for file in self._manifest.files if not self._is_there(file, there)]
        with files.open_source(self._path) as disk:
            for file in missing:
                fd = files.open_file(disk, file.path)
                try:
                    self._copy(file, fd, disk.display(file.path))
                finally:
                    os.close(fd)
        return len(missing)

    def _listed(self) -> Mapping[str, Entry] | None:
        """Return what is there, by path; None where that cannot be listed.

        Raises:
            NotAllowed: It holds what would be taken for a part of the artifact.
        """
        if not self._target.has_listing:
            return None
        try:
            there = {file.path: file for file in self._target.files()}
        except SourceRefused:  # it may be written, and not listed
            return None
        except SourceError:
            return {}
        own = {file.path for file in self._manifest.files}
        all_paths = own | (set(there) - {MANIFEST_NAME})
        kind, where = self._manifest.kind, self._target.uri
        for path in weights.select_paths(all_paths, kind, label=where).files:
            if path not in own:
                rule = f"{path} is there, which is no part of the artifact"
                raise NotAllowed(f"{where}: {rule}", hint=_REST_HINT)
        return there

    def _is_there(self, file: FileRecord, there: Mapping[str, Entry] | None) -> bool:
        """Whether a file is there with the same bytes.

        Raises:
            NotAllowed: It is there with others.
        """
        entry = Entry(file.path, file.size) if there is None else there.get(file.path)
        if entry is None or (there is None and not file.size):  # of nothing nothing can be read
            return False
        try:
            is_same = entry.size == file.size and self._is_same(entry)
        except (SourceMissing, SourceRefused):  # it may be written, and not read
            return False
        except FileChanged:
            is_same = False
        if not is_same:
            where = self._target.uri
            raise NotAllowed(f"{where}: {file.path} is there with other bytes", hint=_REST_HINT)
        return True

    def _is_same(self, entry: Entry) -> bool:
        if self._is_vouched and not self._target.has_listing:
            self._target.has_ranges(entry)  # for one byte of it: raises where there is no file
        if self._is_vouched or not entry.size:
            self._tell(entry.size)
            return True
        reader = _Checked(self._blocks[entry.path], self._tell)
        with closing(self._target.read(entry, 0, entry.size)) as pieces:
            return all(reader.take(piece) for piece in pieces)

    def _copy(self, file: FileRecord, fd: int, shown: str) -> None:
        content = _Content(fd, _Checked(self._blocks[file.path], self._tell), shown)
        with io.BufferedReader(content, weights.LEAF_BYTES) as reader:
            self._target.write(file.path, reader, size=file.size)


class _Checked:
    """Compares the bytes of one file, in order, with its blocks' digests."""

    def __init__(self, blocks: Sequence[Block], tell: Tell) -> None:
        self._blocks = iter(blocks)
        self._block = next(self._blocks, None)
        self._hash = blake3()
        self._at = 0
        self._tell = tell

    def take(self, piece: bytes) -> bool:
        """Take the next bytes; False: they are others."""
        rest = memoryview(piece)
        self._tell(len(rest))
        while rest:
            if self._block is None:
                return False
            part = rest[: self._block.end - self._at]
            self._hash.update(part)
            self._at += len(part)
            rest = rest[len(part) :]
            if self._at == self._block.end:
                if self._hash.digest() != self._block.digest:
                    return False
                self._block, self._hash = next(self._blocks, None), blake3()
        return True

    @property
    def is_whole(self) -> bool:
        """Whether all bytes were taken."""
        return self._block is None


class _Content(io.RawIOBase):
    """A file of the artifact to be read once; raises where its bytes are not the manifest's."""

    def __init__(self, fd: int, checked: _Checked, shown: str) -> None:
        super().__init__()
        self._fd = fd
        self._checked = checked
        self._shown = shown
        self._at = 0

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def readinto(self, buffer: "memoryview") -> int:  # type: ignore[override]
        """Read the next bytes."""
        piece = os.pread(self._fd, len(buffer), self._at)
        if not self._checked.take(piece) or not (piece or self._checked.is_whole):
            raise files.changed(self._shown, "changed since it was hashed")
        buffer[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

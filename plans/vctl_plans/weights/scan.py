"""From a path to its manifest: select, survey the headers, check that they fit together, then hash.

All that can be refused without reading the data is refused first: nobody waits for 100 GB to learn
that a shard is missing. A file must show the same stamp when its header is read, when it is opened
to be hashed and when it has been hashed, and the directory must hold the same files at the end;
else it changed, and that is said.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from . import engine, files, merkle, selection
from .files import Source
from .manifest import (
    FileRecord,
    LeftOut,
    Manifest,
    TensorRecord,
    compose,
    file_digest,
    plain_digest,
    tensor_digest,
)
from .safetensors import MAX_HEADER_BYTES
from .selection import Kind, Selection
from .survey import Surveyed, survey
from .verified import Verified

Progress = Callable[[int, int], None]
Note = Callable[[str], None]

_OPEN_AT_ONCE = 64


def scan(
    path: str | os.PathLike[str],
    *,
    kind: Kind | None = None,
    threads: int | None = None,
    max_header_bytes: int = MAX_HEADER_BYTES,
    direct: bool = False,
    verified: Verified | None = None,
    note: Note | None = None,
    progress: Progress | None = None,
) -> Manifest:
    """Read an artifact in whole and describe it.

    Nothing is written. Memory grows by the leaves' digests, 32 bytes for each MiB, not by the data.

    Args:
        path: A directory, or one file.
        kind: What it must be; told from its files when None.
        threads: As many as there are cores for this process, unless given.
        max_header_bytes: The longest safetensors header accepted, up to 100 MB.
        direct: Read past the page cache (O_DIRECT), which leaves it to others and costs less CPU;
            with twice as many threads, as they wait for the disk.
        verified: What was verified before: files whose stamps it knows are not read again.
        note: Told what is not as asked but no error: a file that can't be read directly.
        progress: Called with (bytes done, bytes of all files): first with 0, before any header is
            read, then ten times a second, at last with both equal. What it raises stops the scan.

    Raises:
        NotAllowed: A link, a special file, pickled weights, or a file that the kind needs is
            absent.
        MalformedWeights: A file breaks a rule of its format; or shards, index or configuration
            disagree.
        FileChanged: A file or the directory changed meanwhile.
        ArtifactError: A file can't be read.
    """
    with files.open_source(path) as source:
        selected = selection.select(source, kind)
        stamps = {path: files.stamp_at(source, path) for path in selected.files}
        total = sum(stamp.size for stamp in stamps.values())
        report = progress or _silent
        report(0, total)
        surveyed = survey(source, selected, stamps, max_header_bytes)
        pairs = [(file, _known(file, verified)) for file in surveyed]
        hashing = _Hashing(source, threads, note if direct else None, is_direct=direct)
        records: list[FileRecord] = []
        tensors: list[TensorRecord] = []
        for file, digests in hashing.run(pairs, report, total):
            record, held = _describe(file, digests)
            records.append(record)
            tensors.extend(held)
            if verified:
                verified.note(file.path, file.stamp, file.header_digest, digests)
        _check_same_files(source, selected)
        left_out = [LeftOut(path, reason) for path, reason in selected.left_out]
        return compose(selected.kind, records, tensors, left_out)


def _known(file: Surveyed, verified: Verified | None) -> list[bytes] | None:
    """Recall a file's digests, if it is unchanged since they were verified."""
    if not verified:
        return None
    digests = verified.find(file.path, file.stamp, file.header_digest)
    fits = digests is not None and len(digests) == sum(1 for _ in file.ranges())
    return digests if fits else None


_Known = tuple[Surveyed, list[bytes] | None]


@dataclass(frozen=True, slots=True)
class _Hashing:
    """How the files of one scan are read."""

    source: Source
    threads: int | None
    note: Note | None
    is_direct: bool

    def run(
        self, pairs: Sequence[_Known], progress: Progress, total: int
    ) -> Iterator[tuple[Surveyed, list[bytes]]]:
        """Hash the files whose digests are not known; pair each with the digests of its ranges."""
        done = sum(
            file.header_bytes if digests is None else file.stamp.size for file, digests in pairs
        )
        for at in range(0, len(pairs), _OPEN_AT_ONCE):
            batch = pairs[at : at + _OPEN_AT_ONCE]
            yield from self._at_once(batch, _shifted(progress, done, total))
            done += sum(f.stamp.size - f.header_bytes for f, digests in batch if digests is None)

    def _at_once(
        self, batch: Sequence[_Known], progress: Callable[[int], None]
    ) -> Iterator[tuple[Surveyed, list[bytes]]]:
        """Hash some files at once; those held still while they were read."""
        threads = self.threads or len(os.sched_getaffinity(0)) * (1 + self.is_direct)
        with ExitStack() as stack:
            pieces: list[engine.Piece] = []
            for file, known in batch:
                if known is None:
                    pieces += self._pieces(file, stack)
            hashed = iter(engine.hash_pieces(pieces, threads=threads, progress=progress))
            for file, _ in batch:
                files.check_unchanged(self.source, file.path, file.stamp)
        for file, known in batch:
            yield file, [next(hashed) for _ in file.ranges()] if known is None else known

    def _pieces(self, file: Surveyed, stack: ExitStack) -> list[engine.Piece]:
        fd = files.open_file(self.source, file.path)
        stack.callback(os.close, fd)
        shown = self.source.display(file.path)
        files.check_same(file.stamp, files.stamp_of(fd), path=shown)
        is_direct = self.is_direct and files.go_direct(fd)
        if self.note and not is_direct:
            self.note(f"{shown}: its file system has no direct reads; read as usual")
        return [engine.Piece(fd, shown, begin, end, is_direct) for begin, end in file.ranges()]


def _check_same_files(source: Source, before: Selection) -> None:
    """Require that the directory still holds the files that were read, and no other."""
    now = selection.select(source, before.kind).files
    for path in sorted(set(now) ^ set(before.files)):
        what = "added" if path in now else "removed"
        raise files.changed(source.display(path), f"was {what} while the directory was read")


def _describe(file: Surveyed, digests: Sequence[bytes]) -> tuple[FileRecord, list[TensorRecord]]:
    """Turn a file's digests into its records."""
    size = file.stamp.size
    if file.header is None:
        leaves = b"".join(digests)
        own = leaves if merkle.plain_form(size) == "blocks" else b""
        return FileRecord(file.path, size, plain_digest(size, leaves), leaves=own), []
    tensors: list[TensorRecord] = []
    at = 0
    for tensor in file.header.tensors:
        length = tensor.end - tensor.begin
        count = merkle.leaf_count(length)
        leaves = b"".join(digests[at : at + count])
        at += count
        digest = tensor_digest(tensor.name, tensor.dtype, tensor.shape, size=length, leaves=leaves)
        tensors.append(
            TensorRecord(tensor.name, tensor.dtype, tensor.shape, length, digest, leaves)
        )
    header = merkle.to_text(file.header_digest)
    record = FileRecord(
        file.path,
        size,
        file_digest(size, header, (tensor.digest for tensor in tensors)),
        header,
        file.header.size_bytes,
        tuple(tensor.name for tensor in tensors),
    )
    return record, tensors


def _shifted(progress: Progress, done: int, total: int) -> Callable[[int], None]:
    return lambda more: progress(done + more, total)


def _silent(done: int, total: int) -> None:
    pass

"""From a path to its manifest: select, survey the headers, check that they fit together, then hash.

All that can be refused without reading the data is refused first: nobody waits for 100 GB to learn
that a shard is missing. A file must show the same stamp when its header is read, when it is opened
to be hashed and when it has been hashed, and the directory must hold the same files at the end;
else it changed, and that is said.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from vctl_plans.errors import NotAllowed

from . import adapter, engine, files, merkle, safetensors, selection, shards
from .adapter import AdapterFacts
from .files import Source, Stamp
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
from .safetensors import MAX_HEADER_BYTES, Header
from .selection import Kind, Selection
from .sniff import SNIFF_BYTES
from .verified import Verified

Progress = Callable[[int, int], None]
Note = Callable[[str], None]

_OPEN_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class _Surveyed:
    """A file before its data is read; with a header if it is safetensors."""

    path: str
    stamp: Stamp
    header: Header | None = None
    header_digest: bytes = b""

    @property
    def header_bytes(self) -> int:
        """How much of the file is not hashed in blocks."""
        return self.header.size_bytes if self.header else 0

    def ranges(self) -> Iterator[tuple[int, int]]:
        """List what to hash: the leaves of each tensor in turn, or of the whole file."""
        if self.header is None:
            yield from merkle.leaf_ranges(0, self.stamp.size)
            return
        for tensor in self.header.tensors:
            yield from merkle.leaf_ranges(tensor.begin, tensor.end)


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
        surveyed = _survey(source, selected, stamps, max_header_bytes)
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


def adapter_facts(
    path: str | os.PathLike[str], *, max_header_bytes: int = MAX_HEADER_BYTES
) -> AdapterFacts:
    """Read what an adapter directory says of itself, checked against its tensors' shapes.

    Raises:
        ArtifactError: As `scan` does; only configuration and headers are read.
    """
    with files.open_source(path) as source:
        selected = selection.select(source, "adapter")
        stamps = {path: files.stamp_at(source, path) for path in selected.files}
        return _facts(source, _survey(source, selected, stamps, max_header_bytes))


def _survey(
    source: Source, selected: Selection, stamps: Mapping[str, Stamp], max_header_bytes: int
) -> list[_Surveyed]:
    """Read the headers, and check all that needs no data."""
    surveyed = [
        _survey_weights(source, path, stamps[path], max_header_bytes)
        if selected.kind != "plain" and path.endswith(safetensors.SUFFIX)
        else _Surveyed(path, stamps[path])
        for path in selected.files
    ]
    headers = {file.path: file.header for file in surveyed if file.header is not None}
    if not source.single:
        shards.check_numbers(headers, source)
    shards.check_names(headers, source)
    if selection.SHARD_INDEX in selected.files:
        shown = source.display(selection.SHARD_INDEX)
        raw = files.read_small(source, selection.SHARD_INDEX, shards.MAX_INDEX_BYTES)
        shards.check_index(shards.parse_index(raw, path=shown), headers, path=shown)
    if selected.kind == "adapter":
        _facts(source, surveyed)
    return surveyed


def _survey_weights(source: Source, path: str, stamp: Stamp, max_header_bytes: int) -> _Surveyed:
    shown = source.display(path)
    fd = files.open_file(source, path)
    try:
        files.check_same(stamp, files.stamp_of(fd), path=shown)
        start = files.read_exactly(fd, min(SNIFF_BYTES, stamp.size), 0, path=shown)
        size = safetensors.header_size(
            start, stamp.size, path=shown, max_header_bytes=max_header_bytes
        )
        raw = files.read_exactly(fd, size, 0, path=shown)
        header = safetensors.parse_header(raw, stamp.size, path=shown)
        return _Surveyed(path, stamp, header, merkle.plain(raw))
    finally:
        os.close(fd)


def _facts(source: Source, surveyed: Sequence[_Surveyed]) -> AdapterFacts:
    header = next(file.header for file in surveyed if file.path == selection.ADAPTER_WEIGHTS)
    if header is None:
        raise NotAllowed(f"{source.display(selection.ADAPTER_WEIGHTS)}: has no header")
    return adapter.facts(
        files.read_small(source, selection.ADAPTER_CONFIG, adapter.MAX_CONFIG_BYTES),
        header,
        config_path=source.display(selection.ADAPTER_CONFIG),
        weights_path=source.display(selection.ADAPTER_WEIGHTS),
    )


def _known(file: _Surveyed, verified: Verified | None) -> list[bytes] | None:
    """Recall a file's digests, if it is unchanged since they were verified."""
    if not verified:
        return None
    digests = verified.find(file.path, file.stamp, file.header_digest)
    fits = digests is not None and len(digests) == sum(1 for _ in file.ranges())
    return digests if fits else None


_Known = tuple[_Surveyed, list[bytes] | None]


@dataclass(frozen=True, slots=True)
class _Hashing:
    """How the files of one scan are read."""

    source: Source
    threads: int | None
    note: Note | None
    is_direct: bool

    def run(
        self, pairs: Sequence[_Known], progress: Progress, total: int
    ) -> Iterator[tuple[_Surveyed, list[bytes]]]:
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
    ) -> Iterator[tuple[_Surveyed, list[bytes]]]:
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

    def _pieces(self, file: _Surveyed, stack: ExitStack) -> list[engine.Piece]:
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


def _describe(file: _Surveyed, digests: Sequence[bytes]) -> tuple[FileRecord, list[TensorRecord]]:
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
        digest = tensor_digest(tensor.name, tensor.dtype, tensor.shape, length, leaves)
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

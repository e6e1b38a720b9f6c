"""From a path to its manifest: select, survey the headers, check that they fit together, then hash.

All that can be refused without reading the data is refused first: nobody waits for 100 GB to learn
that a shard is missing. A file must show the same stamp when its header is read, when it is opened
to be hashed and when it has been hashed; else it changed, and that is said.
"""

import os
from collections.abc import Callable, Iterator, Sequence
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
    tensor_digest,
)
from .safetensors import MAX_HEADER_BYTES, Header
from .selection import Kind, Selection
from .sniff import SNIFF_BYTES

Progress = Callable[[int, int], None]

_OPEN_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class _Surveyed:
    """A file before its data is read; with a header if it is safetensors."""

    path: str
    stamp: Stamp
    header: Header | None = None
    header_digest: bytes = b""

    def ranges(self) -> Iterator[tuple[int, int]]:
        """List what to hash: the leaves of each tensor in turn, or the whole file."""
        if self.header is None:
            yield 0, self.stamp.size
            return
        for tensor in self.header.tensors:
            yield from merkle.leaf_ranges(tensor.begin, tensor.end)


def scan(
    path: str | os.PathLike[str],
    *,
    kind: Kind | None = None,
    threads: int | None = None,
    max_header_bytes: int = MAX_HEADER_BYTES,
    progress: Progress | None = None,
) -> Manifest:
    """Read an artifact in whole and describe it.

    Nothing is written. Memory grows by the leaves' digests, 32 bytes for each MiB, not by the data.

    Args:
        path: A directory, or one file.
        kind: What it must be; told from its files when None.
        threads: As many as there are cores for this process, unless given.
        max_header_bytes: The longest safetensors header accepted, up to 100 MB.
        progress: Called with (bytes hashed, bytes in all): first with 0, then ten times a second,
            at last with both equal. What it raises stops the scan.

    Raises:
        NotAllowed: A link, a special file, pickled weights, or a file that the kind needs is
            absent.
        MalformedWeights: A file breaks a rule of its format; or shards, index or configuration
            disagree.
        ArtifactError: A file can't be read, or changed meanwhile.
    """
    with files.open_source(path) as source:
        selected, surveyed = _survey(source, kind, max_header_bytes)
        total = sum(end - begin for file in surveyed for begin, end in file.ranges())
        done = 0
        if progress:
            progress(0, total)
        records: list[FileRecord] = []
        tensors: list[TensorRecord] = []
        for at in range(0, len(surveyed), _OPEN_AT_ONCE):
            batch = surveyed[at : at + _OPEN_AT_ONCE]
            report = _shifted(progress, done, total)
            for file, digests in _hash(source, batch, threads, report):
                record, held = _describe(file, digests)
                records.append(record)
                tensors.extend(held)
                done += file.stamp.size - record.header_size
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
        _, surveyed = _survey(source, "adapter", max_header_bytes)
        return _facts(source, surveyed)


def _survey(
    source: Source, kind: Kind | None, max_header_bytes: int
) -> tuple[Selection, list[_Surveyed]]:
    """Select the files, read their headers, and check all that needs no data."""
    selected = selection.select(source, kind)
    surveyed = [
        _survey_weights(source, path, max_header_bytes)
        if selected.kind != "plain" and path.endswith(safetensors.SUFFIX)
        else _survey_plain(source, path)
        for path in selected.files
    ]
    headers = {file.path: file.header for file in surveyed if file.header is not None}
    shards.check_names(headers, source)
    if selection.SHARD_INDEX in selected.files:
        shown = source.display(selection.SHARD_INDEX)
        raw = files.read_small(source, selection.SHARD_INDEX, shards.MAX_INDEX_BYTES)
        shards.check_index(shards.parse_index(raw, path=shown), headers, path=shown)
    if selected.kind == "adapter":
        _facts(source, surveyed)
    return selected, surveyed


def _survey_plain(source: Source, path: str) -> _Surveyed:
    fd = files.open_file(source, path)
    try:
        return _Surveyed(path, files.stamp_of(fd))
    finally:
        os.close(fd)


def _survey_weights(source: Source, path: str, max_header_bytes: int) -> _Surveyed:
    shown = source.display(path)
    fd = files.open_file(source, path)
    try:
        stamp = files.stamp_of(fd)
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


def _hash(
    source: Source,
    batch: Sequence[_Surveyed],
    threads: int | None,
    progress: Callable[[int], None] | None,
) -> Iterator[tuple[_Surveyed, list[bytes]]]:
    """Hash some files at once; pair each that held still with the digests of its ranges."""
    with ExitStack() as stack:
        pieces: list[engine.Piece] = []
        for file in batch:
            fd = files.open_file(source, file.path)
            stack.callback(os.close, fd)
            shown = source.display(file.path)
            files.check_same(file.stamp, files.stamp_of(fd), path=shown)
            pieces += [engine.Piece(fd, shown, begin, end) for begin, end in file.ranges()]
        digests = iter(engine.hash_pieces(pieces, threads=threads, progress=progress))
        for file in batch:
            files.check_unchanged(source, file.path, file.stamp)
    for file in batch:
        yield file, [next(digests) for _ in file.ranges()]


def _describe(file: _Surveyed, digests: Sequence[bytes]) -> tuple[FileRecord, list[TensorRecord]]:
    """Turn a file's digests into its records."""
    size = file.stamp.size
    if file.header is None:
        return FileRecord(file.path, size, merkle.to_text(digests[0])), []
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


def _shifted(progress: Progress | None, done: int, total: int) -> Callable[[int], None] | None:
    return (lambda more: progress(done + more, total)) if progress else None

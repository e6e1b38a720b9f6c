"""What can be known of an artifact before its data is read: its files, their headers, how they fit.

Everything that can be refused without the data is refused here. Each file keeps the stamp that it
had when its header was read; whoever reads on holds it to that.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from vctl_plans.errors import NotAllowed

from . import adapter, files, merkle, safetensors, selection, shards
from .adapter import AdapterFacts
from .files import Source, Stamp
from .safetensors import MAX_HEADER_BYTES, Header
from .selection import Selection
from .sniff import SNIFF_BYTES


@dataclass(frozen=True, slots=True)
class Surveyed:
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
        return _facts(source, survey(source, selected, stamps, max_header_bytes))


def survey(
    source: Source, selected: Selection, stamps: Mapping[str, Stamp], max_header_bytes: int
) -> list[Surveyed]:
    """Read the headers, and check all that needs no data.

    Args:
        source: What was opened.
        selected: Its files that count.
        stamps: Of each of them.
        max_header_bytes: The longest safetensors header accepted.

    Raises:
        NotAllowed: What may not be there.
        MalformedWeights: A header is broken, or shards, index and adapter disagree.
        FileChanged: A file changed since its stamp was taken.
        ArtifactError: A file can't be read.
    """
    surveyed = [
        _weights(source, path, stamps[path], max_header_bytes)
        if selected.kind != "plain" and path.endswith(safetensors.SUFFIX)
        else Surveyed(path, stamps[path])
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


def _weights(source: Source, path: str, stamp: Stamp, max_header_bytes: int) -> Surveyed:
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
        return Surveyed(path, stamp, header, merkle.plain(raw))
    finally:
        os.close(fd)


def _facts(source: Source, surveyed: Sequence[Surveyed]) -> AdapterFacts:
    header = next(file.header for file in surveyed if file.path == selection.ADAPTER_WEIGHTS)
    if header is None:
        raise NotAllowed(f"{source.display(selection.ADAPTER_WEIGHTS)}: has no header")
    return adapter.facts(
        files.read_small(source, selection.ADAPTER_CONFIG, adapter.MAX_CONFIG_BYTES),
        header,
        config_path=source.display(selection.ADAPTER_CONFIG),
        weights_path=source.display(selection.ADAPTER_WEIGHTS),
    )

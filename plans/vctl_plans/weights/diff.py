"""What differs between two manifests: tensors, blocks and byte ranges.

Goes from the roots down and enters only what differs: equal roots cost nothing, equal digests one
comparison, and the leaves of a tensor that is equal are not even checked. (The nodes between a root
and its tensors are not in a manifest: to compare two lists of digests is cheaper than to hash
them.) Ranges are those of the second manifest's files, which is the copy at hand.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from . import merkle
from .manifest import FileRecord, Manifest, TensorRecord, check_tensor

What = Literal["missing", "extra", "dtype", "shape", "content", "header", "layout"]

_SHOWN_RANGES = 6


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that differs.

    Args:
        what: ``missing`` from or ``extra`` in the second; another ``dtype``, ``shape`` or
            ``content``; for a safetensors file with equal tensors another ``header``, or another
            order of tensors or choice of them (``layout``).
        path: The file, in the second manifest if it is there.
        tensor: The tensor; empty for a file.
        blocks: For content, the numbers of the blocks that differ; empty for a file of one block.
        ranges: What of the second's file the first has not, as byte ranges [begin, end);
            neighbours are joined.
        zero_blocks: How many of the blocks are all zeros in the second, and only there.
    """

    what: What
    path: str
    tensor: str = ""
    blocks: tuple[int, ...] = ()
    ranges: tuple[tuple[int, int], ...] = ()
    zero_blocks: int = 0

    @property
    def move_bytes(self) -> int:
        """How many bytes have to be moved to make the second from the first."""
        return sum(end - begin for begin, end in self.ranges)

    @property
    def hint(self) -> str:
        """What the difference looks like; empty when like nothing that we know."""
        if not self.zero_blocks:
            return ""
        who = f"{self.zero_blocks} of them " if self.zero_blocks < len(self.blocks) else ""
        return f"{who}all zeros: looks preallocated, or half copied"

    def __str__(self) -> str:
        subject = f"{self.path}: tensor {self.tensor!r}" if self.tensor else self.path
        hint = f" ({self.hint})" if self.hint else ""
        if self.what in {"missing", "extra"}:
            return f"{subject} is {self.what}"
        if not self.blocks:
            return f"{subject} has another {self.what}{hint}"
        shown = ", ".join(f"{begin}-{end - 1}" for begin, end in self.ranges[:_SHOWN_RANGES])
        more = len(self.ranges) - _SHOWN_RANGES
        rest = f" and {more} more ranges" if more > 0 else ""
        noun = "block" if len(self.blocks) == 1 else "blocks"
        return f"{subject} differs in {len(self.blocks)} {noun}, bytes {shown}{rest}{hint}"


def diff(expected: Manifest, actual: Manifest) -> tuple[Difference, ...]:
    """List what differs, tensors first, each by name; nothing when the artifact roots are equal.

    Raises:
        RootMismatch: The leaves of a tensor that differs are not those of its digest, in a manifest
            that was read without checking them.
    """
    if expected.root == actual.root:
        return ()
    return (*_tensors(expected, actual), *_files(expected, actual))


def places(manifest: Manifest, names: Iterable[str]) -> dict[str, tuple[str, int]]:
    """Find the files of some tensors, and their first bytes there."""
    sizes = {tensor.name: tensor.size for tensor in manifest.tensors}
    wanted = set(names)
    found: dict[str, tuple[str, int]] = {}
    for file in manifest.files:
        at = file.header_size
        for name in file.tensors:
            if name in wanted:
                found[name] = (file.path, at)
            at += sizes[name]
    return found


def _tensors(expected: Manifest, actual: Manifest) -> Iterator[Difference]:
    if expected.content_root == actual.content_root:
        return
    was = {tensor.name: tensor for tensor in expected.tensors}
    now = {tensor.name: tensor for tensor in actual.tensors}
    names = sorted(
        name
        for name in was.keys() | now.keys()
        if name not in was or name not in now or was[name].digest != now[name].digest
    )
    homes = places(expected, names) | places(actual, names)
    for name in names:
        path, begin = homes[name]
        if name not in now:
            yield Difference("missing", path, name)
            continue
        if name not in was:
            whole = _joined(((begin, begin + now[name].size),))
            yield Difference("extra", path, name, ranges=whole)
        else:
            yield from of_tensor(was[name], now[name], path, begin)


def of_tensor(
    was: TensorRecord, now: TensorRecord, path: str, begin: int
) -> tuple[Difference, ...]:
    """Compare two records of a tensor.

    Args:
        was: What it should be.
        now: What it is.
        path: The file that it is in.
        begin: Its first byte there.

    Raises:
        RootMismatch: A record's leaves are not those of its digest.
    """
    if was.digest == now.digest:
        return ()
    whole = _joined(((begin, begin + now.size),))
    if was.dtype != now.dtype:
        return (Difference("dtype", path, now.name, ranges=whole),)
    if was.shape != now.shape:
        return (Difference("shape", path, now.name, ranges=whole),)
    check_tensor(was)
    check_tensor(now)
    found = Difference("content", path, now.name)
    return (_blocks(found, was.leaves, now.leaves, begin=begin, size=now.size),)


def _blocks(found: Difference, was: bytes, now: bytes, *, begin: int, size: int) -> Difference:
    """Complete a difference of content with the blocks that differ."""
    step, leaf = merkle.DIGEST_BYTES, merkle.LEAF_BYTES
    numbers = tuple(
        at // step for at in range(0, len(now), step) if was[at : at + step] != now[at : at + step]
    )
    sizes = {number: min(leaf, size - number * leaf) for number in numbers}
    zeros = sum(
        now[number * step : (number + 1) * step] == merkle.zeros_digest(sizes[number])
        for number in numbers
    )
    ranges = _joined((begin + n * leaf, begin + n * leaf + sizes[n]) for n in numbers)
    return Difference(found.what, found.path, found.tensor, numbers, ranges, zeros)


def _joined(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Join byte ranges that touch; drop those that are empty."""
    full = [(begin, end) for begin, end in ranges if begin < end]
    begins = [now[0] for was, now in pairwise([(-1, -1), *full]) if was[1] != now[0]]
    ends = [was[1] for was, now in pairwise([*full, (-1, -1)]) if was[1] != now[0]]
    return tuple(zip(begins, ends, strict=True))


def _files(expected: Manifest, actual: Manifest) -> Iterator[Difference]:
    was = {file.path: file for file in expected.files}
    now = {file.path: file for file in actual.files}
    for path in sorted(was.keys() | now.keys()):
        if path not in now:
            yield Difference("missing", path)
        elif path not in was:
            yield Difference("extra", path, ranges=_own(now[path]))
        elif was[path].digest == now[path].digest and was[path].header == now[path].header:
            continue
        elif was[path].header is None or now[path].header is None:
            yield _plain(was[path], now[path])
        elif was[path].tensors != now[path].tensors:
            yield Difference("layout", path, ranges=_own(now[path]))
        elif was[path].header != now[path].header:
            yield Difference("header", path, ranges=_own(now[path]))


def _plain(was: FileRecord, now: FileRecord) -> Difference:
    found = Difference("content", now.path, ranges=_own(now))
    if was.form == now.form == "blocks":
        return _blocks(found, was.leaves, now.leaves, begin=0, size=now.size)
    is_zero = now.form == "plain" and now.size > 0
    zeros = is_zero and merkle.to_text(merkle.zeros_digest(now.size)) == now.digest
    return Difference("content", now.path, ranges=_own(now), zero_blocks=int(zeros))


def _own(file: FileRecord) -> tuple[tuple[int, int], ...]:
    """Return the range of a file that is not its tensors'."""
    return _joined([(0, file.header_size if file.header else file.size)])

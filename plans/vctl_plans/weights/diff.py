"""What differs between two manifests: tensors, blocks and byte ranges.

Goes from the roots down and enters only what differs: equal roots cost nothing, equal digests one
comparison. Ranges are those of the second manifest's files, which is the copy at hand.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from . import merkle
from .manifest import Manifest, TensorRecord

What = Literal["missing", "extra", "dtype", "shape", "content", "header", "layout"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that differs.

    Args:
        what: ``missing`` from or ``extra`` in the second; another ``dtype``, ``shape`` or
            ``content``; for a safetensors file with equal tensors another ``header``, or another
            order of tensors or choice of them (``layout``).
        path: The file, in the second manifest if it is there.
        tensor: The tensor; empty for a file.
        blocks: For a tensor's content, the numbers of its leaves that differ.
        ranges: The same as byte ranges [begin, end) of the file; neighbours are joined.
    """

    what: What
    path: str
    tensor: str = ""
    blocks: tuple[int, ...] = ()
    ranges: tuple[tuple[int, int], ...] = ()

    def __str__(self) -> str:
        subject = f"{self.path}: tensor {self.tensor!r}" if self.tensor else self.path
        if self.what in {"missing", "extra"}:
            return f"{subject} is {self.what}"
        if not self.blocks:
            return f"{subject} has another {self.what}"
        ranges = ", ".join(f"{begin}-{end - 1}" for begin, end in self.ranges)
        noun = "block" if len(self.blocks) == 1 else "blocks"
        return f"{subject} differs in {len(self.blocks)} {noun}, bytes {ranges}"


def diff(expected: Manifest, actual: Manifest) -> tuple[Difference, ...]:
    """List what differs, tensors first, each by name; nothing when the artifact roots are equal."""
    if expected.root == actual.root:
        return ()
    return (*_tensors(expected, actual), *_files(expected, actual))


def _tensors(expected: Manifest, actual: Manifest) -> Iterator[Difference]:
    if expected.content_root == actual.content_root:
        return
    was = {tensor.name: tensor for tensor in expected.tensors}
    now = {tensor.name: tensor for tensor in actual.tensors}
    places = _places(expected) | _places(actual)
    for name in sorted(was.keys() | now.keys()):
        path, begin = places[name]
        if name not in now:
            yield Difference("missing", path, name)
        elif name not in was:
            yield Difference("extra", path, name)
        elif was[name].digest != now[name].digest:
            yield _tensor(was[name], now[name], path, begin)


def _tensor(was: TensorRecord, now: TensorRecord, path: str, begin: int) -> Difference:
    if was.dtype != now.dtype:
        return Difference("dtype", path, now.name)
    if was.shape != now.shape:
        return Difference("shape", path, now.name)
    step = merkle.DIGEST_BYTES
    blocks = tuple(
        at // step
        for at in range(0, len(now.leaves), step)
        if was.leaves[at : at + step] != now.leaves[at : at + step]
    )
    return Difference("content", path, now.name, blocks, _ranges(blocks, begin, now.size))


def _ranges(blocks: tuple[int, ...], begin: int, size: int) -> tuple[tuple[int, int], ...]:
    """Turn a tensor's block numbers into byte ranges of its file, joining neighbours."""
    firsts = [b for a, b in pairwise((-2, *blocks)) if b != a + 1]
    lasts = [a for a, b in pairwise((*blocks, -2)) if b != a + 1]
    leaf = merkle.LEAF_BYTES
    return tuple(
        (begin + first * leaf, begin + min((last + 1) * leaf, size))
        for first, last in zip(firsts, lasts, strict=True)
    )


def _files(expected: Manifest, actual: Manifest) -> Iterator[Difference]:
    was = {file.path: file for file in expected.files}
    now = {file.path: file for file in actual.files}
    for path in sorted(was.keys() | now.keys()):
        if path not in now:
            yield Difference("missing", path)
        elif path not in was:
            yield Difference("extra", path)
        elif was[path].digest == now[path].digest and was[path].header == now[path].header:
            continue
        elif was[path].header is None or now[path].header is None:
            yield Difference("content", path)
        elif was[path].tensors != now[path].tensors:
            yield Difference("layout", path)
        elif was[path].header != now[path].header:
            yield Difference("header", path)


def _places(manifest: Manifest) -> dict[str, tuple[str, int]]:
    """Find each tensor's file, and its first byte there."""
    sizes = {tensor.name: tensor.size for tensor in manifest.tensors}
    places: dict[str, tuple[str, int]] = {}
    for file in manifest.files:
        at = file.header_size
        for name in file.tensors:
            places[name] = (file.path, at)
            at += sizes[name]
    return places

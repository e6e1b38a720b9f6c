"""How much a tensor's numbers changed, at most: read only in the blocks that differ.

The change of an element is ``|b - a| / max(|a|, |b|)``: 0 for equal numbers, 1 for one that was or
became zero, 2 for one that changed its sign alone. It is the same in both directions, and it has an
end, so that a tensor's largest is a number also where zeros became something.

numpy is needed, and imported when a change is measured: not with this module.
"""

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from vctl_plans.errors import RootMismatch

from . import files, merkle
from .diff import Difference, places
from .files import Source
from .manifest import Manifest, TensorRecord
from .scan import Progress
from .ulp_formats import FORMATS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LARGEST: Final = 2.0  # also where a difference is too large for its format
DTYPES: Final = frozenset({*FORMATS, "F64"})


class Change(NamedTuple):
    """The largest change of a tensor's elements.

    Args:
        tensor: Its name.
        largest: Of those elements that are numbers on both sides.
        is_broken: Whether an element became NaN or infinite, or was.
    """

    tensor: str
    largest: float
    is_broken: bool


class Version(NamedTuple):
    """One side: where the bytes are, and what its manifest says of them."""

    path: str | os.PathLike[str]
    manifest: Manifest


def largest_changes(
    before: Version,
    after: Version,
    differences: Iterable[Difference],
    *,
    progress: Progress | None = None,
) -> Iterator[Change]:
    """Measure each tensor of floating-point numbers whose content differs.

    Args:
        before: What was.
        after: What is.
        differences: Between the two, as `diff` lists them.
        progress: Called with (bytes read, bytes to read of one side).

    Raises:
        RootMismatch: The bytes are not those of a manifest.
        ArtifactError: A file can't be read.
        ImportError: numpy is not installed.
    """
    changed = {d.tensor: d.blocks for d in differences if d.tensor and d.what == "content"}
    was = {tensor.name: tensor for tensor in before.manifest.tensors}
    now = {tensor.name: tensor for tensor in after.manifest.tensors}
    wanted = [name for name in changed if now[name].dtype in DTYPES]
    if not wanted:
        return
    total = sum(len(changed[name]) for name in wanted) * merkle.LEAF_BYTES
    done = 0
    with (
        files.open_source(before.path) as old,
        files.open_source(after.path) as new,
        ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool,
    ):
        old_at, new_at = places(before.manifest, wanted), places(after.manifest, wanted)

        def measured(name: str, block: int) -> tuple[float, bool]:
            a = _block(old, was[name], old_at[name], block)
            b = _block(new, now[name], new_at[name], block)
            return _change(a, b, now[name].dtype)

        for name in wanted:
            largest, is_broken = 0.0, False
            for change, broken in pool.map(measured, repeat(name), changed[name]):
                largest, is_broken = max(largest, change), is_broken or broken
                done += merkle.LEAF_BYTES
                if progress:
                    progress(done, total)
            yield Change(name, largest, is_broken)


def _block(source: Source, tensor: TensorRecord, place: tuple[str, int], number: int) -> bytes:
    """Read one block of a tensor, and check that it is the one that the manifest means."""
    path, begin = place
    shown = source.display(path)
    first = number * merkle.LEAF_BYTES
    size = min(merkle.LEAF_BYTES, tensor.size - first)
    fd = files.open_file(source, path)
    try:
        content = files.read_exactly(fd, size, begin + first, path=shown)
    finally:
        os.close(fd)
    step = merkle.DIGEST_BYTES
    if merkle.plain(content) != tensor.leaves[number * step : (number + 1) * step]:
        rule = f"block {number} of {tensor.name!r} is not that of its manifest"
        hint = "the manifest is of other bytes: write it again"
        raise RootMismatch(f"{shown}: {rule}", tensors=(tensor.name,), hint=hint)
    return content


def _change(a: bytes, b: bytes, dtype: str) -> tuple[float, bool]:
    import numpy as np  # noqa: PLC0415  no part of a base installation

    with np.errstate(all="ignore"):
        x, y = _numbers(a, dtype), _numbers(b, dtype)
        scale = np.maximum(np.abs(x), np.abs(y))
        # NaN where both are zero, or one is no finite number: passed over by fmax.
        ratios = np.abs(y - x) / scale
        largest = min(float(np.fmax.reduce(ratios, initial=0.0)), LARGEST)
    is_finite = np.isfinite(scale)
    if is_finite.all():
        return largest, False
    bytes_differ = np.frombuffer(a, np.uint8) != np.frombuffer(b, np.uint8)
    differ = bytes_differ.reshape(len(x), -1).any(axis=1)
    return largest, bool((differ & ~is_finite).any())


def _numbers(content: bytes, dtype: str) -> "NDArray[np.floating[Any]]":
    """Return numbers as they are, those of 32 bits and less as F32; exactly."""
    import numpy as np  # noqa: PLC0415

    from .ulp_arrays import f32_bits  # noqa: PLC0415  imports numpy

    if dtype == "F64":
        return np.frombuffer(content, "<f8")
    found = FORMATS[dtype]
    bits: Any = np.frombuffer(content, f"<u{found.bits // 8}")
    return f32_bits(bits, found).view(np.float32)

"""Blocks that the node already has in other artifacts are taken from there, not fetched again.

They are copied within the kernel, which shares the bytes where the file system can (XFS, btrfs). A
copied block is not trusted for where it came from: what is made is verified in whole before it
counts, and a block that turns out to be rotten is fetched.
"""

import contextlib
import errno
import itertools
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from vctl_agent.artifacts.layout import PIECE_BYTES, opened
from vctl_plans.weights import Block, Manifest, blocks

_PAGE = 4096  # what shared bytes are aligned to
_AT_ONCE = 64 * 1024 * 1024
_CANNOT = {errno.EXDEV, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EPERM}
_FROM = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class Donor(NamedTuple):
    """An artifact on this node, as it should be."""

    folder: Path
    manifest: Manifest


class _Range(NamedTuple):
    """Neighbouring blocks that lie as neighbours in a donor too."""

    source: Path
    begin: int  # in the source
    blocks: tuple[Block, ...]

    @property
    def size(self) -> int:
        return self.blocks[-1].end - self.blocks[0].begin

    def goes_on(self, source: Path, begin: int, block: Block) -> bool:
        last = self.blocks[-1]
        is_next = source == self.source and begin == self.begin + self.size
        return is_next and block.path == last.path and block.begin == last.end


def copy_known(
    folder: Path,
    missing: Collection[Block],
    donors: Iterable[Donor],
    tell: Callable[[int], None],
) -> set[Block]:
    """Copy blocks that a donor should have; return those that were copied, not verified yet.

    Args:
        folder: The unfinished copy.
        missing: What it lacks, in order.
        donors: Where to look.
        tell: Told the bytes copied so far.
    """
    known = _places({block.digest for block in missing}, donors)
    copied: set[Block] = set()
    done = 0
    for each in _ranges(missing, known):
        with contextlib.suppress(FileNotFoundError):  # collected meanwhile
            if _is_copied(folder, each):
                copied.update(each.blocks)
                done += each.size
        tell(done)
    return copied


def _places(digests: Collection[bytes], donors: Iterable[Donor]) -> dict[bytes, tuple[Path, int]]:
    """Return where a block of each digest should lie."""
    found: dict[bytes, tuple[Path, int]] = {}
    for donor in donors:
        for block in blocks(donor.manifest):
            if block.digest in digests:
                found.setdefault(block.digest, (donor.folder / block.path, block.begin))
    return found


def _ranges(missing: Iterable[Block], known: dict[bytes, tuple[Path, int]]) -> Iterator[_Range]:
    """Join blocks into long ranges: a file that did not change is one."""
    current: _Range | None = None
    for block in missing:
        if block.digest not in known:
            continue
        source, begin = known[block.digest]
        if current and current.size < _AT_ONCE and current.goes_on(source, begin, block):
            current = current._replace(blocks=(*current.blocks, block))
        else:
            if current:
                yield current
            current = _Range(source, begin, (block,))
    if current:
        yield current


def _is_copied(folder: Path, wanted: _Range) -> bool:
    """Copy a range; False: its file ends before."""
    first = wanted.blocks[0]
    source = os.open(wanted.source, _FROM)
    try:
        with opened(folder, first.path) as target:
            head = -wanted.begin % _PAGE  # up to a page's beginning, so that the rest can be shared
            parts = (0, min(head, wanted.size), wanted.size)
            return all(
                _copy(source, wanted.begin + at, target, first.begin + at, size=until - at)
                for at, until in itertools.pairwise(parts)
            )
    finally:
        os.close(source)


def _copy(source: int, begin: int, target: int, to: int, *, size: int) -> bool:
    while size:
        try:
            done = os.copy_file_range(source, target, size, begin, to)
        except OSError as error:
            if error.errno not in _CANNOT:
                raise
            done = os.pwrite(target, os.pread(source, min(size, PIECE_BYTES), begin), to)
        if not done:
            return False
        begin, to, size = begin + done, to + done, size - done
    return True

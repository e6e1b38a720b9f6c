"""The comparing threads: one a core, each pulling the next block of both sides from one iterator.

A thread owns its memory and its open files. Blocks of one tensor may be measured by different
threads in any order; adding them up gives the same result in every order.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Final, NamedTuple

from . import workers
from .ulp_blocks import BLOCK_ELEMENTS, Measured, Meter, Scratch
from .ulp_sides import Placed, Reader, Side

MAX_THREADS: Final = 16
"""More than this many read no faster from one machine's memory, and each takes about 10 MB."""


class Matched(NamedTuple):
    """A tensor on both sides, of one shape."""

    a: Placed
    b: Placed
    elements: int
    meter: Meter

    @property
    def size(self) -> int:
        """How many bytes both sides take together."""
        return sum(self.meter.sizes(self.elements))


class _Block(NamedTuple):
    place: int  # of its tensor, in the list
    begin: int
    elements: int


def measure_all(
    sides: tuple[Side, Side],
    matched: Sequence[Matched],
    *,
    threads: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[Measured]:
    """Measure tensors, a block at a time.

    Args:
        sides: What the tensors are in.
        matched: In the order in which they should be read.
        threads: As many as there are cores for this process, but at most `MAX_THREADS`, unless
            given.
        progress: Called in the caller's thread with the bytes read so far from both sides, ten
            times a second and at the end. What it raises stops the comparison.

    Returns:
        In the order of `matched`.

    Raises:
        ArtifactError: A file can't be read, or changed.
    """
    work = _Measuring(sides, matched)
    count = min(threads or min(len(os.sched_getaffinity(0)), MAX_THREADS), work.blocks)
    workers.run(work, threads=count, name="compare", progress=progress)
    return work.results


class _Measuring(workers.Work):
    def __init__(self, sides: tuple[Side, Side], matched: Sequence[Matched]) -> None:
        super().__init__()
        self._sides = sides
        self._matched = matched
        self._next = _blocks(matched)
        self.blocks = sum(-(-found.elements // BLOCK_ELEMENTS) for found in matched)
        self.results = [Measured() for _ in matched]

    def share(self) -> None:
        scratch = Scratch()
        a, b = (Reader(side) for side in self._sides)
        with closing(a), closing(b):
            while (block := self._claim()) is not None:
                found = self._matched[block.place]
                a_size, b_size = found.meter.sizes(block.elements)
                a_offset, b_offset = found.meter.sizes(block.begin)
                a.fill(scratch.raw[0][:a_size], found.a, a_offset)
                b.fill(scratch.raw[1][:b_size], found.b, b_offset)
                measured = found.meter.measure(scratch, block.elements, begin=block.begin)
                with self.lock:
                    self.results[block.place].add(measured)
                    self.bytes_done += a_size + b_size

    def _claim(self) -> _Block | None:
        with self.lock:
            return None if self.stopped else next(self._next, None)


def _blocks(matched: Sequence[Matched]) -> Iterator[_Block]:
    for place, found in enumerate(matched):
        for begin in range(0, found.elements, BLOCK_ELEMENTS):
            yield _Block(place, begin, min(BLOCK_ELEMENTS, found.elements - begin))

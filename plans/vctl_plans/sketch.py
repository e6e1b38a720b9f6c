"""Counts in bins, and the quantile sketch made of them: merged and subtracted without loss.

A sketch is DDSketch (Masson, Rim, Lee, VLDB 2019), on the library's mapping of values to bins.
The hard decision: values are clamped to a range fixed here, where the library's bounded stores
collapse bins as values arrive. Collapsing depends on the order of merging, and two snapshots of
which one has collapsed cannot be subtracted; a fixed range bounds the size as well, at 756 bins.

A bin's number never changes its meaning: gateways of two versions report into one sum.
"""

import math
from collections.abc import Iterable
from itertools import dropwhile
from operator import add, sub
from typing import Self

import msgspec
from ddsketch.mapping import LogarithmicMapping
from ddsketch.store import DenseStore

ACCURACY = 0.01
"""Relative error of every quantile; a ratio of two is off by 2 % at most."""
FASTEST_S = 0.001
"""Values below share the first bin."""
SLOWEST_S = 3600.0
"""Values above share the last bin."""

_MAPPING = LogarithmicMapping(ACCURACY)
_FIRST = int(_MAPPING.key(FASTEST_S))
_LAST = int(_MAPPING.key(SLOWEST_S))


class Counts(msgspec.Struct, frozen=True, omit_defaults=True):
    """How many fell into each bin. Equal counts are equal values: no zero at either end."""

    first: int = 0  # the bin of counts[0]; 0 when there is none
    counts: tuple[int, ...] = ()

    @property
    def total(self) -> int:
        """How many there are in all bins."""
        return sum(self.counts)

    def at(self, index: int) -> int:
        """Return how many there are in bin *index*."""
        place = index - self.first
        return self.counts[place] if 0 <= place < len(self.counts) else 0

    @classmethod
    def of(cls, counts: Iterable[int], *, first: int = 0) -> Self:
        """Return *counts*, the first of them in bin *first*, without the zeros at both ends."""
        whole = list(counts)
        kept = list(dropwhile(lambda n: not n, whole))
        start = first + len(whole) - len(kept)
        while kept and not kept[-1]:
            kept.pop()
        return cls(start, tuple(kept)) if kept else cls()

    @classmethod
    def merge(cls, parts: Iterable["Counts"]) -> Self:
        """Return the sum: commutative, associative, with the empty counts as identity."""
        full = [part for part in parts if part.counts]
        if not full:
            return cls()
        low = min(part.first for part in full)
        high = max(part.first + len(part.counts) for part in full)
        summed = [0] * (high - low)
        for part in full:
            start = part.first - low
            end = start + len(part.counts)
            summed[start:end] = map(add, summed[start:end], part.counts)
        return cls.of(summed, first=low)

    def since(self, earlier: "Counts") -> Self | None:
        """Return what was added after *earlier*; None when that holds what this does not."""
        if not earlier.counts:
            return self
        start = earlier.first - self.first
        end = start + len(earlier.counts)
        if start < 0 or end > len(self.counts):
            return None  # its end bins are not empty, ours are
        added = list(self.counts)
        added[start:end] = map(sub, added[start:end], earlier.counts)
        return None if min(added) < 0 else self.of(added, first=self.first)


class Sketch(Counts, frozen=True, omit_defaults=True):
    """Durations in seconds, each bin 2 % wide."""

    def quantile(self, q: float) -> float | None:
        """Return the value of rank ``floor(q (n - 1))`` within `ACCURACY`; None when empty."""
        return self.value_at(math.floor(q * (self.total - 1))) if self.counts else None

    def value_at(self, rank: int) -> float:
        """Return the value at *rank* (0: the smallest), within `ACCURACY` of the true one."""
        return float(_MAPPING.value(self._key_at(rank)))

    def bounds_at(self, rank: int) -> tuple[float, float]:
        """Return what the value at *rank* certainly lies between: its bin's edges.

        The end bins hold all that was clamped, so they have no outer edge.
        """
        key = self._key_at(rank)
        value = float(_MAPPING.value(key))
        low = 0.0 if key <= _FIRST else value / (1 + ACCURACY)
        return low, math.inf if key >= _LAST else value / (1 - ACCURACY)

    def _key_at(self, rank: int) -> int:
        """Return the bin of the value at *rank*.

        Raises:
            IndexError: There are no *rank* + 1 values.
        """
        seen = 0
        for key, count in enumerate(self.counts, self.first):
            seen += count
            if 0 <= rank < seen:
                return key
        raise IndexError(rank)


class SketchRecorder:
    """Takes values one at a time (half a microsecond each); its snapshot is cumulative."""

    def __init__(self) -> None:
        self._store = DenseStore()

    def add(self, value_s: float) -> None:
        """Count one duration."""
        self._store.add(int(_MAPPING.key(min(max(value_s, FASTEST_S), SLOWEST_S))))

    def snapshot(self) -> Sketch:
        """Return all that was counted."""
        return Sketch.of((int(n) for n in self._store.bins), first=self._store.offset)

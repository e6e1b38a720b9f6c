"""One block of two tensors: which elements are apart, by how much, and where. Needs numpy.

Rules to keep: memory is a thread's `Scratch` and nothing that grows with the tensor; arrays are
long (`BLOCK_ELEMENTS`), since every operation on them hands the interpreter's lock over; and bytes
are compared first, so that what is equal costs one pass.

Sums are exact: keys are integers, their distances are added up as integers of Python.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from .safetensors import DTYPE_BITS
from .ulp_arrays import UNSIGNED, Array, KeysOf, classes, f32_bits, keys_of, ordinals
from .ulp_formats import FORMATS, Format, ValueClass, meet

BLOCK_ELEMENTS: Final = 1 << 19

_WORD_BYTES = 8
_BITS_PER_BYTE = 8
_MAX_ITEM_BYTES = 8
# Elements are looked at one by one, and not in whole blocks, where fewer words than this differ.
_SPARSE = 4
_SUM_ROWS = 256
_SIGNED: Final[Mapping[int, np.dtype[Any]]] = {
    8: np.dtype("i1"),
    16: np.dtype("<i2"),
    32: np.dtype("<i4"),
}


@dataclass(slots=True)
class Measured:
    """What blocks of one tensor came to; places are element numbers within the tensor.

    Args:
        elements: How many were looked at.
        differing: Of these, how many are not equal: as numbers or of another class, or, where no
            ULPs are measured, as bytes.
        steps: The sum of all distances, in the meter's own unit.
        largest: The largest distance.
        largest_at: The first place where it is.
        largest_bits: The two patterns there.
        beyond: How many are over the limit.
        first_beyond: The first of them, or -1.
        class_changes: How many are of another class on the other side.
        first_class_change: The first of them, or -1.
        nan_payloads: How many are NaN on both sides, with other bits.
        has_same_bytes: Whether no byte differs.
    """

    elements: int = 0
    differing: int = 0
    steps: int = 0
    largest: int = 0
    largest_at: int = -1
    largest_bits: tuple[int, int] = (0, 0)
    beyond: int = 0
    first_beyond: int = -1
    class_changes: int = 0
    first_class_change: int = -1
    nan_payloads: int = 0
    has_same_bytes: bool = True

    def add(self, other: "Measured") -> None:
        """Take another block of the same tensor in; blocks may come in any order."""
        other_is_worse = (other.largest, -other.largest_at) > (self.largest, -self.largest_at)
        if other.largest and (not self.largest or other_is_worse):
            self.largest = other.largest
            self.largest_at = other.largest_at
            self.largest_bits = other.largest_bits
        self.first_beyond = _first(self.first_beyond, other.first_beyond)
        self.first_class_change = _first(self.first_class_change, other.first_class_change)
        self.elements += other.elements
        self.differing += other.differing
        self.steps += other.steps
        self.beyond += other.beyond
        self.class_changes += other.class_changes
        self.nan_payloads += other.nan_payloads
        self.has_same_bytes &= other.has_same_bytes


@dataclass(slots=True)
class Scratch:
    """The memory of one thread: two raw blocks, and room for what is computed from them."""

    raw: tuple[memoryview, memoryview] = field(default_factory=lambda: (_raw_block(), _raw_block()))
    _room: Array = field(default_factory=lambda: np.empty((3, BLOCK_ELEMENTS * 4), np.uint8))

    def take(self, slot: int, count: int, dtype: np.dtype[Any]) -> Array:
        """Return *count* elements of one of three places; what was there is lost."""
        return self._room[slot, : count * dtype.itemsize].view(dtype)


class _Pair(NamedTuple):
    """Elements of both sides as unsigned patterns, and where they stand."""

    a: Array
    b: Array
    place: Callable[[int], int]


class Meter:
    """Measures blocks of two dtypes.

    Args:
        a_dtype: Of the first side.
        b_dtype: Of the second side. One that is not in `FORMATS` must be equal to `a_dtype`.
        limit_ulp: What is over it is counted.
    """

    def __init__(self, a_dtype: str, b_dtype: str, limit_ulp: float) -> None:
        self._bits = DTYPE_BITS[a_dtype], DTYPE_BITS[b_dtype]
        self._is_same = a_dtype == b_dtype
        is_exact = not {a_dtype, b_dtype} <= FORMATS.keys()
        self._ulps = None if is_exact else _Ulps(FORMATS[a_dtype], FORMATS[b_dtype], limit_ulp)

    @property
    def scale_bits(self) -> int:
        """Distances are counted in 2**-scale_bits ULP."""
        return self._ulps.scale_bits if self._ulps else 0

    def sizes(self, elements: int) -> tuple[int, int]:
        """Tell how many bytes that many elements take on each side."""
        a_bits, b_bits = self._bits
        return elements * a_bits // _BITS_PER_BYTE, elements * b_bits // _BITS_PER_BYTE

    def measure(self, scratch: Scratch, elements: int, *, begin: int) -> Measured:
        """Measure what lies in the two raw blocks of *scratch*.

        Args:
            scratch: The thread's own; its blocks are left as they are but for some bytes behind.
            elements: How many each block holds, `BLOCK_ELEMENTS` at most.
            begin: The place of the first of them within the tensor.
        """
        result = Measured(elements)
        pair = self._differing(scratch, elements, begin) if self._is_same else None
        if not self._is_same:
            raw = zip(scratch.raw, self._bits, strict=True)
            a, b = (np.frombuffer(block, UNSIGNED[bits], elements) for block, bits in raw)
            pair = _Pair(a, b, lambda at: begin + at)
        if pair is None:
            return result
        result.has_same_bytes = False
        if self._ulps:
            self._ulps.measure(pair, scratch, result)
        else:
            _count_unequal(pair, result)
        return result

    def _differing(self, scratch: Scratch, elements: int, begin: int) -> _Pair | None:
        """Return what to look at: the words that differ if they are few, else all; None if none."""
        bits = self._bits[0]
        size, _ = self.sizes(elements)
        words = -(-size // _WORD_BYTES)
        for raw in scratch.raw:
            raw[size : words * _WORD_BYTES] = bytes(words * _WORD_BYTES - size)
        a, b = (np.frombuffer(raw, UNSIGNED[64], words) for raw in scratch.raw)
        flags = np.not_equal(a, b, out=scratch.take(0, words, np.dtype(bool)))
        count = int(np.count_nonzero(flags))
        if count == 0:
            return None
        item = UNSIGNED.get(bits, UNSIGNED[_BITS_PER_BYTE])  # of 4 and 6 bits: their bytes
        item_bits = item.itemsize * _BITS_PER_BYTE
        if count * _SPARSE > words:
            a, b = (side.view(item)[: size // item.itemsize] for side in (a, b))
            return _Pair(a, b, lambda at: begin + at * item_bits // bits)
        places = np.flatnonzero(flags)
        each = _WORD_BYTES // item.itemsize

        def place(at: int) -> int:
            return begin + (int(places[at // each]) * each + at % each) * item_bits // bits

        return _Pair(a[places].view(item), b[places].view(item), place)


class _Ulps:
    """What is the same for all blocks of two formats."""

    def __init__(self, a: Format, b: Format, limit_ulp: float) -> None:
        self._formats = a, b
        self.scale_bits = 0
        self._is_own = a == b and not a.is_fnuz
        self._dtype = _SIGNED[a.bits]
        self._keys: tuple[KeysOf, KeysOf] = ordinals, ordinals
        self._outside = a.first_special, b.first_special
        if not self._is_own:
            grid = meet(a, b)
            self.scale_bits = grid.scale_bits
            self._dtype = _SIGNED[32]
            (a_keys, a_outside), (b_keys, b_outside) = keys_of(a, grid), keys_of(b, grid)
            self._keys = a_keys, b_keys
            self._outside = a_outside, b_outside
        self._limit = int(limit_ulp * 2**self.scale_bits)

    def measure(self, pair: _Pair, scratch: Scratch, result: Measured) -> None:
        """Add to *result* what *pair* comes to."""
        a, b = _signed(pair.a), _signed(pair.b)
        room = tuple(scratch.take(slot, a.size, self._dtype) for slot in range(3))
        apart, has_specials = self._apart(a, b, room)
        if has_specials:
            self._judge_specials(pair, apart, result)
        self._judge_distances(pair, apart, result)

    def _apart(self, a: Array, b: Array, room: tuple[Array, ...]) -> tuple[Array, bool]:
        """Return all distances, and whether a side may be not finite (its distance is no number).

        Two patterns of one format and one sign are as far apart as they are as integers: the usual
        case, and twice as fast.
        """
        high, low, spare = room
        if self._is_own and np.bitwise_xor(a, b, out=spare).min() >= 0:
            np.maximum(a, b, out=high)
            np.minimum(a, b, out=low)
            np.left_shift(high, 1, out=spare)
            has_specials = bool(_unsigned(spare).max() >= self._outside[0] << 1)
            return _unsigned(np.subtract(high, low, out=high)), has_specials
        self._keys[0](a, high, spare)
        self._keys[1](b, low, spare)
        has_specials = _reaches(high, self._outside[0]) or _reaches(low, self._outside[1])
        np.maximum(high, low, out=spare)
        np.minimum(high, low, out=low)
        return _unsigned(np.subtract(spare, low, out=spare)), has_specials

    def _judge_specials(self, pair: _Pair, apart: Array, result: Measured) -> None:
        """Compare classes where a side is not finite, and take these elements out of the rest."""
        a_format, b_format = self._formats
        a_class, b_class = classes(pair.a, a_format), classes(pair.b, b_format)
        apart[(a_class != ValueClass.FINITE) | (b_class != ValueClass.FINITE)] = 0
        changed = a_class != b_class
        result.class_changes = int(np.count_nonzero(changed))
        result.differing += result.class_changes
        if result.class_changes:
            result.first_class_change = pair.place(int(changed.argmax()))
        nans = np.flatnonzero((a_class == ValueClass.NAN) & (b_class == ValueClass.NAN))
        payloads = f32_bits(pair.a[nans], a_format) != f32_bits(pair.b[nans], b_format)
        result.nan_payloads = int(np.count_nonzero(payloads))

    def _judge_distances(self, pair: _Pair, apart: Array, result: Measured) -> None:
        at = int(apart.argmax())
        largest = int(apart[at])
        if largest == 0:
            return
        result.largest, result.largest_at = largest, pair.place(at)
        result.largest_bits = int(pair.a[at]), int(pair.b[at])
        result.steps = total(apart, largest)
        result.differing += int(np.count_nonzero(apart))
        if largest > self._limit:
            over = apart > self._limit
            result.beyond = int(np.count_nonzero(over))
            result.first_beyond = pair.place(int(over.argmax()))


def total(apart: Array, largest: int) -> int:
    """Add up distances, none above *largest*, without overflow and in their own width.

    Rows are added to one another as long as their sum can't overflow; only what is left is widened,
    which is many times slower.
    """
    rows = min(_SUM_ROWS, int(np.iinfo(apart.dtype).max) // largest, apart.size)
    columns = apart.size // rows
    head = apart[: rows * columns].reshape(rows, columns)
    sums = np.add.reduce(head, axis=0, dtype=apart.dtype)
    tail = apart[rows * columns :]
    return int(sums.sum(dtype=np.uint64)) + int(tail.sum(dtype=np.uint64))


def _count_unequal(pair: _Pair, result: Measured) -> None:
    unequal = pair.a != pair.b
    result.differing = result.beyond = int(np.count_nonzero(unequal))
    result.first_beyond = pair.place(int(unequal.argmax()))


def _reaches(keys: Array, outside: int) -> bool:
    return bool(keys.max() >= outside or keys.min() <= -outside)


def _signed(bits: Array) -> Array:
    return bits.view(_SIGNED[bits.dtype.itemsize * _BITS_PER_BYTE])


def _unsigned(keys: Array) -> Array:
    return keys.view(UNSIGNED[keys.dtype.itemsize * _BITS_PER_BYTE])


def _first(one: int, other: int) -> int:
    """Return the lesser of two places; -1 is none."""
    return max(one, other) if min(one, other) < 0 else min(one, other)


def _raw_block() -> memoryview:
    return memoryview(bytearray(BLOCK_ELEMENTS * _MAX_ITEM_BYTES))

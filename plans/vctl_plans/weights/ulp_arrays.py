"""ULPs of whole arrays: pure functions on numpy arrays of bit patterns. Needs numpy.

A *key* is a value's place on a grid, a signed integer; the distance of two values is the distance
of their keys. There are two kinds:

- `ordinals`: the steps from zero within one format, in its own width. Both sides have that format.
- `steps_of_f32`: 2**-scale_bits ULPs from zero of F32 values, on any grid; exact in the normal
  range, and rounded to such a fraction of a step below it. Values of the grid itself have whole
  ULPs, so equal values always have equal keys, and a copy that was rounded to nearest is never more
  than half an ULP away.

Keys are in order of value, and the keys of NaN and infinity lie outside those of the finite values;
that is how a whole block is known to be finite. Nothing here looks at the keys of the others.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .ulp_formats import F32_PRECISION, FORMATS, Format, Grid, ValueClass, meet

Array = NDArray[Any]
KeysOf = Callable[[Array, Array, Array], None]

UNSIGNED: Final[Mapping[int, np.dtype[Any]]] = {
    8: np.dtype("u1"),
    16: np.dtype("<u2"),
    32: np.dtype("<u4"),
    64: np.dtype("<u8"),
}
"""By bits."""

_F32 = FORMATS["F32"]
_F32_BIAS = 127
_FRACTION_BITS = F32_PRECISION - 1
_QUIET_NAN = 0x7FC00000
_OUTSIDE = 2**31 - 1
_TWO_23 = np.float32(2.0**_FRACTION_BITS)
_TWO_23_BITS = 0x4B000000


def distance(a: Array, a_dtype: str, b: Array, b_dtype: str) -> NDArray[np.float64]:
    """Measure two arrays of bit patterns element by element.

    Args:
        a: Unsigned integers of the width of `a_dtype`.
        a_dtype: A key of `FORMATS`.
        b: As many of `b_dtype`.
        b_dtype: A key of `FORMATS`.

    Returns:
        ULPs of the coarser format; 0 for two NaNs or equal infinities; NaN where one side is of
        another class than the other.
    """
    a_format, b_format = FORMATS[a_dtype], FORMATS[b_dtype]
    grid = meet(a_format, b_format)
    a_keys, b_keys = (
        steps_of_f32(f32_bits(bits, found).view(np.int32), grid).astype(np.float64)
        for bits, found in ((a, a_format), (b, b_format))
    )
    apart = np.abs(a_keys - b_keys) * 2.0**-grid.scale_bits
    a_class, b_class = classes(a, a_format), classes(b, b_format)
    apart[(a_class != ValueClass.FINITE) & (a_class == b_class)] = 0.0
    apart[a_class != b_class] = np.nan
    return apart


def classes(bits: Array, found: Format) -> NDArray[np.uint8]:
    """Tell the `ValueClass` of each pattern."""
    if found.is_fnuz:
        return np.where(bits == found.sign, np.uint8(ValueClass.NAN), np.uint8(ValueClass.FINITE))
    magnitude = bits & (found.sign - 1)
    result = np.zeros(bits.shape, np.uint8)
    result[magnitude >= found.first_special] = ValueClass.NAN
    if found.infinity:
        result[bits == found.infinity] = ValueClass.PLUS_INFINITY
        result[bits == (found.infinity | found.sign)] = ValueClass.MINUS_INFINITY
    return result


def f32_bits(bits: Array, found: Format) -> Array:
    """Return the F32 patterns of the same values, exactly.

    A NaN keeps its sign, and its payload's first bits; the NaN that has no payload becomes the
    quiet one.
    """
    if found.bits == _F32.bits:
        return bits.astype(np.uint32)
    if found == FORMATS["BF16"]:
        return np.left_shift(bits.astype(np.uint32), np.uint32(16))
    return np.take(f32_table(found), bits)


@cache
def f32_table(found: Format) -> Array:
    """Return the F32 pattern of every pattern of a format of 16 bits or less."""
    patterns = np.arange(1 << found.bits, dtype=np.uint32)
    magnitude = patterns & (found.sign - 1)
    hidden = 1 << (found.precision - 1)
    exponent, fraction = np.divmod(magnitude, hidden)
    significand = np.where(exponent > 0, fraction + hidden, fraction).astype(np.float64)
    powers = found.quantum + np.maximum(exponent.astype(np.int32) - 1, 0)
    result: Array = np.ldexp(significand, powers).astype(np.float32).view(np.uint32)
    kinds = classes(patterns, found)
    result[kinds != ValueClass.FINITE] = _F32.infinity
    is_nan = kinds == ValueClass.NAN
    result[is_nan] |= fraction[is_nan] << (F32_PRECISION - found.precision)
    result |= (patterns // found.sign) << np.uint32(31)
    if found.is_fnuz:
        result[found.sign] = _QUIET_NAN
    return result


def ordinals(bits: Array, out: Array, spare: Array) -> None:
    """Put into *out* how many steps from zero each pattern is; minus zero is zero.

    Args:
        bits: Patterns as signed integers; not of an FNUZ format.
        out: As wide as *bits*.
        spare: Another one, overwritten.
    """
    width = bits.dtype.itemsize * 8
    np.right_shift(bits, width - 1, out=spare)
    np.bitwise_and(bits, (1 << (width - 1)) - 1, out=out)
    np.bitwise_xor(out, spare, out=out)
    np.subtract(out, spare, out=out)


def steps_of_f32(bits: NDArray[np.int32], grid: Grid) -> NDArray[np.int32]:
    """Return the keys of F32 patterns on a grid, in 2**-scale_bits ULP."""
    keys, spare = np.empty_like(bits), np.empty_like(bits)
    _steps_into(grid)(bits, keys, spare)
    return keys


def keys_of(found: Format, grid: Grid) -> tuple[KeysOf, int]:
    """Return how the keys of one side on a grid are made, and the least key that is not finite.

    The function takes (patterns as signed integers, out, spare), both of 32 bits.
    """
    if found.bits == _F32.bits:
        infinity = np.array([found.infinity], np.int32)
        return _steps_into(grid), int(steps_of_f32(infinity, grid)[0])
    is_own = (found.precision, found.quantum) == (grid.precision, grid.quantum)
    if is_own and not found.is_fnuz:
        return _own_steps_into(grid.scale_bits), found.first_special << grid.scale_bits
    table = _key_table(found, grid)

    def look_up(bits: Array, out: Array, _: Array) -> None:
        patterns = bits.view(UNSIGNED[found.bits])
        np.take(table, patterns, out=out, mode="clip")

    return look_up, _OUTSIDE


def _steps_into(grid: Grid) -> KeysOf:
    """Make the function for F32 patterns.

    From the grid's least normal value on, F32 has 2**scale_bits steps to each of the grid, in every
    binade: the key is the pattern itself less a constant. Below, the grid is even: the key is the
    value in units of the grid's smallest step. The two are joined without a branch:
    `min(|x|, least)`, scaled, plus what the pattern is above that of `least`.
    """
    least = (grid.min_exponent + _F32_BIAS) << _FRACTION_BITS
    if grid.min_exponent + _F32_BIAS == 1:  # F32's own subnormals are the grid's: one rule for all
        return ordinals
    factor = np.float32(2.0 ** (_FRACTION_BITS - grid.min_exponent))
    offset = np.uint32(least + _TWO_23_BITS).astype(np.int32)  # wraps; so does its subtraction

    def steps(bits: Array, out: Array, spare: Array) -> None:
        magnitude = bits & np.int32(_OUTSIDE)
        np.minimum(magnitude, least, out=spare)
        even = spare.view(np.float32)
        np.multiply(even, factor, out=even)
        np.add(even, _TWO_23, out=even)  # from 2**23 to 2**24: its last bits are an integer now
        np.maximum(magnitude, least, out=out)
        np.subtract(out, offset, out=out)
        np.add(out, spare, out=out)
        np.right_shift(bits, 31, out=spare)
        np.bitwise_xor(out, spare, out=out)
        np.subtract(out, spare, out=out)

    return steps


def _own_steps_into(scale_bits: int) -> KeysOf:
    """Make the function for patterns of the grid's own format: whole ULPs."""

    def steps(bits: Array, out: Array, spare: Array) -> None:
        np.copyto(out, bits)
        width = bits.dtype.itemsize * 8
        np.right_shift(out, 31, out=spare)
        np.bitwise_and(out, (1 << (width - 1)) - 1, out=out)
        np.bitwise_xor(out, spare, out=out)
        np.subtract(out, spare, out=out)
        np.left_shift(out, scale_bits, out=out)

    return steps


@cache
def _key_table(found: Format, grid: Grid) -> NDArray[np.int32]:
    """Return the key of every pattern; those that are not finite lie outside."""
    patterns = np.arange(1 << found.bits, dtype=UNSIGNED[found.bits])
    table = steps_of_f32(f32_bits(patterns, found).view(np.int32), grid)
    kinds = classes(patterns, found)
    table[kinds != ValueClass.FINITE] = _OUTSIDE
    return table

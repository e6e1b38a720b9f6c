"""The measure again, as its definition says it: one value at a time, in fractions.

Shares nothing with `vctl_plans.weights.ulp_*`: values come from `struct` or from the formats' own
papers (a bias and a width), distances from adding up binade after binade.
"""

import struct
from fractions import Fraction
from functools import cache
from typing import NamedTuple

NAN, PLUS, MINUS = "nan", "+inf", "-inf"
Value = Fraction | str


class Layout(NamedTuple):
    """A format as its paper gives it."""

    bits: int
    fraction_bits: int
    bias: int


LAYOUTS = {
    "F32": Layout(32, 23, 127),
    "F16": Layout(16, 10, 15),
    "BF16": Layout(16, 7, 127),
    "F8_E4M3": Layout(8, 3, 7),
    "F8_E5M2": Layout(8, 2, 15),
    "F8_E4M3FNUZ": Layout(8, 3, 8),
    "F8_E5M2FNUZ": Layout(8, 2, 16),
}
F8 = [name for name in LAYOUTS if name.startswith("F8")]


def value(dtype: str, pattern: int) -> Value:
    """Tell the value of a pattern."""
    if dtype == "F16":
        return _of_float(struct.unpack("<e", pattern.to_bytes(2, "little"))[0])
    if dtype == "BF16":
        return value("F32", pattern << 16)
    if dtype == "F32":
        return _of_float(struct.unpack("<f", pattern.to_bytes(4, "little"))[0])
    return _of_f8(dtype, pattern)


def _of_float(number: float) -> Value:
    if number != number:  # noqa: PLR0124
        return NAN
    if number in {float("inf"), float("-inf")}:
        return PLUS if number > 0 else MINUS
    return Fraction(number)


def _of_f8(dtype: str, pattern: int) -> Value:
    _, fraction_bits, bias = LAYOUTS[dtype]
    sign = -1 if pattern & 0x80 else 1
    magnitude = pattern & 0x7F
    exponent, fraction = magnitude >> fraction_bits, magnitude % (1 << fraction_bits)
    if dtype.endswith("FNUZ"):
        if pattern == 0x80:
            return NAN
    elif dtype == "F8_E4M3":
        if magnitude == 0x7F:
            return NAN
    elif exponent == 0b11111:
        return NAN if fraction else (PLUS if sign > 0 else MINUS)
    part = Fraction(fraction, 1 << fraction_bits)
    if exponent == 0:
        return sign * part * Fraction(2) ** (1 - bias)
    return sign * (1 + part) * Fraction(2) ** (exponent - bias)


def ulp(dtype: str, exponent: int) -> Fraction:
    """Goldberg's unit between 2**exponent and twice as much."""
    _, fraction_bits, bias = LAYOUTS[dtype]
    return Fraction(2) ** (max(exponent, 1 - bias) - fraction_bits)


def exponent_of(magnitude: Fraction) -> int:
    """Find e with 2**e <= magnitude < 2**(e+1)."""
    found = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    return found if Fraction(2) ** found <= magnitude else found - 1


LOWEST = -200  # below every format's least value


@cache
def _steps_to(a: str, b: str, exponent: int) -> Fraction:
    """Integrate dt / max(ulp_a, ulp_b) from 0 to 2**exponent."""
    if exponent == LOWEST:
        return Fraction(2) ** LOWEST / max(ulp(a, LOWEST), ulp(b, LOWEST))
    below = exponent - 1
    unit = max(ulp(a, below), ulp(b, below))
    return _steps_to(a, b, below) + Fraction(2) ** below / unit


def position(a: str, b: str, number: Fraction) -> Fraction:
    """Integrate from 0 to *number*, with its sign."""
    if number == 0:
        return Fraction(0)
    magnitude = abs(number)
    exponent = exponent_of(magnitude)
    unit = max(ulp(a, exponent), ulp(b, exponent))
    steps = _steps_to(a, b, exponent) + (magnitude - Fraction(2) ** exponent) / unit
    return steps if number > 0 else -steps


def distance(a: str, x: int, b: str, y: int) -> Fraction | None:
    """Measure two patterns; None where one is of another class."""
    one, other = value(a, x), value(b, y)
    if isinstance(one, str) or isinstance(other, str):
        return Fraction(0) if one == other else None
    return abs(position(a, b, one) - position(a, b, other))

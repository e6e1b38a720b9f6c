"""The floating-point formats that can be measured in ULPs, and the grid on which two of them meet.

The measure (docs/ulp-tolerances.md). In a format of precision p whose least positive value is
2**q, `ulp(t) = 2**max(e - p + 1, q)` where `2**e <= |t| < 2**(e+1)`: Goldberg's unit in the last
place [1], subnormals included; [2] sets it beside other definitions. Two formats are measured by
the coarser of their units at each magnitude, `max(ulp_A(t), ulp_B(t))`. That is again the unit of a
format: the lesser precision, the larger least value. The distance of x and y is the integral of
dt / ulp(t) from one to the other: between values of the format it is the number of steps, across
binades and through zero; elsewhere it is linear between neighbours.

    [1] D. Goldberg, What Every Computer Scientist Should Know About Floating-Point Arithmetic,
        ACM Computing Surveys 23(1), 1991, "Relative Error and Ulps".
    [2] J.-M. Muller et al., Handbook of Floating-Point Arithmetic, 2nd ed., 2018, chapter 2;
        J.-M. Muller, On the definition of ulp(x), INRIA RR-5504, 2005.

No numpy here: this can be imported wherever vctl is.
"""

import math
from enum import IntEnum
from typing import Final, NamedTuple

F32_PRECISION: Final = 24


class ValueClass(IntEnum):
    """What is compared before any distance is taken."""

    FINITE = 0
    PLUS_INFINITY = 1
    MINUS_INFINITY = 2
    NAN = 3


class Format(NamedTuple):
    """A binary format: a sign bit, then a magnitude whose finite patterns are in order of value.

    Args:
        name: Its dtype in safetensors.
        bits: Of one element.
        precision: Bits of the significand, with the one that is not stored.
        quantum: The exponent of the least positive value.
        first_special: The least magnitude that is not finite. Beyond every magnitude in the FNUZ
            formats, whose one NaN takes the place of minus zero.
        infinity: The magnitude of infinity; 0 where there is none.
    """

    name: str
    bits: int
    precision: int
    quantum: int
    first_special: int
    infinity: int = 0

    @property
    def sign(self) -> int:
        """The sign bit."""
        return 1 << (self.bits - 1)

    @property
    def is_fnuz(self) -> bool:
        """Whether the pattern of minus zero is the only NaN."""
        return self.first_special == self.sign

    def value_class(self, pattern: int) -> ValueClass:
        """Tell what a pattern is."""
        magnitude = pattern & (self.sign - 1)
        if self.is_fnuz:
            return ValueClass.NAN if pattern == self.sign else ValueClass.FINITE
        if magnitude < self.first_special:
            return ValueClass.FINITE
        if magnitude != self.infinity:
            return ValueClass.NAN
        is_minus = pattern & self.sign
        return ValueClass.MINUS_INFINITY if is_minus else ValueClass.PLUS_INFINITY

    def value(self, pattern: int) -> float:
        """Return the number that a pattern stands for, exactly."""
        found = self.value_class(pattern)
        if found is not ValueClass.FINITE:
            return {ValueClass.NAN: math.nan, ValueClass.PLUS_INFINITY: math.inf}.get(
                found, -math.inf
            )
        magnitude = pattern & (self.sign - 1)
        hidden = 1 << (self.precision - 1)
        exponent, fraction = divmod(magnitude, hidden)
        significand = hidden + fraction if exponent else fraction
        value = math.ldexp(significand, self.quantum + max(exponent - 1, 0))
        return -value if pattern & self.sign else value


class Grid(NamedTuple):
    """The unit in which two formats are measured.

    Args:
        name: The coarser format; tolerances are found by it.
        precision: Of the grid's own format.
        quantum: The exponent of its least positive value.
    """

    name: str
    precision: int
    quantum: int

    @property
    def min_exponent(self) -> int:
        """The exponent of the least normal value: below it all steps are equal."""
        return self.quantum + self.precision - 1

    @property
    def scale_bits(self) -> int:
        """Distances of F32 values are counted in 2**-scale_bits ULP."""
        return F32_PRECISION - self.precision


FORMATS: Final = {
    found.name: found
    for found in (
        Format("F32", 32, F32_PRECISION, -149, 0x7F800000, 0x7F800000),
        Format("F16", 16, 11, -24, 0x7C00, 0x7C00),
        Format("BF16", 16, 8, -133, 0x7F80, 0x7F80),
        Format("F8_E4M3", 8, 4, -9, 0x7F),
        Format("F8_E5M2", 8, 3, -16, 0x7C, 0x7C),
        Format("F8_E4M3FNUZ", 8, 4, -10, 0x80),
        Format("F8_E5M2FNUZ", 8, 3, -17, 0x80),
    )
}
"""IEEE 754 binary32 and binary16; bfloat16; OCP OFP8 (E4M3 has no infinity); FNUZ as in MLIR."""


def meet(a: Format, b: Format) -> Grid:
    """Return the grid whose unit is, at every magnitude, the larger of the units of *a* and *b*."""
    coarser = min(a, b, key=lambda found: (found.precision, -found.quantum))
    return Grid(coarser.name, min(a.precision, b.precision), max(a.quantum, b.quantum))

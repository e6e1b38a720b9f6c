"""ULPs of whole arrays: every pattern of the small formats, against fractions and against ranks."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.weights import ulp_reference as reference
from vctl_plans.weights import ulp_arrays
from vctl_plans.weights.ulp_formats import FORMATS, ValueClass, meet

SMALL = [name for name, found in FORMATS.items() if found.bits <= 16]
SIXTEEN = ["F16", "BF16"]
CLASSES = {
    reference.NAN: ValueClass.NAN,
    reference.PLUS: ValueClass.PLUS_INFINITY,
    reference.MINUS: ValueClass.MINUS_INFINITY,
}


def patterns(dtype: str) -> NDArray[np.unsignedinteger]:
    return np.arange(1 << FORMATS[dtype].bits).astype(ulp_arrays.UNSIGNED[FORMATS[dtype].bits])


def positions(dtype: str, other: str) -> NDArray[np.float64]:
    """Where each pattern of *dtype* is, in steps from zero; NaN where it is not finite."""
    values = (reference.value(dtype, pattern) for pattern in range(1 << FORMATS[dtype].bits))
    return np.array(
        [
            np.nan if isinstance(value, str) else float(reference.position(dtype, other, value))
            for value in values
        ]
    )


def test_formats_are_those_that_have_ulps():
    assert set(reference.LAYOUTS) == set(FORMATS)
    assert all(FORMATS[name].bits == layout.bits for name, layout in reference.LAYOUTS.items())


@pytest.mark.parametrize("dtype", SMALL)
def test_every_pattern_becomes_f32_exactly(dtype: str):
    bits = patterns(dtype)
    widened = ulp_arrays.f32_bits(bits, FORMATS[dtype])
    classes = ulp_arrays.classes(bits, FORMATS[dtype])
    for pattern in range(len(bits)):
        expected = reference.value(dtype, pattern)
        assert expected == reference.value("F32", int(widened[pattern])), hex(pattern)
        assert CLASSES.get(str(expected), ValueClass.FINITE) == classes[pattern]
        assert classes[pattern] == FORMATS[dtype].value_class(pattern)
        if not isinstance(expected, str):
            assert expected == Fraction(FORMATS[dtype].value(pattern))
            is_minus = bool(pattern & FORMATS[dtype].sign)
            assert is_minus == bool(widened[pattern] >> 31)  # of zero too


@pytest.mark.parametrize("dtype", SMALL)
def test_nan_keeps_sign_and_payload(dtype: str):
    found = FORMATS[dtype]
    nans = [p for p in range(1 << found.bits) if found.value_class(p) is ValueClass.NAN]
    widened = ulp_arrays.f32_bits(np.array(nans, ulp_arrays.UNSIGNED[found.bits]), found)
    assert len(nans) == len(set(widened.tolist()))
    if found.is_fnuz:
        assert [0x7FC00000] == widened.tolist()
    else:
        assert [bool(p & found.sign) for p in nans] == (widened >> 31).astype(bool).tolist()


@pytest.mark.torch
def test_every_pattern_is_what_torch_reads():
    torch = pytest.importorskip("torch")
    names = {
        "F16": torch.float16,
        "BF16": torch.bfloat16,
        "F8_E4M3": torch.float8_e4m3fn,
        "F8_E5M2": torch.float8_e5m2,
        "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
        "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
    }
    assert set(SMALL) == set(names)
    for dtype, kind in names.items():
        bits = patterns(dtype)
        ours = ulp_arrays.f32_bits(bits, FORMATS[dtype]).view(np.float32)
        theirs = torch.from_numpy(bits.copy()).view(kind).to(torch.float32).numpy()
        np.testing.assert_array_equal(theirs, ours)
        finite = ~np.isnan(theirs)
        np.testing.assert_array_equal(np.signbit(theirs[finite]), np.signbit(ours[finite]))


@pytest.mark.parametrize("dtype", SIXTEEN)
def test_distances_within_a_format_are_ranks(dtype: str):
    """All 65,536 patterns: sorted by value, the distance is how many values lie between."""
    values = [reference.value(dtype, pattern) for pattern in range(1 << 16)]
    numbers = sorted({v for v in values if not isinstance(v, str)})
    rank_of = {number: rank for rank, number in enumerate(numbers)}
    ranks = np.array([np.nan if isinstance(v, str) else rank_of[v] for v in values])
    bits = patterns(dtype)
    for others in (np.roll(bits, 1), np.random.default_rng(1).permutation(bits), bits ^ 0x8000):
        expected = np.abs(ranks - ranks[others])
        actual = ulp_arrays.distance(bits, dtype, others, dtype)
        finite = ~np.isnan(expected)
        np.testing.assert_array_equal(expected[finite], actual[finite])
        for at in np.flatnonzero(~finite):
            one, other = values[at], values[int(others[at])]
            assert (actual[at] == 0.0) if one == other else np.isnan(actual[at])


@pytest.mark.parametrize("dtype", SIXTEEN)
def test_ordinals_of_every_pattern_are_positions(dtype: str):
    bits = patterns(dtype).view(np.int16)
    out, spare = np.empty_like(bits), np.empty_like(bits)
    ulp_arrays.ordinals(bits, out, spare)
    expected = positions(dtype, dtype)
    finite = ~np.isnan(expected)
    np.testing.assert_array_equal(expected[finite], out[finite])
    limit = FORMATS[dtype].first_special
    assert (np.abs(out[finite].astype(int)) < limit).all()
    assert (np.abs(out[~finite].astype(int)) >= limit).all()


@pytest.mark.parametrize(("a", "b"), list(product(reference.F8, reference.F8)))
def test_all_pairs_of_8_bit_patterns(a: str, b: str):
    """256 x 256, with all four formats on both sides."""
    x, y = np.meshgrid(patterns(a), patterns(b), indexing="ij")
    actual = ulp_arrays.distance(x.ravel(), a, y.ravel(), b).reshape(256, 256)
    expected = np.abs(positions(a, b)[:, None] - positions(b, a)[None, :])
    finite = ~np.isnan(expected)
    np.testing.assert_array_equal(expected[finite], actual[finite])
    for i, j in zip(*np.nonzero(~finite), strict=True):
        is_alike = reference.value(a, int(i)) == reference.value(b, int(j))
        assert (actual[i, j] == 0.0) if is_alike else np.isnan(actual[i, j])


@pytest.mark.parametrize(("a", "b"), [("F16", "BF16"), ("BF16", "F16"), ("F16", "F8_E4M3")])
def test_every_pattern_on_the_grid_of_another_format(a: str, b: str):
    grid = meet(FORMATS[a], FORMATS[b])
    keys = ulp_arrays.steps_of_f32(
        ulp_arrays.f32_bits(patterns(a), FORMATS[a]).view(np.int32), grid
    )
    expected = positions(a, b)
    finite = ~np.isnan(expected)
    error = np.abs(keys[finite] * 2.0**-grid.scale_bits - expected[finite])
    assert error.max() <= 0.5 * 2.0**-grid.scale_bits


@pytest.mark.parametrize("name", FORMATS)
def test_keys_made_in_three_ways_agree(name: str):
    """From the pattern, from a table and from F32: one side's keys do not depend on the way."""
    found = FORMATS[name]
    rng = np.random.default_rng(2)
    bits = patterns(name) if found.bits < 32 else rng.integers(0, 2**32, 9999).astype(np.uint32)
    signed = bits.view(f"i{found.bits // 8}")
    is_finite = ulp_arrays.classes(bits, found) == ValueClass.FINITE
    for other in FORMATS.values():
        grid = meet(found, other)
        make, outside = ulp_arrays.keys_of(found, grid)
        keys, spare = (np.empty(len(bits), np.int32) for _ in range(2))
        make(signed, keys, spare)
        expected = ulp_arrays.steps_of_f32(ulp_arrays.f32_bits(bits, found).view(np.int32), grid)
        np.testing.assert_array_equal(expected[is_finite], keys[is_finite])
        assert (np.abs(keys[is_finite].astype(np.int64)) < outside).all()
        assert (np.abs(keys[~is_finite].astype(np.int64)) >= outside).all()


def pattern_of(dtype: str) -> st.SearchStrategy[int]:
    """Any pattern, and often one near a border."""
    bits = FORMATS[dtype].bits
    borders = [0, FORMATS[dtype].first_special % FORMATS[dtype].sign]
    fraction = FORMATS[dtype].precision - 1
    near = st.builds(
        lambda exponent, step, sign: ((exponent << fraction) + step + sign) % (1 << bits),
        st.integers(0, (1 << (bits - 1 - fraction)) - 1),
        st.integers(-2, 2),
        st.sampled_from([0, 1 << (bits - 1)]),
    )
    return st.one_of(st.integers(0, (1 << bits) - 1), near, st.sampled_from(borders))


PAIRS = list(product(FORMATS, FORMATS))


def measure(a: str, x: int, b: str, y: int) -> float:
    sides = (
        np.array([pattern], ulp_arrays.UNSIGNED[FORMATS[dtype].bits])
        for dtype, pattern in ((a, x), (b, y))
    )
    one, other = sides
    return float(ulp_arrays.distance(one, a, other, b)[0])


@given(st.data(), st.sampled_from(PAIRS))
def test_distance_is_its_definition(data: st.DataObject, pair: tuple[str, str]):
    a, b = pair
    x, y = data.draw(pattern_of(a)), data.draw(pattern_of(b))
    expected, actual = reference.distance(a, x, b, y), measure(a, x, b, y)
    if expected is None:
        assert np.isnan(actual)
    else:
        step = Fraction(1, 1 << meet(FORMATS[a], FORMATS[b]).scale_bits)
        is_even = meet(FORMATS[a], FORMATS[b]).scale_bits == 0
        assert abs(expected - Fraction(actual)) <= (0 if is_even else step)
    assert actual == measure(b, y, a, x) or np.isnan(actual)


@given(st.data(), st.sampled_from(list(FORMATS)))
def test_distance_is_a_metric(data: st.DataObject, dtype: str):
    is_finite = FORMATS[dtype].value_class
    finite = pattern_of(dtype).filter(lambda p: is_finite(p) is ValueClass.FINITE)
    x, y, z = (data.draw(finite) for _ in range(3))
    assert measure(dtype, x, dtype, x) == 0.0
    assert (measure(dtype, x, dtype, y) == 0.0) == (
        reference.value(dtype, x) == reference.value(dtype, y)
    )
    through = measure(dtype, x, dtype, y) + measure(dtype, y, dtype, z)
    assert measure(dtype, x, dtype, z) <= through


@given(st.integers(0, 2**32 - 1))
@example(0x00000001)
@example(0x00007FFF)
@example(0x00008000)
@example(0x007FFFFF)
@example(0x807FFFFF)
def test_bf16_copy_is_within_half_an_ulp(pattern: int):
    if FORMATS["F32"].value_class(pattern) is not ValueClass.FINITE:
        return
    rounded = (pattern + 0x7FFF + ((pattern >> 16) & 1)) >> 16  # to nearest, ties to even
    if FORMATS["BF16"].value_class(rounded) is ValueClass.FINITE:
        assert measure("F32", pattern, "BF16", rounded) <= 0.5


@pytest.mark.parametrize("dtype", [name for name in SMALL if name != "BF16"])
def test_copy_rounded_to_nearest_is_within_half_an_ulp(dtype: str):
    """From F32 to each small format; subnormals on both sides included."""
    rng = np.random.default_rng(3)
    bits = patterns(dtype)
    bits = bits[ulp_arrays.classes(bits, FORMATS[dtype]) == ValueClass.FINITE]
    values = ulp_arrays.f32_bits(bits, FORMATS[dtype]).view(np.float32).astype(np.float64)
    order = np.argsort(values)
    candidates, numbers = bits[order], values[order]
    exponents = rng.integers(-40, 18, 20_000)
    source = np.ldexp(rng.uniform(-2, 2, 20_000), exponents).astype(np.float32)
    source = source[np.abs(source) <= numbers[-1]]
    above = np.searchsorted(numbers, source).clip(1, len(numbers) - 1)
    is_lower = source - numbers[above - 1] <= numbers[above] - source
    nearest = candidates[np.where(is_lower, above - 1, above)]
    apart = ulp_arrays.distance(source.view(np.uint32), "F32", nearest, dtype)
    assert apart.max() <= 0.5
    assert apart.max() > 0.45


@pytest.mark.parametrize(
    ("a", "x", "b", "y", "ulps"),
    [
        ("F32", 0x80000000, "F32", 0x00000000, 0.0),  # -0 is +0
        ("BF16", 0x8000, "F32", 0x00000000, 0.0),
        ("F16", 0x8000, "BF16", 0x0000, 0.0),
        ("F16", 0x8001, "F16", 0x0001, 2.0),  # the two least values, through zero
        ("F16", 0x03FF, "F16", 0x0400, 1.0),  # the last subnormal and the first normal
        ("BF16", 0x3F7F, "BF16", 0x3F80, 1.0),  # across a binade: 0.99609375 and 1
        ("F32", 0x3F808000, "BF16", 0x3F80, 0.5),  # 1 + 2**-8, half way to the next BF16
        ("F32", 0x3F7F8000, "BF16", 0x3F80, 0.5),  # below 1 the steps are half as large
        ("F32", 0x3F800001, "F32", 0x3F800000, 1.0),
        ("F32", 0x33800000, "F16", 0x0001, 0.0),  # 2**-24, F16's least value
        ("F32", 0x33000000, "F16", 0x0001, 0.5),
        ("F32", 0x00000001, "F16", 0x0000, 0.0),  # far below 2**-14 of an F16 step: rounded away
        ("F32", 0x47800000, "F16", 0x7BFF, 1.0),  # 65536 and 65504: the next value, if F16 had it
        ("F16", 0x0001, "BF16", 0x3380, 0.0),  # 2**-24 in both
        ("F16", 0x0001, "BF16", 0x3300, 0.5),  # F16's step is the larger here
        ("F16", 0x3C01, "BF16", 0x3F80, 0.125),  # and BF16's here
        ("F8_E4M3", 0x7E, "F8_E5M2", 0x5F, 0.0),  # 448
    ],
)
def test_distances_worked_out_by_hand(a: str, x: int, b: str, y: int, ulps: float):
    assert ulps == measure(a, x, b, y)


@pytest.mark.parametrize(
    ("a", "x", "b", "y", "ulps"),
    [
        ("F32", 0x7FC00000, "F32", 0xFFC00001, 0.0),
        ("F32", 0x7F800001, "F16", 0x7E00, 0.0),
        ("BF16", 0x7FC0, "F8_E4M3FNUZ", 0x80, 0.0),
        ("F16", 0x7C00, "BF16", 0x7F80, 0.0),
        ("F16", 0xFC00, "BF16", 0xFF80, 0.0),
        ("F16", 0xFC00, "F16", 0x7C00, None),
        ("F16", 0x7C00, "F16", 0x7C01, None),
        ("F16", 0x7BFF, "F16", 0x7C00, None),
        ("F32", 0x47800000, "F16", 0x7C00, None),  # overflowed in the copy
        ("F32", 0x7F800000, "F8_E4M3", 0x7F, None),
    ],
)
def test_classes_come_first(a: str, x: int, b: str, y: int, ulps: float | None):
    actual = measure(a, x, b, y)
    assert np.isnan(actual) if ulps is None else actual == ulps

"""Blocks: what is counted and where, by bytes that are few or many, in every pair of formats."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.weights.ulp_reference import F8
from vctl_plans.weights.safetensors import DTYPE_BITS
from vctl_plans.weights.ulp_arrays import UNSIGNED, Array, classes, distance
from vctl_plans.weights.ulp_blocks import BLOCK_ELEMENTS, Measured, Meter, Scratch, total
from vctl_plans.weights.ulp_formats import FORMATS, ValueClass

PAIRS = [
    *product(("F32", "F16", "BF16", "F8_E4M3"), repeat=2),
    *((name, name) for name in F8),
    ("F8_E5M2", "F8_E4M3FNUZ"),
    ("BF16", "F8_E5M2FNUZ"),
]


@pytest.fixture(scope="module")
def scratch() -> Scratch:
    return Scratch()


def measured(
    scratch: Scratch, a: Array, a_dtype: str, b: Array, b_dtype: str, *, limit: float = 2.0
) -> Measured:
    for raw, side, left in zip(scratch.raw, (a, b), (b"\xa5", b"\x5a"), strict=True):
        raw[: side.nbytes] = side.tobytes()
        raw[side.nbytes : side.nbytes + 8] = left * 8  # by an earlier block
    return Meter(a_dtype, b_dtype, limit).measure(scratch, a.size, begin=1000)


def random_bits(dtype: str, count: int, seed: int) -> Array:
    width = FORMATS[dtype].bits
    return np.random.default_rng(seed).integers(0, 2**width, count).astype(UNSIGNED[width])


def check(found: Measured, a: Array, a_dtype: str, b: Array, b_dtype: str, limit: float) -> None:
    """Hold what a block came to against distances measured one by one."""
    apart = distance(a, a_dtype, b, b_dtype)
    scale = 2.0 ** -Meter(a_dtype, b_dtype, limit).scale_bits
    changed = np.isnan(apart)
    numbers = np.where(changed, 0.0, apart)
    assert found.elements == a.size
    assert found.class_changes == changed.sum()
    assert found.differing == (numbers > 0).sum() + changed.sum()
    assert found.largest * scale == numbers.max()
    assert found.steps * scale == numbers.sum()
    assert found.beyond == (numbers > limit).sum()
    if changed.any():
        assert found.first_class_change == 1000 + changed.argmax()
    if numbers.max() > 0:
        assert found.largest_at == 1000 + numbers.argmax()
        assert found.largest_bits == (a[numbers.argmax()], b[numbers.argmax()])
    if found.beyond:
        assert found.first_beyond == 1000 + (numbers > limit).argmax()


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_random_patterns_come_to_what_is_measured_one_by_one(
    scratch: Scratch, pair: tuple[str, str]
):
    """All patterns: of both signs, NaN and infinity among them."""
    a_dtype, b_dtype = pair
    a, b = random_bits(a_dtype, 4001, 1), random_bits(b_dtype, 4001, 2)
    check(measured(scratch, a, a_dtype, b, b_dtype), a, a_dtype, b, b_dtype, 2.0)


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("share", [0.001, 0.05, 0.9])
def test_few_and_many_differing_elements(scratch: Scratch, dtype: str, share: float):
    a = random_bits(dtype, 4003, 3)
    b = a.copy()
    rng = np.random.default_rng(4)
    b[rng.random(a.size) < share] ^= 3
    check(measured(scratch, a, dtype, b, dtype), a, dtype, b, dtype, 2.0)


@pytest.mark.parametrize("dtype", FORMATS)
def test_same_sign_and_finite_is_measured_the_short_way(scratch: Scratch, dtype: str):
    found = FORMATS[dtype]
    a = random_bits(dtype, 4001, 5) % min(found.first_special, found.sign)
    b = random_bits(dtype, 4001, 6) % min(found.first_special, found.sign)
    check(measured(scratch, a, dtype, b, dtype), a, dtype, b, dtype, 2.0)
    a[1234] = found.first_special  # of the same sign, but no number
    check(measured(scratch, a, dtype, b, dtype), a, dtype, b, dtype, 2.0)


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_one_special_value_alone_is_seen(scratch: Scratch, pair: tuple[str, str]):
    """Each infinity and NaN of the first side, alone among numbers of both signs."""
    a_dtype, b_dtype = pair
    found, other = FORMATS[a_dtype], FORMATS[b_dtype]
    b = np.array([1, other.sign | 1, 2, 3], UNSIGNED[other.bits])
    for special in {found.first_special, found.first_special | found.sign, 2 * found.sign - 1}:
        if found.value_class(special) is ValueClass.FINITE:
            continue
        a = np.array([found.sign | 2, 1, special, 3], UNSIGNED[found.bits])
        assert measured(scratch, a, a_dtype, b, b_dtype).class_changes == 1
        check(measured(scratch, a, a_dtype, b, b_dtype), a, a_dtype, b, b_dtype, 2.0)
        check(measured(scratch, b, b_dtype, a, a_dtype), b, b_dtype, a, a_dtype, 2.0)


def test_equal_bytes_are_not_looked_at(scratch: Scratch):
    a = random_bits("BF16", 4001, 7)
    found = measured(scratch, a, "BF16", a, "BF16")
    assert Measured(elements=4001) == found


def test_zeros_of_both_signs_are_equal_but_not_in_bytes(scratch: Scratch):
    a = np.zeros(9, np.uint16)
    found = measured(scratch, a, "F16", a + 0x8000, "F16")
    assert (0, 0, False) == (found.differing, found.largest, found.has_same_bytes)


def test_payloads_of_nan_are_counted_and_no_mismatch(scratch: Scratch):
    a = np.array([0x7FC0, 0x7FC1, 0x7FC0, 0xFFC0, 0x3F80], np.uint16)
    b = np.array([0x7FC0, 0x7FC2, 0xFFC0, 0xFFC0, 0x3F81], np.uint16)
    found = measured(scratch, a, "BF16", b, "BF16")
    assert (2, 0, 1) == (found.nan_payloads, found.class_changes, found.differing)
    widened = b.astype(np.uint32) << 16
    found = measured(scratch, a, "BF16", widened, "F32")
    assert (2, 0, 1) == (found.nan_payloads, found.class_changes, found.differing)


def test_a_limit_is_kept_to_the_fraction(scratch: Scratch):
    a, b = np.array([0x3F808000], np.uint32), np.array([0x3F80], np.uint16)  # half an ULP apart
    assert measured(scratch, a, "F32", b, "BF16", limit=0.5).beyond == 0
    assert measured(scratch, a, "F32", b, "BF16", limit=0.49).beyond == 1
    assert measured(scratch, a, "F32", b, "BF16", limit=1e300).beyond == 0


@pytest.mark.parametrize("dtype", sorted(DTYPE_BITS.keys() - FORMATS.keys()))
@pytest.mark.parametrize("is_sparse", [True, False])
def test_other_dtypes_are_compared_as_bytes(scratch: Scratch, dtype: str, is_sparse: bool):
    bits = DTYPE_BITS[dtype]
    count = 4000
    a = np.random.default_rng(8).integers(0, 256, count * bits // 8).astype(np.uint8)
    b = a.copy()
    b[800] ^= 1
    if not is_sparse:
        b[801:] ^= 0xFF
    for raw, side in zip(scratch.raw, (a, b), strict=True):
        raw[: side.nbytes] = side.tobytes()
    found = Meter(dtype, dtype, 0.0).measure(scratch, count, begin=0)
    units = len(a) if bits < 8 else count
    first = 800 if bits < 8 else 800 * 8 // bits
    assert found.differing == (1 if is_sparse else units - first)
    assert 800 * 8 // bits == found.first_beyond
    assert (0, 0) == (found.largest, found.class_changes)


@pytest.mark.parametrize("dtype", ["u1", "u2", "u4"])
@pytest.mark.parametrize("largest", [1, 7, 250, 2**16 - 1, 2**32 - 1])
def test_total_does_not_overflow(dtype: str, largest: int):
    largest = min(largest, int(np.iinfo(dtype).max))
    rng = np.random.default_rng(9)
    for count in (1, 2, 255, 4001):
        apart = rng.integers(0, largest, count, endpoint=True).astype(dtype)
        assert sum(apart.tolist()) == total(apart, largest)
        assert count * largest == total(np.full(count, largest, dtype), largest)


blocks = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1)), min_size=1, max_size=6)


@given(blocks, st.randoms())
def test_blocks_add_up_in_every_order(found: list[tuple[int, int]], random):
    parts = [
        Measured(
            elements=10,
            differing=largest,
            steps=largest,
            largest=largest,
            largest_at=10 * number if largest else -1,
            beyond=int(largest > 1),
            first_beyond=10 * number if largest > 1 else -1,
            class_changes=changes,
            first_class_change=10 * number + 1 if changes else -1,
            has_same_bytes=not largest,
        )
        for number, (largest, changes) in enumerate(found)
    ]
    sums = []
    for _ in range(2):
        one = Measured()
        for part in parts:
            one.add(part)
        sums.append(one)
        random.shuffle(parts)
    assert sums[0] == sums[1]
    worst = max(largest for largest, _ in found)
    assert worst == sums[0].largest
    if worst:
        assert 10 * [largest for largest, _ in found].index(worst) == sums[0].largest_at


def test_a_full_block_fits(scratch: Scratch):
    a = np.full(BLOCK_ELEMENTS, 0x3F800000, np.uint32)
    found = measured(scratch, a, "F32", a + 1, "F32", limit=0.0)
    assert (BLOCK_ELEMENTS, BLOCK_ELEMENTS) == (found.beyond, found.steps)
    assert (classes(a, FORMATS["F32"]) == ValueClass.FINITE).all()

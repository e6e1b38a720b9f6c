"""How much numbers changed, against plain arithmetic."""

import math
import struct
from pathlib import Path

import pytest

from tests.weights.building import Made, fill, pack, u8
from vctl_plans.errors import RootMismatch
from vctl_plans.weights import diff, scan
from vctl_plans.weights.change import Change, Version, largest_changes
from vctl_plans.weights.ulp_formats import FORMATS

np = pytest.importorskip("numpy")


def model(folder: Path, *tensors: Made) -> Version:
    fill(folder, {"model.safetensors": pack(tensors)})
    return Version(folder, scan(folder))


def changes(before: Version, after: Version) -> list[Change]:
    return list(largest_changes(before, after, diff(before.manifest, after.manifest)))


def f32(name: str, *numbers: float) -> Made:
    return Made(name, "F32", (len(numbers),), struct.pack(f"<{len(numbers)}f", *numbers))


@pytest.mark.parametrize(
    ("was", "now", "largest", "is_broken"),
    [
        ((1.0, 2.0), (1.0, 2.5), 0.2, False),
        ((1.0, 0.0), (1.0, 3.0), 1.0, False),
        ((1.0, 8.0), (-1.0, 8.0), 2.0, False),
        ((0.0, 1.0), (-0.0, 1.0), 0.0, False),
        ((3e38, 1.0), (-3e38, 1.0), 2.0, False),
        ((1e-45, 1.0), (0.0, 1.0), 1.0, False),
        ((1.0, 4.0), (math.nan, 3.0), 0.25, True),
        ((math.inf, 4.0), (1.0, 4.0), 0.0, True),
        ((math.inf, 4.0), (-math.inf, 4.0), 0.0, True),
        ((math.nan, math.inf, 4.0), (math.nan, math.inf, 2.0), 0.5, False),
    ],
)
def test_change_is_that_of_the_elements(tmp_path, was, now, largest, is_broken):
    before = model(tmp_path / "a", f32("w", *was), f32("same", 1.0))
    after = model(tmp_path / "b", f32("w", *now), f32("same", 1.0))
    (found,) = changes(before, after)
    assert (found.tensor, found.is_broken) == ("w", is_broken)
    assert found.largest == pytest.approx(largest, rel=1e-6)


@pytest.mark.parametrize("dtype", [*FORMATS, "F64"])
def test_change_knows_each_format(tmp_path, dtype):
    size = 8 if dtype == "F64" else FORMATS[dtype].bits // 8
    one, two = (b"\0" * (size - 1) + bytes([top]) for top in (0x40, 0x41))
    if dtype == "F64":
        numbers = [struct.unpack("<d", raw)[0] for raw in (one, two)]
    else:
        numbers = [FORMATS[dtype].value(int.from_bytes(raw, "little")) for raw in (one, two)]
    before = model(tmp_path / "a", Made("w", dtype, (1,), one))
    after = model(tmp_path / "b", Made("w", dtype, (1,), two))
    ((_, largest, is_broken),) = changes(before, after)
    assert largest == pytest.approx((numbers[1] - numbers[0]) / numbers[1])
    assert not is_broken


def test_change_is_only_of_floating_numbers_of_one_shape(tmp_path):
    before = model(tmp_path / "a", u8("i", b"12"), f32("w", 1.0, 2.0), f32("gone", 1.0))
    reshaped = f32("w", 1.0, 3.0)._replace(shape=(2, 1))
    after = model(tmp_path / "b", u8("i", b"13"), reshaped, f32("new", 1.0))
    assert changes(before, after) == []


def test_change_reads_only_blocks_that_differ(tmp_path):
    numbers = np.ones(3 * 262144 + 5, "<f4")
    before = model(tmp_path / "a", Made("w", "F32", numbers.shape, numbers.tobytes()))
    numbers[-1] = 2.0
    after = model(tmp_path / "b", Made("w", "F32", numbers.shape, numbers.tobytes()))
    with (tmp_path / "a" / "model.safetensors").open("r+b") as file:
        file.seek(1 << 20)
        file.write(b"\0\0\0\0")  # of a block that is not read
    assert changes(before, after) == [Change("w", 0.5, is_broken=False)]


def test_change_of_other_bytes_than_the_manifest_s_is_refused(tmp_path):
    before = model(tmp_path / "a", f32("w", 1.0))
    after = model(tmp_path / "b", f32("w", 2.0))
    fill(tmp_path / "a", {"model.safetensors": pack([f32("w", 4.0)])})
    with pytest.raises(RootMismatch, match="block 0 of 'w' is not that of its manifest"):
        changes(before, after)

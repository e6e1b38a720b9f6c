"""Two sets of weights: what is paired, what is judged, what is refused."""

import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tests.weights import building
from tests.weights.building import Made, pack, u8, zeros
from vctl_plans.errors import ArtifactError, MalformedWeights, NotAllowed, PlanError
from vctl_plans.weights import ulp, ulp_tolerance
from vctl_plans.weights.ulp import Comparison, TensorComparison
from vctl_plans.weights.ulp_blocks import BLOCK_ELEMENTS
from vctl_plans.weights.ulp_formats import FORMATS

ROOT = Path(__file__).parents[2]


def f32(name: str, *numbers: float) -> Made:
    return Made(name, "F32", (len(numbers),), np.array(numbers, "<f4").tobytes())


def f16(name: str, *numbers: float) -> Made:
    return Made(name, "F16", (len(numbers),), np.array(numbers, "<f2").tobytes())


def bf16(name: str, *patterns: int) -> Made:
    return Made(name, "BF16", (len(patterns),), np.array(patterns, "<u2").tobytes())


def write(path: Path, *tensors: Made) -> Path:
    path.write_bytes(pack(tensors))
    return path


def compared(tmp_path: Path, a: list[Made], b: list[Made], tolerance: str = "1") -> Comparison:
    one = write(tmp_path / "a.safetensors", *a)
    other = write(tmp_path / "b.safetensors", *b)
    return ulp.compare(one, other, tolerance=ulp_tolerance.parse(tolerance))


def only(tmp_path: Path, a: Made, b: Made, tolerance: str = "1") -> TensorComparison:
    (found,) = compared(tmp_path, [a], [b], tolerance).tensors
    return found


def test_equal_files_are_equal(tmp_path: Path):
    found = compared(tmp_path, [f32("w", 1, 2), u8("i", b"123")], [f32("w", 1, 2), u8("i", b"123")])
    assert found.is_within
    assert [("i", "equal", "exact"), ("w", "equal", "F32")] == [
        (tensor.name, tensor.status, tensor.unit) for tensor in found.tensors
    ]


def test_largest_and_mean_with_places_and_values(tmp_path: Path):
    a = Made("w", "BF16", (2, 3), np.array([0x3F80, 0, 0x4000, 0, 0, 0], "<u2").tobytes())
    b = Made("w", "BF16", (2, 3), np.array([0x3F81, 0, 0x4000, 0, 3, 0], "<u2").tobytes())
    found = only(tmp_path, a, b, "2.5")
    assert (found.status, found.unit, found.limit_ulp) == ("beyond", "BF16", 2.5)
    assert (found.elements, found.differing, found.beyond) == (6, 2, 1)
    assert (found.max_ulp, found.mean_ulp) == (3.0, 4 / 6)
    assert (found.worst_at, found.first_beyond_at) == ((1, 1), (1, 1))
    assert (0.0, 3 * 2.0**-133) == found.worst
    assert found.reason == "1 of 6 elements are more than 2.5 ULP apart"
    assert only(tmp_path, a, b, "3").status == "within"


def test_f32_and_its_bf16_copy_are_within_half_an_ulp(tmp_path: Path):
    rng = np.random.default_rng(1)
    source = rng.standard_normal(5000).astype("<f4")
    bits = source.view("<u4")
    copy = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
    found = only(tmp_path, f32("w", *source), bf16("w", *copy.tolist()), "0.5")
    assert (found.status, found.unit) == ("within", "BF16")
    assert found.max_ulp is not None
    assert found.mean_ulp is not None
    assert 0.49 < found.max_ulp <= 0.5
    assert 0.2 < found.mean_ulp < 0.3


def test_f16_copy_that_overflowed_is_a_mismatch(tmp_path: Path):
    found = only(tmp_path, f32("w", 1, 70000, 1), f16("w", 1, float("inf"), 1), "1e9")
    assert (found.status, found.class_changes) == ("mismatch", 1)
    assert found.first_class_change_at == (1,)
    assert "1 of 3 elements are finite, infinite or NaN on one side only" == found.reason
    assert (0.0, 0.0) == (found.max_ulp, found.mean_ulp)


def test_nan_payloads_and_zeros_are_within_zero(tmp_path: Path):
    found = only(tmp_path, bf16("w", 0x7FC1, 0x8000), bf16("w", 0xFFC2, 0), "0")
    assert (found.status, found.nan_payload_changes, found.differing) == ("within", 1, 0)


def test_what_only_one_side_has_is_never_within(tmp_path: Path):
    found = compared(tmp_path, [u8("a", b"1"), u8("c", b"1")], [u8("b", b"1"), u8("c", b"1")])
    assert not found.is_within
    assert [("a", "missing", "not in B"), ("b", "extra", "not in A"), ("c", "equal", "")] == [
        (tensor.name, tensor.status, tensor.reason) for tensor in found.tensors
    ]


def test_shapes_must_be_equal(tmp_path: Path):
    found = only(tmp_path, zeros("w", "F32", 2, 3), zeros("w", "F32", 3, 2))
    assert ("mismatch", "shape [2, 3] against [3, 2]") == (found.status, found.reason)
    assert (None, "") == (found.max_ulp, found.unit)


@pytest.mark.parametrize(("a", "b"), [("I32", "F32"), ("F64", "F32"), ("U8", "I8"), ("F4", "U8")])
def test_dtypes_without_ulps_must_be_equal(tmp_path: Path, a: str, b: str):
    found = only(tmp_path, zeros("w", a, 2), zeros("w", b, 2))
    expected = f"dtype {a} against {b}: not measured in ULPs"
    assert ("mismatch", expected) == (found.status, found.reason)


@pytest.mark.parametrize("dtype", ["F64", "C64", "I64", "BOOL", "F8_E8M0", "F4", "F6_E2M3"])
def test_other_dtypes_are_compared_exactly(tmp_path: Path, dtype: str):
    a = zeros("w", dtype, 8)
    b = a._replace(content=a.content[:-1] + b"\1")
    assert only(tmp_path, a, a).status == "equal"
    found = only(tmp_path, a, b, "1e9")
    assert (found.status, found.unit, found.differing) == ("mismatch", "exact", 1)
    assert (found.max_ulp, found.limit_ulp, found.beyond) == (None, None, 0)
    assert f"{dtype} is compared exactly" in found.reason


def test_empty_and_scalar_tensors(tmp_path: Path):
    empty, scalar = zeros("e", "F32", 0, 4), Made("s", "F32", (), np.float32(1).tobytes())
    other = Made("s", "BF16", (), b"\x81\x3f")
    found = compared(tmp_path, [empty, scalar], [empty, other])
    assert ["equal", "within"] == [tensor.status for tensor in found.tensors]
    assert found.tensors[1].worst_at == ()
    assert (1.0, 1.0) == (found.tensors[1].max_ulp, found.tensors[1].mean_ulp)


def test_sharding_does_not_matter(tmp_path: Path):
    tensors = [bf16(f"w{i}", *range(i, i + 9)) for i in range(5)]
    changed = [*tensors[:4], bf16("w4", *range(5, 14))]
    single = write(tmp_path / "one.safetensors", *tensors)
    shards = {
        "model-00001-of-00002.safetensors": changed[3:],
        "model-00002-of-00002.safetensors": changed[:3][::-1],
    }
    many = building.sharded(tmp_path / "many", shards)
    tolerance = ulp_tolerance.parse("1")
    found = ulp.compare(single, many, tolerance=tolerance)
    assert found.is_within
    assert ["equal"] * 4 + ["within"] == [tensor.status for tensor in found.tensors]
    back = ulp.compare(many, single, tolerance=tolerance)
    assert [t.max_ulp for t in back.tensors] == [t.max_ulp for t in found.tensors]


def test_many_blocks_come_to_one_result_with_any_threads(tmp_path: Path):
    count = 2 * BLOCK_ELEMENTS + 5
    a = np.full(count, 0x3F80, "<u2")
    b = a.copy()
    b[[7, BLOCK_ELEMENTS + 1]] += 1
    b[[-1, BLOCK_ELEMENTS]] += 4
    one = write(tmp_path / "a.safetensors", Made("w", "BF16", (count,), a.tobytes()))
    other = write(tmp_path / "b.safetensors", Made("w", "BF16", (count,), b.tobytes()))
    said: list[tuple[int, int]] = []
    for threads in (1, 2, 5):
        (found,) = ulp.compare(
            one,
            other,
            tolerance=ulp_tolerance.parse("3"),
            threads=threads,
            progress=lambda done, size: said.append((done, size)),
        ).tensors
        assert (found.differing, found.beyond, found.max_ulp) == (4, 2, 4.0)
        assert (found.worst_at, found.first_beyond_at) == ((BLOCK_ELEMENTS,), (BLOCK_ELEMENTS,))
        assert found.mean_ulp == 10 / count
        assert (0, 4 * count) in said
        assert (4 * count, 4 * count) == said[-1]


def test_only_the_tensors_that_were_named(tmp_path: Path):
    a = write(tmp_path / "a.safetensors", f32("x", 1), f32("y", 1))
    b = write(tmp_path / "b.safetensors", f32("x", 1), f32("y", 2))
    tolerance = ulp_tolerance.parse("0")
    assert ulp.compare(a, b, tolerance=tolerance, tensors=["x"]).is_within
    assert not ulp.compare(a, b, tolerance=tolerance, tensors=["x", "y"]).is_within
    with pytest.raises(PlanError, match="neither side has a tensor 'z'"):
        ulp.compare(a, b, tolerance=tolerance, tensors=["z"])


def test_what_scan_refuses_is_refused(tmp_path: Path):
    good = write(tmp_path / "good.safetensors", f32("w", 1))
    short = tmp_path / "short.safetensors"
    short.write_bytes(good.read_bytes()[:-1])
    tolerance = ulp_tolerance.parse("0")
    with pytest.raises(MalformedWeights, match="truncated"):
        ulp.compare(good, short, tolerance=tolerance)
    twins = {name: pack([f32("w", 1)]) for name in ("x.safetensors", "y.safetensors")}
    with pytest.raises(MalformedWeights, match="is also in"):
        ulp.compare(good, building.fill(tmp_path / "twins", twins), tolerance=tolerance)
    folder = building.fill(tmp_path / "plain", {"prompt.txt": "hello"})
    with pytest.raises(NotAllowed, match="holds no safetensors"):
        ulp.compare(good, folder, tolerance=tolerance)
    with pytest.raises(NotAllowed):
        ulp.compare(good, building.fill(tmp_path / "p", {"m.bin": b""}), tolerance=tolerance)


@pytest.mark.parametrize("moment", [0, 8])
def test_file_that_changes_meanwhile_is_noticed(tmp_path: Path, moment: int):
    """Before its data is read, and after."""
    a = write(tmp_path / "a.safetensors", f32("w", 1))
    b = write(tmp_path / "b.safetensors", f32("w", 1))

    def touch(done: int, size: int) -> None:
        if done == moment:
            b.write_bytes(b.read_bytes())

    with pytest.raises(ArtifactError, match=r"b.safetensors: changed while it was read"):
        ulp.compare(a, b, tolerance=ulp_tolerance.parse("0"), progress=touch)


def test_what_progress_raises_stops_it(tmp_path: Path):
    a = write(tmp_path / "a.safetensors", f32("w", 1))

    def stop(done: int, size: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ulp.compare(a, a, tolerance=ulp_tolerance.parse("0"), progress=stop)


def test_result_has_a_schema_and_survives_json(tmp_path: Path):
    found = compared(tmp_path, [f32("w", 1), u8("i", b"1")], [bf16("w", 0x3F81), u8("j", b"1")])
    assert found == msgspec.json.decode(msgspec.json.encode(found), type=Comparison)
    schema = msgspec.json.schema(Comparison)["$defs"]
    assert set(TensorComparison.__struct_fields__) == set(schema["TensorComparison"]["properties"])
    assert schema["TensorComparison"]["required"] == list(TensorComparison.__struct_fields__)


def test_importing_it_does_not_import_numpy():
    code = "import sys, vctl_plans.weights.ulp, vctl_plans.weights.ulp_tolerance; import vctl_plans"
    shown = f"{code}; print('numpy' in sys.modules)"
    env = {"PYTHONPATH": str(ROOT / "plans")}
    done = subprocess.run(
        [sys.executable, "-c", shown], capture_output=True, text=True, check=True, env=env
    )
    assert done.stdout == "False\n"


@pytest.mark.parametrize(
    ("kind", "f16_limit", "bf16_limit"),
    [("nvidia-gpu", 2.0, 3.5), ("google-tpu", 1.5, 2.0), ("ascend-npu", 2.5, 4.0)],
)
def test_tolerances_of_device_kinds(kind: str, f16_limit: float, bf16_limit: float):
    limits = ulp_tolerance.parse(kind).limits
    assert (f16_limit, bf16_limit) == (limits["F16"], limits["BF16"])
    assert limits["F32"] == 0.0
    assert {1.0} == {limits[name] for name in FORMATS if name.startswith("F8")}
    assert set(FORMATS) == set(limits)


def test_table_in_the_docs_is_the_one_that_is_used():
    rows = [
        [cell.strip(" `") for cell in line.strip("|").split("|")]
        for line in (ROOT / "docs" / "ulp-tolerances.md").read_text().splitlines()
        if line.startswith("| `")
    ]
    told = {row[0]: [float(cell) for cell in row[1:]] for row in rows if row[0] in FORMATS}
    kinds = list(ulp_tolerance.LIMITS)
    assert told == {name: [ulp_tolerance.LIMITS[kind][name] for kind in kinds] for name in FORMATS}


def test_tolerance_takes_exceptions():
    limits = ulp_tolerance.parse("google-tpu,F32=16,f8=0").limits
    assert (16.0, 2.0) == (limits["F32"], limits["BF16"])
    assert {0.0} == {limits[name] for name in FORMATS if name.startswith("F8")}
    assert ulp_tolerance.parse("2.5,F16=1").limits["BF16"] == 2.5


@pytest.mark.parametrize(
    "text", ["", "nvidia", "-1", "nan", "inf", "1,2", "1,F12=1", "1,F32=x", "F32=1", "1,F32=-1"]
)
def test_other_tolerances_are_refused(text: str):
    with pytest.raises(PlanError):
        ulp_tolerance.parse(text)

"""`vctl weights diff`: what differs, what it takes to move, how much numbers changed."""

import json
import os
import struct
import sys
from pathlib import Path

import pytest

from tests.cli.support import Vctl
from tests.weights.building import Made, fill, pack, u8
from vctl_plans import weights

MIB = 1 << 20
BIG = os.urandom(2 * MIB)


def version(folder: Path, number: float, config: str = "{}") -> Path:
    tensors = [
        Made("f", "F32", (2,), struct.pack("<2f", 1.0, number)),
        u8("w", BIG + bytes([int(number)])),
        u8("same", b"12345678"),
    ]
    return fill(folder, {"model.safetensors": pack(tensors), "config.json": config})


@pytest.fixture
def both(tmp_path: Path) -> tuple[str, str]:
    return str(version(tmp_path / "a", 2.0)), str(version(tmp_path / "b", 4.0))


def test_difference_is_1_with_blocks_bytes_and_changes(both: tuple[str, str]):
    pytest.importorskip("numpy")
    said = Vctl()("weights", "diff", *both)
    one, other = (weights.scan(path) for path in both)
    begin = other.files[1].header_size
    assert (1, "") == (said.code, said.err)
    assert said.out.splitlines() == [
        f"A  {one.root}  hashed",
        f"B  {other.root}  hashed",
        (
            f"model.safetensors: tensor 'f' differs in 1 block, bytes {begin}-{begin + 7};"
            " largest relative change 0.5"
        ),
        (
            f"model.safetensors: tensor 'w' differs in 1 block,"
            f" bytes {begin + 8 + 2 * MIB}-{begin + 8 + 2 * MIB}"
        ),
        "2 of 3 tensors differ, 9 B of 2.0 MiB to move",
    ]


def test_difference_is_a_record_for_programs(both: tuple[str, str]):
    said = Vctl()("weights", "diff", *both, "-o", "json")
    view = json.loads(said.out)
    assert (1, "", "weights-diff") == (said.code, said.err, view["kind"])
    assert (False, 2, 3, 9) == tuple(
        view[name] for name in ("is_equal", "differing_tensors", "tensors", "move_bytes")
    )
    assert [("content", "f", [0]), ("content", "w", [2])] == [
        (one["kind"], one["tensor"], one["blocks"]) for one in view["differences"]
    ]
    assert view["changes"] in (
        [{"tensor": "f", "largest_relative": 0.5, "is_broken": False}],
        [] if "numpy" not in sys.modules else None,
    )


def test_equal_is_0(tmp_path: Path, both: tuple[str, str]):
    said = Vctl()("weights", "diff", both[0], str(version(tmp_path / "c", 2.0)))
    assert (0, "", "equal") == (said.code, said.err, said.out.splitlines()[-1])


def test_manifests_alone_are_enough(both: tuple[str, str], tmp_path: Path):
    places = [tmp_path / f"{Path(path).name}.json" for path in both]
    for path, place in zip(both, places, strict=True):
        weights.save(weights.scan(path), place)
    said = Vctl()("weights", "diff", *map(str, places))
    assert (1, "") == (said.code, said.err)
    assert f"A  {weights.scan(both[0]).root}  {places[0]}" in said.out
    assert "2 of 3 tensors differ, 9 B of 2.0 MiB to move" in said.out
    assert "largest relative change" not in said.out


def test_manifest_that_lies_with_the_files_is_taken_unless_they_are_to_be_hashed(
    both: tuple[str, str], tmp_path: Path
):
    a, b = both
    weights.save(weights.scan(b), weights.manifest_path(a))  # of other bytes
    assert 0 == Vctl()("weights", "diff", a, b).code
    said = Vctl()("weights", "diff", a, b, "--hash")
    assert (1, "") == (said.code, said.err)
    third = version(tmp_path / "c", 8.0)
    pytest.importorskip("numpy")
    refused = Vctl()("weights", "diff", a, str(third))
    assert (1, "") == (refused.code, refused.out)
    assert "is not that of its manifest" in refused.err
    assert 1 == Vctl()("weights", "diff", a, str(third), "--no-values").code


def test_numbers_are_left_alone_without_numpy(
    both: tuple[str, str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "numpy", None)
    said = Vctl()("weights", "diff", *both)
    assert 1 == said.code
    assert said.err == "how much the numbers changed was not read: numpy is not installed\n"
    assert "2 of 3 tensors differ" in said.out


def test_number_that_is_broken_is_told(tmp_path: Path, both: tuple[str, str]):
    pytest.importorskip("numpy")
    tensors = [Made("f", "F32", (2,), struct.pack("<2f", 1.0, float("nan")))]
    broken = fill(tmp_path / "c", {"model.safetensors": pack(tensors)})
    said = Vctl()("weights", "diff", both[0], str(broken))
    assert 1 == said.code
    assert "largest relative change 0, and some became NaN or infinite, or were" in said.out


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("none", "a"), 2, "there is no none"),
        (("a",), 2, "missing argument 'B'"),
        (("a", "x.json"), 1, "x.json: the manifest does not validate"),
        (("a", "bad"), 1, "m.safetensors"),
    ],
)
def test_what_can_not_be_compared_is_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    code: int,
    told: str,
):
    version(tmp_path / "a", 1.0)
    fill(tmp_path, {"x.json": "{}", "bad/m.safetensors": b"not at all"})
    monkeypatch.chdir(tmp_path)
    said = Vctl()("weights", "diff", *arguments)
    assert (code, "") == (said.code, said.out)
    assert told in said.err

"""`vctl manifest`: written with the files, or where -o says."""

import json
from pathlib import Path

import pytest

from tests.cli.support import Vctl
from tests.weights import building
from vctl_plans import weights


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    return building.adapter(tmp_path / "v1", {"training_args.bin": b"x"})


def test_manifest_is_written_into_the_directory(adapter: Path):
    said = Vctl()("manifest", str(adapter))
    place = adapter / "vctl.manifest.json"
    manifest = weights.load(place)
    assert (0, "") == (said.code, said.err)
    assert weights.scan(adapter) == manifest
    assert said.out.splitlines()[1:] == [
        f"root      {manifest.root}",
        f"content   {manifest.content_root}",
        "left out  training_args.bin: the trainer's own",
        f"manifest  {place}",
    ]
    before = place.read_bytes()
    assert 0 == Vctl()("manifest", str(adapter)).code
    assert before == place.read_bytes()
    assert 0 == Vctl()("verify-weights", str(adapter)).code


def test_manifest_of_a_file_is_written_beside_it(tmp_path: Path):
    file = building.fill(tmp_path, {"prompt.txt": "x"}) / "prompt.txt"
    said = Vctl()("-o", "json", "manifest", str(file))
    view = json.loads(said.out)
    assert (0, "", "manifest") == (said.code, said.err, view["kind"])
    assert str(tmp_path / "prompt.txt.vctl.manifest.json") == view["manifest"]
    assert weights.load(view["manifest"]).root == view["root"]
    assert 0 == Vctl()("verify-weights", str(file)).code


def test_manifest_is_written_where_it_is_wanted(adapter: Path, tmp_path: Path):
    said = Vctl()("manifest", str(adapter), "-o", str(tmp_path / "m.json"))
    assert (0, "") == (said.code, said.err)
    assert weights.load(tmp_path / "m.json") == weights.scan(adapter)
    assert not (adapter / "vctl.manifest.json").exists()


def test_manifest_may_go_to_stdout(adapter: Path):
    said = Vctl()("manifest", str(adapter), "--out", "-")
    assert (0, "") == (said.code, said.err)
    assert weights.decode(said.out.encode()) == weights.scan(adapter)


def test_manifest_may_not_become_a_part_of_what_it_describes(tmp_path: Path):
    folder = building.fill(tmp_path / "p", {"a.txt": "x"})
    said = Vctl()("manifest", str(folder), "-o", str(folder / "m.json"))
    assert (2, "") == (said.code, said.out)
    assert "would be a part of the artifact" in said.err
    place = folder / "old.vctl.manifest.json"
    assert 0 == Vctl()("manifest", str(folder), "-o", str(place)).code


def test_place_that_can_not_be_written_is_1_and_says_what_to_do(adapter: Path):
    said = Vctl()("manifest", str(adapter), "-o", str(adapter / "none" / "m.json"))
    assert (1, "") == (said.code, said.out)
    assert "can't be written: No such file or directory" in said.err
    assert f"say where with -o; its root is {weights.scan(adapter).root}" in said.err


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("no/such",), 2, "there is no no/such"),
        ((), 2, "missing argument 'PATH'"),
        (("bad",), 1, "m.safetensors"),
    ],
)
def test_what_can_not_be_described_is_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    code: int,
    told: str,
):
    building.fill(tmp_path / "bad", {"m.safetensors": b"not at all"})
    monkeypatch.chdir(tmp_path)
    said = Vctl()("manifest", *arguments)
    assert (code, "") == (said.code, said.out)
    assert told in said.err


@pytest.mark.parametrize("kind", ["prompt", "index", "plain"])
def test_prompt_and_index_are_any_files(tmp_path: Path, kind: str):
    """Also such as would be refused as weights; told from the files they are."""
    folder = building.fill(tmp_path / "i", {"index.pkl": b"\x80\x04.", "d/docs.parquet": "PAR1"})
    assert 1 == Vctl()("manifest", str(folder)).code
    assert 0 == Vctl()("manifest", str(folder), "--kind", kind).code
    manifest = weights.load(folder / "vctl.manifest.json")
    assert "plain" == manifest.kind
    assert ["d/docs.parquet", "index.pkl"] == [file.path for file in manifest.files]
    assert 0 == Vctl()("verify-weights", str(folder)).code


def test_kind_that_is_none_is_2(adapter: Path):
    said = Vctl()("manifest", str(adapter), "--kind", "promt")
    assert (2, "") == (said.code, said.out)
    assert "did you mean 'prompt'?" in said.err

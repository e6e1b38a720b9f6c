"""`vctl release diff`: components, and the tensors that differ where manifests can be read."""

import json
from pathlib import Path

import pytest

from tests.cli import published
from tests.cli.support import Vctl, a_fleet
from tests.weights import building


@pytest.fixture
def two(tmp_path: Path) -> Vctl:
    """Return a fleet with releases 2 and 3, whose adapters differ in one tensor."""
    vctl = a_fleet()
    building.adapter(tmp_path / "v2")
    *rest, last = building.lora()
    changed = last._replace(content=bytes(len(last.content) - 1) + b"1")
    tensors = [*rest, changed]
    building.adapter(tmp_path / "v3", {"adapter_model.safetensors": building.pack(tensors)})
    building.fill(tmp_path / "prompt", {"system.txt": "You are kind."})
    for flags in (
        ("--adapter", str(tmp_path / "v2")),
        ("--adapter", str(tmp_path / "v3"), "--prompt", str(tmp_path / "prompt")),
    ):
        said = vctl("release", "create", "support", *flags)
        assert said.code == 0, said.err
    return vctl


def test_components_and_tensors_that_differ_are_told(two: Vctl):
    said = two("release", "diff", "support", "2", "3")
    assert (1, "") == (said.code, said.err)
    lines = said.out.splitlines()
    assert "release 2 -> 3 of support" == lines[0]
    assert lines[1].startswith("adapter=2 -> adapter=3,prompt=1")
    assert lines[2].startswith("adapter   changed   b3:")
    assert any("tensor" in line and "lora_" in line for line in lines[3:])
    assert any(line.startswith("prompt    added     none -> b3:") for line in lines)
    assert any(line.strip().endswith("to move") for line in lines)


def test_diff_is_published_json(two: Vctl):
    said = two("release", "diff", "2", "3", "-o", "json")
    assert ["release-diff"] == published.check(said.out)
    view = json.loads(said.out)
    adapter, prompt = view["components"]
    assert ("changed", True) == (adapter["change"], adapter["is_compared"])
    (tensor,) = {each["tensor"] for each in adapter["differences"] if each["tensor"]}
    assert building.lora()[-1].name == tensor
    assert 0 < adapter["move_bytes"]
    assert ("added", False, "") == (prompt["change"], prompt["is_compared"], prompt["why_not"])


def test_release_is_equal_to_itself(two: Vctl):
    said = two("release", "diff", "3", "3")
    assert (0, "") == (said.code, said.err)
    assert "adapter   same      b3:" in said.out


def test_manifest_that_cannot_be_read_is_said_and_is_no_failure(two: Vctl, tmp_path: Path):
    (tmp_path / "v2" / "vctl.manifest.json").unlink()
    said = two("release", "diff", "2", "3")
    assert 1 == said.code
    assert f"not compared: no manifest lies beside {(tmp_path / 'v2').as_uri()}" in said.out


def test_manifest_of_other_bytes_is_not_taken_for_the_release(two: Vctl, tmp_path: Path):
    other = (tmp_path / "v3" / "vctl.manifest.json").read_bytes()
    (tmp_path / "v2" / "vctl.manifest.json").write_bytes(other)
    said = two("release", "diff", "2", "3", "-o", "json")
    adapter = json.loads(said.out)["components"][0]
    assert (False, ()) == (adapter["is_compared"], tuple(adapter["differences"]))
    assert adapter["why_not"]


def test_source_that_is_gone_is_said(two: Vctl):
    said = two("release", "diff", "1", "2")
    assert 1 == said.code
    assert "not compared: " in said.out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("2", "9"), "release 9 of support does not exist; known: 1, 2, 3"),
        (("2",), "'2' is not [SERVICE] A B"),
        (("2", "x"), "'2 x' is not [SERVICE] A B"),
        (("suport", "2", "3"), "did you mean 'support'?"),
        (("other", "2", "3", "-s", "support"), "both name one"),
    ],
)
def test_what_is_not_there_is_refused(two: Vctl, words: tuple[str, ...], told: str):
    said = two("release", "diff", *words)
    assert (2, "") == (said.code, said.out)
    assert told in said.err

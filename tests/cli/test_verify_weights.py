"""`vctl verify-weights`: roots on stdout, differences named, exit codes."""

import json
from pathlib import Path

import pytest

from tests.cli.support import Vctl
from tests.weights import building
from vctl_plans import weights


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    return building.adapter(tmp_path / "v1", {"training_args.bin": b"x"})


def flip(adapter: Path) -> None:
    path = adapter / "adapter_model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_root_is_printed_and_what_is_left_out(adapter: Path):
    said = Vctl()("verify-weights", str(adapter))
    assert (said.code, said.err) == (0, "")
    assert f"root      {weights.scan(adapter).root}" in said.out.splitlines()
    assert "left out  training_args.bin" in said.out
    assert "verified" not in said.out


def test_right_root_is_verified(adapter: Path):
    root = weights.scan(adapter).root
    said = Vctl()("verify-weights", str(adapter), "--root", root)
    assert (0, f"verified: {root}") == (said.code, said.out.splitlines()[-1])


def test_wrong_root_is_1_and_both_are_shown(adapter: Path):
    wrong = f"b3:{'0' * 64}"
    said = Vctl()("verify-weights", str(adapter), "--root", wrong)
    assert said.code == 1
    assert weights.scan(adapter).root in said.out
    assert f"NOT what was expected: {wrong}" == said.out.splitlines()[-1]


def test_manifest_names_the_tensor_that_differs(adapter: Path):
    manifest = weights.manifest_path(adapter)
    weights.save(weights.scan(adapter), manifest)
    assert Vctl()("verify-weights", str(adapter), "--manifest", str(manifest)).code == 0
    flip(adapter)
    said = Vctl()("verify-weights", str(adapter), "--manifest", str(manifest), "-o", "json")
    view = json.loads(said.out)
    assert (said.code, view["is_verified"]) == (1, False)
    assert "v_proj.lora_B.weight' differs in 1 block" in view["differences"][0]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("no/such/place",), "there is no no/such/place"),
        ((".", "--root", "abc"), "--root: 'abc' is not a root"),
        ((".", "--manifest", "no.json"), "there is no no.json"),
        ((), "missing argument 'PATH'"),
    ],
)
def test_wrong_usage_is_2(arguments: tuple[str, ...], told: str):
    said = Vctl()("verify-weights", *arguments)
    assert (said.code, said.out) == (2, "")
    assert told in said.err


def test_bytes_that_may_not_be_served_are_1(tmp_path: Path):
    place = building.fill(tmp_path / "bad", {"model.safetensors": b"not safetensors at all"})
    said = Vctl()("verify-weights", str(place))
    assert (said.code, said.out) == (1, "")
    assert "model.safetensors" in said.err

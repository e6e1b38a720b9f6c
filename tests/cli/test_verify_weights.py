"""`vctl verify-weights`: roots on stdout, differences named, exit codes."""

import json
import time
from pathlib import Path

import pytest
from blake3 import blake3

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
    assert said.out.splitlines()[-1].startswith("compared with nothing: no manifest lies with it")


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


def saved(adapter: Path) -> weights.Manifest:
    manifest = weights.scan(adapter)
    weights.save(manifest, weights.manifest_path(adapter))
    return manifest


def test_manifest_that_lies_with_the_files_is_taken(adapter: Path):
    root = saved(adapter).root
    said = Vctl()("verify-weights", str(adapter))
    assert (0, "") == (said.code, said.err)
    assert said.out.splitlines()[-1] == f"verified: {root}"
    flip(adapter)
    said = Vctl()("verify-weights", str(adapter))
    assert (1, "") == (said.code, said.err)
    assert "lora_B.weight' differs in 1 block, bytes " in said.out
    assert said.out.splitlines()[-1] == f"NOT what was expected: {root}"


def test_difference_is_a_record_for_programs(adapter: Path, tmp_path: Path):
    elsewhere = tmp_path / "m.json"
    weights.save(weights.scan(adapter), elsewhere)
    flip(adapter)
    said = Vctl()("verify-weights", str(adapter), "--manifest", str(elsewhere), "-o", "json")
    view = json.loads(said.out)
    size = (adapter / "adapter_model.safetensors").stat().st_size
    assert (said.code, said.err, view["kind"]) == (1, "", "verification")
    assert (view["is_verified"], view["manifest"]) == (False, str(elsewhere))
    (found,) = view["differences"]
    assert found.pop("text").endswith(f"differs in 1 block, bytes {size - 128}-{size - 1}")
    assert found == {
        "kind": "content",
        "path": "adapter_model.safetensors",
        "tensor": "base_model.model.layers.0.self_attn.v_proj.lora_B.weight",
        "blocks": [0],
        "ranges": [[size - 128, size]],
        "move_bytes": 128,
        "hint": "",
    }


def test_files_missing_and_extra_are_told(tmp_path: Path):
    folder = building.fill(tmp_path / "p", {"a.txt": "1", "b.txt": "2"})
    saved(folder)
    (folder / "a.txt").rename(folder / "c.txt")
    said = Vctl()("verify-weights", str(folder))
    assert (1, "") == (said.code, said.err)
    lines = said.out.splitlines()
    assert ["differs   a.txt is missing", "differs   c.txt is extra"] == lines[2:4]


def test_manifest_of_another_root_is_not_used_unless_it_was_asked_for(adapter: Path):
    other = building.adapter(adapter.parent / "v2", {"adapter_config.json": " {}"})
    building.fill(other, {"adapter_config.json": building.adapter_config(lora_alpha=9)})
    root = weights.scan(other).root
    place = adapter / "vctl.manifest.json"
    weights.save(weights.scan(adapter), other / "vctl.manifest.json")
    said = Vctl()("verify-weights", str(other), "--root", root)
    assert (0, f"verified: {root}") == (said.code, said.out.splitlines()[-1])
    assert said.err == f"{other / 'vctl.manifest.json'} is of another root: not used\n"
    weights.save(weights.scan(adapter), place)
    said = Vctl()("verify-weights", str(other), "--root", root, "--manifest", str(place))
    assert (1, "") == (said.code, said.out)
    assert f"the manifest is of {weights.scan(adapter).root}, not of {root}" in said.err


def test_manifest_that_is_damaged_is_1(adapter: Path):
    building.fill(adapter, {"vctl.manifest.json": "{}"})
    said = Vctl()("verify-weights", str(adapter))
    assert (1, "") == (said.code, said.out)
    assert said.err.startswith(
        f"vctl: {adapter}/vctl.manifest.json: the manifest does not validate"
    )


Q_A = "base_model.model.layers.0.self_attn.q_proj.lora_A.weight"
V_B = "base_model.model.layers.0.self_attn.v_proj.lora_B.weight"


@pytest.mark.parametrize("which", ["", "root", "content_root"])
def test_tensor_alone_is_verified_by_its_proof(adapter: Path, which: str):
    manifest = saved(adapter)
    root = ("--root", getattr(manifest, which)) if which else ()
    flip(adapter)  # of v_proj's
    said = Vctl()("verify-weights", str(adapter), "--tensor", Q_A, *root)
    assert (0, "") == (said.code, said.err)
    assert said.out.splitlines()[-1] == f"verified: {getattr(manifest, which or 'root')}"
    said = Vctl()("verify-weights", str(adapter), "--tensor", V_B, *root, "-o", "json")
    view = json.loads(said.out)
    assert (1, "") == (said.code, said.err)
    assert ("tensor-verification", V_B, False) == (
        view["kind"],
        view["tensor"],
        view["is_verified"],
    )
    assert [0] == view["differences"][0]["blocks"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--tensor", Q_A[:-1]), "did you mean"),
        (("--tensor", Q_A, "--b3sum"), "with --tensor neither --b3sum nor --since-verified"),
        (("--tensor", Q_A, "--since-verified"), "with --tensor neither"),
        (("--tensor", Q_A, "--root", f"b3:{'0' * 64}"), "a tensor alone needs a manifest"),
    ],
)
def test_tensor_alone_needs_what_proves_it(adapter: Path, arguments: tuple[str, ...], told: str):
    saved(adapter)
    said = Vctl()("verify-weights", str(adapter), *arguments)
    assert (2, "") == (said.code, said.out)
    assert told in said.err


def test_b3sum_lines_are_those_of_b3sum(adapter: Path):
    said = Vctl()("verify-weights", str(adapter), "--b3sum")
    expected = [
        f"{blake3((adapter / name).read_bytes()).hexdigest()}  {adapter}/{name}"
        for name in ("adapter_config.json", "adapter_model.safetensors")
    ]
    assert (0, "") == (said.code, said.err)
    assert expected == [line for line in said.out.splitlines() if line[64:66] == "  "]
    said = Vctl()("verify-weights", str(adapter), "--b3sum", "-o", "json")
    assert expected == list(json.loads(said.out)["b3sum"].values())


def test_since_verified_says_what_it_did_not_read(adapter: Path, monkeypatch: pytest.MonkeyPatch):
    later = time.time_ns() + 10**10
    monkeypatch.setattr("vctl_plans.weights.verified.time.time_ns", lambda: later)
    vctl = Vctl(env={"XDG_STATE_HOME": str(adapter.parent / "state")})
    root = saved(adapter).root
    for arguments in ((), ("--since-verified",)):  # without it nothing is remembered
        first = vctl("verify-weights", str(adapter), *arguments)
        assert (0, False) == (first.code, "not read" in first.out)
    again = vctl("verify-weights", str(adapter), "--since-verified")
    assert (0, "") == (again.code, again.err)
    assert "not read  adapter_model.safetensors: unchanged since it was verified" in again.out
    assert again.out.splitlines()[-1] == f"verified: {root}"
    assert "not read" not in vctl("verify-weights", str(adapter)).out


def test_since_verified_remembers_nothing_that_differs(
    adapter: Path, monkeypatch: pytest.MonkeyPatch
):
    later = time.time_ns() + 10**10
    monkeypatch.setattr("vctl_plans.weights.verified.time.time_ns", lambda: later)
    state = adapter.parent / "state"
    vctl = Vctl(env={"XDG_STATE_HOME": str(state)})
    said = vctl("verify-weights", str(adapter), "--since-verified", "--root", f"b3:{'0' * 64}")
    assert (1, False) == (said.code, state.exists())
    state.write_text("a file where the folder should be")
    saved(adapter)
    said = vctl("verify-weights", str(adapter), "--since-verified")
    assert 0 == said.code
    assert said.err.startswith("what was verified is not remembered: ")


def test_direct_reads_and_threads_change_nothing(adapter: Path):
    root = saved(adapter).root
    said = Vctl()("verify-weights", str(adapter), "--direct", "--threads", "1")
    assert (0, f"verified: {root}") == (said.code, said.out.splitlines()[-1])


def test_kind_can_be_said(tmp_path: Path):
    folder = building.fill(
        tmp_path / "p", {"unet/model.safetensors": building.pack([building.u8("a", b"1")])}
    )
    refused = Vctl()("verify-weights", str(folder))
    assert (1, "") == (refused.code, refused.out)
    assert "a pipeline of several models" in refused.err
    said = Vctl()("verify-weights", str(folder), "--kind", "plain")
    assert (0, "") == (said.code, said.err)
    assert ": plain, " in said.out


def test_header_over_the_limit_is_1_and_the_limit_can_be_raised(tmp_path: Path):
    header = b"{}" + b" " * 4096
    folder = building.fill(tmp_path / "m", {"model.safetensors": building.with_length(header)})
    said = Vctl()("verify-weights", str(folder), "--max-header", "4KiB")
    assert (1, "") == (said.code, said.out)
    assert "the header's length 4098 is over the limit of 4096 bytes" in said.err
    assert 0 == Vctl()("verify-weights", str(folder), "--max-header", "8KiB").code


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("no/such/place",), "there is no no/such/place"),
        ((".", "--root", "abc"), "--root: 'abc' is not a root"),
        ((".", "--manifest", "no.json"), "there is no no.json"),
        ((), "PATH: missing"),
        ((".", "--threads", "0"), "--threads"),
        ((".", "--max-header", "lots"), "--max-header: 'lots' is not a size"),
        ((".", "--max-header", "1GiB"), "--max-header: the format's headers end at 100 MB"),
        ((".", "--kind", "modle"), "did you mean 'model'?"),
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

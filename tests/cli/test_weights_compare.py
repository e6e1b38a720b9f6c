"""`vctl weights compare`: exit codes, tables, JSON, and what is said when numpy is missing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.support import Terminal, Vctl
from tests.weights.building import Made, pack, zeros

ROOT = Path(__file__).parents[2]
ONE = Made("w", "BF16", (2,), b"\x80\x3f\x80\x3f")
CLOSE = Made("w", "BF16", (2,), b"\x80\x3f\x83\x3f")  # 3 ULP
FAR = Made("w", "BF16", (2,), b"\x80\x3f\x84\x3f")  # 4 ULP


def write(path: Path, *tensors: Made) -> str:
    path.write_bytes(pack(tensors))
    return str(path)


@pytest.fixture
def one(tmp_path: Path) -> str:
    return write(tmp_path / "one.safetensors", ONE)


@pytest.fixture
def close(tmp_path: Path) -> str:
    return write(tmp_path / "close.safetensors", CLOSE)


@pytest.fixture
def far(tmp_path: Path) -> str:
    return write(tmp_path / "far.safetensors", FAR)


def test_within_is_0(one: str, close: str):
    said = Vctl()("weights", "compare", one, close, "--ulp")
    assert (said.code, said.err) == (0, "")
    assert [
        f"A {one}",
        f"B {close}",
        "TENSOR  DTYPE  ELEMENTS  DIFFER  MAX ULP  MEAN ULP  STATUS",
        "w       BF16   2         1       3        1.5       within",
        "within nvidia-gpu (BF16 3.5 ULP): 1 tensor: 1 within",
    ] == said.out.splitlines()


def test_beyond_is_1_and_the_worst_is_shown(one: str, far: str):
    said = Vctl()("weights", "compare", one, far)
    assert (said.code, said.err) == (1, "")
    assert (
        "beyond: 1 of 2 elements are more than 3.5 ULP apart; worst at [1]: 1 and 1.03125"
        in said.out
    )
    assert "NOT within nvidia-gpu (BF16 3.5 ULP): 1 tensor: 1 beyond" == said.out.splitlines()[-1]


@pytest.mark.parametrize(
    ("tolerance", "code"),
    [("ascend-npu", 0), ("google-tpu", 1), ("4", 0), ("3.9", 1), ("google-tpu,BF16=4", 0)],
)
def test_tolerance_decides(one: str, far: str, tolerance: str, code: int):
    said = Vctl()("weights", "compare", one, far, "--tolerance", tolerance)
    assert (said.code, said.err) == (code, "")


def test_equal_bytes_need_no_line(one: str):
    said = Vctl()("weights", "compare", one, one, "--tolerance", "0")
    assert (said.code, said.err) == (0, "")
    assert "within 0 (BF16 0 ULP): 1 tensor: 1 equal" == said.out.splitlines()[-1]
    assert "TENSOR" not in said.out


def test_json_says_all(one: str, far: str):
    said = Vctl()("weights", "compare", one, far, "-o", "json")
    view = json.loads(said.out)
    assert (said.code, said.err) == (1, "")
    assert ("comparison", 1, False) == (view["kind"], view["v"], view["is_within"])
    assert view["limits_ulp"]["BF16"] == 3.5
    (tensor,) = view["tensors"]
    assert (tensor["status"], tensor["unit"], tensor["max_ulp"]) == ("beyond", "BF16", 4.0)
    assert tensor["worst"] == [1.0, 1.03125]


def test_f32_without_a_limit_is_said(tmp_path: Path):
    a = write(tmp_path / "a.safetensors", Made("w", "F32", (), b"\0\0\x80\x3f"))
    b = write(tmp_path / "b.safetensors", Made("w", "F32", (), b"\1\0\x80\x3f"))
    said = Vctl()("weights", "compare", a, b)
    assert said.code == 1
    hint = "nvidia-gpu has no limit for F32; set one: --tolerance nvidia-gpu,F32=N\n"
    assert hint == said.err
    said = Vctl()("weights", "compare", a, b, "--tolerance", "nvidia-gpu,F32=1")
    assert (said.code, said.err) == (0, "")


def test_mismatches_are_1_the_worst_first(tmp_path: Path, one: str):
    other = write(
        tmp_path / "other.safetensors",
        Made("w", "BF16", (2,), b"\x80\x3f\x80\x7f"),
        zeros("extra", "I8", 1),
    )
    said = Vctl()("weights", "compare", one, other)
    assert (said.code, said.err) == (1, "")
    rows = said.out.splitlines()[3:5]
    assert rows[0].startswith("extra")
    assert rows[0].endswith("extra: not in A")
    assert rows[1].endswith(
        "mismatch: 1 of 2 elements are finite, infinite or NaN on one side only; first at [1]"
    )


def test_named_tensors(tmp_path: Path, one: str):
    both = write(tmp_path / "both.safetensors", ONE, zeros("more", "I8", 1))
    assert Vctl()("weights", "compare", one, both).code == 1
    assert Vctl()("weights", "compare", one, both, "--tensor", "w").code == 0
    said = Vctl()("weights", "compare", one, both, "--tensor", "w", "--tensor", "x")
    assert (said.code, said.out) == (2, "")
    assert "neither side has a tensor 'x'" in said.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("no/such", "."), "there is no no/such"),
        ((".", "no/such"), "there is no no/such"),
        ((".", ".", "--tolerance", "amd"), "--tolerance: 'amd' is no kind of device and no number"),
        ((".",), "missing argument 'B'"),
    ],
)
def test_wrong_usage_is_2(arguments: tuple[str, ...], told: str):
    said = Vctl()("weights", "compare", *arguments)
    assert (said.code, said.out) == (2, "")
    assert told in said.err


def test_broken_file_is_1(tmp_path: Path, one: str):
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(b"not safetensors")
    said = Vctl()("weights", "compare", one, str(bad))
    assert (said.code, said.out) == (1, "")
    assert "bad.safetensors" in said.err


def test_commands_in_the_docs_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    shown = (ROOT / "docs" / "ulp-tolerances.md").read_text().splitlines()
    commands = [line.split()[1:] for line in shown if line.startswith("    vctl weights compare")]
    assert len(commands) == 3
    norm = Made("model.norm.weight", "BF16", (1,), b"\x80\x3f")
    for name in ("merged-on-gpu", "merged-on-tpu", "model-bf16", "A", "B"):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "model.safetensors", norm)
    write(tmp_path / "model-f32.safetensors", norm._replace(dtype="F32", content=b"\0\0\x80\x3f"))
    monkeypatch.chdir(tmp_path)
    for command in commands:
        said = Vctl()(*command)
        assert (said.code, said.err) == (0, ""), command


def test_terminal_gets_the_same_table(one: str, close: str):
    plain = Vctl()("weights", "compare", one, close).out
    assert plain == Vctl(out=Terminal())("weights", "compare", one, close).out


def run(*arguments: str, before: str = "") -> subprocess.CompletedProcess[str]:
    code = f"import sys; {before}; from vctl_cli.app import main; main()"
    path = os.pathsep.join(str(ROOT / room) for room in ("cli", "plans"))
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": path, "HOME": "/nonexistent"},
    )


def test_without_numpy_it_says_what_to_install(one: str):
    done = run("weights", "compare", one, one, before="sys.modules['numpy'] = None")
    assert (done.returncode, done.stdout) == (2, "")
    assert [
        "vctl: comparing weights as numbers needs numpy",
        "  pip install 'vctl-rollout[compare]'",
    ] == done.stderr.splitlines()


def test_help_needs_no_numpy():
    for arguments in (("--help",), ("weights", "compare", "--help")):
        done = run(*arguments, before="sys.modules['numpy'] = None")
        assert (done.returncode, done.stderr) == (0, "")
        assert "compare" in done.stdout.lower()

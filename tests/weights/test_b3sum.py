"""Digests of whole files, as b3sum prints them."""

import os
import shutil
import subprocess

import pytest
from blake3 import blake3

from tests.weights.building import adapter, fill, pack, u8
from vctl_plans.errors import FileChanged, NotAllowed
from vctl_plans.weights import b3sum

MIB = 1 << 20


@pytest.mark.parametrize("size", [0, 1, MIB, 4 * MIB - 1, 4 * MIB, 4 * MIB + 1, 13 * MIB + 7])
def test_b3sum_digest_is_that_of_the_whole_file(tmp_path, size):
    content = os.urandom(size)
    fill(tmp_path, {"a": content, "b": b"x"})
    seen: list[tuple[int, int]] = []
    found = b3sum.file_digests(tmp_path, progress=lambda done, total: seen.append((done, total)))
    assert list(found) == [
        (f"{tmp_path}/a", blake3(content).hexdigest()),
        (f"{tmp_path}/b", blake3(b"x").hexdigest()),
    ]
    assert seen[-1] == (size + 1, size + 1)


def test_b3sum_takes_the_files_of_the_artifact(tmp_path):
    folder = adapter(tmp_path / "a", {"training_args.bin": "x"})
    names = [path.rpartition("/")[2] for path, _ in b3sum.file_digests(folder)]
    assert names == ["adapter_config.json", "adapter_model.safetensors"]
    assert list(b3sum.file_digests(folder, kind="plain"))[-1][0] == f"{folder}/training_args.bin"


def test_b3sum_agrees_with_the_program(tmp_path, monkeypatch):
    if not shutil.which("b3sum"):
        pytest.skip("b3sum is not installed")
    monkeypatch.chdir(fill(tmp_path, {"model.safetensors": pack([u8("w", os.urandom(9 * MIB))])}))
    said = subprocess.run(
        ["b3sum", "model.safetensors"], capture_output=True, text=True, check=True
    )
    ((path, digest),) = b3sum.file_digests("model.safetensors")
    assert said.stdout == b3sum.line(path, digest) + "\n"


@pytest.mark.parametrize(
    ("path", "shown"),
    [("a b", "d  a b"), ("a\\b", "\\d  a\\\\b"), ("a\nb", "\\d  a\\nb"), ("a\rb", "\\d  a\\rb")],
)
def test_b3sum_line_is_escaped_as_b3sum_does(path, shown):
    assert b3sum.line(path, "d") == shown


def test_b3sum_notices_a_change(tmp_path):
    fill(tmp_path, {"a": bytes(10)})
    with pytest.raises(FileChanged, match="mtime_ns"):
        list(b3sum.file_digests(tmp_path, progress=lambda *_: os.utime(tmp_path / "a", ns=(1, 1))))
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(NotAllowed):
        list(b3sum.file_digests(tmp_path))


def test_b3sum_may_be_left_half_way(tmp_path):
    fill(tmp_path, {"a": bytes(9 * MIB), "b": "x"})
    found = b3sum.file_digests(tmp_path)
    assert next(found)[0].endswith("/a")
    found.close()  # type: ignore[attr-defined]

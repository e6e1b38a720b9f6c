"""What was verified before is not read again, and nothing else is skipped."""

import os
import time
from pathlib import Path

import pytest

from tests.weights.building import fill, pack, u8
from vctl_plans.errors import ArtifactError
from vctl_plans.weights import Verified, scan, verified

LATER_NS = 10**10


@pytest.fixture
def model(tmp_path: Path) -> Path:
    content = pack([u8("w", os.urandom(3000))])
    return fill(tmp_path / "m", {"model.safetensors": content, "config.json": "{}"})


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "state" / "verified"


def memory(place: Path, *, later_ns: int = LATER_NS) -> Verified:
    """One that is asked when the files are old enough."""
    return Verified(place, now_ns=time.time_ns() + later_ns)


def remembered(model: Path, place: Path) -> None:
    first = memory(place)
    scan(model, verified=first)
    assert first.skipped == []
    first.keep()


def test_verified_files_are_not_read_again(model, place, monkeypatch):
    manifest = scan(model)
    remembered(model, place)
    monkeypatch.setattr("vctl_plans.weights.engine.fill", None)  # no data can be read
    seen: list[tuple[int, int]] = []
    again = memory(place)
    found = scan(model, verified=again, progress=lambda done, total: seen.append((done, total)))
    assert found == manifest
    assert again.skipped == ["config.json", "model.safetensors"]
    assert seen[-1][0] == seen[-1][1]
    assert place.stat().st_mode & 0o777 == 0o700


def test_verified_is_what_was_kept(model, place):
    scan(model, verified=memory(place))  # noted, but not found to be right
    again = memory(place)
    scan(model, verified=again)
    assert again.skipped == []


@pytest.mark.parametrize("what", ["mtime", "size", "inode", "ctime"])
def test_verified_file_that_changed_is_read(model, place, what):
    remembered(model, place)
    path = model / "model.safetensors"
    before = path.stat()
    content = path.read_bytes()
    if what == "mtime":
        os.utime(path, ns=(1, 1))
    elif what == "size":
        path.write_bytes(pack([u8("w", b"1")]))
    elif what == "inode":
        (model / "new").write_bytes(content)
        (model / "new").replace(path)
    else:
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    again = memory(place)
    assert scan(model, verified=again) == scan(model)
    assert again.skipped == ["config.json"]


def test_verified_file_that_is_new_is_not_remembered(model, place):
    first = memory(place, later_ns=0)
    scan(model, verified=first)
    first.keep()
    again = memory(place)
    scan(model, verified=again)
    assert again.skipped == []


def test_verified_knows_how_a_file_was_hashed(model, place):
    remembered(model, place)
    again = memory(place)
    scan(model, kind="plain", verified=again)
    assert again.skipped == ["config.json"]


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "other"])
def test_verified_that_is_damaged_is_not_believed(model, place, damage):
    remembered(model, place)
    for entry in place.iterdir():
        raw = bytearray(entry.read_bytes())
        raw[len(raw) // 2] ^= 1
        content = {"flip": bytes(raw), "cut": bytes(raw[:-9]), "empty": b"", "other": b"x" * 99}
        entry.write_bytes(content[damage])
    again = memory(place)
    assert scan(model, verified=again) == scan(model)
    assert again.skipped == []


def test_verified_forgets_the_oldest(model, place, monkeypatch):
    monkeypatch.setattr(verified, "MAX_FILES", 1)
    remembered(model, place)
    assert len(list(place.iterdir())) == 1


def test_verified_says_when_it_can_not_remember(model, tmp_path):
    (tmp_path / "file").write_text("")
    broken = memory(tmp_path / "file" / "verified")
    scan(model, verified=broken)
    with pytest.raises(ArtifactError, match="can't be written: Not a directory"):
        broken.keep()

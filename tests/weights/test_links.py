"""The links of a Hugging Face cache are understood; no other link is, and none is followed."""

from hashlib import sha256
from pathlib import Path

import pytest

from tests.weights.building import fill, pack, u8
from vctl_plans.errors import ArtifactError, FileChanged, NotAllowed
from vctl_plans.weights import scan
from vctl_plans.weights.b3sum import file_digests

WEIGHTS = pack([u8("w", bytes(5000))])
FILES = {"model.safetensors": WEIGHTS, "config.json": b"{}"}
TEMPLATE = "additional_chat_templates/tools.jinja"


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    """`models--org--name/snapshots/abc`, as huggingface_hub lays it out."""
    folder = tmp_path / "models--org--name" / "snapshots" / "abc"
    for name, content in {**FILES, TEMPLATE: b"x"}.items():
        link(folder, name, content)
    return folder


def link(folder: Path, name: str, content: bytes) -> Path:
    blob = sha256(content).hexdigest()
    fill(folder.parents[1] / "blobs", {blob: content})
    place = folder / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to("../" * (2 + name.count("/")) + f"blobs/{blob}")
    return place


def test_links_of_a_snapshot_are_its_files(snapshot, tmp_path):
    copy = fill(tmp_path / "copy", {**FILES, TEMPLATE: b"x"})
    assert scan(snapshot) == scan(copy)
    assert scan(snapshot, direct=True) == scan(copy)
    assert scan(snapshot / "model.safetensors").content_root == scan(copy).content_root
    assert [digest for _, digest in file_digests(snapshot)] == [d for _, d in file_digests(copy)]


def test_links_of_a_folder_in_a_snapshot_are_its_files(snapshot, tmp_path):
    link(snapshot, "unet/model.safetensors", WEIGHTS)
    copy = fill(tmp_path / "copy", {"model.safetensors": WEIGHTS})
    assert scan(snapshot / "unet") == scan(copy)


def test_links_work_from_within_a_snapshot(snapshot, monkeypatch):
    expected = scan(snapshot)
    monkeypatch.chdir(snapshot)
    assert scan(".") == expected


BLOB = "0" * 64


@pytest.mark.parametrize(
    "target",
    [
        f"../../blobs/../blobs/{BLOB}",
        f"../../../models--org--name/blobs/{BLOB}",
        f"../../../models--org--other/blobs/{BLOB}",
        f"../blobs/{BLOB}",
        f"../../blobs/x/{BLOB}",
        "../../blobs/..",
        "../../blobs/config.json",
        f"../../blobs/{'A' * 64}",
        f"../../blobs//{BLOB}",
        "config.json",
        "/etc/passwd",
        "model.safetensors",
    ],
)
def test_links_of_another_kind_are_refused(snapshot, target):
    for repository in ("name", "other"):
        place = snapshot.parents[2] / f"models--org--{repository}" / "blobs"
        fill(place, {BLOB: WEIGHTS, "config.json": "{}", f"x/{BLOB}": WEIGHTS, "A" * 64: WEIGHTS})
    (snapshot / "model.safetensors").unlink()
    (snapshot / "model.safetensors").symlink_to(target)
    for path in (snapshot, snapshot / "model.safetensors"):
        with pytest.raises(NotAllowed, match="is a symbolic link"):
            scan(path)


def test_links_outside_a_snapshot_are_refused(snapshot, tmp_path):
    elsewhere = tmp_path / "models--org--name" / "others" / "abc"
    elsewhere.parent.mkdir()
    snapshot.rename(elsewhere)
    with pytest.raises(NotAllowed, match="is a symbolic link"):
        scan(elsewhere)


def test_links_to_a_blob_that_is_a_link_are_refused(snapshot, tmp_path):
    blob = (snapshot / "model.safetensors").resolve()
    blob.rename(tmp_path / "elsewhere")
    blob.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotAllowed, match="is a symbolic link"):
        scan(snapshot)


def test_links_to_blobs_that_are_elsewhere_are_refused(snapshot, tmp_path):
    blobs = snapshot.parents[1] / "blobs"
    blobs.rename(tmp_path / "elsewhere")
    blobs.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotAllowed, match="is a symbolic link"):
        scan(snapshot)


def test_links_to_a_blob_that_was_never_fetched_say_so(snapshot):
    (snapshot / "model.safetensors").resolve().unlink()
    with pytest.raises(ArtifactError, match=r"model.safetensors: its blob .* is missing") as told:
        scan(snapshot)
    assert told.value.hint == "download it again"


def test_links_that_move_meanwhile_are_noticed(snapshot):
    def move(done: int, total: int) -> None:
        if done:
            (snapshot / "model.safetensors").unlink(missing_ok=True)
            link(snapshot, "model.safetensors", pack([u8("w", bytes(4999) + b"1")]))

    with pytest.raises(FileChanged, match=r"model.safetensors: changed while it was read.*inode"):
        scan(snapshot, progress=move)

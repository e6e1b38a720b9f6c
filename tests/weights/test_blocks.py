"""The blocks are the artifact: every byte once, each with its digest."""

from pathlib import Path

import pytest

from tests.weights.building import adapter, fill, pack, u8
from vctl_plans import weights
from vctl_plans.errors import NotAllowed
from vctl_plans.weights.merkle import plain

MIB = 1 << 20


@pytest.mark.parametrize("kind", ["model", "plain"])
def test_blocks_cover_every_byte_once(tmp_path: Path, kind: weights.Kind) -> None:
    """Of all forms: headers, tensors of none, one and several leaves, plain files of each size."""
    tensors = [u8("a", b"a" * (2 * MIB + 5)), u8("none", b""), u8("b", b"b" * MIB), u8("c", b"c")]
    files = {"config.json": b"{}", "model.safetensors": pack(tensors)}
    if kind == "plain":
        files |= {"big": b"x" * (3 * MIB + 1), "one": b"y" * MIB, "empty": b"", "d/e": b"z"}
    folder = fill(tmp_path / "m", files)

    for record in (manifest := weights.scan(folder, kind=kind)).files:
        at = 0
        content = (folder / record.path).read_bytes()
        for block in (b for b in weights.blocks(manifest) if b.path == record.path):
            assert at == block.begin < block.end
            assert plain(content[block.begin : block.end]) == block.digest
            at = block.end
        assert len(content) == at == record.size


def test_listing_is_selected_as_the_folder_is(tmp_path: Path) -> None:
    """By the same rule: what lies on disk and what a server lists is the same artifact."""
    folder = adapter(
        tmp_path / "a",
        {"README.md": "x", ".git/config": "x", "additional_chat_templates/a.jinja": "x",
         "training_args.bin": "x", "d/e/f": "x", weights.MANIFEST_NAME: "x"},
    )  # fmt: skip
    paths = [str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()]

    found = weights.select_paths(paths, "adapter", label="s3://b/a")

    scanned = weights.scan(folder, kind="adapter")
    assert tuple(f.path for f in scanned.files) == found.files
    assert tuple((each.path, each.reason) for each in scanned.left_out) == found.left_out


@pytest.mark.parametrize(
    ("paths", "why"),
    [
        (["adapter_config.json"], "adapter_model.safetensors is missing"),
        (["adapter_config.json", "adapter_model.safetensors", "x.safetensors"], "do not belong"),
        (["adapter_config.json", "adapter_model.safetensors/x"], "is a folder"),
        (["a", "a/b"], "is a file and a folder"),
        (["a/b", "a"], "is a file and a folder"),
    ],
)
def test_listing_that_is_no_adapter_is_refused(paths: list[str], why: str) -> None:
    with pytest.raises(NotAllowed, match=why):
        weights.select_paths(paths, "adapter", label="s3://b/a")

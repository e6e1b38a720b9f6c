import base64
import json

import msgspec
import pytest
from blake3 import blake3

from tests.weights.building import fill, pack, u8, zeros
from vctl_plans.errors import ArtifactError, RootMismatch
from vctl_plans.weights import Manifest, decode, encode, load, manifest_path, save, scan

MIB = 1 << 20


@pytest.fixture
def manifest(tmp_path) -> Manifest:
    content = pack([u8("w", bytes(MIB + 1)), zeros("b", "F4", 4), u8("none", b"")])
    files: dict[str, bytes | str] = {
        "model.safetensors": content,
        "config.json": "{}",
        "notes.txt": "x",
    }
    return scan(fill(tmp_path / "m", files))


def changed(manifest: Manifest, *path: str | int, to: object) -> bytes:
    """The manifest's document with one value replaced."""
    document = json.loads(encode(manifest))
    at = document
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = to
    return json.dumps(document).encode()


def test_manifest_comes_back_from_its_document(manifest):
    document = encode(manifest)
    assert decode(document) == decode(document, root=manifest.root) == manifest
    assert encode(decode(document)) == document


def test_manifest_has_one_document_whatever_its_spelling(manifest):
    document = json.loads(encode(manifest))
    spelled = json.dumps(dict(reversed(document.items())), indent=2).encode()
    assert encode(decode(spelled)) == encode(manifest)


def test_manifest_reads_as_documented(manifest):
    document = json.loads(encode(manifest))
    assert list(document) == ["v", "kind", "root", "content_root", "files", "tensors", "left_out"]
    assert document["v"] == 1
    assert document["files"][0] == {
        "path": "config.json",
        "size": 2,
        "digest": f"b3:{blake3(b'{}').hexdigest()}",
    }
    assert document["left_out"] == [{"path": "notes.txt", "reason": "not needed to serve"}]
    leaves = blake3(bytes(MIB)).digest() + blake3(bytes(1)).digest()
    assert document["tensors"][2] == {
        "name": "w",
        "dtype": "U8",
        "shape": [MIB + 1],
        "size": MIB + 1,
        "digest": manifest.tensors[2].digest,
        "leaves": base64.b64encode(leaves).decode(),
    }


ZERO = "b3:" + "0" * 64
OTHER_LEAF = base64.b64encode(bytes(64)).decode()

# What is changed, to what, and what is told.
UNTRUE = [
    (("root",), ZERO, "roots or order"),
    (("content_root",), ZERO, "roots or order"),
    (("kind",), "mixed", "Invalid enum value 'mixed'"),
    (("v",), 2, "schema 2; this version of vctl knows 1"),
    (("v",), "1", "does not validate"),
    (("more",), 1, "unknown field `more`"),
    (("root",), "b3:12", "matching regex"),
    (("root",), ZERO + "\n", "matching regex"),
    (("root",), ZERO.upper(), "matching regex"),
    (("files", 0, "path"), "../config.json", "not a plain path"),
    (("files", 0, "path"), "/config.json", "not a plain path"),
    (("files", 0, "path"), "a//b", "not a plain path"),
    (("files", 0, "path"), "a\\b", "backslash or a colon"),
    (("files", 0, "path"), "c:x", "backslash or a colon"),
    (("files", 0, "path"), "a\nb", "can't be shown"),
    (("files", 0, "path"), "model.safetensors", "a path appears twice"),
    (("files", 0, "path"), "z.json", "roots or order"),
    (("files", 0, "size"), 3, "roots or order"),
    (("files", 0, "size"), -1, ">= 0"),
    (("files", 0, "digest"), ZERO, "roots or order"),
    (("files", 0, "tensors"), ["w"], "each tensor must be in one file"),
    (("files", 1, "tensors"), ["w", "b"], "each tensor must be in one file"),
    (("files", 1, "tensors"), ["b", "w", "none"], "digest of model.safetensors"),
    (("files", 1, "header"), None, "has tensors but no header"),
    (("files", 1, "header"), ZERO, "digest of model.safetensors"),
    (("files", 1, "header_size"), 9, "sizes of model.safetensors"),
    (("tensors", 0, "name"), "c", "each tensor must be in one file"),
    (("tensors", 0, "dtype"), "F5", "do not agree"),
    (("tensors", 0, "dtype"), "F8_E4M3", "do not agree"),
    (("tensors", 0, "shape"), [2, 2], "digest of 'b'"),
    (("tensors", 0, "shape"), [5], "do not agree"),
    (("tensors", 0, "shape"), [2**62] * 5, "do not agree"),
    (("tensors", 0, "size"), 3, "do not agree"),
    (("tensors", 0, "leaves"), "", "wrong number of leaves"),
    (("tensors", 0, "digest"), ZERO, "digest of 'b'"),
    (("tensors", 2, "leaves"), OTHER_LEAF, "digest of 'w'"),
    (("tensors", 2, "leaves"), "%%%", "does not validate"),
]


@pytest.mark.parametrize(("path", "to", "told"), UNTRUE)
def test_manifest_that_is_untrue_is_refused(manifest, path, to, told):
    with pytest.raises(ArtifactError, match=told.replace("(", r"\(")):
        decode(changed(manifest, *path, to=to))


def test_manifest_of_another_root_is_refused(manifest):
    with pytest.raises(RootMismatch, match=f"is of {manifest.root}, not of {ZERO}"):
        decode(encode(manifest), root=ZERO)


def test_manifest_remarks_are_outside_the_root(manifest):
    other = decode(changed(manifest, "left_out", to=[]), root=manifest.root)
    assert msgspec.structs.replace(manifest, left_out=()) == other


@pytest.mark.parametrize(
    "document", [b"", b"{", b"null", b"[]", b'{"v":1}', b"\xff", b"[" * 100_000, b'{"v":1e999}']
)
def test_manifest_that_is_none_is_refused(document):
    with pytest.raises(ArtifactError, match="the manifest does not validate"):
        decode(document)


def test_manifest_path_is_in_the_directory_or_beside_the_file(tmp_path, monkeypatch):
    place = tmp_path / "v8" / "vctl.manifest.json"
    (tmp_path / "v8").mkdir()
    for name in ("v8", "v8/", "x/../v8"):
        assert manifest_path(f"{tmp_path}/{name}") == place
    single = tmp_path / "a.safetensors"
    assert manifest_path(single) == tmp_path / "a.safetensors.vctl.manifest.json"
    monkeypatch.chdir(tmp_path / "v8")
    assert manifest_path(".") == place


def test_manifest_is_saved_whole(manifest, tmp_path):
    path = manifest_path(tmp_path / "m")
    path.write_text("an older one")
    save(manifest, path)
    assert load(path, root=manifest.root) == manifest
    assert path.parent == tmp_path / "m"
    assert not [entry.name for entry in path.parent.iterdir() if entry.name.startswith(".")]
    assert path.stat().st_mode & 0o777 == 0o644


def test_manifest_beside_or_among_the_files_changes_nothing(manifest, tmp_path):
    save(manifest, tmp_path / "m" / "vctl.manifest.json")
    assert scan(tmp_path / "m") == manifest  # its own is not even listed
    save(manifest, tmp_path / "m" / "x.vctl.manifest.json")
    again = scan(tmp_path / "m")
    assert again.root == manifest.root
    assert {left.reason for left in again.left_out} == {"a manifest", "not needed to serve"}


@pytest.mark.parametrize("size", [MIB + 1, 2 * MIB])
def test_manifest_keeps_the_blocks_of_a_large_plain_file(tmp_path, size):
    manifest = scan(fill(tmp_path, {"index": bytes(size), "note": "x"}), kind="plain")
    large, small = manifest.files
    assert (len(large.leaves), small.leaves) == (64, b"")
    assert decode(encode(manifest)) == manifest
    for to, told in ((ZERO, "digest of index is not that of its leaves"),):
        with pytest.raises(RootMismatch, match=told):
            decode(changed(manifest, "files", 0, "digest", to=to))
    for number, leaves in ((0, ""), (1, OTHER_LEAF)):
        with pytest.raises(ArtifactError, match="the wrong number of leaves"):
            decode(changed(manifest, "files", number, "leaves", to=leaves))


def test_manifest_of_safetensors_has_leaves_in_its_tensors_only(manifest):
    with pytest.raises(ArtifactError, match="has leaves of its own"):
        decode(changed(manifest, "files", 1, "leaves", to=OTHER_LEAF))


def test_manifest_read_shallowly_leaves_leaves_unchecked(manifest):
    untrue = changed(manifest, "tensors", 2, "leaves", to=OTHER_LEAF)
    assert decode(untrue, is_shallow=True).root == manifest.root
    with pytest.raises(RootMismatch, match="digest of 'w'"):
        decode(untrue)
    with pytest.raises(RootMismatch, match=r"digest of model.safetensors is not that of its parts"):
        decode(changed(manifest, "tensors", 2, "digest", to=ZERO), is_shallow=True)


def test_manifest_file_errors_name_the_file(manifest, tmp_path):
    path = tmp_path / "x.json"
    with pytest.raises(ArtifactError, match=r"x.json: can't be read: No such file"):
        load(path)
    path.write_bytes(b"{}")
    with pytest.raises(ArtifactError, match=r"x.json: the manifest does not validate"):
        load(path)
    path.write_bytes(encode(manifest))
    with pytest.raises(RootMismatch, match=r"x.json: the manifest is of"):
        load(path, root=ZERO)
    with pytest.raises(ArtifactError, match="can't be written: No such file"):
        save(manifest, tmp_path / "nowhere" / "x.json")
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    with pytest.raises(ArtifactError, match="can't be written: Is a directory"):
        save(manifest, tmp_path / "folder")
    assert not [name for name in tmp_path.iterdir() if name.name.startswith(".")]

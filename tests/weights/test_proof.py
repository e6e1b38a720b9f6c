"""One tensor alone: its proof leads to both roots, and only its bytes are read."""

import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.weights.building import fill, pack, sharded, u8, zeros
from vctl_plans.errors import (
    ArtifactError,
    FileChanged,
    MalformedWeights,
    NotAllowed,
    RootMismatch,
)
from vctl_plans.weights import Difference, Manifest, prove, scan, verify_tensor
from vctl_plans.weights.files import fill as read_into

MIB = 1 << 20
ZERO = "b3:" + "0" * 64
TENSORS = [u8("first", b"12345678"), u8("w", os.urandom(2 * MIB + 3)), zeros("last", "F32", 2)]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    fill(tmp_path / "m", {"model.safetensors": pack(TENSORS)})
    return fill(tmp_path / "m", {"config.json": "{}", "tokenizer.json": "{}"})


def flip(folder: Path, at: int) -> None:
    with (folder / "model.safetensors").open("r+b") as file:
        file.seek(at, os.SEEK_END if at < 0 else os.SEEK_SET)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


@given(st.integers(1, 9), st.integers(1, 4), st.data())
@settings(max_examples=30, deadline=None)
def test_proof_of_each_tensor_leads_to_both_roots(tmp_path_factory, count, cuts, data):
    tensors = [u8(f"t{i}", bytes([i])) for i in range(count)]
    shards = {f"s{n}.safetensors": tensors[n::cuts] for n in range(min(cuts, count))}
    manifest = scan(sharded(tmp_path_factory.mktemp("m"), shards))
    proof = prove(manifest, data.draw(st.sampled_from(tensors)).name)
    assert proof.roots() == (manifest.root, manifest.content_root)
    decoded = msgspec.json.decode(msgspec.json.encode(proof), type=type(proof))
    assert decoded == proof


@pytest.mark.parametrize("root", ["root", "content_root"])
@pytest.mark.parametrize("name", ["first", "w", "last"])
def test_tensor_is_verified_by_either_root(model, name, root):
    manifest = scan(model)
    proof = prove(manifest, name)
    assert verify_tensor(model, proof, getattr(manifest, root)) == ()
    assert verify_tensor(model, proof, getattr(manifest, root), direct=True) == ()


def test_tensor_that_differs_is_told_with_block_and_bytes(model):
    manifest = scan(model)
    flip(model, -9)  # the last byte of w
    end = (model / "model.safetensors").stat().st_size - 8
    expected = Difference("content", "model.safetensors", "w", (2,), ((end - 3, end),))
    assert verify_tensor(model, prove(manifest, "w"), manifest.root) == (expected,)
    assert verify_tensor(model, prove(manifest, "first"), manifest.root) == ()


def test_tensor_is_verified_without_the_rest(model, monkeypatch):
    manifest, seen = scan(model), []

    def counted(fd, view, offset, *, path):
        seen.append((offset, offset + len(view)))
        read_into(fd, view, offset, path=path)

    monkeypatch.setattr("vctl_plans.weights.files.fill", counted)
    monkeypatch.setattr("vctl_plans.weights.engine.fill", counted)
    assert verify_tensor(model, prove(manifest, "last"), manifest.root) == ()
    header = manifest.files[1].header_size
    size = manifest.files[1].size
    assert max(end for _, end in seen) == size
    assert {begin for begin, _ in seen} == {0, size - 8}
    assert all(end <= max(header, 512) for begin, end in seen if begin == 0)


def test_tensor_in_a_file_with_another_header_is_found_there(model):
    manifest = scan(model)
    files = {"model.safetensors": pack([TENSORS[2], TENSORS[0], TENSORS[1]], {"k": "v"})}
    fill(model, files)
    (found,) = verify_tensor(model, prove(manifest, "w"), manifest.root)
    assert (found.what, found.tensor) == ("header", "")


def test_tensor_of_another_dtype_shape_or_place(model):
    manifest = scan(model)
    changed = [TENSORS[0]._replace(dtype="I8"), TENSORS[1]]
    fill(model, {"model.safetensors": pack(changed)})
    told = {
        name: [d.what for d in verify_tensor(model, prove(manifest, name), manifest.root)]
        for name in ("first", "last")
    }
    assert told == {"first": ["dtype", "header"], "last": ["missing"]}
    (model / "model.safetensors").unlink()
    assert verify_tensor(model, prove(manifest, "w"), manifest.root) == (
        Difference("missing", "model.safetensors"),
    )


def test_tensor_in_a_broken_file_is_refused(model):
    manifest = scan(model)
    flip(model, 8)
    with pytest.raises(MalformedWeights):
        verify_tensor(model, prove(manifest, "w"), manifest.root)


def test_tensor_that_changes_meanwhile_is_noticed(model):
    manifest = scan(model)

    def touch(done: int, total: int) -> None:
        os.utime(model / "model.safetensors", ns=(1, 1))

    with pytest.raises(FileChanged, match="mtime_ns"):
        verify_tensor(model, prove(manifest, "w"), manifest.root, progress=touch)


def test_proof_of_another_root_is_refused(model):
    manifest = scan(model)
    with pytest.raises(RootMismatch, match="is not of the root"):
        verify_tensor(model, prove(manifest, "w"), ZERO)
    with pytest.raises(NotAllowed, match="has no tensor 'x'"):
        prove(manifest, "x")


def test_proof_of_a_manifest_with_one_untrue_digest_leads_elsewhere(model):
    manifest = scan(model)
    for number in (0, 2):  # a sibling of w
        tensors = list(manifest.tensors)
        tensors[number] = msgspec.structs.replace(tensors[number], digest=ZERO)
        untrue: Manifest = msgspec.structs.replace(manifest, tensors=tuple(tensors))
        with pytest.raises(RootMismatch):
            verify_tensor(model, prove(untrue, "w"), manifest.root)


@pytest.mark.parametrize(
    "change",
    [
        lambda p: {"digests": p.digests[:-1]},
        lambda p: {"digests": (*p.digests, ZERO)},
        lambda p: {"digests": tuple(d for d in p.digests if d != p.tensor.digest)},
        lambda p: {"file": msgspec.structs.replace(p.file, path="other.safetensors")},
        lambda p: {"file": msgspec.structs.replace(p.file, header=ZERO)},
        lambda p: {"file": msgspec.structs.replace(p.file, header=None)},
        lambda p: {"tensor": msgspec.structs.replace(p.tensor, name="v")},
        lambda p: {"tensor": msgspec.structs.replace(p.tensor, leaves=bytes(96))},
        lambda p: {"tensor": msgspec.structs.replace(p.tensor, digest=ZERO)},
        lambda p: {"content": msgspec.structs.replace(p.content, index=0)},
        lambda p: {"content": msgspec.structs.replace(p.content, siblings=())},
        lambda p: {"artifact": msgspec.structs.replace(p.artifact, count=9)},
        lambda p: {"artifact": msgspec.structs.replace(p.artifact, siblings=(ZERO, ZERO))},
    ],
)
def test_proof_that_was_tampered_with_is_refused(model, change):
    manifest = scan(model)
    proof = prove(manifest, "w")
    tampered = msgspec.structs.replace(proof, **change(proof))
    with pytest.raises(ArtifactError):
        verify_tensor(model, tampered, manifest.root)

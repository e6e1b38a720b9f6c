import json
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.weights.building import adapter, adapter_config, fill, lora, pack, sharded, u8, zeros
from vctl_plans.errors import ArtifactError, RootMismatch
from vctl_plans.weights import Difference, decode, diff, encode, scan, verify

MIB = 1 << 20
BIG = pack([u8("first", b"12345678"), u8("w", bytes(5 * MIB + 100)), zeros("b", "F32", 4)])
BEGIN = len(BIG) - 16 - 5 * MIB - 100  # of "w" in the file


def model(folder: Path, content: bytes = BIG, config: str = "{}") -> Path:
    return fill(folder, {"model.safetensors": content, "config.json": config})


def flipped(content: bytes, *places: int) -> bytes:
    changed = bytearray(content)
    for at in places:
        changed[at] ^= 1
    return bytes(changed)


def test_verify_returns_what_it_read(tmp_path):
    manifest = scan(model(tmp_path))
    assert verify(tmp_path, manifest.root) == verify(tmp_path, manifest) == manifest


def test_verify_against_a_root_says_so(tmp_path):
    manifest = scan(model(tmp_path))
    model(tmp_path, flipped(BIG, BEGIN))
    with pytest.raises(RootMismatch, match=f"its root is b3:.*, not {manifest.root}") as told:
        verify(tmp_path, manifest.root)
    assert told.value.tensors == ()
    with pytest.raises(RootMismatch) as told:
        verify(tmp_path, scan(tmp_path).content_root)
    assert "content root" in told.value.hint


def test_verify_names_tensor_blocks_and_bytes(tmp_path):
    manifest = scan(model(tmp_path))
    last = BEGIN + 5 * MIB + 99
    model(tmp_path, flipped(BIG, BEGIN + MIB, BEGIN + 2 * MIB, BEGIN + 3 * MIB - 1, last))
    with pytest.raises(RootMismatch) as told:
        verify(tmp_path, manifest)
    assert told.value.tensors == ("w",)
    ranges = ((BEGIN + MIB, BEGIN + 3 * MIB), (BEGIN + 5 * MIB, last + 1))
    assert diff(manifest, scan(tmp_path)) == (
        Difference("content", "model.safetensors", "w", (1, 2, 5), ranges),
    )
    shown = ", ".join(f"{begin}-{end - 1}" for begin, end in ranges)
    assert told.value.message.endswith(
        f"model.safetensors: tensor 'w' differs in 3 blocks, bytes {shown}"
    )


def test_verify_names_few_and_counts_the_rest(tmp_path):
    before = pack([u8(str(i), b"1") for i in range(9)])
    after = pack([u8(str(i), b"2") for i in range(9)])
    manifest = scan(model(tmp_path, before))
    model(tmp_path, after)
    with pytest.raises(RootMismatch, match=r"; and 4 more$") as told:
        verify(tmp_path, manifest)
    assert told.value.tensors == tuple("012345678")


def test_verify_notices_files_come_and_gone(tmp_path):
    manifest = scan(fill(tmp_path, {"a.txt": "1", "b.txt": "2"}))
    fill(tmp_path, {"c.txt": "3", "a.txt": "x"})
    (tmp_path / "b.txt").unlink()
    with pytest.raises(RootMismatch) as told:
        verify(tmp_path, manifest)
    assert told.value.message.endswith(
        ": a.txt has another content; b.txt is missing; c.txt is extra"
    )
    assert told.value.tensors == ("a.txt", "b.txt", "c.txt")


def test_verify_takes_the_manifests_kind(tmp_path):
    folder = fill(tmp_path, {"index.faiss": "1", "index.pkl": "2"})
    manifest = scan(folder, kind="plain")
    assert verify(folder, manifest) == manifest


def test_diff_tells_tensors_apart(tmp_path):
    base = [u8("gone", b"1"), zeros("kind", "F16", 2), zeros("form", "U8", 4), u8("same", b"x")]
    after = [u8("new", b"1"), zeros("kind", "BF16", 2), zeros("form", "U8", 2, 2), u8("same", b"x")]
    one = scan(model(tmp_path / "a", pack(base)))
    other = scan(model(tmp_path / "b", pack(after)))
    told = [(d.what, d.tensor, str(d).split(": ", 1)[1]) for d in diff(one, other) if d.tensor]
    assert told == [
        ("shape", "form", "tensor 'form' has another shape"),
        ("missing", "gone", "tensor 'gone' is missing"),
        ("dtype", "kind", "tensor 'kind' has another dtype"),
        ("extra", "new", "tensor 'new' is extra"),
    ]


def test_diff_of_a_resharded_copy_names_files_only(tmp_path):
    tensors = [u8("a", b"1"), u8("b", b"2"), u8("c", b"3")]
    one = scan(
        sharded(tmp_path / "a", {"m1.safetensors": tensors[:1], "m2.safetensors": tensors[1:]})
    )
    other = scan(
        sharded(tmp_path / "b", {"m1.safetensors": tensors[:2], "m2.safetensors": tensors[2:]})
    )
    assert one.content_root == other.content_root
    assert [(d.what, d.path) for d in diff(one, other)] == [
        ("layout", "m1.safetensors"),
        ("layout", "m2.safetensors"),
        ("content", "model.safetensors.index.json"),
    ]


def test_diff_of_metadata_is_the_headers(tmp_path):
    one = scan(model(tmp_path / "a", pack([u8("a", b"1")], {"k": "1"})))
    other = scan(model(tmp_path / "b", pack([u8("a", b"1")], {"k": "2"})))
    assert [str(d) for d in diff(one, other)] == ["model.safetensors has another header"]
    assert diff(one, one) == ()


def test_diff_finds_a_swapped_shard(tmp_path):
    shards = {"m1.safetensors": [u8("a", b"1")], "m2.safetensors": [u8("b", b"2")]}
    manifest = scan(sharded(tmp_path / "v1", shards))
    sharded(tmp_path / "v2", shards | {"m2.safetensors": [u8("b", b"3")]})
    shutil.copy(tmp_path / "v2" / "m2.safetensors", tmp_path / "v1" / "m2.safetensors")
    with pytest.raises(RootMismatch) as told:
        verify(tmp_path / "v1", manifest)
    assert told.value.tensors == ("b",)


def test_diff_tells_what_has_to_be_moved(tmp_path):
    before = [u8("w", os.urandom(2 * MIB + 5)), u8("same", b"12"), u8("gone", b"3")]
    after = [u8("w", before[0].content[:-1] + b"\0"), before[1], u8("new", b"1234")]
    one = scan(model(tmp_path / "a", pack(before)))
    other = scan(model(tmp_path / "b", pack(after), config="{} "))
    header = other.files[1].header_size
    moved = {(d.what, d.tensor or d.path): d.move_bytes for d in diff(one, other)}
    assert moved == {
        ("missing", "gone"): 0,
        ("extra", "new"): 4,
        ("content", "w"): 5,
        ("content", "config.json"): 3,
        ("layout", "model.safetensors"): header,
    }


def test_diff_finds_the_blocks_of_a_large_plain_file(tmp_path):
    content = os.urandom(3 * MIB + 7)
    one = scan(fill(tmp_path, {"index": content}), kind="plain")
    other = scan(fill(tmp_path, {"index": flipped(content, MIB, 3 * MIB + 6)}), kind="plain")
    assert diff(one, other) == (
        Difference("content", "index", "", (1, 3), ((MIB, 2 * MIB), (3 * MIB, 3 * MIB + 7))),
    )
    short = scan(fill(tmp_path, {"index": content[: 2 * MIB]}), kind="plain")
    assert [str(d) for d in diff(one, short)] == ["index has another content"]


@pytest.mark.parametrize(
    ("zeros", "told"),
    [(range(MIB, 3 * MIB), "2 of them all zeros"), (range(4 * MIB + 9), "(all zeros")],
)
def test_diff_says_when_a_copy_looks_half_done(tmp_path, zeros, told):
    content = os.urandom(4 * MIB + 9)
    half = bytearray(flipped(content, 0))
    half[zeros.start : zeros.stop] = bytes(len(zeros))
    one = scan(model(tmp_path / "a", pack([u8("w", content)])))
    other = scan(model(tmp_path / "b", pack([u8("w", bytes(half))])))
    (found,) = diff(one, other)
    assert told in str(found)
    assert found.hint.endswith("all zeros: looks preallocated, or half copied")
    plain = [scan(fill(tmp_path, {"c": c}), kind="plain") for c in (b"12", b"\0\0")]
    assert [d.zero_blocks for d in diff(*plain)] == [1]


def test_diff_of_many_ranges_names_few(tmp_path):
    content = os.urandom(17 * MIB)
    one = scan(model(tmp_path / "a", pack([u8("w", content)])))
    places = range(0, 17 * MIB, 2 * MIB)
    other = scan(model(tmp_path / "b", pack([u8("w", flipped(content, *places))])))
    (found,) = diff(one, other)
    assert str(found).count("-") == 6
    assert str(found).endswith(" and 3 more ranges")


def test_diff_checks_the_leaves_that_it_uses(tmp_path):
    one, other = (
        scan(model(tmp_path / name, pack([u8("w", name.encode()), u8("x", b"same")])))
        for name in ("a", "b")
    )
    untrue = json.loads(encode(other))
    for tensor in untrue["tensors"]:
        tensor["leaves"] = untrue["tensors"][1]["leaves"]
    shallow = decode(json.dumps(untrue).encode(), is_shallow=True)
    with pytest.raises(RootMismatch, match="digest of 'w' is not that of its leaves"):
        diff(one, shallow)
    untrue["tensors"][0]["leaves"] = json.loads(encode(other))["tensors"][0]["leaves"]
    untrue["tensors"][1]["leaves"] = untrue["tensors"][0]["leaves"]  # of one that is equal
    assert diff(one, decode(json.dumps(untrue).encode(), is_shallow=True)) == diff(one, other)


LORA = lora()
WEIGHTS = pack(LORA, {"format": "pt"})
DATA_BEGIN = len(WEIGHTS) - sum(len(made.content) for made in LORA)
CONFIG = adapter_config().encode()


@given(st.sampled_from(["config", "weights"]), st.integers(0), st.integers(0, 7))
@example("weights", DATA_BEGIN, 0)
@example("weights", DATA_BEGIN - 1, 0)
@example("weights", len(WEIGHTS) - 1, 7)
@settings(max_examples=250, deadline=None)
def test_verify_finds_any_flipped_bit(tmp_path_factory, where, at, bit):
    folder = adapter(tmp_path_factory.mktemp("m"), {"adapter_model.safetensors": WEIGHTS})
    manifest = scan(folder)
    name = "adapter_config.json" if where == "config" else "adapter_model.safetensors"
    content = bytearray((folder / name).read_bytes())
    at %= len(content)
    content[at] ^= 1 << bit
    (folder / name).write_bytes(content)
    with pytest.raises(ArtifactError) as told:
        verify(folder, manifest)
    if where == "weights" and at >= DATA_BEGIN:
        assert isinstance(told.value, RootMismatch)
        assert told.value.tensors == (tensor_at(at),)
    else:  # a flipped rank is told by the weights' name, against the configuration's
        assert name in told.value.message or "the configuration's r" in told.value.message


def tensor_at(offset: int) -> str:
    at = DATA_BEGIN
    for made in LORA:
        at += len(made.content)
        if offset < at:
            return made.name
    raise AssertionError(offset)

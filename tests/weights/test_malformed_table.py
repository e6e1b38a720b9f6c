"""The table of bad inputs: one test for each row of its 36, and for what the reference lets pass.

The rows are those of the project's survey of real failures (section 3.2 of its notes on weights),
named here by number; the file's own words are in the tests. Where a row is not about reading:

    24   a hasher shared by threads: also tests/weights/test_engine.py, which runs beside itself
    26   hashing again after a copy: the agent's, in tests/agent/test_stage.py; here, that it helps
    34   ranges of remote reads: vctl reads no weights over HTTP; here, that 8+n is exact
    35   merged adapters that differ by rounding: comparing numbers, in tests/weights/test_ulp*.py
    36   a patch on the wrong base: out of scope, vctl moves whole files and patches nothing

Every refusal is checked to name the file, the rule and, for a malformed file, the byte; and to
have allocated no more than a few MiB, or a few times the header that really is there.
"""

import ast
import json
import math
import os
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
import safetensors
from blake3 import blake3
from safetensors.numpy import save_file

from tests.weights.building import (
    Made,
    adapter,
    entry,
    fill,
    pack,
    sharded,
    u8,
    with_length,
    zeros,
)
from vctl_plans import weights
from vctl_plans.errors import (
    ArtifactError,
    FileChanged,
    MalformedWeights,
    NotAllowed,
    PlanError,
    RootMismatch,
)
from vctl_plans.names import check_root
from vctl_plans.weights import Manifest, decode, encode, scan, verify
from vctl_plans.weights.safetensors import DTYPE_BITS

MIB = 1 << 20
FEW_MIB = 6 * MIB  # two threads' buffers of 1 MiB, their bytearrays' copies, and the rest
GOOD = '{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}'
TWO = {"m1.safetensors": [u8("a", b"1"), u8("b", b"2")], "m2.safetensors": [u8("c", b"3")]}
INDEX = "model.safetensors.index.json"


@contextmanager
def at_most(limit_bytes: int) -> Iterator[None]:
    """Require that no more than this is allocated at once meanwhile."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < limit_bytes


def refused(
    path: Path,
    rule: str,
    *,
    error: type[ArtifactError] = MalformedWeights,
    at: int | None = None,
    names: str = "",
    limit_bytes: int = FEW_MIB,
    max_header_bytes: int = 25_000_000,
) -> ArtifactError:
    """Require that a scan is refused, by that rule, naming file and byte, in little memory."""
    with at_most(limit_bytes), pytest.raises(error) as told:
        scan(path, threads=2, max_header_bytes=max_header_bytes)
    assert rule in told.value.message
    assert str(path) in told.value.message
    assert names in told.value.message
    if at is not None:
        assert isinstance(told.value, MalformedWeights)
        assert told.value.offset == at
        assert f"byte {at}" in told.value.message
    return told.value


def one_file(folder: Path, content: bytes) -> Path:
    path = folder / "model.safetensors"
    path.write_bytes(content)
    return path


def sparse(folder: Path, start: bytes, size: int) -> Path:
    """A file of that size that takes no space: only its beginning is written."""
    path = one_file(folder, start)
    os.truncate(path, size)
    return path


def named(name: str) -> str:
    """GOOD, with another name for its tensor, given as JSON."""
    return GOOD.replace('"a"', name, 1)


def index_of(folder: Path, weight_map: object, **more: object) -> Path:
    return fill(folder, {INDEX: json.dumps({"weight_map": weight_map} | more)})


def reference_accepts(content: bytes) -> bool:
    try:
        safetensors.deserialize(content)
    except safetensors.SafetensorError:
        return False
    return True


# What the reference accepts: why it may not pass here, at which byte.
ACCEPTED_THERE: dict[str, tuple[bytes, str, int]] = {
    "duplicate name": (
        with_length(GOOD[:-1] + "," + GOOD[1:], b"1234"),
        "duplicate key 'a' in the header",
        8 + len(GOOD),
    ),
    "duplicate name of another dtype": (
        with_length(GOOD[:-1] + "," + GOOD[1:].replace("U8", "I8"), b"1234"),
        "duplicate key 'a' in the header",
        8 + len(GOOD),
    ),
    "duplicate key in __metadata__": (
        with_length('{"__metadata__":{"k":"1","k":"2"},' + GOOD[1:], b"1234"),
        "duplicate key 'k' in __metadata__",
        8 + len('{"__metadata__":{"k":"1",'),
    ),
    "unknown key in an entry": (
        with_length(GOOD.replace('"shape"', '"x":1,"shape"'), b"1234"),
        "unknown key 'x' in the entry of 'a'",
        8 + GOOD.index('"shape"'),
    ),
    "space first": (with_length(" " + GOOD, b"1234"), "does not begin with '{'", 8),
    "newline first": (with_length("\n" + GOOD, b"1234"), "does not begin with '{'", 8),
    "tab first": (with_length("\t" + GOOD, b"1234"), "does not begin with '{'", 8),
    "newline padding": (
        with_length(GOOD + "\n", b"1234"),
        "only spaces may follow",
        8 + len(GOOD),
    ),
    "an empty name": (with_length(named('""'), b"1234"), "an empty name", 9),
    "NUL in a name": (with_length(named(r'"a\u0000b"'), b"1234"), "a control character", 9),
    "NFC and NFD twins": (
        with_length(
            json.dumps({"\u00e9": entry("U8", [2], 0, 2), "e\u0301": entry("U8", [2], 2, 4)}),
            b"1234",
        ),
        "in another Unicode form",
        8 + len(json.dumps({"\u00e9": entry("U8", [2], 0, 2)})) + 1,
    ),
    "a dimension of 2^63": (
        with_length(f'{{"a":{{"dtype":"U8","shape":[0,{2**63}],"data_offsets":[0,0]}}}}'),
        "expected a whole number from 0 to 2^63-1",
        8 + len('{"a":{"dtype":"U8","shape":[0,'),
    ),
}


@pytest.mark.parametrize("case", ACCEPTED_THERE)
def test_table_refuses_what_the_reference_accepts(case, tmp_path):
    content, rule, at = ACCEPTED_THERE[case]
    assert reference_accepts(content)
    refused(one_file(tmp_path, content), rule, at=at)


# What it accepts and so do we, because it harms nobody: names are never paths, values are bytes.
ACCEPTED_HERE = {
    "metadata null": with_length('{"__metadata__":null,' + GOOD[1:], b"1234"),
    "unaligned header": with_length(GOOD + " ", b"1234"),
    "a path as a name": with_length(named('"../../x"'), b"1234"),
    "a bool of 2": with_length(GOOD.replace("U8", "BOOL"), b"\x00\x01\x02\x01"),
}


@pytest.mark.parametrize("case", ACCEPTED_HERE)
def test_table_accepts_what_harms_nobody_and_binds_it(case, tmp_path):
    content = ACCEPTED_HERE[case]
    assert reference_accepts(content)
    manifest = scan(one_file(tmp_path, content))
    (tensor,) = manifest.tensors
    assert tensor.leaves == blake3(content[-4:]).digest()
    assert manifest.root != scan(one_file(tmp_path, with_length(GOOD, b"1234"))).root


def test_table_01_duplicate_names(tmp_path):
    escaped = with_length(GOOD[:-1] + "," + named(r'"\u0061"')[1:], b"1234")
    refused(one_file(tmp_path, escaped), "duplicate key 'a' in the header", at=8 + len(GOOD))


@pytest.mark.parametrize("length", [2**64 - 1, 2**63, 2**32, 14 + 1])
def test_table_02_header_length_bomb(length, tmp_path):
    content = length.to_bytes(8, "little") + b"{}" + b" " * 12
    rule = f"the header's length {length} is more than the file holds (22 bytes)"
    refused(one_file(tmp_path, content), rule, at=0)


@pytest.mark.parametrize(
    ("length", "cap", "told"),
    [(25_000_001, 25_000_000, 25_000_000), (100_000_001, 10**12, 100_000_000)],
)
def test_table_02_header_length_over_the_cap_in_a_large_file(length, cap, told, tmp_path):
    path = sparse(tmp_path, length.to_bytes(8, "little") + b"{", 2 * length)
    rule = f"the header's length {length} is over the limit of {told} bytes"
    error = refused(path, rule, at=0, max_header_bytes=cap)
    assert error.hint


JSON_BOMBS: dict[str, Callable[[int], str]] = {
    "brackets": lambda size: '{"a":' + "[" * size,
    "braces": lambda size: '{"a":' * (size // 5),
    "metadata in metadata": lambda size: '{"__metadata__":{"a":' + '{"a":' * (size // 5),
    "one long name": lambda size: '{"' + "a" * size + '":1}',
    "one long number": lambda size: GOOD.replace("[4]", "[" + "9" * size + "]"),
    "many dimensions": lambda size: GOOD.replace("[4]", "[" + "1," * (size // 32) + "5]"),
    "large dimensions": lambda size: GOOD.replace(
        "[4]", "[" + f"{2**62}," * (size // 20) + f"{2**62}]"
    ),
    "escapes": lambda size: '{"' + r"\u0061" * (size // 6) + '":1}',
    "spaces": lambda size: '{"a":' + " " * size + "1}",
}


@pytest.mark.parametrize("case", JSON_BOMBS)
def test_table_03_header_json_bomb(case, tmp_path):
    header = JSON_BOMBS[case](MIB)
    # Six times the header: its bytes, its text, and at most eight bytes for each number of two.
    refused(one_file(tmp_path, with_length(header, b"1234")), "", limit_bytes=6 * MIB + FEW_MIB)


def test_table_03_many_tensors_cost_what_their_header_does(tmp_path):
    count = 10_000
    path = one_file(tmp_path, pack([u8(f"{i:x}", b"1") for i in range(count)])[:-1])
    length = int.from_bytes(path.read_bytes()[:8], "little")
    refused(path, "truncated", at=8 + length + count - 1, limit_bytes=16 * length)


RANGES: dict[str, tuple[tuple[int, int], tuple[int, int], str, int]] = {
    "overlap": ((0, 4), (3, 8), "the tensor 'b' overlaps the one before it", 3),
    "aliased": ((0, 8), (0, 8), "the tensor 'b' overlaps the one before it", 0),
    "within": ((0, 8), (2, 4), "the tensor 'b' overlaps the one before it", 2),
    "hole at the start": ((2, 4), (4, 8), "a hole of 2 bytes before the tensor 'a'", 0),
    "hole between": ((0, 3), (5, 8), "a hole of 2 bytes before the tensor 'b'", 3),
}


def ranges(a: tuple[int, int], b: tuple[int, int]) -> tuple[bytes, int]:
    header = json.dumps({"a": entry("U8", [a[1] - a[0]], *a), "b": entry("U8", [b[1] - b[0]], *b)})
    return with_length(header, b"12345678"), 8 + len(header)


@pytest.mark.parametrize("case", ["overlap", "aliased", "within"])
def test_table_04_overlapping_ranges(case, tmp_path):
    a, b, rule, at = RANGES[case]
    content, begin = ranges(a, b)
    refused(one_file(tmp_path, content), rule, at=begin + at)


@pytest.mark.parametrize("case", ["hole at the start", "hole between"])
def test_table_05_holes_between_tensors(case, tmp_path):
    a, b, rule, at = RANGES[case]
    content, begin = ranges(a, b)
    refused(one_file(tmp_path, content), rule, at=begin + at)


@pytest.mark.parametrize("tail", [b"\0", b"PK\x03\x04" + bytes(60)])
def test_table_06_trailing_bytes(tail, tmp_path):
    content = with_length(GOOD, b"1234")
    rule = f"{len(tail)} trailing bytes after the last tensor"
    refused(one_file(tmp_path, content + tail), rule, at=len(content))


def test_table_07_truncated_shard(tmp_path):
    folder = sharded(tmp_path, {**TWO, "m2.safetensors": [zeros("c", "BF16", 3 * MIB)]})
    shard = folder / "m2.safetensors"
    kept = shard.stat().st_size - 301
    os.truncate(shard, kept)
    refused(folder, "truncated: the tensor 'c' ends at byte", at=kept, names=str(shard))


@pytest.mark.parametrize("size", [8, 4096, 64 * MIB])
def test_table_08_zero_filled_start(size, tmp_path):
    path = sparse(tmp_path, b"", size)
    refused(path, "zeros (preallocated, or a download that was interrupted)", at=0)


def test_table_08_blocks_that_read_as_zeros_are_told(tmp_path):
    """A hole in a file that was preallocated and never filled reads as zeros."""
    content = pack([u8("a", b"1" * 3 * MIB)])
    path = one_file(tmp_path, content)
    before = scan(path)
    begin = len(content) - 3 * MIB
    with path.open("r+b") as file:
        file.truncate(begin + MIB)
        file.truncate(len(content))
    with pytest.raises(RootMismatch, match="zero") as told:
        verify(path, before)
    assert told.value.tensors == ("a",)
    (difference,) = weights.diff(before, scan(path))
    assert (difference.blocks, difference.zero_blocks) == ((1, 2), 2)


def test_table_09_no_file_is_mapped():
    """A mapped file that shrinks kills the process; `test_table_25` shows what a plain read does.

    The one call there may be is for memory of no file, which begins on a page.
    """
    calls: list[ast.Call] = []
    for module in Path(weights.__file__).parent.glob("*.py"):
        nodes = list(ast.walk(ast.parse(module.read_text())))
        calls += [node for node in nodes if isinstance(node, ast.Call)]
    told = [ast.unparse(call) for call in calls]
    assert any(call.startswith("os.preadv(") for call in told)
    mapped = [call for call in told if call.startswith("mmap.") or "mmap(" in call.split("(-1,")[0]]
    assert [call for call in mapped if not call.startswith("mmap.mmap(-1,")] == []


SHAPES = {
    "wraps to 0": ([2**32, 2**32], 0, "the shape overflows"),
    "wraps to 4": ([2**62 + 1, 4], 4, "the shape overflows"),
    "too large": ([2**62], 4, "dtype and shape need 4611686018427387904 bytes"),
    "negative": ([-4], 4, "expected a whole number from 0 to 2^63-1"),
    "negative twice": ([-2, -2], 4, "expected a whole number from 0 to 2^63-1"),
    "a float": ([4.0], 4, "expected a whole number from 0 to 2^63-1"),
    "true": ([True], 1, "expected a whole number from 0 to 2^63-1"),
    "over 2^63": ([2**64 + 4], 4, "expected a whole number from 0 to 2^63-1"),
}


@pytest.mark.parametrize("case", SHAPES)
def test_table_10_shape_overflow(case, tmp_path):
    shape, size, rule = SHAPES[case]
    header = {"a": {"dtype": "U8", "shape": shape, "data_offsets": [0, size]}}
    refused(one_file(tmp_path, with_length(json.dumps(header), bytes(size))), rule)


@pytest.mark.parametrize("dtype", ["F5", "u8", "F8", "BFLOAT16", "", "Q4_0"])
def test_table_11_unknown_dtype(dtype, tmp_path):
    content = with_length(GOOD.replace("U8", dtype), b"1234")
    refused(one_file(tmp_path, content), f"unknown dtype '{dtype}' in the entry of 'a'", at=14)


@pytest.mark.parametrize("dtype", [dtype for dtype, bits in DTYPE_BITS.items() if bits <= 8])
def test_table_12_small_dtypes_are_sized_by_bits(dtype, tmp_path):
    bits = DTYPE_BITS[dtype]
    count = math.lcm(bits, 8) // bits  # as few as fill whole bytes
    size = count * bits // 8
    good = pack([zeros("a", dtype, count)])
    assert reference_accepts(good)
    assert scan(one_file(tmp_path, good)).tensors[0].size == size
    content = with_length(json.dumps({"a": entry(dtype, [count + 1], 0, size)}), bytes(size))
    assert not reference_accepts(content)
    rule = "do not fill whole bytes" if count > 1 else "dtype and shape need 2 bytes"
    refused(one_file(tmp_path, content), rule, at=9)


METADATA = {
    "a number": ('{"k":1}', "expected a string in __metadata__"),
    "a null": ('{"k":null}', "expected a string in __metadata__"),
    "nested": ('{"k":{"l":"1"}}', "expected a string in __metadata__"),
    "a list": ("[]", "expected '{' in __metadata__"),
    "a text": ('"k"', "expected '{' in __metadata__"),
}


@pytest.mark.parametrize("case", METADATA)
def test_table_13_metadata_is_strings(case, tmp_path):
    text, rule = METADATA[case]
    content = with_length(f'{{"__metadata__":{text},{GOOD[1:]}', b"1234")
    refused(one_file(tmp_path, content), rule)


def test_table_13_metadata_empty_or_null_is_none(tmp_path):
    content_roots = {
        scan(one_file(tmp_path, with_length(f"{{{text}{GOOD[1:]}", b"1234"))).content_root
        for text in ("", '"__metadata__":{},', '"__metadata__":null,')
    }
    assert len(content_roots) == 1


def test_table_14_tensor_named_metadata(tmp_path):
    content = with_length(named('"__metadata__"'), b"1234")
    refused(one_file(tmp_path, content), "expected a string in __metadata__")


def test_table_15_metadata_only_file_of_an_old_writer(tmp_path):
    """What safetensors up to 0.4.3 wrote for no tensors: an empty object, then the rest."""
    content = with_length('{},"__metadata__":{"key":"value"}}   ')
    error = refused(one_file(tmp_path, content), "only spaces may follow", at=10)
    assert "0.4.3" in error.hint


def test_table_16_metadata_order_is_not_content(tmp_path):
    tensors = [u8("a", b"1234")]
    one = scan(one_file(tmp_path, pack(tensors, {"k": "1", "l": "2"})))
    other = scan(one_file(tmp_path, pack(tensors, {"l": "2", "k": "1"})))
    assert one.content_root == other.content_root
    assert one.root != other.root


OUTSIDE = [
    "../m1.safetensors",
    "..",
    ".",
    "",
    "/etc/passwd",
    "a/../m1.safetensors",
    "a/m1.safetensors",
    r"..\m1.safetensors",
    "C:m1.safetensors",
    "m1.safetensors\0.txt",
    "m1.safetensors:stream",
]


@pytest.mark.parametrize("shard", OUTSIDE)
def test_table_17_index_that_names_a_place_outside(shard, tmp_path):
    folder = index_of(sharded(tmp_path, TWO), {"a": shard})
    refused(folder, "is not a plain file name", error=NotAllowed, names=str(folder / INDEX))


# What the index says, and what is told of it.
DISAGREEING: dict[str, tuple[dict[str, str], str]] = {
    "shard missing": (
        {"a": "m1.safetensors", "b": "m1.safetensors", "c": "m3.safetensors"},
        "the shard m3.safetensors is missing",
    ),
    "shard extra": (
        {"a": "m1.safetensors", "b": "m1.safetensors"},
        "m2.safetensors is not in the index",
    ),
    "tensor elsewhere": (
        {"a": "m1.safetensors", "b": "m2.safetensors", "c": "m2.safetensors"},
        "the tensor 'b' is in m1.safetensors, the index says m2.safetensors",
    ),
    "tensor unknown to the index": (
        {"a": "m1.safetensors", "c": "m2.safetensors"},
        "the tensor 'b' is in m1.safetensors, the index says no shard",
    ),
    "tensor in no shard": (
        {
            "a": "m1.safetensors",
            "b": "m1.safetensors",
            "c": "m2.safetensors",
            "d": "m2.safetensors",
        },
        "the tensor 'd' is in no shard, the index says m2.safetensors",
    ),
}


@pytest.mark.parametrize("case", DISAGREEING)
def test_table_18_index_and_shards_disagree(case, tmp_path):
    weight_map, rule = DISAGREEING[case]
    folder = index_of(sharded(tmp_path, TWO), weight_map)
    refused(folder, rule, names=str(folder / INDEX))


def test_table_18_index_with_two_maps(tmp_path):
    folder = sharded(tmp_path, TWO)
    weight_map = json.loads((folder / INDEX).read_text())["weight_map"]
    text = f'{{"weight_map": {{"a": "x"}}, "weight_map": {json.dumps(weight_map)}}}'
    fill(folder, {INDEX: text})
    refused(folder, "duplicate key 'weight_map'", at=text.rindex('"weight_map"'))


def test_table_18_name_in_two_shards(tmp_path):
    folder = fill(
        tmp_path, {"m1.safetensors": pack([u8("a", b"1")]), "m2.safetensors": pack([u8("a", b"1")])}
    )
    refused(folder, "the tensor 'a' is also in m1.safetensors", names="m2.safetensors")


@pytest.mark.parametrize("total", [5, 2, 3.5, -3, 1e300])
def test_table_18_total_size_is_another(total, tmp_path):
    folder = sharded(tmp_path, TWO)
    weight_map = json.loads((folder / INDEX).read_text())["weight_map"]
    index_of(folder, weight_map, metadata={"total_size": total})
    refused(folder, "total_size is", names=str(folder / INDEX))


def test_table_18_shards_that_count_themselves(tmp_path):
    """Also where no index tells of a shard that is missing."""
    name = "model-00001-of-00002.safetensors"
    folder = fill(tmp_path, {name: pack([u8("a", b"1")])})
    refused(folder, "number 2 is missing", names=name)


def test_table_19_links(tmp_path):
    fill(tmp_path, {"outside/model.safetensors": pack([u8("a", b"1")]), "m/config.json": "{}"})
    link = tmp_path / "m" / "model.safetensors"
    link.symlink_to(tmp_path / "outside" / "model.safetensors")
    refused(tmp_path / "m", "link", error=NotAllowed, names=str(link))
    link.unlink()
    link.symlink_to(link.name)  # to itself
    refused(tmp_path / "m", "link", error=ArtifactError, names=str(link))
    (tmp_path / "folder").symlink_to(tmp_path / "outside")
    refused(tmp_path / "folder", "link", error=NotAllowed)


def snapshot(base: Path, target: str) -> Path:
    """A snapshot as the Hugging Face cache has it, its weights a link to `target`."""
    content = pack([u8("a", b"1")])
    fill(base, {f"repo/blobs/{'0' * 64}": content, f"other/blobs/{'0' * 64}": content})
    folder = fill(base / "repo" / "snapshots" / ("1" * 40), {"config.json": "{}"})
    (folder / "model.safetensors").symlink_to(target)
    return folder


def test_table_19_links_of_a_cache_to_its_own_blobs(tmp_path):
    folder = snapshot(tmp_path, f"../../blobs/{'0' * 64}")
    expected = pack([u8("a", b"1")])
    plain = fill(tmp_path / "plain", {"model.safetensors": expected, "config.json": "{}"})
    assert scan(plain).root == scan(folder).root


@pytest.mark.parametrize(
    "target",
    [
        f"../../../other/blobs/{'0' * 64}",
        "../../blobs/../../other/blobs/" + "0" * 64,
        "../../blobs/model.safetensors",
        "../../blobs/..",
        "../../blobs/" + "0" * 63,
        "../../blobs/" + "2" * 64,  # which is not there
    ],
)
def test_table_19_links_of_a_cache_to_elsewhere(target, tmp_path):
    folder = snapshot(tmp_path, target)
    refused(folder, "", error=ArtifactError, names=str(folder / "model.safetensors"))


def test_table_19_blob_that_is_a_link_itself(tmp_path):
    folder = snapshot(tmp_path, f"../../blobs/{'0' * 64}")
    blob = tmp_path / "repo" / "blobs" / ("0" * 64)
    for place in (tmp_path / "other" / "blobs" / ("0" * 64), blob):
        blob.unlink()
        blob.symlink_to(place)  # elsewhere; to itself
        refused(folder, "link", error=NotAllowed, names=str(folder / "model.safetensors"))


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "a/../../x", "..", "c:x", "a\\..\\b"])
def test_table_20_manifest_that_names_a_place_outside(path, tmp_path):
    folder = fill(tmp_path / "m", {"a.txt": "1"})
    document = json.loads(encode(scan(folder)))
    document["files"][0]["path"] = path
    with (
        at_most(FEW_MIB),
        pytest.raises(ArtifactError, match="does not validate: the path") as told,
    ):
        decode(json.dumps(document).encode())
    assert ascii(path) in told.value.message


def test_table_20_proof_that_names_a_place_outside(tmp_path):
    """A content root does not bind the file's path, so the path is judged by itself."""
    secret = fill(tmp_path, {"secret.safetensors": pack([u8("a", b"1")]), "m/a.txt": "1"})
    manifest = scan(secret / "secret.safetensors")
    proof = weights.prove(manifest, "a")
    moved = msgspec.structs.replace(
        proof, file=msgspec.structs.replace(proof.file, path="../secret.safetensors")
    )
    with pytest.raises(NotAllowed, match="is not a plain path below the directory"):
        weights.verify_tensor(tmp_path / "m", moved, manifest.content_root)


def test_table_21_nothing_is_ignored_silently(tmp_path):
    folder = fill(
        tmp_path,
        {"model.safetensors": pack([u8("a", b"1")]), ".git/x": "1", ".gitattributes": "1"},
    )
    assert [left.path for left in scan(folder).left_out] == [".git/", ".gitattributes"]
    before = scan(folder)
    fill(folder, {"stray.safetensors": pack([u8("b", b"1")])})
    with pytest.raises(RootMismatch, match=r"stray.safetensors: tensor 'b' is extra"):
        verify(folder, before)


def test_table_22_empty_files_count(tmp_path):
    folder = fill(tmp_path, {"a.txt": "1"})
    before = scan(folder)
    fill(folder, {"__init__.py": ""})
    with pytest.raises(RootMismatch, match=r"__init__.py is extra") as told:
        verify(folder, before)
    assert told.value.tensors == ("__init__.py",)


def test_table_23_names_are_bound(tmp_path):
    folder = fill(tmp_path, {"a.txt": "1"})
    before = scan(folder)
    (folder / "a.txt").rename(folder / "a2.txt")
    with pytest.raises(RootMismatch, match=r"a.txt is missing; a2.txt is extra"):
        verify(folder, before)
    contents = {
        scan(one_file(tmp_path / "..", pack([Made(name, dtype, shape, b"1234")]))).content_root
        for name, dtype, shape in (
            ("ab", "U8", (4,)),
            ("a", "U8", (4,)),
            ("ab", "I8", (4,)),
            ("ab", "U8", (2, 2)),
            ("ab", "U8", (4, 1)),
        )
    }
    assert len(contents) == 5


def test_table_24_scans_beside_each_other(tmp_path):
    folders = [
        fill(tmp_path / str(i), {"model.safetensors": pack([u8("a", bytes([i]) * 3 * MIB)])})
        for i in range(4)
    ]
    expected = [scan(folder).root for folder in folders]
    with ThreadPoolExecutor(4) as pool:
        assert expected == [manifest.root for manifest in pool.map(scan, folders)]
    assert len(set(expected)) == 4


def written(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(1, 1))


CHANGES: dict[str, Callable[[Path], object]] = {
    "written": written,
    "cut": lambda path: os.truncate(path, 20),
    "grown": lambda path: os.truncate(path, path.stat().st_size + 1),
    "replaced": lambda path: path.with_name("new").rename(path),
}


@pytest.mark.parametrize("case", CHANGES)
def test_table_25_file_that_changes_meanwhile(case, tmp_path):
    content = pack([u8("a", bytes(2 * MIB))])
    path = one_file(tmp_path, content)
    path.with_name("new").write_bytes(content)
    reports: list[int] = []

    def change(done: int, total: int) -> None:
        if not reports:
            CHANGES[case](path)
        reports.append(done)

    with at_most(FEW_MIB), pytest.raises(FileChanged, match="changed while it was read") as told:
        scan(path, threads=2, progress=change)
    assert str(path) in told.value.message


def test_table_26_right_size_and_wrong_bytes(tmp_path):
    folder = fill(tmp_path, {"model.safetensors": pack([u8("a", bytes(2 * MIB)), u8("b", b"1")])})
    before = scan(folder)
    content = bytearray((folder / "model.safetensors").read_bytes())
    content[-2:-1] = b"\xff"  # the last byte of "a"
    fill(folder, {"model.safetensors": bytes(content)})
    with pytest.raises(RootMismatch, match=r"tensor 'a' differs in 1 block, bytes") as told:
        verify(folder, before)
    assert told.value.tensors == ("a",)


def test_table_27_corrupt_tensor_is_not_loaded_silently(tmp_path):
    folder = adapter(tmp_path)
    before = scan(folder)
    victim = before.tensors[0]
    written(folder / "adapter_model.safetensors")
    with pytest.raises(RootMismatch) as told:
        verify(folder, before)
    assert told.value.tensors != ()
    assert set(told.value.tensors) < {tensor.name for tensor in before.tensors} | {victim.name}


def test_table_28_bits_of_a_nan_are_content(tmp_path):
    numbers = [0x7FC0_0000, 0x7FC0_0001, 0xFFC0_0000, 0x7F80_0000, 0x0000_0000, 0x8000_0000]
    roots = {
        scan(
            one_file(tmp_path, pack([Made("a", "F32", (1,), struct.pack("<I", bits))]))
        ).content_root
        for bits in numbers
    }
    assert len(roots) == len(numbers)


def test_table_29_tied_weights_may_be_absent_unless_an_index_says_else(tmp_path):
    metadata = {"lm_head.weight": "model.embed_tokens.weight"}
    tied = pack([zeros("model.embed_tokens.weight", "F16", 2)], metadata)
    folder = fill(tmp_path / "one", {"model.safetensors": tied})
    assert [tensor.name for tensor in scan(folder).tensors] == ["model.embed_tokens.weight"]
    several = sharded(tmp_path / "two", TWO)
    whole = json.loads((several / INDEX).read_text())["weight_map"]
    index_of(several, whole | {"lm_head.weight": "m1.safetensors"})
    refused(several, "the tensor 'lm_head.weight' is in no shard", names=str(several / INDEX))


def test_table_30_numbers_are_little_endian_whatever_the_host(tmp_path):
    content = with_length(GOOD, b"1234")
    swapped = content[7::-1] + content[8:]
    refused(one_file(tmp_path, swapped), "is more than the file holds", at=0)
    assert scan(one_file(tmp_path, content)).tensors[0].leaves == blake3(b"1234").digest()


@pytest.mark.parametrize("prefix", ["sha256:", "blake3:", "", "b3", "B3:"])
def test_table_31_digests_are_typed(prefix, tmp_path):
    folder = fill(tmp_path, {"a.txt": "1"})
    manifest = scan(folder)
    other = manifest.root.replace("b3:", prefix)
    with pytest.raises(RootMismatch):
        verify(folder, other)
    with pytest.raises(PlanError):
        check_root(other, what="--root")
    with pytest.raises(ArtifactError, match="does not validate"):
        decode(encode(manifest).replace(manifest.root.encode(), other.encode()))


@pytest.mark.parametrize("kind", ["fifo", "socket", "folder"])
def test_table_32_what_is_named_as_weights_and_is_no_file(kind, tmp_path):
    folder = fill(tmp_path / "m", {"config.json": "{}"})
    place = folder / "model.safetensors"
    if kind == "fifo":
        os.mkfifo(place)
    elif kind == "socket":
        os.mknod(place, 0o140600)
    else:
        fill(place, {"model.safetensors": pack([u8("a", b"1")])})
    refused(folder, "", error=NotAllowed, names=str(place))


@pytest.mark.parametrize("kind", ["fifo", "device", "folder"])
def test_table_32_manifest_that_is_no_file(kind, tmp_path):
    """One that lies in a directory from elsewhere is opened by itself: it may not hang us."""
    place = weights.manifest_path(fill(tmp_path, {"a.txt": "1"}))
    if kind == "fifo":
        os.mkfifo(place)
    elif kind == "device":
        place.symlink_to("/dev/zero")
    else:
        place.mkdir()
    with at_most(FEW_MIB), pytest.raises(ArtifactError, match="is not a regular file") as told:
        weights.load(place)
    assert str(place) in told.value.message


FOREIGN = {
    "pickle": (b"\x80\x04\x95" + bytes(60), "a pickle"),
    "zip": (b"PK\x03\x04" + bytes(60), "a zip archive, as torch.save writes"),
    "git-lfs": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64,
        "a git-lfs pointer whose file was never fetched",
    ),
    "html": (b"<!doctype html><title>404</title>" + b" " * 60, "an HTML or XML page"),
    "gguf": (b"GGUF\x03\0\0\0" + bytes(60), "a GGUF file"),
    "hdf5": (b"\x89HDF\r\n\x1a\n" + bytes(60), "an HDF5 file"),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_table_33_other_kinds_of_file_are_named(case, tmp_path):
    content, kind = FOREIGN[case]
    refused(one_file(tmp_path, content), f"not safetensors but {kind}", at=0)


@pytest.mark.parametrize("size", [510, 511, 512, 513, 514, 99_994, 100_000, 100_001])
def test_table_34_header_is_read_to_its_last_byte_and_no_further(size, tmp_path):
    """Around what is read at first to tell the kind of file, and where other readers erred."""
    header = GOOD + " " * (size - 8 - len(GOOD))
    path = one_file(tmp_path, with_length(header, b"1234"))
    manifest = scan(path)
    assert manifest.files[0].header_size == size
    assert manifest.files[0].header == f"b3:{blake3(with_length(header)).hexdigest()}"
    assert manifest.tensors[0].leaves == blake3(b"1234").digest()
    changed = header[:-1] + "x"
    refused(one_file(tmp_path, with_length(changed, b"1234")), "only spaces", at=size - 1)


def test_table_files_of_the_library_itself_pass(tmp_path):
    """The table refuses much; what the library writes is none of it."""
    import numpy as np

    path = tmp_path / "model.safetensors"
    save_file({"b": np.ones((2, 3), "f2"), "a": np.zeros(5, "i8")}, path, metadata={"k": "v"})
    manifest: Manifest = scan(path)
    assert [tensor.name for tensor in manifest.tensors] == ["a", "b"]

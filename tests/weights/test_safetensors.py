import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors
from hypothesis import example, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from tests.weights.building import Made, entry, pack, u8, with_length, zeros
from vctl_plans.errors import ArtifactError, MalformedWeights
from vctl_plans.weights import scan
from vctl_plans.weights.safetensors import DTYPE_BITS, Header, header_size, parse_header

GOOD = '{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}'
HEAD = 8 + len(GOOD)


def read(content: bytes) -> Header:
    size = header_size(content[:512], len(content), path="w")
    return parse_header(content[:size], len(content), path="w")


def read_by_reference(content: bytes) -> dict[str, Made]:
    parts = safetensors.deserialize(content)
    return {
        name: Made(name, seen["dtype"], tuple(seen["shape"]), bytes(seen["data"]))
        for name, seen in parts
    }


def one(text: str, data: bytes = b"1234") -> bytes:
    """A file whose one tensor's entry is `text`."""
    return with_length('{"a":' + text + "}", data)


def two(a: tuple[int, int], b: tuple[int, int], size: int) -> bytes:
    header = {"a": entry("U8", [a[1] - a[0]], *a), "b": entry("U8", [b[1] - b[0]], *b)}
    return with_length(json.dumps(header), bytes(size))


def two_begin(a: tuple[int, int], b: tuple[int, int]) -> int:
    return len(two(a, b, 0))


SHAPE = '{"dtype":"U8","shape":%s,"data_offsets":[0,4]}'
OFFSETS = '{"dtype":"U8","shape":[4],"data_offsets":%s}'
DTYPE = '{"dtype":%s,"shape":[4],"data_offsets":[0,4]}'
DIGITS = "9" * 5000

# What it is: the bytes, the rule as it is told, the offset.
MALFORMED: dict[str, tuple[bytes, str, int]] = {
    "empty": (b"", "too short", 0),
    "seven bytes": (b"1234567", "too short", 0),
    "length 0": (bytes(8) + b"{}", "length is 0", 0),
    "zero-filled": (bytes(4096), "zeros (preallocated", 0),
    "length bomb": (b"\xff" * 8 + b"{}", "more than the file holds", 0),
    "length off by one": (
        (len(GOOD) + 5).to_bytes(8, "little") + GOOD.encode() + b"1234",
        "more",
        0,
    ),
    "over the limit": (with_length(b"{" + b" " * 25_000_000), "over the limit", 0),
    "zip": (b"PK\x03\x04" + bytes(60), "a zip archive", 0),
    "pickle": (b"\x80\x02}q\x00." + bytes(60), "a pickle", 0),
    "git-lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00", "git-lfs pointer", 0),
    "html": (b"<!DOCTYPE html><html><body>404</body></html>", "HTML", 0),
    "gguf": (b"GGUF" + bytes(60), "GGUF", 0),
    "space first": (with_length(" " + GOOD, b"1234"), "does not begin with '{'", 8),
    "byte order mark": (with_length("\ufeff" + GOOD, b"1234"), "does not begin with '{'", 8),
    "an array": (with_length("[]"), "does not begin with '{'", 8),
    "not UTF-8": (with_length(b'{"\xff":1}'), "not UTF-8", 10),
    "not closed": (with_length('{"a":'), "expected '{'", 13),
    "no key": (with_length("{1:2}"), "expected a string", 9),
    "no colon": (with_length('{"a" 1}'), "expected ':'", 13),
    "comma at the end": (with_length(GOOD[:-1] + ",}", b"1234"), "expected a string", HEAD),
    "two objects": (with_length(GOOD + "{}", b"1234"), "only spaces may follow", HEAD),
    "newline padding": (with_length(GOOD + "\n", b"1234"), "only spaces may follow", HEAD),
    "NUL padding": (with_length(GOOD + "\0", b"1234"), "only spaces may follow", HEAD),
    "duplicate name": (
        with_length(GOOD[:-1] + "," + GOOD[1:], b"1234"),
        "duplicate key 'a' in the header",
        HEAD,
    ),
    "duplicate name, escaped": (
        with_length(GOOD[:-1] + "," + GOOD[1:].replace('"a"', '"\\u0061"'), b"1234"),
        "duplicate key 'a' in the header",
        HEAD,
    ),
    "duplicate metadata": (
        with_length('{"__metadata__":{},"__metadata__":{}}'),
        "duplicate key '__metadata__'",
        27,
    ),
    "duplicate key in metadata": (
        with_length('{"__metadata__":{"k":"1","k":"2"}}'),
        "duplicate key 'k' in __metadata__",
        33,
    ),
    "duplicate field": (one(DTYPE % '"U8","dtype":"I8"'), "duplicate key 'dtype'", 27),
    "metadata of numbers": (with_length('{"__metadata__":{"k":1}}'), "expected a string", 29),
    "metadata a list": (with_length('{"__metadata__":[]}'), "expected '{' in __metadata__", 24),
    "a tensor named __metadata__": (
        with_length(GOOD.replace("a", "__metadata__", 1), b"1234"),
        "expected a string in __metadata__",
        8 + GOOD.index("[4]") + len("__metadata__") - 1,
    ),
    "empty name": (with_length(GOOD.replace('"a"', '""'), b"1234"), "an empty name", 9),
    "NUL in a name": (with_length(GOOD.replace("a", "a\\u0000", 1), b"1234"), "control char", 9),
    "escape in a name": (with_length(GOOD.replace("a", "\\u001b[2J", 1), b"1234"), "control", 9),
    "raw newline in a name": (
        with_length(GOOD.replace("a", "\n", 1), b"1234"),
        "broken string",
        10,
    ),
    "lone surrogate": (with_length(GOOD.replace("a", "\\ud800", 1), b"1234"), "lone surrogate", 9),
    "long name": (with_length(GOOD.replace("a", "a" * 5000, 1), b"1234"), "5000 characters", 9),
    "Unicode twins": (
        with_length('{"\u00e9":' + GOOD[5:-1] + ',"e\u0301":' + GOOD[5:], b"1234"),
        "another Unicode form",
        HEAD + 1,  # the first name is one byte longer
    ),
    "entry a number": (one("1"), "expected '{' in the entry of 'a'", 13),
    "entry null": (one("null"), "expected '{' in the entry of 'a'", 13),
    "deep nesting": (one("[" * 100_000), "expected '{'", 13),
    "no dtype": (one('{"shape":[4],"data_offsets":[0,4]}'), "no 'dtype'", 9),
    "no shape": (one('{"dtype":"U8","data_offsets":[0,4]}'), "no 'shape'", 9),
    "no offsets": (one('{"dtype":"U8","shape":[4]}'), "no 'data_offsets'", 9),
    "extra field": (one(DTYPE % '"U8","x":1'), "unknown key 'x'", 27),
    "unknown dtype": (one(DTYPE % '"F5"'), "unknown dtype 'F5'", 14),
    "lower-case dtype": (one(DTYPE % '"u8"'), "unknown dtype 'u8'", 14),
    "dtype a number": (one(DTYPE % "8"), "expected a string", 22),
    "negative dim": (one(SHAPE % "[-4]"), "expected a whole number", 36),
    "minus zero": (one(SHAPE % "[-0]"), "expected a whole number", 36),
    "float dim": (one(SHAPE % "[4.0]"), "expected a whole number", 36),
    "exponent dim": (one(SHAPE % "[4e0]"), "expected a whole number", 36),
    "true dim": (one(SHAPE % "[true]"), "expected a whole number", 36),
    "NaN dim": (one(SHAPE % "[NaN]"), "expected a whole number", 36),
    "leading zero": (one(SHAPE % "[04]"), "expected a whole number", 36),
    "dim 2^63": (one(SHAPE % f"[0,{2**63}]"), "expected a whole number", 38),
    "dim of 5000 digits": (one(SHAPE % f"[{DIGITS}]"), "expected a whole number", 36),
    "shape a string": (one(SHAPE % '"4"'), "expected '['", 35),
    "shape not closed": (one(SHAPE % "[4"), "expected a whole number", 38),
    "overflow to 0": (one(SHAPE % f"[{2**32},{2**32}]", b""), "the shape overflows", 9),
    "many large dims": (one(SHAPE % json.dumps([2**62] * 9000)), "the shape overflows", 9),
    "shape too large": (one(SHAPE % "[5]"), "need 5 bytes, data_offsets give 4", 9),
    "half a byte": (
        one('{"dtype":"F4","shape":[3],"data_offsets":[0,1]}', b"1"),
        "12 bits of F4 do not fill whole bytes",
        9,
    ),
    "F6, not whole": (
        one('{"dtype":"F6_E2M3","shape":[2],"data_offsets":[0,2]}', b"12"),
        "12 bits of F6_E2M3 do not fill whole bytes",
        9,
    ),
    "one offset": (one(OFFSETS % "[4]"), "two numbers, not 1", 9),
    "three offsets": (one(OFFSETS % "[0,4,4]"), "two numbers, not 3", 9),
    "offsets backwards": (one(OFFSETS % "[4,0]"), "run backwards", 9),
    "offset over 2^64": (one(OFFSETS % f"[0,{2**64 + 4}]"), "expected a whole number", 57),
    "offset overflow": (one(OFFSETS % f"[{2**63 - 5},{2**63 - 1}]"), "a hole of", HEAD + 36),
    "truncated": (with_length(GOOD, b"123"), "truncated: the tensor 'a'", HEAD + 3),
    "no data": (with_length(GOOD), "truncated: the tensor 'a'", HEAD),
    "a trailing byte": (with_length(GOOD, b"12345"), "1 trailing bytes", HEAD + 4),
    "only trailing bytes": (with_length("{}", b"12345"), "5 trailing bytes", 10),
    "hole at the start": (two((1, 4), (4, 8), 8), "hole of 1 bytes", two_begin((1, 4), (4, 8))),
    "hole between": (two((0, 4), (5, 8), 8), "hole of 1 bytes", two_begin((0, 4), (5, 8)) + 4),
    "overlap": (two((0, 4), (3, 8), 8), "'b' overlaps", two_begin((0, 4), (3, 8)) + 3),
    "the same range": (two((0, 4), (0, 4), 4), "'b' overlaps", two_begin((0, 4), (0, 4))),
    "inside": (two((0, 8), (2, 4), 8), "'b' overlaps", two_begin((0, 8), (2, 4)) + 2),
    "empty one inside": (two((0, 8), (4, 4), 8), "'b' overlaps", two_begin((0, 8), (4, 4)) + 4),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_safetensors_refuses_with_rule_and_offset(case, tmp_path):
    content, rule, offset = MALFORMED[case]
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(MalformedWeights) as refused:
        scan(path)
    assert rule in refused.value.message
    assert refused.value.offset == offset
    assert refused.value.path == str(path)


ACCEPTED = {
    "no tensors": with_length("{}"),
    "metadata null": with_length('{"__metadata__":null,' + GOOD[1:], b"1234"),
    "metadata empty": with_length('{"__metadata__":{},' + GOOD[1:], b"1234"),
    "spaces after": with_length(GOOD + "     ", b"1234"),
    "white space within": with_length(GOOD.replace(":", " :\n\t"), b"1234"),
    "json.dumps": with_length(json.dumps(json.loads(GOOD)), b"1234"),
    "fields in another order": one('{"data_offsets":[0,4],"shape":[2, 2],"dtype":"U8"}'),
    "names in another order": two((4, 8), (0, 4), 8),
    "a scalar": one('{"dtype":"F32","shape":[],"data_offsets":[0,4]}'),
    "no elements": one(f'{{"dtype":"F32","shape":[0,{2**63 - 1}],"data_offsets":[0,0]}}', b""),
    "many dims": one(SHAPE % json.dumps([1] * 40 + [4])),
    "two empty ones at one place": pack([u8("a", b""), u8("b", b""), u8("c", b"x")]),
    "a path as a name": with_length(GOOD.replace("a", "../../x", 1), b"1234"),
    "an escaped pair": with_length(GOOD.replace("a", "\\ud83d\\ude00", 1), b"1234"),
    "F4, even": one('{"dtype":"F4","shape":[2],"data_offsets":[0,1]}', b"1"),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_safetensors_accepts_what_the_reference_accepts(case, tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(ACCEPTED[case])
    manifest = scan(path)
    with safetensors.safe_open(path, "np") as reference:
        assert sorted(tensor.name for tensor in manifest.tensors) == sorted(reference.keys())


def test_safetensors_header_limit_is_an_option(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(with_length(GOOD + " " * 1000, b"1234"))
    with pytest.raises(MalformedWeights, match="over the limit of 1000"):
        scan(path, max_header_bytes=1000)
    assert scan(path, max_header_bytes=2000).tensors[0].name == "a"
    with pytest.raises(MalformedWeights, match="over the limit of 100000000"):
        header_size(
            (2 * 10**8).to_bytes(8, "little") + b"{", 10**9, path="w", max_header_bytes=10**9
        )


def test_safetensors_dtypes_are_those_of_the_reference():
    with pytest.raises(safetensors.SafetensorError) as refused:
        read_by_reference(one(DTYPE % '"F5"'))
    listed = str(refused.value).split("expected one of")[1]
    names = {word.strip("` ") for word in listed.split(" at line")[0].split(",")}
    assert names == set(DTYPE_BITS)


@pytest.mark.parametrize("dtype", DTYPE_BITS)
def test_safetensors_sizes_are_those_of_the_reference(dtype):
    content = pack([zeros("a", dtype, 2, 4)])
    tensor = read(content).tensors[0]
    assert tensor.end - tensor.begin == len(read_by_reference(content)["a"].content)


def test_safetensors_reads_what_the_library_writes(tmp_path):
    rng = np.random.default_rng(7)
    arrays = {
        "b.weight": rng.standard_normal((3, 5)).astype("f4"),
        "a.weight": rng.standard_normal((2, 2, 2)).astype("f2"),
        "n": np.arange(6, dtype="i8"),
    }
    path = tmp_path / "model.safetensors"
    save_file(arrays, path, metadata={"format": "pt"})
    content = path.read_bytes()
    header = read(content)
    assert header.metadata == {"format": "pt"}
    loaded = load_file(path)
    assert {t.name: content[t.begin : t.end] for t in header.tensors} == {
        name: array.tobytes() for name, array in loaded.items()
    }
    assert {t.name: t.shape for t in header.tensors} == {n: a.shape for n, a in arrays.items()}


@st.composite
def mutated(draw):
    """A good file with a few bytes of its header changed, cut out or put in."""
    content = pack([zeros("a", "F16", 2, 3), zeros("b", "F4", 4), u8("c", b"xyz")], {"k": "v"})
    data_begin = read(content).size_bytes
    header = bytearray(content[8:data_begin])
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(1, len(header)))
        text = draw(
            st.sampled_from([b"", b"{", b"}", b"[", b'"', b",", b"0", b"-", b"\\", b"\xff"])
        )
        header[at : at + draw(st.integers(0, 2))] = text
    return with_length(bytes(header), content[data_begin:])


@given(st.one_of(mutated(), st.binary(max_size=60).map(lambda raw: with_length(b"{" + raw))))
@example(with_length('{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x"))
@settings(max_examples=400, deadline=None)
def test_safetensors_never_accepts_more_than_the_reference(content):
    try:
        header = read(content)
    except ArtifactError:
        return
    ours = {
        t.name: Made(t.name, t.dtype, t.shape, content[t.begin : t.end]) for t in header.tensors
    }
    assert ours == read_by_reference(content)


def test_weights_import_is_light():
    script = (
        "import sys, vctl_plans.weights; "
        "print([m for m in ('torch', 'numpy', 'safetensors', 'grpc', 'rich') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parents[2] / "plans",
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"

"""The format written anew from docs/weights-format.md, with blake3 alone, against vctl and vectors.

What stands between the two lines imports nothing of vctl and was written from the document; it must
agree with vctl on directories made at random, and both with the vectors that the document lists.
"""

import base64
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.weights.building import Made, adapter, adapter_config, fill, lora, pack, u8
from vctl_plans import weights
from vctl_plans.errors import ArtifactError
from vctl_plans.weights import encode, scan

DOCUMENT = Path(__file__).parents[2] / "docs" / "weights-format.md"

# ---- the format, from the document ----

BLOCK = 1048576
Tree = tuple[str, list[bytes]]


def u64(number: int) -> bytes:
    return number.to_bytes(8, "little")


def H(content: bytes) -> bytes:  # noqa: N802  the document's name
    return blake3(content).digest()


def D(kind: str, *parts: bytes) -> bytes:  # noqa: N802  the document's name
    hasher = blake3(derive_key_context=f"vctl 2026 weights v1 {kind}")
    for part in parts:
        hasher.update(u64(len(part)) + part)
    return hasher.digest()


def leaves_of(content: bytes) -> bytes:
    return b"".join(H(content[at : at + BLOCK]) for at in range(0, len(content), BLOCK))


def tensor_of(name: str, dtype: str, shape: Sequence[int], content: bytes) -> bytes:
    dims = b"".join(u64(dim) for dim in shape)
    leaves = leaves_of(content)
    return D("tensor", name.encode(), dtype.encode(), dims, u64(len(content)), u64(BLOCK), leaves)


def root_of(kind: str, digests: Sequence[bytes]) -> bytes:
    """By the recursion of RFC 6962 section 2.1: the left side is the largest power of two."""
    if not digests:
        return D(kind, u64(0))
    return D(kind, u64(len(digests)), top_of(digests))


def top_of(digests: Sequence[bytes]) -> bytes:
    if len(digests) == 1:
        return digests[0]
    half = 1 << ((len(digests) - 1).bit_length() - 1)
    return D("node", top_of(digests[:half]), top_of(digests[half:]))


def tensors_in(content: bytes) -> tuple[bytes, list[tuple[str, bytes]]]:
    """Return a safetensors file's header bytes and its (name, tensor digest) in data's order."""
    begin = 8 + int.from_bytes(content[:8], "little")
    entries = json.loads(content[8:begin])
    entries.pop("__metadata__", None)
    ordered = sorted(entries.items(), key=lambda item: item[1]["data_offsets"])
    found = []
    for name, entry in ordered:
        first, last = (begin + offset for offset in entry["data_offsets"])
        digest = tensor_of(name, entry["dtype"], entry["shape"], content[first:last])
        found.append((name, digest))
    return content[:begin], found


def file_of(path: str, content: bytes, kind: str) -> tuple[str, bytes]:
    """Return a file's form and digest."""
    if kind != "plain" and path.endswith(".safetensors"):
        header, tensors = tensors_in(content)
        digests = b"".join(digest for _, digest in tensors)
        return "safetensors", D("file", u64(len(content)), H(header), digests)
    if len(content) <= BLOCK:
        return "plain", H(content)
    return "blocks", D("blocks", u64(len(content)), u64(BLOCK), leaves_of(content))


def roots_of(files: Mapping[str, bytes], kind: str) -> tuple[str, str]:
    """Return (artifact root, content root) of files that all belong."""
    entries, tensors = [], []
    for path in sorted(files, key=str.encode):
        form, digest = file_of(path, files[path], kind)
        size = u64(len(files[path]))
        entries.append(D("entry", path.encode(), form.encode(), size, digest))
        if form == "safetensors":
            tensors += tensors_in(files[path])[1]
    tensors.sort(key=lambda tensor: tensor[0].encode())
    content = root_of("content", [digest for _, digest in tensors])
    return text_of(root_of("artifact", entries)), text_of(content)


def climb(digest: bytes, index: int, count: int, siblings: Sequence[bytes]) -> bytes | None:
    """Follow an inclusion proof to the top; None where it does not fit."""
    rest = list(siblings)
    while count > 1:
        if index ^ 1 < count:
            if not rest:
                return None
            other = rest.pop(0)
            digest = D("node", other, digest) if index % 2 else D("node", digest, other)
        index, count = index // 2, (count + 1) // 2
    return None if rest or index else digest


def proved(proof: Mapping[str, Any]) -> tuple[str, str]:
    """Return the (artifact root, content root) that a proof leads to."""
    tensor, file = proof["tensor"], proof["file"]
    dims = b"".join(u64(dim) for dim in tensor["shape"])
    parts = (tensor["name"].encode(), tensor["dtype"].encode(), dims, u64(tensor["size"]))
    own = D("tensor", *parts, u64(BLOCK), base64.b64decode(tensor["leaves"]))
    digests = [bytes_of(digest) for digest in proof["digests"]]
    assert own in digests
    whole = D("file", u64(file["size"]), bytes_of(file["header"]), b"".join(digests))
    entry = D("entry", file["path"].encode(), b"safetensors", u64(file["size"]), whole)
    roots = []
    for kind, digest in (("artifact", entry), ("content", own)):
        way = proof[kind]
        top = climb(digest, way["index"], way["count"], list(map(bytes_of, way["siblings"])))
        assert top is not None
        roots.append(text_of(D(kind, u64(way["count"]), top)))
    return roots[0], roots[1]


def text_of(digest: bytes) -> str:
    return "b3:" + digest.hex()


def bytes_of(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("b3:"))


# ---- against the vectors ----

VECTOR = re.compile(r"^```vector (\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def vectors(kind: str) -> list[dict[str, str]]:
    found = [body for name, body in VECTOR.findall(DOCUMENT.read_text()) if name == kind]
    return [
        {
            key: value.strip()
            for key, _, value in (line.partition(":") for line in body.splitlines())
        }
        for body in found
    ]


def content_of(text: str) -> bytes:
    """Read bytes as section 6 writes them."""
    made = re.fullmatch(r"(zeros|count)\((\d+)\)", text)
    if made:
        size = int(made[2])
        return bytes(size) if made[1] == "zeros" else (bytes(range(256)) * (size // 256 + 1))[:size]
    return text[1:-1].encode() if text.startswith('"') else bytes.fromhex(text)


def listed(text: str) -> list[str]:
    return text.split() if text else []


def test_vectors_are_all_there():
    names = {name for name, _ in VECTOR.findall(DOCUMENT.read_text())}
    assert names == {"hash", "derived", "tensor", "other", "content", "artifact", "proof"}


def test_vectors_of_both_hashes():
    for vector in vectors("hash"):
        assert vector["digest"] == text_of(H(content_of(vector["input"])))
    for vector in vectors("derived"):
        parts = [content_of(part) for part in listed(vector["parts"])]
        body = b"".join(u64(len(part)) + part for part in parts)
        assert vector["body"] == body.hex()
        context = content_of(vector["context"]).decode()
        assert context.startswith("vctl 2026 weights v1 ")
        assert vector["digest"] == text_of(D(context.split()[-1], *parts))


def made_of(vector: Mapping[str, str]) -> Made:
    shape = tuple(json.loads(vector["shape"]))
    name = content_of(vector["name"]).decode()
    return Made(name, content_of(vector["dtype"]).decode(), shape, content_of(vector["bytes"]))


def test_vectors_of_tensors(tmp_path):
    for vector in vectors("tensor"):
        made = made_of(vector)
        leaves = leaves_of(made.content)
        assert listed(vector["leaves"]) == [
            text_of(leaves[i : i + 32]) for i in range(0, len(leaves), 32)
        ]
        assert vector["digest"] == text_of(
            tensor_of(made.name, made.dtype, made.shape, made.content)
        )
        fill(tmp_path, {"model.safetensors": pack([made])})
        (record,) = scan(tmp_path).tensors
        assert (vector["digest"], leaves) == (record.digest, record.leaves)


def test_vectors_of_other_files(tmp_path):
    for vector in vectors("other"):
        content = content_of(vector["file"])
        form, digest = file_of("a", content, "plain")
        assert (vector["form"], vector["digest"]) == (form, text_of(digest))
        (record,) = scan(fill(tmp_path, {"a": content}), kind="plain").files
        assert (vector["form"], vector["digest"]) == (record.form, record.digest)


def test_vectors_of_content_roots(tmp_path):
    for vector in vectors("content"):
        made = [u8(str(i), bytes([i])) for i in range(int(vector["tensors"]))]
        digests = [tensor_of(*one) for one in made]
        assert vector["root"] == text_of(root_of("content", digests))
        manifest = scan(fill(tmp_path, {"model.safetensors": pack(made)}))
        assert vector["root"] == manifest.content_root


def files_of(vector: Mapping[str, str]) -> dict[str, bytes]:
    return {
        key.removeprefix("file "): content_of(value)
        for key, value in vector.items()
        if key.startswith("file ")
    }


def test_vectors_of_an_artifact(tmp_path):
    (vector,) = vectors("artifact")
    files = files_of(vector)
    expected = (vector["root"], vector["content_root"])
    assert expected == roots_of(files, "model")
    manifest = scan(fill(tmp_path, files))
    assert expected == (manifest.root, manifest.content_root)
    assert vector["manifest"].encode() + b"\n" == encode(manifest)


def test_vectors_of_a_proof(tmp_path):
    (artifact,) = vectors("artifact")
    (vector,) = vectors("proof")
    assert (artifact["root"], artifact["content_root"]) == proved(json.loads(vector["proof"]))
    manifest = scan(fill(tmp_path, files_of(artifact)))
    proof = weights.prove(manifest, content_of(vector["name"]).decode())
    assert json.loads(vector["proof"]) == json.loads(msgspec.json.encode(proof))


# ---- against vctl, on what is made at random ----

names = st.text(alphabet="ab.\u00e9\u4e00", min_size=1, max_size=5)
sizes = st.sampled_from([0, 1, 5, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK])
tensors = st.builds(
    lambda name, size, seed: u8(name, (bytes([seed]) * size)[:size]),
    names,
    st.integers(0, 40) | sizes,
    st.integers(0, 255),
)
models = st.lists(tensors, min_size=1, max_size=7, unique_by=lambda made: made.name)
others = st.dictionaries(
    st.sampled_from(["config.json", "tokenizer.json", "vocab.txt", "chat.jinja"]),
    st.binary(max_size=20) | sizes.map(lambda size: b"x" * size),
    max_size=3,
)


def read(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@given(models, others, st.data())
@settings(max_examples=40, deadline=None, database=None)
def test_format_agrees_on_models_at_random(tmp_path_factory, made, other, data):
    cut = data.draw(st.integers(0, len(made)))
    shards = {"a.safetensors": made[:cut], "b.safetensors": made[cut:]}
    folder = tmp_path_factory.mktemp("m")
    fill(folder, {name: pack(parts, {"k": "v"}) for name, parts in shards.items()} | other)
    manifest = scan(folder)
    assert (manifest.root, manifest.content_root) == roots_of(read(folder), "model")
    name = data.draw(st.sampled_from([one.name for one in made]))
    proof = json.loads(msgspec.json.encode(weights.prove(manifest, name)))
    assert (manifest.root, manifest.content_root) == proved(proof)


@given(
    st.dictionaries(
        st.sampled_from(["a", "b.txt", "c/d", "c/e.safetensors", "\u00e9/x", "z.json"]),
        st.binary(max_size=9) | sizes.map(lambda size: b"x" * size),
        min_size=1,
        max_size=5,
    )
)
@settings(max_examples=40, deadline=None, database=None)
def test_format_agrees_on_plain_directories_at_random(tmp_path_factory, files):
    folder = fill(tmp_path_factory.mktemp("p"), files)
    manifest = scan(folder, kind="plain")
    assert (manifest.root, manifest.content_root) == roots_of(files, "plain")


def test_format_agrees_on_an_adapter(tmp_path):
    folder = adapter(tmp_path, {"tokenizer.json": "{}", "additional_chat_templates/a.jinja": "x"})
    manifest = scan(folder)
    assert (manifest.root, manifest.content_root) == roots_of(read(folder), "adapter")


@given(st.integers(1, 70), st.data())
@settings(max_examples=60, deadline=None)
def test_format_trees_have_the_shape_of_rfc_6962(count, data):
    """Pairing from the left (section 2.4) and the RFC's recursion are one tree."""
    level = [H(bytes([i])) for i in range(count)]
    index = data.draw(st.integers(0, count - 1))
    top, siblings, at, width = top_of(level), [], index, level
    while len(width) > 1:
        if at ^ 1 < len(width):
            siblings.append(width[at ^ 1])
        pairs = [width[i : i + 2] for i in range(0, len(width), 2)]
        width, at = [D("node", *pair) if pair[1:] else pair[0] for pair in pairs], at // 2
    assert width == [top]
    assert climb(level[index], index, count, siblings) == top
    for other in range(count):
        assert (climb(level[index], other, count, siblings) == top) == (other == index)


# ---- which files belong ----


def named_in(section: str, before: str) -> list[str]:
    """List the names in backquotes in the document, from a heading or phrase up to another."""
    words = " ".join(DOCUMENT.read_text().split())
    text = words.split(section, 1)[1].split(before, 1)[0]
    return re.findall(r"`([^`]+)`", text)


def example(pattern: str) -> str:
    return pattern.replace("*", "x")


def test_format_names_what_belongs(tmp_path):
    section, end = "Tokenizer and chat templates:", "in the directory"
    tokenizer = [example(name) for name in named_in(section, end)]
    config = [
        example(name)
        for name in named_in("| configuration |", "| tokenizer |")
        if name not in {"adapter_config.json", "model.safetensors.index.json"}
    ]
    model = fill(tmp_path / "model", dict.fromkeys([*tokenizer, *config], "{}"))
    fill(model, {"x.safetensors": pack([u8("a", b"1")]), "none.md": "x", "folder/none": "x"})
    manifest = scan(model)
    assert {*tokenizer, *config, "x.safetensors"} == {file.path for file in manifest.files}
    assert ["folder/", "none.md"] == [left.path for left in manifest.left_out]
    tuned = adapter(tmp_path / "adapter", dict.fromkeys([*tokenizer, "config.json"], "{}"))
    own = {"adapter_config.json", "adapter_model.safetensors"}
    assert {*tokenizer, *own} == {file.path for file in scan(tuned).files}


def test_format_names_what_is_left_out(tmp_path):
    section = "also what a trainer leaves behind"
    names = [example(name) for name in named_in(section, "What is left out is listed")]
    assert len(names) > 10
    folder = adapter(tmp_path, dict.fromkeys([*names, ".x", "__pycache__/x"], "x"))
    fill(folder, {"vctl.manifest.json": "x", "x.vctl.manifest.json": "x"})
    hidden = [".x", "__pycache__/", "x.vctl.manifest.json"]
    assert sorted([*names, *hidden]) == [left.path for left in scan(folder).left_out]


def test_format_names_the_dtypes(tmp_path):
    rows = re.findall(r"^\| (\d+) \| (`.*`) \|$", DOCUMENT.read_text(), re.MULTILINE)
    sizes_of = {name: int(bits) for bits, row in rows for name in re.findall(r"`(\w+)`", row)}
    made = [Made(name, name, (8,), bytes(bits)) for name, bits in sizes_of.items()]
    fill(tmp_path, {"model.safetensors": pack(made)})
    assert len(scan(tmp_path).tensors) == len(made) > 20


def test_format_refuses_what_the_document_refuses(tmp_path):
    stray = adapter(tmp_path / "stray", {"other.safetensors": pack(lora())})
    half = fill(tmp_path / "half", {"adapter_config.json": adapter_config()})
    pickled = fill(tmp_path / "pickled", {"model.pt": b"PK", "config.json": "{}"})
    inner = fill(tmp_path / "inner", {"unet/model.safetensors": pack([u8("a", b"1")])})
    counted = fill(tmp_path / "counted", {"m-00001-of-00002.safetensors": pack([u8("a", b"1")])})
    for folder in (stray, half, pickled, inner, counted, fill(tmp_path / "none", {".x": "x"})):
        with pytest.raises(ArtifactError):
            scan(folder)

"""Readers meet any bytes, good documents spoiled, and directories with one bit turned."""

import functools
import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.mutation import spoiled_bytes, spoiled_json
from tests.fuzz.seeds import INDEX, SHARDS, seeds
from tests.fuzz.targets import TARGETS, read_header
from tests.weights.building import Made, adapter, adapter_config, fill, pack, sharded, u8, zeros
from vctl_plans.errors import ArtifactError, VctlError
from vctl_plans.weights import (
    LEAF_BYTES,
    Difference,
    Manifest,
    TensorProof,
    decode,
    diff,
    encode,
    prove,
    scan,
)

FUZZ = settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)
SEEDS = seeds()


@functools.cache
def good(target: str) -> st.SearchStrategy[bytes]:
    return st.sampled_from(SEEDS[target])


@pytest.mark.parametrize("target", TARGETS)
def test_fuzz_seeds_are_accepted(target):
    """Else what is spoiled was spoiled before."""
    assert [True] * len(SEEDS[target]) == [TARGETS[target](content) for content in SEEDS[target]]


@pytest.mark.parametrize("target", TARGETS)
@given(content=st.binary(max_size=200))
@FUZZ
def test_fuzz_any_bytes_are_read_or_refused(target, content):
    TARGETS[target](content)
    TARGETS[target](b'{"' + content)


@pytest.mark.parametrize("target", TARGETS)
@given(data=st.data())
@FUZZ
def test_fuzz_spoiled_bytes_are_read_or_refused(target, data):
    TARGETS[target](data.draw(good(target).flatmap(spoiled_bytes)))


@pytest.mark.parametrize("target", ["index", "manifest", "adapter_config"])
@given(data=st.data())
@FUZZ
def test_fuzz_spoiled_json_is_read_or_refused(target, data):
    TARGETS[target](data.draw(good(target).flatmap(spoiled_json)))


@given(data=st.data(), tail=st.integers(0, 40))
@FUZZ
def test_fuzz_spoiled_headers_are_read_or_refused(data, tail):
    content = data.draw(st.sampled_from(SEEDS["header"][: len(SEEDS["header"]) // 2]))
    text = data.draw(spoiled_json(content[8 : read_header(content).size_bytes]))
    TARGETS["header"](tail.to_bytes(2, "little") + text)


@given(data=st.data())
@settings(FUZZ, max_examples=150)
def test_fuzz_spoiled_directories_are_scanned_or_refused(tmp_path_factory, data):
    base = tmp_path_factory.mktemp("m")
    folder = (
        sharded(base, SHARDS)
        if data.draw(st.booleans())
        else adapter(base, {"tokenizer.json": "{}"})
    )
    for _ in range(data.draw(st.integers(1, 2))):
        name = data.draw(st.sampled_from(sorted(entry.name for entry in folder.iterdir())))
        spoil = spoiled_json if name.endswith(".json") else spoiled_bytes
        before = (folder / name).read_bytes()
        try:
            content = data.draw(spoil(before))
        except ValueError:  # spoiled before, so that it is no JSON any more
            continue
        fill(folder, {name: content})
    try:
        manifest = scan(folder)
    except ArtifactError:
        return
    assert decode(encode(manifest), root=manifest.root) == manifest


@pytest.fixture(scope="module")
def proved(tmp_path_factory) -> tuple[Manifest, list[bytes]]:
    """A model of five tensors in two files, and the proof of each as JSON."""
    shards = {"m1.safetensors": [u8(str(i), b"12") for i in range(3)], **SHARDS}
    shards["m3.safetensors"] = shards.pop("m2.safetensors")
    manifest = scan(sharded(tmp_path_factory.mktemp("proved"), shards))
    return manifest, [msgspec.json.encode(prove(manifest, t.name)) for t in manifest.tensors]


@given(data=st.data())
@FUZZ
def test_fuzz_spoiled_proofs_prove_nothing_else(proved, data):
    manifest, proofs = proved
    document = data.draw(st.sampled_from(proofs).flatmap(spoiled_json))
    try:
        proof = msgspec.json.decode(document, type=TensorProof)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return
    try:
        roots = proof.roots()
    except ArtifactError:
        return
    if {manifest.root, manifest.content_root} & set(roots):
        assert proof.tensor in manifest.tensors


# ---- any bit that turns is found, and located ----

WIDE = LEAF_BYTES * 2 + 4099


class Kept:
    """A directory that was scanned; one bit at a time turns and turns back."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = scan(folder)
        self.sizes = {file.path: file.size for file in self.manifest.files}

    def turn(self, path: str, at: int, bit: int) -> None:
        with (self.folder / path).open("r+b") as file:
            value = os.pread(file.fileno(), 1, at)[0]
            os.pwrite(file.fileno(), bytes([value ^ (1 << bit)]), at)

    def places(self) -> dict[str, list[tuple[str, int, int]]]:
        """List (tensor, begin, end) of each file."""
        sizes = {tensor.name: tensor.size for tensor in self.manifest.tensors}
        found: dict[str, list[tuple[str, int, int]]] = {}
        for file in self.manifest.files:
            at = file.header_size
            found[file.path] = []
            for name in file.tensors:
                found[file.path].append((name, at, at + sizes[name]))
                at += sizes[name]
        return found


def check_located(kept: Kept, path: str, at: int, bit: int) -> None:
    """Turn one bit and require that it is found where it is."""
    kept.turn(path, at, bit)
    try:
        found: tuple[Difference, ...] | ArtifactError = diff(kept.manifest, scan(kept.folder))
    except ArtifactError as error:
        found = error
    finally:
        kept.turn(path, at, bit)
    home = next(((n, b) for n, b, e in kept.places()[path] if b <= at < e), None)
    if isinstance(found, ArtifactError):
        assert home is None
        assert names_file(kept, found, path)
    elif home is None:  # a name or shape that changes is told beside the header that says so
        (own,) = (difference for difference in found if not difference.tensor)
        assert_holds(own, path, at)
    else:
        name, begin = home
        (difference,) = found
        assert difference.tensor == name
        assert difference.blocks == ((at - begin) // LEAF_BYTES,)
        assert_holds(difference, path, at)


def names_file(kept: Kept, error: VctlError, path: str) -> bool:
    """A spoiled index, configuration or header can be told by the file that it contradicts."""
    pairs = {INDEX: ".safetensors", "adapter_config.json": "adapter_model.safetensors"}
    return path in error.message or pairs.get(path, INDEX) in error.message


def assert_holds(difference: Difference, path: str, at: int) -> None:
    """The byte is in the one range that is told, which is no longer than a block."""
    ((begin, end),) = difference.ranges
    assert difference.path == path
    assert begin <= at < end <= begin + LEAF_BYTES


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Kept:
    folder = sharded(tmp_path_factory.mktemp("small"), SHARDS)
    return Kept(fill(folder, {"tokenizer.json": '{"a":1}'}))


def test_fuzz_each_byte_of_a_small_model_is_found_and_located(small):
    for path, size in small.sizes.items():
        for at in range(size):
            check_located(small, path, at, (at * 5) % 8)
    assert scan(small.folder) == small.manifest


def test_fuzz_each_bit_of_one_file_is_found_and_located(tmp_path):
    """Without index and configuration, so that another name or shape is a good file too."""
    made = [Made("a", "U8", (2, 3), b"123456"), zeros("none", "F32", 0), u8("b", b"1")]
    kept = Kept(fill(tmp_path, {"model.safetensors": pack(made, {"k": "v"})}))
    for path, size in kept.sizes.items():
        for place in range(size * 8):
            check_located(kept, path, place // 8, place % 8)
    assert scan(kept.folder) == kept.manifest


@pytest.fixture(scope="module")
def wide(tmp_path_factory) -> Kept:
    """A model with tensors and a plain file of several blocks."""
    shards = {
        "model-00001-of-00002.safetensors": [
            u8("first", b"1"),
            u8("wide", bytes(range(256)) * (WIDE // 256)),
            zeros("none", "F32", 0, 3),
        ],
        "model-00002-of-00002.safetensors": [zeros("e", "BF16", 1024, 600), zeros("f", "F4", 6)],
    }
    folder = sharded(tmp_path_factory.mktemp("wide"), shards)
    return Kept(fill(folder, {"tokenizer.json": b'{"a": "' + b"x" * WIDE + b'"}'}))


@given(data=st.data())
@settings(FUZZ, max_examples=150)
def test_fuzz_any_bit_of_a_wide_model_is_found_and_located(wide, data):
    path = data.draw(st.sampled_from(sorted(wide.sizes)))
    edges = [0, wide.sizes[path] - 1]
    for _, begin, end in wide.places()[path]:
        blocks = range(begin, end, LEAF_BYTES)
        edges += [place for at in blocks for place in (at - 1, at)]
    at = data.draw(st.sampled_from(edges) | st.integers(0, wide.sizes[path] - 1))
    check_located(wide, path, at, data.draw(st.integers(0, 7)))


@pytest.fixture(scope="module")
def tuned(tmp_path_factory) -> Kept:
    config = adapter_config(rank_pattern={"q_proj": 4})
    return Kept(adapter(tmp_path_factory.mktemp("tuned"), {"adapter_config.json": config}))


@given(data=st.data())
@settings(FUZZ, max_examples=200)
def test_fuzz_any_bit_of_an_adapter_is_found_and_located(tuned, data):
    path = data.draw(st.sampled_from(sorted(tuned.sizes)))
    at = data.draw(st.integers(0, tuned.sizes[path] - 1))
    check_located(tuned, path, at, data.draw(st.integers(0, 7)))


def test_fuzz_nothing_was_left_spoiled(tuned, wide):
    for kept in (tuned, wide):
        assert scan(kept.folder) == kept.manifest

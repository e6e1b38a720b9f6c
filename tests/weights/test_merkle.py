"""The trees, against the format's definition written out here with blake3 alone."""

from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.weights.building import Made, fill, pack, u8
from vctl_plans.weights import merkle, scan

MIB = 1 << 20


def u64(number: int) -> bytes:
    return number.to_bytes(8, "little")


def derived(kind: str, *parts: bytes) -> bytes:
    body = b"".join(u64(len(part)) + part for part in parts)
    return blake3(body, derive_key_context=f"vctl 2026 weights v1 {kind}").digest()


def test_merkle_example_can_be_checked_by_hand(tmp_path):
    # Two tensors, "w" of two blocks and "a" of one, "w" first in the file; and a configuration.
    w = bytes(range(256)) * 4096 + b"tail"
    a = b"\x01\x02\x03\x04"
    content = pack([u8("w", w), Made("a", "F16", (1, 2), a)], {"format": "pt"})
    manifest = scan(fill(tmp_path, {"model.safetensors": content, "config.json": "{}"}))

    leaves = blake3(w[:MIB]).digest() + blake3(w[MIB:]).digest()
    tensor_w = derived("tensor", b"w", b"U8", u64(MIB + 4), u64(MIB + 4), u64(MIB), leaves)
    tensor_a = derived(
        "tensor", b"a", b"F16", u64(1) + u64(2), u64(4), u64(MIB), blake3(a).digest()
    )
    content_root = derived("content", u64(2), derived("node", tensor_a, tensor_w))
    header = blake3(content[: -(MIB + 8)]).digest()
    file = derived("file", u64(len(content)), header, tensor_w + tensor_a)
    config = derived("entry", b"config.json", b"plain", u64(2), blake3(b"{}").digest())
    weights = derived("entry", b"model.safetensors", b"safetensors", u64(len(content)), file)
    root = derived("artifact", u64(2), derived("node", config, weights))

    assert manifest.content_root == "b3:" + content_root.hex()
    assert manifest.root == "b3:" + root.hex()
    assert [tensor.leaves for tensor in manifest.tensors] == [blake3(a).digest(), leaves]
    # Fixed: another value here is another format.
    assert (
        manifest.content_root
        == "b3:729c110ae5a85c0d330f7c542e8c4e2879556b1b2371f54493e7be6f69de089e"
    )
    assert manifest.root == "b3:ad5d25ae5211efbccb4ad2ff6bb46e58e56a026a2f4de54d20c3c44d7500c461"


def test_merkle_root_of_nothing_and_of_one_differ():
    digest = blake3(b"x").digest()
    assert merkle.content_root([]) == derived("content", u64(0))
    assert merkle.content_root([("x", digest)]) == derived("content", u64(1), digest)


def test_merkle_odd_nodes_move_up():
    a, b, c, d, e = (blake3(bytes([i])).digest() for i in range(5))
    pair = derived("node", derived("node", a, b), derived("node", c, d))
    expected = derived("content", u64(5), derived("node", pair, e))
    assert merkle.content_root(zip("abcde", (a, b, c, d, e), strict=True)) == expected


def test_merkle_large_plain_file_can_be_checked_by_hand(tmp_path):
    content = bytes(range(256)) * 4096 + b"tail"
    manifest = scan(fill(tmp_path, {"index": content, "note": "x"}), kind="plain")
    leaves = blake3(content[:MIB]).digest() + blake3(content[MIB:]).digest()
    digest = derived("blocks", u64(MIB + 4), u64(MIB), leaves)
    index = derived("entry", b"index", b"blocks", u64(MIB + 4), digest)
    note = derived("entry", b"note", b"plain", u64(1), blake3(b"x").digest())
    root = derived("artifact", u64(2), derived("node", index, note))
    assert manifest.root == "b3:" + root.hex()
    assert manifest.root == "b3:766b6ff5d72a1692901ed54591b5f4d2300693d42d63ba87a0a8f16a59a559c3"


leaves_of = st.binary(min_size=1, max_size=3).map(lambda seed: blake3(seed).digest())
tensor_parts = st.tuples(
    st.text(alphabet="ab", min_size=1, max_size=3),
    st.sampled_from(["U8", "I8", "F16"]),
    st.lists(st.integers(0, 3), max_size=3).map(tuple),
    st.integers(0, 3),
    st.lists(leaves_of, max_size=3).map(b"".join),
)


@given(tensor_parts, tensor_parts)
@settings(deadline=None)
def test_merkle_tensor_binds_each_of_its_parts(one, other):
    digests = [
        merkle.tensor_digest(name, dtype, shape, size_bytes=size, leaves=leaves)
        for name, dtype, shape, size, leaves in (one, other)
    ]
    assert (digests[0] == digests[1]) == (one == other)


@given(st.lists(leaves_of, max_size=9), st.lists(leaves_of, max_size=9))
@settings(deadline=None)
def test_merkle_regrouping_never_gives_the_same_root(one, other):
    def root(digests: list[bytes]) -> bytes:
        return merkle.content_root((f"{i:02}", digest) for i, digest in enumerate(digests))

    assert (root(one) == root(other)) == (one == other)


@given(st.lists(leaves_of, min_size=2, max_size=8))
@settings(deadline=None)
def test_merkle_inner_nodes_do_not_pass_for_tensors(digests):
    pairs = list(enumerate(digests))
    whole = merkle.content_root((f"{i:02}", digest) for i, digest in pairs)
    nodes = [
        derived("node", *digests[i : i + 2]) if len(digests[i : i + 2]) > 1 else digests[i]
        for i in range(0, len(digests), 2)
    ]
    assert merkle.content_root((f"{i:02}", node) for i, node in enumerate(nodes)) != whole


@given(st.lists(leaves_of, min_size=1, max_size=33, unique=True), st.data())
@settings(deadline=None)
def test_merkle_inclusion_leads_to_the_root_and_nothing_else_does(digests, data):
    root = merkle.content_root((f"{i:02}", digest) for i, digest in enumerate(digests))
    index = data.draw(st.integers(0, len(digests) - 1))
    siblings = merkle.inclusion(digests, index)
    assert len(siblings) <= (len(digests) - 1).bit_length()

    def found(digest: bytes = digests[index], way: list[bytes] = siblings, **place: int):
        where = {"index": index, "count": len(digests)} | place
        return merkle.root_by_inclusion("content", digest, way, **where)

    assert found() == root
    other = blake3(b"other").digest()
    assert found(digest=other) != root
    assert found(way=[*siblings, other]) is None
    assert found(way=siblings[:-1]) is None or not siblings
    assert found(count=len(digests) + 1) != root
    for at in range(len(digests)):
        assert (found(index=at) == root) == (at == index)
    for at in range(len(siblings)):
        assert found(way=[*siblings[:at], other, *siblings[at + 1 :]]) != root


def test_merkle_inclusion_has_no_place_outside():
    digest = blake3(b"x").digest()
    for index, count in ((0, 0), (1, 1), (2, 2), (5, 3)):
        for siblings in ([], [digest], [digest, digest]):
            where = {"index": index, "count": count}
            assert merkle.root_by_inclusion("content", digest, siblings, **where) is None


def test_merkle_kinds_of_nodes_are_apart():
    parts = (u64(1), b"x" * 32)
    kinds = ("tensor", "node", "content", "file", "entry", "artifact")
    digests = {derived(kind, *parts) for kind in kinds} | {blake3(b"".join(parts)).digest()}
    assert len(digests) == len(kinds) + 1


@given(st.integers(0, 5 * MIB + 1), st.integers(0, 100))
@settings(deadline=None)
def test_merkle_leaves_cover_the_range_once(size, begin):
    ranges = list(merkle.leaf_ranges(begin, begin + size))
    assert len(ranges) == merkle.leaf_count(size)
    assert [a for a, _ in ranges] == [begin + i * MIB for i in range(len(ranges))]
    assert [b for _, b in ranges] == [a for a, _ in ranges[1:]] + [begin + size] * bool(size)

"""The trees: how leaves, tensors, files and directories become one digest.

A leaf is the plain BLAKE3 of a block of `LEAF_BYTES`, counted from the first byte of the tensor
(or of the file that is no safetensors), so that `dd | b3sum` reproduces it. Every other node is
hashed under a derive-key context of its own kind, and every part of it carries its length: no leaf
passes for a node, no node for one of another kind, and no regrouping of parts gives the same bytes.
A change to anything here is a new format version, in `_FORMAT`.

The content root is a tree over the tensors by name, so it does not depend on sharding, on the order
in a file or on `__metadata__`; the artifact root binds every byte of every file. Both have the
shape of RFC 9162's trees, so that `inclusion` proves one tensor or file with a logarithm of
digests.

A file that is no safetensors and fits in one block has that leaf as its digest, which is what
`b3sum FILE` prints; a larger one is cut into blocks as a tensor is, so that its hashing is parallel
and a changed block is found. The artifact's tree binds which of the two it is (`form`).
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from blake3 import blake3

LEAF_BYTES: Final = 1 << 20
DIGEST_BYTES: Final = 32

_FORMAT: Final = "vctl 2026 weights v1"
_PREFIX: Final = "b3:"


def to_text(digest: bytes) -> str:
    """Write a digest the way people and manifests see it: ``b3:<64 hex>``."""
    return _PREFIX + digest.hex()


def from_text(text: str) -> bytes:
    """Read what `to_text` wrote; `manifest.Digest` checks the form where it enters."""
    return bytes.fromhex(text.removeprefix(_PREFIX))


def plain(content: bytes) -> bytes:
    """Hash bytes as `b3sum` does."""
    return blake3(content).digest()


def leaf_ranges(begin: int, end: int) -> Iterable[tuple[int, int]]:
    """Cut a byte range into blocks of `LEAF_BYTES`, the last one shorter; none if it is empty."""
    return ((at, min(at + LEAF_BYTES, end)) for at in range(begin, end, LEAF_BYTES))


def leaf_count(size_bytes: int) -> int:
    """Count the leaves of a tensor of this size."""
    return -(-size_bytes // LEAF_BYTES)


def tensor_digest(
    name: str, dtype: str, shape: Sequence[int], *, size_bytes: int, leaves: bytes
) -> bytes:
    """Bind a tensor's name, dtype, shape and bytes.

    Args:
        name: As in the header.
        dtype: As in the header.
        shape: Each below 2**63.
        size_bytes: Of the tensor's bytes.
        leaves: The leaves' digests, in order, joined.
    """
    dims = b"".join(map(_u64, shape))
    parts = (name.encode(), dtype.encode(), dims, _u64(size_bytes), _u64(LEAF_BYTES), leaves)
    return _node("tensor", parts)


def file_digest(size_bytes: int, header: bytes, tensors: Iterable[bytes]) -> bytes:
    """Bind a safetensors file: its size, its header's bytes, its tensors in their data's order."""
    return _node("file", (_u64(size_bytes), header, b"".join(tensors)))


def content_root(tensors: Iterable[tuple[str, bytes]]) -> bytes:
    """Root the tree over (name, tensor digest), ordered by the name's UTF-8 bytes."""
    ordered = sorted(tensors, key=lambda tensor: tensor[0].encode())
    return _root("content", [digest for _, digest in ordered])


def plain_form(size_bytes: int) -> str:
    """Name how a file that is no safetensors is hashed: as one block, or as several."""
    return "plain" if size_bytes <= LEAF_BYTES else "blocks"


def plain_digest(size_bytes: int, leaves: bytes) -> bytes:
    """Bind a file that is no safetensors.

    Args:
        size_bytes: Of the file.
        leaves: The leaves' digests, in order, joined; none of an empty file.
    """
    if size_bytes <= LEAF_BYTES:
        return leaves or plain(b"")
    return _node("blocks", (_u64(size_bytes), _u64(LEAF_BYTES), leaves))


def entry_digest(path: str, form: str, size_bytes: int, digest: bytes) -> bytes:
    """Bind a file's place in a directory: a leaf of the artifact's tree."""
    return _node("entry", (path.encode(), form.encode(), _u64(size_bytes), digest))


def artifact_root(files: Iterable[tuple[str, str, int, bytes]]) -> bytes:
    """Root the tree over files (path, form, size, digest), ordered by the path's UTF-8 bytes.

    Args:
        files: The form is ``safetensors``, or what `plain_form` says.
    """
    ordered = sorted(files, key=lambda file: file[0].encode())
    return _root("artifact", [entry_digest(*file) for file in ordered])


def inclusion(level: list[bytes], index: int) -> list[bytes]:
    """List the siblings that lead from one node of a tree's lowest level to its root.

    RFC 9162 section 2.1.3.1; a node that moves up alone has no sibling there.

    Args:
        level: The lowest level, in the tree's order.
        index: The node's place in it.
    """
    siblings = []
    while len(level) > 1:
        sibling = index ^ 1
        if sibling < len(level):
            siblings.append(level[sibling])
        level, index = _above(level), index // 2
    return siblings


def root_by_inclusion(
    kind: str, digest: bytes, siblings: Iterable[bytes], *, index: int, count: int
) -> bytes | None:
    """Compute the root that a node and its siblings lead to (RFC 9162 section 2.1.3.2).

    Args:
        kind: ``content`` or ``artifact``.
        digest: The node of the lowest level.
        siblings: As `inclusion` lists them.
        index: The node's place in its level.
        count: How many nodes that level has.

    Returns:
        The root; None when there are too few or too many siblings, or no such place.
    """
    rest = list(reversed(list(siblings)))
    width = count
    while width > 1:
        if index ^ 1 < width:
            if not rest:
                return None
            sibling = rest.pop()
            digest = _node("node", (sibling, digest) if index % 2 else (digest, sibling))
        index, width = index // 2, -(-width // 2)
    return None if rest or index or not count else _node(kind, (_u64(count), digest))


@lru_cache(maxsize=1024)
def zeros_digest(size_bytes: int) -> bytes:
    """Hash a block of zeros, as a preallocated file or a hole in one reads."""
    return plain(bytes(size_bytes))


def _root(kind: str, level: list[bytes]) -> bytes:
    """Pair neighbours up to one node, then bind the count; an odd last one moves up."""
    count = len(level)
    while len(level) > 1:
        level = _above(level)
    return _node(kind, (_u64(count), *level))


def _above(level: list[bytes]) -> list[bytes]:
    pairs = zip(level[::2], level[1::2], strict=False)
    odd = level[-1:] if len(level) % 2 else []
    return [_node("node", pair) for pair in pairs] + odd


def _node(kind: str, parts: Iterable[bytes]) -> bytes:
    body = b"".join(field for part in parts for field in (_u64(len(part)), part))
    return blake3(body, derive_key_context=f"{_FORMAT} {kind}").digest()


def _u64(number: int) -> bytes:
    return number.to_bytes(8, "little")

"""The trees: how leaves, tensors, files and directories become one digest.

A leaf is the plain BLAKE3 of a block of `LEAF_BYTES`, counted from the tensor's own first byte, so
that `dd | b3sum` reproduces it. Every other node is hashed under a derive-key context of its own
kind, and every part of it carries its length: no leaf passes for a node, no node for one of another
kind, and no regrouping of parts gives the same bytes. A change to anything here is a new format
version, in `_FORMAT`.

The content root is a tree over the tensors by name, so it does not depend on sharding, on the order
in a file or on `__metadata__`; the artifact root binds every byte of every file.
"""

from collections.abc import Iterable, Sequence
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


def artifact_root(files: Iterable[tuple[str, str, int, bytes]]) -> bytes:
    """Root the tree over files (path, format, size, digest), ordered by the path's UTF-8 bytes."""
    ordered = sorted(files, key=lambda file: file[0].encode())
    return _root(
        "artifact",
        [
            _node("entry", (path.encode(), form.encode(), _u64(size_bytes), digest))
            for path, form, size_bytes, digest in ordered
        ],
    )


def _root(kind: str, level: list[bytes]) -> bytes:
    """Pair neighbours up to one node, then bind the count; an odd last one moves up (RFC 6962)."""
    count = len(level)
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        odd = level[-1:] if len(level) % 2 else []
        level = [_node("node", pair) for pair in pairs] + odd
    return _node(kind, (_u64(count), *level))


def _node(kind: str, parts: Iterable[bytes]) -> bytes:
    hasher = blake3(derive_key_context=f"{_FORMAT} {kind}")
    for part in parts:
        hasher.update(_u64(len(part)))
        hasher.update(part)
    return hasher.digest()


def _u64(number: int) -> bytes:
    return number.to_bytes(8, "little")

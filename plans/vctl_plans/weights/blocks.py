"""The blocks of an artifact: the byte ranges whose digests its manifest holds.

Together they are every byte of every file, once: the header of a safetensors file, the leaves of
its tensors, the leaves of a file that is none. So a copy whose blocks all have their digests, and
whose files have their sizes, is the artifact; and a block can be checked, fetched or taken from
another artifact alone.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .manifest import FileRecord, Manifest, TensorRecord
from .merkle import DIGEST_BYTES, from_text, leaf_ranges


class Block(NamedTuple):
    """A byte range of one file."""

    path: str  # of the file, in the artifact
    begin: int
    end: int  # the byte after the last one
    digest: bytes  # plain BLAKE3
    part: str  # what it is of, for a person: a tensor, a file, a file's header

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.end - self.begin


def blocks(manifest: Manifest) -> Iterator[Block]:
    """List the blocks, file by file, each file's in the order of its bytes; none of no bytes."""
    tensors = {tensor.name: tensor for tensor in manifest.tensors}
    for file in manifest.files:
        if file.header is None:
            leaves = file.leaves or from_text(file.digest)  # one block, or none when it is empty
            yield from _leaves(file.path, 0, file.size, leaves, part=file.path)
        else:
            yield from _of_weights(file, (tensors[name] for name in file.tensors))


def _of_weights(file: FileRecord, tensors: Iterable[TensorRecord]) -> Iterator[Block]:
    digest = from_text(file.header or "")
    yield Block(file.path, 0, file.header_size, digest, f"the header of {file.path}")
    at = file.header_size
    for tensor in tensors:
        end = at + tensor.size
        yield from _leaves(file.path, at, end, tensor.leaves, part=tensor.name)
        at = end


def _leaves(path: str, begin: int, end: int, leaves: bytes, *, part: str) -> Iterator[Block]:
    for n, (first, last) in enumerate(leaf_ranges(begin, end)):
        digest = leaves[n * DIGEST_BYTES : (n + 1) * DIGEST_BYTES]
        yield Block(path, first, last, digest, part)

"""The prefix cache: which blocks of a prompt were computed before, and under which identity.

The rule to keep: a key covers everything that the values depend on: base weights, adapter (name,
directory and loaded bytes), the caller's salt, and every token from the start. So a switch of
releases invalidates nothing and scans nothing: entries of an identity that is gone can no longer
be named, and the LRU reclaims them.

The hard decision: only blocks that a prefill computed whole are kept, never those of generated
tokens. A prefill works block by block, hit or miss, so a hit yields the very bits that a miss
would have computed (see `generate.py`); a decoded token's values differ in their last bits.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from blake3 import blake3

BLOCK_TOKENS = 16

Values = TypeVar("Values")


class CacheIdentity(NamedTuple):
    """What the values of a block depend on, besides its tokens and those before it."""

    base_digest: str
    adapter_name: str = ""  # empty: the base model itself
    adapter_path: str = ""
    adapter_digest: str = ""  # of the bytes that were loaded, not of what lies on disk now


class CacheCounts(NamedTuple):
    """The cache's size and its history, all in blocks."""

    blocks: int
    capacity: int
    hits: int
    misses: int
    evictions: int


def block_keys(identity: CacheIdentity, salt: str, tokens: Sequence[int]) -> list[bytes]:
    """Return the keys of the whole blocks of a prompt, first block first.

    Each key is a hash of the key before it and the block's tokens; the first hashes the identity
    and the salt, each preceded by its length, so that no two of them run together.
    """
    seed = blake3(b"vctl.torch.block.v1")
    for part in (*identity, salt):
        raw = part.encode("utf-8", "surrogatepass")
        seed.update(len(raw).to_bytes(8, "big"))
        seed.update(raw)
    parent = seed.digest()
    keys = []
    for end in range(BLOCK_TOKENS, len(tokens) + 1, BLOCK_TOKENS):
        block = b"".join(token.to_bytes(4, "big") for token in tokens[end - BLOCK_TOKENS : end])
        parent = blake3(parent + block).digest()
        keys.append(parent)
    return keys


class PrefixCache(Generic[Values]):
    """Blocks by key, the least recently used of which go when there are too many.

    Not thread-safe: one thread looks up and stores. Blocks are never changed once stored.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._blocks: OrderedDict[bytes, Values] = OrderedDict()
        self._hits = self._misses = self._evictions = 0
        self.epoch = 0  # counts the times that it was emptied

    def clear(self) -> None:
        """Drop every block; who began before must not store what it computed from them."""
        self._blocks.clear()
        self.epoch += 1

    def lookup(self, keys: Sequence[bytes]) -> list[Values]:
        """Return the values of the longest prefix of `keys` that is here."""
        found: list[Values] = []
        for key in keys:
            values = self._blocks.get(key)
            if values is None:
                break
            found.append(values)
        self._hits += len(found)
        self._misses += len(keys) - len(found)
        self._touch(keys[: len(found)])
        return found

    def store(self, keys: Sequence[bytes], values: Sequence[Values]) -> None:
        """Keep the blocks of one prompt; where they do not all fit, those at its start.

        Args:
            keys: The keys of consecutive blocks, first block first.
            values: What belongs to them.
        """
        for key, block in reversed(list(zip(keys, values, strict=True))):
            self._blocks[key] = block
            self._blocks.move_to_end(key)
        while len(self._blocks) > self._capacity:
            self._blocks.popitem(last=False)
            self._evictions += 1

    def counts(self) -> CacheCounts:
        """Return the present size, and what happened since the start."""
        size = len(self._blocks)
        return CacheCounts(size, self._capacity, self._hits, self._misses, self._evictions)

    def _touch(self, keys: Sequence[bytes]) -> None:
        # The end of a prompt first: a block without the blocks before it can never be found, so
        # the start of a prompt must outlive its end.
        for key in reversed(keys):
            self._blocks.move_to_end(key)

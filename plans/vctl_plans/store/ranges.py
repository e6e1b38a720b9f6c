"""Keys as etcd sees them: bytes, in byte order, asked for by half-open ranges.

Every key goes to the store and comes back through here, so that a key which is not UTF-8 (written
by somebody else under our prefix) is carried unharmed instead of breaking a listing.
"""

from vctl_plans.errors import Rejected

ALL_KEYS_END = b"\0"
"""The range end that etcd reads as "to the end of all keys"."""


def encode_key(key: str) -> bytes:
    """Return the bytes of *key*; the inverse of `decode_key`.

    Raises:
        Rejected: It has lone surrogates that `decode_key` never makes.
    """
    try:
        return key.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as cause:
        raise Rejected(f"{key!a} is no text", code="INVALID_ARGUMENT") from cause


def decode_key(raw: bytes) -> str:
    """Return *raw* as text; bytes that are not UTF-8 become lone surrogates."""
    return raw.decode("utf-8", "surrogateescape")


def prefix_range(prefix: str) -> tuple[bytes, bytes]:
    """Return start and end of the range that holds exactly the keys that begin with *prefix*."""
    start = encode_key(prefix)
    kept = start.rstrip(b"\xff")
    end = kept[:-1] + bytes([kept[-1] + 1]) if kept else ALL_KEYS_END
    return start or b"\0", end


def key_after(raw: bytes) -> bytes:
    """Return the smallest key that is greater than *raw*."""
    return raw + b"\0"

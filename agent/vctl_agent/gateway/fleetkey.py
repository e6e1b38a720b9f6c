"""The fleet key: what the gateways of one fleet share, and nobody else has.

The key itself is never sent: what is sent is an HMAC-SHA256 (RFC 2104) under it. Its file holds one
key a line. The first one signs and all are accepted, so that a fleet changes its key without a gap:
add the new one behind the old on every node, then put it first, then take the old one away.
"""

import hmac
from collections.abc import Sequence
from pathlib import Path

LEAST_CHARS = 32
"""16 bytes in hexadecimal; ``openssl rand -hex 32`` makes twice that."""


class FleetKey:
    """Signs, and knows what was signed. Its repr shows nothing."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._keys = tuple(keys)

    def sign(self, *parts: bytes) -> str:
        """Return the proof of *parts*, in hexadecimal."""
        return _mac(self._keys[0], parts)

    def has_signed(self, proof: str, *parts: bytes) -> bool:
        """Whether *proof* is of *parts*; takes as long for a wrong one as for a right one."""
        given = proof.encode(errors="replace")  # compare_digest takes no text beyond ASCII
        found = [hmac.compare_digest(given, _mac(key, parts).encode()) for key in self._keys]
        return any(found)


def _mac(key: bytes, parts: Sequence[bytes]) -> str:
    """Return the MAC of *parts*, each after its length, so that no two lists of parts are alike."""
    mac = hmac.new(key, digestmod="sha256")
    for part in parts:
        mac.update(len(part).to_bytes(8, "big") + part)
    return mac.hexdigest()


def read_key(text: str) -> FleetKey | None:
    """Return the keys in the file that *text* names; None: there is to be none.

    Raises:
        ValueError: The file cannot be read, or holds no key that is long enough.
    """
    if not text:
        return None
    try:
        lines = Path(text).read_bytes().split()
    except OSError as cause:
        raise ValueError(f"cannot be read: {cause}") from cause
    if not lines or min(map(len, lines)) < LEAST_CHARS:
        raise ValueError(f"{text} must hold a key of {LEAST_CHARS} or more characters a line")
    return FleetKey(lines)

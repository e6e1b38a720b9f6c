"""Where a key falls between 0 and 100: the one hash by which traffic is split."""

from blake3 import blake3

FULL_WEIGHT = 100.0
"""Percent."""

_BUCKETS = 2**53


def share(salt: str, key: str) -> float:
    """Return where *key* falls, in percent: 0 <= share < 100, uniform, the same on every gateway.

    53 bits of BLAKE3 over the length-prefixed salt and the key: what a double holds exactly.
    """
    # A header field that is no UTF-8 reaches us with surrogates, and falls somewhere as well.
    text = (salt + key).encode(errors="surrogatepass")
    salted = len(salt).to_bytes(4, "big") + text
    bits = int.from_bytes(blake3(salted).digest(8), "big") >> 11
    return bits / _BUCKETS * FULL_WEIGHT

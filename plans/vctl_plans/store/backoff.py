"""How long to wait before the next attempt."""

import random


def backoff_s(attempt: int, *, first_s: float = 0.05, longest_s: float = 2.0) -> float:
    """Return a pause that doubles with each *attempt* (from 0), jittered to half of it and more."""
    whole = min(longest_s, first_s * 2.0 ** min(attempt, 16))
    return whole * random.uniform(0.5, 1.0)  # noqa: S311  jitter needs no secrecy

"""Is what the engine answers the adapter's own word? Pure: logprobs in, a finding out (DESIGN 5).

Two questions, by the log-probabilities of one greedy answer: with what the cache may hold and with
a salt that nobody used, they must be the same; and they must not be the base model's, else the
adapter matched no module.
"""

import msgspec

TOLERANCE = 1e-3
"""Largest difference of two log-probabilities of one token that rounding may explain."""


class Answer(msgspec.Struct, frozen=True):
    """A greedy answer."""

    tokens: tuple[str, ...]
    logprobs: tuple[float, ...]  # natural logarithm, one a token


def same(one: Answer, other: Answer) -> bool:
    """Whether two answers are one, up to rounding."""
    return one.tokens == other.tokens and all(
        abs(a - b) <= TOLERANCE for a, b in zip(one.logprobs, other.logprobs, strict=True)
    )


def finding(*, first: Answer, again: Answer, fresh: Answer, base: Answer) -> str:
    """Return what is wrong, or nothing.

    Args:
        first: The adapter's answer.
        again: Its answer to the same prompt a second time, from the cache.
        fresh: Its answer under a salt that was never used before.
        base: The base model's answer.
    """
    if not first.tokens:
        return "it answers nothing"
    if any(len(a.tokens) != len(a.logprobs) for a in (first, again, fresh, base)):
        return "it does not tell one log-probability for each token"
    if not (same(first, fresh) and same(again, fresh)):
        return "its cached answer differs from its answer without the cache"
    if same(fresh, base):
        return "it answers exactly as the base model: the adapter matched no module"
    return ""

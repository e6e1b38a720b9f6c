"""Is what the engine answers the model's own word? Pure: answers in, a finding out (DESIGN 5).

By the log-probabilities of greedy answers: with what the cache may hold and with a salt that nobody
used, they must be the same; and an adapter's must not be the base model's, else it matched no
module. The same means: within what the engine's own answers differ by when nothing is wrong. A
prefill of a whole prompt and one of what the cache did not hold round differently on a GPU, so this
noise is measured on the base, once per run of the engine, under salts that nobody else has; and on
each model again, which may be a little noisier.
"""

from collections.abc import Sequence
from itertools import combinations

import msgspec

from vctl_agent.engines.port import Answer

FLOOR = 1e-3
"""Difference of two log-probabilities of one token that is never held against an engine."""

HEADROOM = 2.0
"""So many times the noise of a few answers is still noise: a few do not show all of it."""

OWN_FLOOR, OWN_FACTOR = 0.01, 4.0
"""An adapter may be noisier than the base: by as many times, or up to so much."""

CEILING = 0.5
"""Noise above which nothing can be told from it: tokens would change by chance all the time."""


class Finding(msgspec.Struct, frozen=True):
    """What was found: a problem, or the numbers that speak against one."""

    problem: str = ""
    note: str = ""


def distance(one: Answer, other: Answer) -> float:
    """Return the largest difference of one log-probability, up to the first token that differs.

    That one included: both are the likeliest of their place, and where they are so by a hair, noise
    swaps them and moves the likeliest's log-probability by no more than itself. What follows goes
    on from another text.
    """
    largest = 0.0
    pairs = zip(one.tokens, other.tokens, one.logprobs, other.logprobs, strict=False)
    for token, other_token, logprob, other_logprob in pairs:
        largest = max(largest, abs(logprob - other_logprob))
        if token != other_token:
            return largest
    return largest


def noise_of(answers: Sequence[Answer]) -> float:
    """Return the largest distance of any two of a model's answers to one question."""
    return max((distance(one, other) for one, other in combinations(answers, 2)), default=0.0)


def tolerance(noise: float) -> float:
    """Return the distance up to which two answers are the same."""
    return max(FLOOR, HEADROOM * noise)


def shapeless(answers: Sequence[Answer]) -> str:
    """Return why answers cannot be compared at all; nothing: they can."""
    if not all(answer.tokens for answer in answers):
        return "it answers nothing"
    if any(len(answer.tokens) != len(answer.logprobs) for answer in answers):
        return "it does not tell one log-probability for each token"
    return ""


def own_noise(noise: float, fresh: Answer, warm: Answer) -> float:
    """Return a model's noise: its own, by two answers under one new salt, where the base's is less.

    No more of it counts than adapters may bring: a cache that spoils all that it holds is no noise.
    """
    own = min(distance(fresh, warm), max(OWN_FLOOR, OWN_FACTOR * noise))
    return max(noise, own)


def coherence(
    *, first: Answer, again: Answer, fresh: Answer, warm: Answer, noise: float
) -> Finding:
    """Judge whether what the cache holds is the model's own.

    Args:
        first: The model's answer.
        again: Its answer to the same prompt a second time, from the cache.
        fresh: Its answer under a salt that was never used before.
        warm: Its answer under that salt a second time.
        noise: What the answers of the engine's base differ by.
    """
    problem = shapeless((first, again, fresh, warm))
    if problem:
        return Finding(problem)
    if fresh.cached_tokens:
        return Finding(
            f"{fresh.cached_tokens} tokens of a prompt under a new salt came from the cache"
        )
    noise = own_noise(noise, fresh, warm)
    apart = max(distance(each, fresh) for each in (first, again, warm))
    allowed = tolerance(noise)
    if apart > allowed:
        return Finding(
            f"its cached answer differs from its answer without the cache by {apart:.4f}"
            f" (allowed {allowed:.4f}, own noise {noise:.4f})"
        )
    return Finding(
        note=f"cached and fresh answers {apart:.4f} apart (allowed {allowed:.4f}, own noise"
        f" {noise:.4f}), {_from_cache(again)}"
    )


def effect(pairs: Sequence[tuple[Answer, Answer]], *, noise: float) -> Finding:
    """Judge whether an adapter changes what the base answers, to any of a few prompts.

    Args:
        pairs: The adapter's answer and the base's, for each prompt.
        noise: What the engine's own answers differ by.
    """
    problem = shapeless([answer for pair in pairs for answer in pair])
    if problem:
        return Finding(problem)
    apart = max(distance(*pair) for pair in pairs)
    if apart <= tolerance(noise):
        return Finding(
            f"it answers exactly as the base model: the adapter matched no module"
            f" ({apart:.4f} apart, own noise {noise:.4f})"
        )
    return Finding(note=f"{apart:.2f} from the base")


def _from_cache(again: Answer) -> str:
    if again.cached_tokens is None:
        return "the engine does not tell whether from its cache"
    if again.cached_tokens == 0:
        return "none of it from the cache: it could not be told whether that is its own"
    return f"{again.cached_tokens} of {again.prompt_tokens} prompt tokens from the cache"

"""Judges answers against what each release should have said.

The rule that makes the counts worth something: an answer is right only if it is, in text and in
log-probabilities, that of the release which it names, and that release may be served at all.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

MAX_TOKENS = 12
TOLERANCE = 2e-3
"""Between two ways of computing one log-probability: batching changes the order of float32 sums."""

Verdict = Literal["right", "error", "wrong release", "stale cache"]


class Said(msgspec.Struct, frozen=True):
    """An answer's content."""

    text: str
    logprobs: tuple[float, ...]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What one client got."""

    node: str
    prompt: int
    begun_s: float  # monotonic
    ended_s: float
    release: int = 0  # that the answer claims; 0: none
    said: Said | None = None
    cached_tokens: int = 0
    error: str = ""


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """All answers, counted."""

    requests: int
    errors: int
    wrong_release: int
    stale_cache: int
    cached_tokens: int
    by_release: dict[int, int]
    examples: tuple[str, ...]  # of what was not right

    @property
    def is_clean(self) -> bool:
        """Whether nothing was wrong, of answers of which some could have been."""
        wrong = self.errors + self.wrong_release + self.stale_cache
        return self.requests > 0 and self.cached_tokens > 0 and wrong == 0


def is_same(one: Said, other: Said) -> bool:
    """Whether two answers are one: the same text and, within float32's noise, log-probabilities."""
    return (
        one.text == other.text
        and len(one.logprobs) == len(other.logprobs)
        and all(abs(a - b) <= TOLERANCE for a, b in zip(one.logprobs, other.logprobs, strict=True))
    )


def judge(answer: Answer, right: Mapping[int, Sequence[Said]]) -> Verdict:
    """Return what an answer is.

    Args:
        answer: What a client got.
        right: By release that may be served, what it should say to each prompt.
    """
    if answer.error or answer.said is None:
        return "error"
    if answer.release in right and is_same(answer.said, right[answer.release][answer.prompt]):
        return "right"
    others = (said[answer.prompt] for said in right.values())
    is_another = any(is_same(answer.said, other) for other in others)
    return "wrong release" if is_another or answer.release not in right else "stale cache"


def count(answers: Iterable[Answer], right: Mapping[int, Sequence[Said]]) -> Count:
    """Count *answers* by what they are."""
    known = list(answers)
    verdicts = [judge(answer, right) for answer in known]
    by_verdict = Counter(verdicts)
    bad = (f"{a.node}: {v}: {a.error or a.said}" for a, v in zip(known, verdicts, strict=True)
           if v != "right")  # fmt: skip
    return Count(
        requests=len(known),
        errors=by_verdict["error"],
        wrong_release=by_verdict["wrong release"],
        stale_cache=by_verdict["stale cache"],
        cached_tokens=sum(answer.cached_tokens for answer in known),
        by_release=dict(sorted(Counter(a.release for a in known if not a.error).items())),
        examples=tuple(text for text, _ in zip(bad, range(5), strict=False)),
    )


def last_switch_s(answers: Iterable[Answer], *, since_s: float, left: int) -> float | None:
    """Return when the last node had left release *left*, on the clock of the answers.

    A node has switched when a request begins there after which none is answered by *left* any more.
    None: some node was not asked after that, so nothing can be said.
    """
    by_node: dict[str, list[Answer]] = {}
    for answer in answers:
        by_node.setdefault(answer.node, []).append(answer)
    switched = []
    for asked in by_node.values():
        old = [a.begun_s for a in asked if a.release == left]
        border = max(old, default=since_s)
        after = [a.begun_s for a in asked if a.begun_s > border and a.release != left]
        if not after:
            return None
        switched.append(min(after))
    return max(switched, default=None)

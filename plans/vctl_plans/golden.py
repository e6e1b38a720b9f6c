"""Golden prompts: what a release must answer before it may serve, as its plan says.

A value of its own under its digest, immutable, and read only by the agents that ask: what all nodes
watch names the digest and no more. Judging is pure.

The hard decision, how alike two texts are: `difflib.SequenceMatcher.ratio` over characters
(Ratcliff and Obershelp, 1988), twice the characters of the common pieces over those of both texts.
It is in the standard library, needs no model, and says the same everywhere. It looks at characters
and not at meaning: two ways of saying one thing are not alike. It is taken with the reference first
(the ratio is not symmetric) and without the heuristic that drops characters which are frequent.
"""

from difflib import SequenceMatcher
from typing import Literal

import msgspec

from vctl_plans.codec import Value, digest, encode
from vctl_plans.errors import PlanError
from vctl_plans.release import Release
from vctl_plans.rollout import Rollout
from vctl_plans.route import Route

MAX_BYTES = 64 * 1024
"""What the golden prompts of one plan may take; every node reads them, and asks each of them."""

SIMILARITY = 0.8
"""To what an answer is to resemble, where a plan does not say how much."""

_SHOWN_CHARS = 60


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str


class GoldenPrompt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One question, and what is asked of its greedy answer: exactly one of the three."""

    prompt: str = ""  # or
    messages: tuple[Message, ...] = ()  # a chat's
    expect: str | None = None  # the whole answer, but for white space around it
    contains: str | None = None
    similar_to: str | None = None
    similarity: float = SIMILARITY  # to `similar_to`, at least; 0 to 1
    max_tokens: int = 64


class Golden(Value, frozen=True, kw_only=True):
    """The golden prompts of one plan, in its order."""

    prompts: tuple[GoldenPrompt, ...] = ()

    @property
    def digest(self) -> str:
        """The name of the prompts: the same questions and answers are the same value."""
        return digest(self, context="golden prompts")


def check_size(golden: Golden) -> None:
    """Refuse more than every node should read.

    Raises:
        PlanError: With the limit.
    """
    size = len(encode(golden))
    if size > MAX_BYTES:
        raise PlanError(f"take {size} bytes, and may take {MAX_BYTES} (64 KiB)", path="probes")


def golden_of(release: Release, rollout: Rollout | None) -> str:
    """Return the digest of the golden prompts that *release* must pass; empty: none.

    Those of the rollout that brings it, else those that it was made with.
    """
    is_brought = rollout is not None and rollout.to_release == release.number
    return (rollout.probes if rollout and is_brought else "") or release.probes


def refuse_serving(release: Release, route: Route, rollout: Rollout | None, probes: str) -> None:
    """Refuse to ask golden prompts of a release that serves already.

    It would be taken from all nodes at once, until it has answered.

    Raises:
        PlanError: It serves, and was not asked these before.
    """
    is_new = bool(probes) and golden_of(release, rollout) != probes
    if is_new and release.number in route.serving:
        raise PlanError(
            f"release {release.number} serves already, and these are asked before a release serves",
            path="probes",
            hint="make a new release of it: vctl release create",
        )


def similarity(reference: str, answer: str) -> float:
    """Return how alike two texts are, 0 to 1."""
    return SequenceMatcher(None, reference, answer, autojunk=False).ratio()


def problem(asked: GoldenPrompt, answer: str) -> str:
    """Return what is wrong with an answer, cut short and with the numbers; nothing: it passes."""
    said = answer.strip()
    if asked.expect is not None and said != asked.expect.strip():
        return f"expected {_cut(asked.expect)}, got {_cut(said)}"
    if asked.contains is not None and asked.contains not in answer:
        return f"expected it to contain {_cut(asked.contains)}, got {_cut(said)}"
    if asked.similar_to is not None:
        alike = similarity(asked.similar_to.strip(), said)
        if alike < asked.similarity:
            return (
                f"similarity {alike:.3f} is under {asked.similarity:g}:"
                f" expected about {_cut(asked.similar_to)}, got {_cut(said)}"
            )
    return ""


def measured(asked: GoldenPrompt, answer: str) -> str:
    """Return the number that speaks for an answer which passed; empty where there is none."""
    if asked.similar_to is None:
        return ""
    return f"{similarity(asked.similar_to.strip(), answer.strip()):.3f}"


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return repr(text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…")

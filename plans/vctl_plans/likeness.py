"""Whether an adapter was trained on the base that an engine serves, as far as names can tell.

A name may be a hub's id, a path, or an alias that says nothing. So only this is certain: two names
of models whose sizes differ, as in `Llama-3.1-8B` and `Llama-3.1-70B`, are two models. The same
last part is the same model, whoever publishes it. All else is unsure: said, and not refused.
"""

import re
from enum import StrEnum

_SIZE = re.compile(r"(?<![a-z0-9.])(?:\d+x)?\d+(?:\.\d+)?[bm](?![a-z0-9])")
_FORMS = re.compile(r"[-_.](?:awq|gptq|int4|int8|fp8|fp16|bf16|nvfp4|bnb-4bit|4bit|8bit|hf)$")


class Likeness(StrEnum):
    """How two names of base models stand to each other."""

    SAME = "same"
    OTHER = "other"  # certainly
    UNSURE = "unsure"


def likeness(one: str, other: str) -> Likeness:
    """Compare the names of two base models; one that is empty says nothing.

    Args:
        one: As an adapter's configuration has it.
        other: As an engine has it.
    """
    if not one or not other:
        return Likeness.SAME  # nothing speaks against it
    ours, theirs = _last(one), _last(other)
    if ours == theirs:
        return Likeness.SAME
    sizes = set(_SIZE.findall(ours)), set(_SIZE.findall(theirs))
    are_models = "/" in one and "/" in other  # an alias may say any size
    if are_models and all(sizes) and not sizes[0] & sizes[1]:
        return Likeness.OTHER
    return Likeness.UNSURE


def _last(name: str) -> str:
    """Return a name's last part, without what tells only how its numbers are stored."""
    last = name.rstrip("/").rpartition("/")[2].lower()
    return _FORMS.sub("", _FORMS.sub("", last))

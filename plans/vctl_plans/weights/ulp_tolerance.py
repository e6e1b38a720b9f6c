"""How many ULPs apart two tensors may be: one table, by the kind of device that made one of them.

The table is documented in docs/ulp-tolerances.md, and a test holds the two together. A format that
has no value for a kind has the limit 0: what differs at all is beyond, until a number is given.
"""

import math
from collections.abc import Mapping
from typing import Final

import msgspec

from vctl_plans.errors import PlanError

from .ulp_formats import FORMATS

DEFAULT_KIND: Final = "nvidia-gpu"

_F8 = "F8"
_F8_NAMES = tuple(name for name in FORMATS if name.startswith(_F8))
_F8_LIMITS = dict.fromkeys(_F8_NAMES, 1.0)

LIMITS: Final[Mapping[str, Mapping[str, float]]] = {
    "nvidia-gpu": {"F32": 0.0, "F16": 2.0, "BF16": 3.5, **_F8_LIMITS},
    "google-tpu": {"F32": 0.0, "F16": 1.5, "BF16": 2.0, **_F8_LIMITS},
    "ascend-npu": {"F32": 0.0, "F16": 2.5, "BF16": 4.0, **_F8_LIMITS},
}


class Tolerance(msgspec.Struct, frozen=True):
    """The largest distances that are accepted.

    Args:
        name: As it was asked for.
        limits: ULPs by format; every format of `FORMATS` has one.
    """

    name: str
    limits: Mapping[str, float]


def parse(text: str, *, path: str = "tolerance") -> Tolerance:
    """Read ``nvidia-gpu``, ``2.5``, or either of them with exceptions: ``google-tpu,F32=16,F8=0``.

    Args:
        text: A kind of device or a number for all formats, then FORMAT=NUMBER as often as wanted;
            F8 stands for all 8-bit formats.
        path: What it is called, for errors.

    Raises:
        PlanError: Neither a known kind nor a number of ULPs, or an unknown format.
    """
    base, *exceptions = text.split(",")
    kind = LIMITS.get(base)
    limits = dict(kind or dict.fromkeys(FORMATS, _number(base, path)))
    for exception in exceptions:
        name, is_pair, number = exception.partition("=")
        names = _F8_NAMES if name.upper() == _F8 else (name.upper(),)
        if not is_pair or names[0] not in FORMATS:
            known = ", ".join(("F8", *FORMATS))
            hint = f"formats: {known}"
            raise PlanError(f"{exception!r} is not FORMAT=NUMBER", path=path, hint=hint)
        limits |= dict.fromkeys(names, _number(number, path))
    return Tolerance(text, limits)


def _number(text: str, path: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not (math.isfinite(number) and number >= 0):
        hint = f"write {', '.join(LIMITS)}, or ULPs as in 2.5"
        raise PlanError(f"{text!r} is no kind of device and no number", path=path, hint=hint)
    return number

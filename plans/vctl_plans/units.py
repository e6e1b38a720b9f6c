"""Durations, percentages, sizes and moments as people write them."""

import math
import re
from datetime import UTC, datetime

import msgspec

from vctl_plans.errors import PlanError

DURATION_PATTERN = r"^(\d+(\.\d+)?(ms|s|m|h|d))+$"
QUOTA_PATTERN = r"^\d+(\.\d+)?%$"

_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_WHOLE = 100.0
_SIZE = re.compile(r"([0-9]+)\s*(|B|KiB|MiB|GiB|TiB)")
_SIZE_UNITS = {"": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def duration_s(text: str | float, *, path: str) -> float:
    """Return seconds of ``1h30m``, ``250ms`` or a plain number of seconds.

    Raises:
        PlanError: Not a duration, below zero, or without an end (JSON has no number for that).
    """
    if isinstance(text, str):
        if not re.fullmatch(DURATION_PATTERN, text):
            raise PlanError(f"{text!r} is not a duration: write 30s, 10m, 1h30m", path=path)
        seconds = sum(float(amount) * _UNIT_S[unit] for amount, unit in _PART.findall(text))
    else:
        seconds = float(text)
    if not math.isfinite(seconds):
        raise PlanError("is no finite number of seconds: write 30s, 10m, 1h30m", path=path)
    if seconds < 0:
        raise PlanError(f"{text} is below zero", path=path)
    return seconds


def duration_text(seconds: float) -> str:
    """Return a duration as a person reads it, in at most two units: ``1h30m``, ``2.5s``."""
    if round(seconds, 1) < _UNIT_S["m"]:
        return f"{seconds:.1f}s".replace(".0s", "s")
    whole = round(seconds)
    parts = [(whole // 86400, "d"), (whole // 3600 % 24, "h"), (whole // 60 % 60, "m")]
    shown = [f"{n}{unit}" for n, unit in [*parts, (whole % 60, "s")] if n]
    return "".join(shown[:2])


class Quota(msgspec.Struct, frozen=True):
    """How many of a whole: a percentage, or a count."""

    percent: float | None = None  # 0 to 100
    count: int | None = None

    def of(self, whole: int) -> int:
        """Return how many of *whole* this is; a percentage is rounded up."""
        if self.count is not None:
            return self.count
        return -int(-(whole * (self.percent or 0.0)) // _WHOLE)

    def is_over(self, number: int, whole: int) -> bool:
        """Whether *number* of *whole* are more than this."""
        if self.count is not None:
            return number > self.count
        return number * _WHOLE > whole * (self.percent or 0.0)

    def __str__(self) -> str:
        return str(self.count) if self.count is not None else f"{self.percent:g}%"


def quota(text: str | int, *, path: str) -> Quota:
    """Return the quota of ``98%`` or a plain count.

    Raises:
        PlanError: Neither, or above 100 %, or below zero.
    """
    if isinstance(text, int):
        if text < 0:
            raise PlanError(f"{text} is below zero", path=path)
        return Quota(count=text)
    if not re.fullmatch(QUOTA_PATTERN, text) or float(text[:-1]) > _WHOLE:
        raise PlanError(f"{text!r} is neither a percentage (98%) nor a count", path=path)
    return Quota(percent=float(text[:-1]))


def bytes_text(size: float) -> str:
    """Return a size in binary units, as in ``1.5 GiB``."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":  # noqa: PLR2004  the binary step
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError


def bytes_of(text: str) -> int:
    """Return the bytes of ``32MiB``, ``1 GiB`` or a plain number.

    Raises:
        ValueError: Not a size.
    """
    match = _SIZE.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is not a size like 32MiB")
    return int(match[1]) * _SIZE_UNITS[match[2]]


def utc_text(moment: datetime) -> str:
    """Return a moment to the second, as in ``2026-01-02T12:00:00Z`` (RFC 3339)."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"

"""What a judge finds: passed, failed, or that it cannot tell."""

from enum import StrEnum

import msgspec


class Outcome(StrEnum):
    """A verdict in one word."""

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"


class Verdict(msgspec.Struct, frozen=True):
    """What a judge found, with the figures."""

    outcome: Outcome
    sentence: str

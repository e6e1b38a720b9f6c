"""What a judge finds: passed, failed, or that it cannot tell."""

from enum import StrEnum

import msgspec


class Outcome(StrEnum):
    """A verdict in one word."""

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"


class Figure(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one judge found, in columns: a sentence is for reading, this for a table.

    All of it is text, as the judge itself would write it: a ratio, a share, what a query gave.
    """

    judge: str  # what it judges, as in *error ratio*
    outcome: Outcome
    value: str = ""  # empty: there is none yet
    limit: str = ""  # empty: none is set
    counts: str = ""  # what the value is made of


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a judge found, with the figures."""

    outcome: Outcome
    sentence: str
    figures: tuple[Figure, ...] = ()  # one a judge; kept of the newest verdict only

"""Since when a run of the engine is known, for people to read: no decision rests on it."""

from collections.abc import Callable
from datetime import UTC, datetime

from vctl_plans.units import utc_text


class Since:
    """When the present incarnation was first seen by this run of the agent.

    Args:
        now: The time, in UTC.
    """

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._now = now
        self._incarnation = ""
        self._at = ""

    def of(self, incarnation: str) -> str:
        """Return since when; empty while the engine does not answer."""
        if incarnation != self._incarnation:
            self._incarnation = incarnation
            self._at = utc_text(self._now()) if incarnation else ""
        return self._at

"""Where an agent may be killed on purpose, to prove that a crash between two effects is harmless.

Every effect on the world outside calls `passed` right after it. `VCTL_CRASH_AT=7` kills the process
with SIGKILL right after the seventh; without it a call costs a comparison. Kept in the program, and
not only in its tests, so that what is tested is what runs.
"""

import os
import signal

import structlog

VARIABLE = "VCTL_CRASH_AT"

_log = structlog.get_logger(__name__)


class Crashpoints:
    """Counts effects; made once, by the daemon."""

    def __init__(self, crash_at: int = 0) -> None:
        self._crash_at = crash_at
        self._passed = 0

    def passed(self, effect: str) -> None:
        """Say that *effect* has just been done."""
        self._passed += 1
        _log.debug("effect", effect=effect, number=self._passed)
        if self._passed == self._crash_at:
            os.kill(os.getpid(), signal.SIGKILL)

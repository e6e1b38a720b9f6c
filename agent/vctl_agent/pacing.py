"""Writes what the conductor keeps beside its decisions: a key a service, at most once a second.

What cannot be written is told and tried again later, and no rollout waits for it. A write whose
outcome is lost is seen in the watch, or made again against what was read.
"""

import math
import time
from collections.abc import Callable

import structlog

from vctl_agent.crashpoints import Crashpoints
from vctl_plans.errors import Conflict, VctlError
from vctl_plans.store.port import Store, Txn

PERIOD_S = 1.0
RETRY_S = 5.0

_log = structlog.get_logger(__name__)


class Paced:
    """Writes keys of one kind.

    Args:
        what: They are, for the log.
        done: The effect, once one is written.
        store: The store.
        crashpoints: For tests.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        what: str,
        done: str,
        *,
        store: Store,
        crashpoints: Crashpoints,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._what = what
        self._done = done
        self._store = store
        self._crashpoints = crashpoints
        self._clock = clock
        self._not_before: dict[str, float] = {}  # service -> when it may be written next

    def wait_s(self, service: str) -> float:
        """Return how long the service's key may not be written yet; 0 or less: it may."""
        return self._not_before.get(service, -math.inf) - self._clock()

    async def write(self, service: str, txn: Txn, **told: object) -> float:
        """Write, and return seconds to the next look.

        Args:
            service: Whose key it is.
            txn: Writes it, compared with what was read.
            told: What the log says of it.
        """
        wait_s = PERIOD_S if await self._commit(service, txn, told) else RETRY_S
        self._not_before[service] = self._clock() + wait_s
        return wait_s

    async def _commit(self, service: str, txn: Txn, told: dict[str, object]) -> bool:
        try:
            await self._store.commit(txn)
        except Conflict:
            _log.info("not written, looking again", what=self._what, service=service)
            return True
        except VctlError as cause:
            _log.warning("not written", what=self._what, service=service, cause=cause.message)
            return False
        _log.info(self._done, service=service, **told)
        self._crashpoints.passed(self._done)
        return True

"""Writes the fleet's summary while elected: the newest look, when it says something else.

At most once a second, and seldom enough that no more than a tenth of the time goes into it: ten
thousand nodes take a while to count. That is done in a thread, so that a decision need not wait.
"""

import asyncio
import time
from collections.abc import Callable

import structlog

from vctl_plans.codec import encode
from vctl_plans.errors import Conflict, StoreError
from vctl_plans.keys import Keys
from vctl_plans.snapshot import Fleet
from vctl_plans.store.commit import summary_txn
from vctl_plans.store.port import Store
from vctl_plans.summary import summary

EVERY_S = 1.0

_IDLE_FOR_EACH_SECOND = 9.0

_log = structlog.get_logger(__name__)


class Summaries:
    """The summaries of one term of office.

    Args:
        store: The store.
        keys: The fleet's keys.
        fence: create_revision of the election key that this term holds.
        every_s: The shortest time between two.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        store: Store,
        keys: Keys,
        *,
        fence: int,
        every_s: float = EVERY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._keys = keys
        self._fence = fence
        self._every_s = every_s
        self._clock = clock
        self._fleet = Fleet()
        self._looked = asyncio.Event()
        self._written = b""  # empty: not known

    def look(self, fleet: Fleet) -> None:
        """Take a reading; `run` sums the newest up."""
        self._fleet = fleet
        self._looked.set()

    async def run(self) -> None:
        """Sum up what is seen, until cancelled; a store that refuses is asked again."""
        while True:
            await self._looked.wait()
            self._looked.clear()
            began = self._clock()
            found = await asyncio.to_thread(lambda: encode(summary(self._fleet)))
            took_s = self._clock() - began
            await self._write(found)
            await asyncio.sleep(max(self._every_s, took_s * _IDLE_FOR_EACH_SECOND))

    async def _write(self, found: bytes) -> None:
        try:
            if not self._written:
                held = await self._store.get(self._keys.summary)
                self._written = held.value if held else b""
            if found == self._written:
                return
            self._written = b""  # until it is known what is there
            await self._store.commit(summary_txn(self._keys, found, fence=self._fence))
            self._written = found
        except Conflict:
            return  # the term has ended; whoever decides will notice
        except StoreError as cause:
            _log.warning("summary not written", cause=cause.message)
            self._looked.set()

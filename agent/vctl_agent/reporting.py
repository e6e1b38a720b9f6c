"""Writes what this node's gateway counts for the conductor to judge, while a rollout watches.

Beside the node's report and apart from it: the key has its own task, so that neither waits for the
other. Only the newest is written, only when it differs, no more often than the fleet's share
allows, and only under our name. When nothing is watched any more the key is deleted; also the one
that an agent before this left behind.
"""

import asyncio
from collections.abc import Callable

import structlog

from vctl_agent.crashpoints import Crashpoints
from vctl_agent.local import GatewayStatistics
from vctl_agent.watched import SHORTEST_S, report_interval_s, watched
from vctl_plans.codec import encode
from vctl_plans.errors import StoreError
from vctl_plans.keys import Keys
from vctl_plans.snapshot import Fleet
from vctl_plans.statistics import NodeStatistics
from vctl_plans.store.port import Delete, Store, Txn

_RETRY_S = 1.0

_log = structlog.get_logger(__name__)


class StatisticsWriter:
    """Keeps `statistics/{node}` as the gateway tells.

    Args:
        store: The store.
        keys: The fleet's keys.
        node: This node's name.
        boot_id: This run of the agent.
        is_registered: Whether the node's name is ours now.
        crashpoints: For tests.
    """

    def __init__(
        self,
        store: Store,
        keys: Keys,
        *,
        node: str,
        boot_id: str,
        is_registered: Callable[[], bool],
        crashpoints: Crashpoints,
    ) -> None:
        self._store = store
        self._key = keys.statistics_of(node)
        self._node = node
        self._boot_id = boot_id
        self._is_registered = is_registered
        self._crashpoints = crashpoints
        self._watched: frozenset[str] | None = None  # None: nobody has told yet
        self._interval_s = SHORTEST_S
        self._told: GatewayStatistics | None = None
        self._written: bytes | None = None  # None: what the key holds is not known
        self._changed = asyncio.Event()

    def watch(self, fleet: Fleet) -> None:
        """Take which services are watched now, and how often a node may write."""
        self._watched = frozenset(watched(fleet))
        self._interval_s = report_interval_s(fleet)
        self._changed.set()

    def take(self, told: GatewayStatistics) -> None:
        """Take what the gateway counts; what was not written yet is replaced."""
        self._told = told
        self._changed.set()

    async def run(self) -> None:
        """Write for ever; a store that refuses or is away costs nothing but the statistics."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            wanted = self._wanted()
            if wanted is None or wanted == self._written:
                continue
            if not await self._is_written(wanted):
                self._changed.set()
                await asyncio.sleep(_RETRY_S)
            elif wanted:
                await asyncio.sleep(self._interval_s)

    def _wanted(self) -> bytes | None:
        """Return what the key should hold: nothing when it should not be; None: as it is."""
        if self._watched is None:
            return None
        if not self._watched:
            self._told = None  # of an earlier rollout, should there be another
            return b""
        counted = self._told.snapshots if self._told else ()
        snapshots = tuple(each for each in counted if each.service in self._watched)
        if not snapshots:
            return None
        return encode(NodeStatistics(node=self._node, boot_id=self._boot_id, snapshots=snapshots))

    async def _is_written(self, wanted: bytes) -> bool:
        """Bring the key to *wanted*; return whether it is."""
        if not self._is_registered():
            return False
        try:
            if wanted:
                await self._store.put(self._key, wanted)
                self._crashpoints.passed("counted")
            elif await self._store.get(self._key):
                await self._store.commit(Txn(operations=(Delete(self._key),)))
                self._crashpoints.passed("counts deleted")
        except StoreError as cause:
            _log.warning("statistics not written", cause=cause.message)
            return False
        self._written = wanted
        return True

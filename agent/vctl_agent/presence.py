"""The node's record under a lease, and its report beside it.

The lease says that the agent lives; keeping it alive writes nothing to etcd. A lost lease is taken
out anew with the same boot id, for the same process goes on. A report is written when it changed,
the newest only, and until it is written.
"""

import asyncio

import structlog

from vctl_agent.crashpoints import Crashpoints
from vctl_plans.codec import encode
from vctl_plans.errors import StoreError
from vctl_plans.keys import Keys
from vctl_plans.node import NodeRecord, NodeReport
from vctl_plans.store.port import Lease, Store

_RETRY_S = 1.0
_DEBOUNCE_S = 0.01
"""A report that changes twice within this time is written once."""

_log = structlog.get_logger(__name__)


class Presence:
    """Writes what the node says of itself."""

    def __init__(
        self,
        store: Store,
        keys: Keys,
        record: NodeRecord,
        *,
        ttl_s: float,
        crashpoints: Crashpoints,
    ) -> None:
        self._store = store
        self._keys = keys
        self._record = record
        self._ttl_s = ttl_s
        self._crashpoints = crashpoints
        self._report: NodeReport | None = None
        self._changed = asyncio.Event()
        self.is_registered = False

    def report(self, report: NodeReport) -> None:
        """Have *report* written; one that was not written yet is replaced."""
        self._report = report
        self._changed.set()

    async def keep_record(self) -> None:
        """Keep the record under a live lease until cancelled; then end the lease."""
        while True:
            try:
                lease = await self._store.grant(self._ttl_s)
            except StoreError as cause:
                _log.warning("no lease", cause=cause.message)
                await asyncio.sleep(_RETRY_S)
                continue
            try:
                key = self._keys.node(self._record.node)
                await self._store.put(key, encode(self._record), lease_id=lease.id)
                self.is_registered = True
                _log.info("registered", lease_ttl_s=lease.ttl_s)
                self._crashpoints.passed("registered")
                await lease.wait_lost()
                _log.warning("lease lost")
            except StoreError as cause:
                _log.warning("not registered", cause=cause.message)
                await asyncio.sleep(_RETRY_S)
            finally:
                self.is_registered = False
                await _revoked(lease)

    async def write_reports(self) -> None:
        """Write each new report until cancelled."""
        while True:
            await self._changed.wait()
            await asyncio.sleep(_DEBOUNCE_S)
            self._changed.clear()
            report = self._report
            if report is None:
                continue
            try:
                await self._store.put(self._keys.report(report.node), encode(report))
                self._crashpoints.passed("reported")
            except StoreError as cause:
                _log.warning("report not written", cause=cause.message)
                self._changed.set()
                await asyncio.sleep(_RETRY_S)


async def _revoked(lease: Lease) -> None:
    try:
        await lease.revoke()
    except StoreError as cause:
        _log.info("lease left to run out", cause=cause.message)

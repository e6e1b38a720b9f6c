"""The node's record under a lease, and its report beside it.

The lease says that the agent lives; keeping it alive writes nothing to etcd. A lost lease is taken
out anew with the same boot id, for the same process goes on. The record is looked at once in a
lease's time: one that vanished is written again, and one that tells of another engine at once. An
agent takes the name from the one before it when it starts, and only then: two that live do not
fight for it. A report is written when it changed, the newest only, until it is written, and only
under our name: another's would be lost.
"""

import asyncio
from datetime import UTC, datetime

import msgspec
import structlog

from vctl_agent.crashpoints import Crashpoints
from vctl_plans.capability import EngineFacts
from vctl_plans.codec import encode
from vctl_plans.errors import Conflict, StoreError
from vctl_plans.keys import Keys
from vctl_plans.node import NodeRecord, NodeReport
from vctl_plans.store.port import Lease, Put, Store, Txn, ValueIs
from vctl_plans.units import utc_text

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
        self._node = record.node
        self._record = record
        self._written = encode(record)  # what stands; the boot id makes it this process's own
        self._ttl_s = ttl_s
        self._crashpoints = crashpoints
        self._report: NodeReport | None = None
        self._changed = asyncio.Event()
        self._announced = asyncio.Event()
        self._writing = asyncio.Lock()  # a report names the record that stands
        self._took_name = False
        self.is_registered = False

    def report(self, report: NodeReport) -> None:
        """Have *report* written; one that was not written yet is replaced."""
        self._report = report
        self._changed.set()

    def announce(self, facts: EngineFacts) -> None:
        """Have the record tell what the engine can do; nothing is written when it says so."""
        if facts != self._record.facts:
            self._record = msgspec.structs.replace(self._record, facts=facts)
            self._announced.set()

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
                await self._hold(lease)
                _log.warning("lease lost")
            except StoreError as cause:
                _log.warning("not registered", cause=cause.message)
                await asyncio.sleep(_RETRY_S)
            finally:
                self.is_registered = False
                await _revoked(lease)

    async def _hold(self, lease: Lease) -> None:
        """Register, and look after the record until the lease is lost.

        Raises:
            StoreError: It could not be registered.
        """
        async with self._writing:
            await self._mend(lease)
        while not await _is_lost(lease, within_s=lease.ttl_s, unless=self._announced):
            self._announced.clear()
            try:
                async with self._writing:
                    await self._mend(lease)
            except StoreError as cause:  # the lease, not a look, says whether we are there
                _log.info("record not looked at", cause=cause.message)

    async def _mend(self, lease: Lease) -> None:
        """Write the record unless it stands, or another living agent has the name."""
        key = self._keys.node(self._node)
        found = await self._store.get(key)
        if self._took_name and found and found.value != self._written:
            self.is_registered = False
            _log.error("another agent has this node's name", record=repr(found.value[:200]))
            return
        record = encode(self._record)
        if not found or found.lease_id != lease.id or found.value != record:
            await self._store.put(key, record, lease_id=lease.id)
            self._written, self._took_name = record, True
            _log.info("registered", lease_ttl_s=lease.ttl_s)
            self._crashpoints.passed("registered")
        if not self.is_registered:
            self.is_registered = True
            self._changed.set()

    async def write_reports(self) -> None:
        """Write each new report until cancelled."""
        while True:
            await self._changed.wait()
            await asyncio.sleep(_DEBOUNCE_S)
            self._changed.clear()
            report = self._report
            if report is None or not self.is_registered:
                continue  # only a registered agent's word counts; to register brings us back here
            try:
                async with self._writing:
                    await self._store.commit(self._reported(report))
                self._crashpoints.passed("reported")
            except Conflict:
                self.is_registered = False  # until the record was looked at, and is ours again
                _log.error("report not written: the node's record is not ours")
            except StoreError as cause:
                _log.warning("report not written", cause=cause.message)
                self._changed.set()
                await asyncio.sleep(_RETRY_S)

    def _reported(self, report: NodeReport) -> Txn:
        """Return the transaction that writes a report, if the node's record is ours as it is made.

        Else this could happen: (1) an agent hangs, and another one takes its node's name; (2) it
        wakes up and writes what it was about to write; (3) the other one's report is lost, and the
        node counts as vanished until something of it changes.
        """
        stamped = msgspec.structs.replace(report, at=utc_text(datetime.now(UTC)))
        return Txn(
            (ValueIs(self._keys.node(self._node), self._written),),
            (Put(self._keys.report(report.node), encode(stamped)),),
        )


async def _is_lost(lease: Lease, *, within_s: float, unless: asyncio.Event) -> bool:
    """Wait for the lease's loss, not longer than *within_s*, nor when *unless* is set."""
    waits = [asyncio.ensure_future(wait) for wait in (lease.wait_lost(), unless.wait())]
    try:
        done, _ = await asyncio.wait(waits, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
    return waits[0] in done


async def _revoked(lease: Lease) -> None:
    try:
        await lease.revoke()
    except StoreError as cause:
        _log.info("lease left to run out", cause=cause.message)

"""Writes each service's `fuse`: which nodes may be quarantined for the release that serves.

It is beside the conductor's work, as `peering` is: what cannot be written is told and tried again,
and no rollout waits for it. Until a node is named it is not quarantined, so a term that writes
nothing takes nothing from the traffic.
"""

import math
import time
from collections.abc import Callable, Mapping

import structlog

from vctl_agent.alerting.telling import tell
from vctl_agent.crashpoints import Crashpoints
from vctl_agent.pacing import Paced
from vctl_plans.codec import SCHEMA
from vctl_plans.errors import VctlError
from vctl_plans.fuse import Failing, Fuse, blown, failing, permitted
from vctl_plans.keys import Keys
from vctl_plans.snapshot import Fleet, Service
from vctl_plans.store.commit import fuse_txn
from vctl_plans.store.port import KeyValue, Store

_log = structlog.get_logger(__name__)


class Fusing:
    """One term's writes of fuses.

    Args:
        store: The store.
        keys: The fleet's keys.
        fence: create_revision of the election key.
        crashpoints: For tests.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        store: Store,
        keys: Keys,
        *,
        fence: int,
        crashpoints: Crashpoints,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._keys = keys
        self._fence = fence
        self._writes = Paced(
            "fuse", "quarantine permitted", store=store, crashpoints=crashpoints, clock=clock
        )
        self._told: dict[str, str] = {}  # service -> the last alert that was told

    async def turn(self, fleet: Fleet, entries: Mapping[str, KeyValue]) -> float:
        """Write the fuses that are not right any more; return seconds to the next look.

        Args:
            fleet: Services, records and reports.
            entries: What is stored under ``Keys.services``.
        """
        present = fleet.present()
        starting = frozenset(fleet.records.keys() - present.keys())
        waits = []
        for service in fleet.services.values():
            before = service.fuse or Fuse(service=service.name)
            found = failing(service.stable, present, before, nodes=len(fleet.records))
            entry = entries.get(self._keys.fuse(service.name))
            waits.append(await self._look(service, found, starting, entry))
        return min(waits, default=math.inf)

    async def _look(
        self,
        service: Service,
        found: Failing,
        starting: frozenset[str],
        entry: KeyValue | None,
    ) -> float:
        before = service.fuse or Fuse(service=service.name)
        after = permitted(service.name, found, before, starting)
        if before.v > SCHEMA:
            return math.inf
        if after == before:
            await self._alert(service, found, before)
            return math.inf
        wait_s = self._writes.wait_s(service.name)
        if wait_s > 0:
            return wait_s
        txn = fuse_txn(self._keys, after, before=entry, fence=self._fence)
        return await self._writes.write(service.name, txn, nodes=list(after.nodes))

    async def _alert(self, service: Service, found: Failing, fuse: Fuse) -> None:
        """Tell once in a term, for each release, that no more nodes may be quarantined."""
        alert = blown(service.stable, found, fuse) if service.stable else None
        if alert is None or self._told.get(service.name) == alert.id:
            return
        try:
            await tell(self._store, self._keys, [alert], fence=self._fence)
        except VctlError as cause:
            _log.warning("alert not written", alert=alert.id, cause=cause.message)
            return
        self._told[service.name] = alert.id

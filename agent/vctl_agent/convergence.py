"""Says when nodes do not act on a route that was written 30 s ago, while elected.

Seconds are counted on this machine's clock from when this conductor first saw the route revision; a
new conductor counts anew, and what it tells has the same id. Only nodes that were there when the
route was seen, and whose agent is still the same, are called late: who joins later has its own
time. What is judged is the conductor's newest look: looks are at most 5 s apart, and there are none
while it does not hear the nodes.
"""

import asyncio
import time
from collections.abc import Callable

import msgspec
import structlog

from vctl_agent.admin import ConductorMetrics
from vctl_agent.alerting.telling import tell
from vctl_plans.alert import Alert, late_route
from vctl_plans.errors import StoreError
from vctl_plans.gate import acknowledgement
from vctl_plans.keys import Keys
from vctl_plans.node import NodeReport
from vctl_plans.snapshot import Fleet, Service
from vctl_plans.store.port import Store

_EVERY_S = 1.0
"""Judged no more often: each judgement counts all nodes for each service."""

_RETRY_S = 1.0

_log = structlog.get_logger(__name__)


class _Route(msgspec.Struct):
    """A route revision as it was first seen."""

    revision: int
    at: float
    boots: dict[str, str]  # node -> boot id of those who were there
    is_told: bool = False


class Convergence:
    """The routes of one term of office.

    Args:
        store: The store.
        keys: The fleet's keys.
        fence: create_revision of the election key that this term holds.
        metrics: Shows how many nodes do not act on each route.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        store: Store,
        keys: Keys,
        *,
        fence: int,
        metrics: ConductorMetrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._keys = keys
        self._fence = fence
        self._metrics = metrics
        self._clock = clock
        self._routes: dict[str, _Route] = {}
        self._fleet: Fleet | None = None
        self._looked = asyncio.Event()

    def look(self, fleet: Fleet) -> None:
        """Take a reading; `run` judges the newest."""
        self._fleet = fleet
        self._looked.set()

    async def run(self) -> None:
        """Judge what is seen, and put what is to be told into the store, until cancelled."""
        while True:
            await self._looked.wait()
            self._looked.clear()
            await self._tell(self.judge(self._fleet or Fleet()))
            await asyncio.sleep(_EVERY_S)

    def judge(self, fleet: Fleet) -> list[Alert]:
        """Return what is to be told of a reading, once for each route revision."""
        present = fleet.present()
        for gone in self._routes.keys() - fleet.services.keys():
            del self._routes[gone]
            self._metrics.unconverged.remove(gone)
        routed = [service for service in fleet.services.values() if service.route_revision]
        found = [self._judge(service, fleet, present) for service in routed]
        return [alert for alert in found if alert]

    def _judge(
        self, service: Service, fleet: Fleet, present: dict[str, NodeReport]
    ) -> Alert | None:
        name, revision = service.name, service.route_revision
        route = self._routes.get(name)
        if route is None or route.revision != revision:
            boots = {node: record.boot_id for node, record in fleet.records.items()}
            route = self._routes[name] = _Route(revision, self._clock(), boots)
        late = acknowledgement(fleet.records, present, service=name, revision=revision).missing
        self._metrics.unconverged.labels(name).set(len(late))
        if route.is_told:
            return None
        counted = {n for n, boot in route.boots.items() if _boot_id(fleet, n) == boot}
        missing = tuple(sorted(counted.intersection(late)))
        seen_s = self._clock() - route.at
        alert = late_route(name, revision, seen_s=seen_s, missing=missing)
        route.is_told = alert is not None
        return alert

    async def _tell(self, alerts: list[Alert]) -> None:
        """Put the alerts into the store; where it is away, again until it has them."""
        while True:
            try:
                await tell(self._store, self._keys, alerts, fence=self._fence)
            except StoreError as cause:
                _log.warning("alerts not written yet", cause=cause.message)
                await asyncio.sleep(_RETRY_S)
            else:
                return


def _boot_id(fleet: Fleet, node: str) -> str:
    record = fleet.records.get(node)
    return record.boot_id if record else ""

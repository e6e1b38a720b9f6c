"""Writes each service's `peers`: whom a gateway asks whose own node is not ready.

It is beside the conductor's work, and never in its way: what cannot be written is told and tried
again later, and no rollout waits for it. All nodes watch the key, so it is written once a second at
most.
"""

import math
import time
from collections.abc import Callable, Mapping

import structlog

from vctl_agent.crashpoints import Crashpoints
from vctl_agent.pacing import Paced
from vctl_plans.codec import SCHEMA, decode
from vctl_plans.errors import VctlError
from vctl_plans.keys import Keys
from vctl_plans.peers import Peers, Standing, listed, standing
from vctl_plans.snapshot import Fleet, Service
from vctl_plans.store.commit import peers_txn
from vctl_plans.store.port import KeyValue, Store, Txn

_log = structlog.get_logger(__name__)


class Peering:
    """One term's writes of peers.

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
        self._keys = keys
        self._fence = fence
        self._writes = Paced(
            "peers", "peers named", store=store, crashpoints=crashpoints, clock=clock
        )

    async def turn(
        self, services: Mapping[str, Service], nodes: Fleet, entries: Mapping[str, KeyValue]
    ) -> float:
        """Write the peers that are not right any more; return seconds to the next look.

        Args:
            services: All services.
            nodes: All records and reports.
            entries: What is stored under ``Keys.services``.
        """
        said = standing(nodes)
        waits = [
            await self._look(service, said, entries.get(self._keys.peers(service.name)))
            for service in services.values()
        ]
        return min(waits, default=math.inf)

    def beside(self, service: Service, nodes: Fleet, entries: Mapping[str, KeyValue]) -> Txn | None:
        """Return what must be written in one with a decision that *service* is the outcome of.

        While nodes change their base by waves, the route moves traffic to what few nodes hold, and
        nodes leave what others send them: gateways must see both at once. So must the gateway of a
        node that is drained, which serves nothing itself.
        """
        is_by_waves = service.rollout is not None and service.rollout.is_by_waves
        if not is_by_waves and not any(said.drain for said in nodes.present().values()):
            return None
        entry = entries.get(self._keys.peers(service.name))
        before = _read(entry) if entry else Peers(service=service.name)
        peers = listed(service, standing(nodes), before)
        if before.v > SCHEMA or peers == before:
            return None
        return peers_txn(self._keys, peers, before=entry, fence=self._fence)

    async def _look(self, service: Service, nodes: Standing, entry: KeyValue | None) -> float:
        wait_s = self._writes.wait_s(service.name)
        if wait_s > 0:
            return wait_s
        before = _read(entry) if entry else Peers(service=service.name)
        if before.v > SCHEMA:
            return math.inf
        peers = listed(service, nodes, before)
        if peers == before:
            return math.inf
        named = {str(r.number): len(r.gateways) for r in peers.releases}
        txn = peers_txn(self._keys, peers, before=entry, fence=self._fence)
        return await self._writes.write(service.name, txn, gateways=named)


def _read(entry: KeyValue) -> Peers:
    """Return what stands there; what cannot be read is like nothing, and gets replaced."""
    try:
        return decode(entry.value, Peers, key=entry.key)
    except VctlError as cause:
        _log.warning("peers unreadable, naming them anew", cause=cause.message)
        return Peers(service="")

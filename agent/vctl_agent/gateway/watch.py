"""Follow routes and releases in the store, for ever.

The gateway watches by itself, so that a dead agent does not cut it off. Whatever happens to the
store, the last route stays; a store that was restored from a backup ends the watch, because
following it could put traffic back on a revoked release, until an operator accepts it.
"""

import asyncio
import random
from collections.abc import Callable

import msgspec
import structlog

from vctl_agent.acceptance import Acceptance
from vctl_agent.gateway.groups import GroupsReader
from vctl_agent.gateway.live import Live
from vctl_agent.gateway.state import newly_unreadable
from vctl_plans.errors import RestoredBackup, StoreError
from vctl_plans.keys import Keys
from vctl_plans.store.guard import Fingerprint
from vctl_plans.store.port import Store
from vctl_plans.store.settings import StoreSettings


def _never() -> float:
    return 0.0


class Source(msgspec.Struct, frozen=True):
    """A store, and what can be asked of it beside the port."""

    store: Store
    cluster_id: Callable[[], int]  # which cluster it is on; 0: not known yet
    # Seconds for which the watch has been silent beyond its patience: 0 while it is heard. A
    # process that was stopped finds out by this before it can find out by the watch.
    overdue_s: Callable[[], float] = _never


OpenStore = Callable[[Fingerprint], Source]
"""Opens the store; it must notice when it is not the cluster of the fingerprint, or behind it."""

FIRST_RETRY_S = 0.2
MAX_RETRY_S = 15.0
_log = structlog.get_logger()


async def keep_following(
    live: Live, open_store: OpenStore, keys: Keys, acceptance: Acceptance
) -> None:
    """Keep *live* up to date for ever; after a restored backup once an operator accepts it."""
    while True:
        await follow(live, open_store, keys, acceptance=acceptance)
        await acceptance.wait(lambda: open_store(Fingerprint()).store)
        live.accept_restored()


async def follow(
    live: Live, open_store: OpenStore, keys: Keys, *, acceptance: Acceptance | None = None
) -> None:
    """Keep *live* up to date with the services; return only when the store is a restored backup.

    One store until then: a new one would take any cluster for the right one.
    """
    newest = live.acted.known.newest
    source = open_store(Fingerprint(cluster_id=live.acted.cluster_id, revision=newest))
    live.overdue_s = source.overdue_s
    try:
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(GroupsReader(live, source.store, keys).run())
            noting = tasks.create_task(acceptance.follow(source.store)) if acceptance else None
            await _follow(live, source, keys.services)
            reading.cancel()
            if noting:
                noting.cancel()
    finally:
        await source.store.close()


async def _follow(live: Live, source: Source, prefix: str) -> None:
    retry_s = FIRST_RETRY_S
    while True:
        before = live.acted.known.revision
        try:
            await _follow_once(live, source, prefix)
        except RestoredBackup as cause:
            live.suspend(cause.message)
            _log.error("store was restored, keeping the last route", error=cause.message)
            return
        except StoreError as cause:
            _log.warning("store denies the watch, keeping the last route", error=cause.message)
        live.lose_contact()
        retry_s = FIRST_RETRY_S if live.acted.known.revision > before else retry_s * 2
        await asyncio.sleep(min(retry_s, MAX_RETRY_S) * random.uniform(0.5, 1.0))  # noqa: S311


async def _follow_once(live: Live, source: Source, prefix: str) -> None:
    async for update in source.store.watch(prefix):
        was_connected, before = live.is_connected, live.acted.known
        live.learn(update, cluster_id=source.cluster_id())
        if live.is_connected != was_connected:
            _log.info("store in contact" if live.is_connected else "store out of contact")
        for each in newly_unreadable(before, live.acted.known):
            _log.error(
                "value unreadable, the last good one stays",
                key=each.key,
                revision=each.revision,
                error=each.problem,
            )


def open_etcd(settings: StoreSettings) -> OpenStore:
    """Return what opens etcd."""

    def opened(known: Fingerprint) -> Source:
        # Here, since it takes 150 ms (gRPC), which requests need not wait for.
        from vctl_plans.store.etcd import EtcdStore  # noqa: PLC0415

        store = EtcdStore(settings, known=known)
        return Source(store, lambda: store.fingerprint.cluster_id, store.overdue_s)

    return opened

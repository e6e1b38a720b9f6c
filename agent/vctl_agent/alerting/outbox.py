"""Sends what lies in the store as alerts, while elected, and deletes what is sent.

An alert's key is deleted only after every webhook that wants it took it or will never take it, so
that whoever conducts next goes on with what is left: each alert is sent at least once, and its id
tells repeats. That comes about so: (1) a webhook takes the alert; (2) the conductor dies before the
key is deleted; (3) the next one sends it again.

Nothing here is waited for by a decision, and no webhook by another: each alert has a task for each
webhook, and only the tries of one webhook share a few places.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence

import httpx
import structlog

from vctl_agent.admin import ConductorMetrics
from vctl_agent.alerting.sending import Delivered, Refused, send
from vctl_agent.alerting.webhooks import Webhook
from vctl_agent.crashpoints import Crashpoints
from vctl_plans.alert import Alert
from vctl_plans.codec import decode
from vctl_plans.errors import Conflict, StoreError, VctlError
from vctl_plans.keys import Keys
from vctl_plans.store.backoff import backoff_s
from vctl_plans.store.commit import sent_txn
from vctl_plans.store.port import KeyValue, Store

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 300.0
GIVE_UP_S = 24 * 3600.0
"""How long one conductor tries; each counts for itself, since no clocks are compared."""

_AT_ONCE = 4
"""Tries of one webhook under way."""

_STORE_PAUSE_S = 1.0

_log = structlog.get_logger(__name__)


class Outbox:
    """The alerts of one term of office.

    Args:
        store: The store.
        keys: The fleet's keys.
        fence: create_revision of the election key that this term holds.
        webhooks: Where alerts go.
        metrics: Counts what becomes of them.
        crashpoints: For tests.
        clock: Monotonic seconds.
        first_pause_s: Before the second try; it doubles with each.
    """

    def __init__(
        self,
        store: Store,
        keys: Keys,
        *,
        fence: int,
        webhooks: Sequence[Webhook],
        metrics: ConductorMetrics,
        crashpoints: Crashpoints,
        clock: Callable[[], float] = time.monotonic,
        first_pause_s: float = FIRST_PAUSE_S,
    ) -> None:
        self._store = store
        self._keys = keys
        self._fence = fence
        self._webhooks = tuple(webhooks)
        self._metrics = metrics
        self._crashpoints = crashpoints
        self._clock = clock
        self._first_pause_s = first_pause_s
        self._taken: dict[str, int] = {}  # key -> create_revision of what is being sent, or was
        self._places = {w.name: asyncio.Semaphore(_AT_ONCE) for w in self._webhooks}

    async def run(self) -> None:
        """Send until cancelled; a store that refuses is asked again."""
        # Webhooks are outside: the environment's proxies and certificates are meant for them.
        async with httpx.AsyncClient(trust_env=True) as client, asyncio.TaskGroup() as group:
            while True:
                try:
                    await self._follow(client, group)
                except StoreError as cause:
                    _log.warning("alerts cannot be followed", cause=cause.message)
                await asyncio.sleep(_STORE_PAUSE_S)

    async def _follow(self, client: httpx.AsyncClient, group: asyncio.TaskGroup) -> None:
        async with contextlib.aclosing(self._store.watch(self._keys.alerts)) as updates:  # type: ignore[type-var]
            async for update in updates:
                if update.is_live:
                    for entry in self._new(update.entries):
                        group.create_task(self._bring(client, entry))

    def _new(self, entries: Mapping[str, KeyValue]) -> list[KeyValue]:
        """Return what is not being sent yet.

        What was sent is remembered until the watch shows it gone: an update from before the
        deletion may still come, and would send it again.
        """
        self._taken = {key: made for key, made in self._taken.items() if key in entries}
        new = [e for key, e in entries.items() if self._taken.get(key) != e.create_revision]
        self._taken.update((entry.key, entry.create_revision) for entry in new)
        return new

    async def _bring(self, client: httpx.AsyncClient, entry: KeyValue) -> None:
        """Bring one alert to all who want it, then forget it."""
        try:
            alert = decode(entry.value, Alert, key=entry.key)
        except VctlError as problem:  # a newer conductor can read it, perhaps
            self._metrics.alerts.labels("unreadable").inc()
            _log.error("unreadable alert left where it is", problem=problem.message)
            return
        _log.warning("alert", **_told(alert), sentence=alert.sentence, title=alert.title)
        wanting = [w for w in self._webhooks if alert.severity in w.severities]
        if not wanting:
            self._metrics.alerts.labels("logged").inc()
        await asyncio.gather(*(self._deliver(client, webhook, alert) for webhook in wanting))
        await self._forget(entry)

    async def _deliver(self, client: httpx.AsyncClient, webhook: Webhook, alert: Alert) -> None:
        """Try until the webhook took the alert, never will, or the time is spent."""
        log = _log.bind(webhook=webhook.name, **_told(alert))
        began, attempt = self._clock(), 0
        while True:
            async with self._places[webhook.name]:
                said = await send(client, webhook, alert, fleet=self._keys.fleet)
            if isinstance(said, Delivered):
                self._metrics.alerts.labels("delivered").inc()
                log.info("alert delivered")
                self._crashpoints.passed("alert delivered")
                return
            if isinstance(said, Refused):
                self._metrics.alerts.labels("refused").inc()
                log.error("alert refused, not sent again", cause=said.why)
                return
            longest_s = max(LONGEST_PAUSE_S, self._first_pause_s)
            pause_s = max(
                said.after_s, backoff_s(attempt, first_s=self._first_pause_s, longest_s=longest_s)
            )
            if self._clock() - began + pause_s > GIVE_UP_S:
                self._metrics.alerts.labels("expired").inc()
                log.error("alert given up after 24 h", cause=said.why)
                return
            self._metrics.alerts.labels("retried").inc()
            log.warning("alert not delivered yet", cause=said.why, again_in_s=round(pause_s, 1))
            await asyncio.sleep(pause_s)
            attempt += 1

    async def _forget(self, entry: KeyValue) -> None:
        """Delete the alert's key; repeated until it is gone or another conductor's."""
        txn = sent_txn(self._keys, entry.key, entry.mod_revision, fence=self._fence)
        while True:
            try:
                await self._store.commit(txn)
            except Conflict:
                return
            except StoreError as cause:
                _log.info("sent alert not deleted yet", cause=cause.message)
                await asyncio.sleep(_STORE_PAUSE_S)
            else:
                self._crashpoints.passed("alert forgotten")
                return


def _told(alert: Alert) -> dict[str, str]:
    """Return what every line about the alert has."""
    return {
        "alert": alert.id,
        "service": alert.service,
        "rollout": alert.rollout,
        "severity": alert.severity.value,
    }

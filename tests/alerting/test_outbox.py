"""Alerts reach every webhook at least once, whatever dies, and nothing waits for them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from tests.alerting.support import ALERT, Answer, receiving, until
from vctl_agent.admin import Metrics
from vctl_agent.alerting import outbox as outbox_module
from vctl_agent.alerting.outbox import Outbox
from vctl_agent.alerting.webhooks import Webhook
from vctl_agent.crashpoints import Crashpoints
from vctl_plans.alert import Alert, Severity
from vctl_plans.errors import Rejected
from vctl_plans.keys import Keys
from vctl_plans.store.commit import alert_txn
from vctl_plans.store.memory import MemoryStore
from vctl_plans.store.port import Delete, Put, Txn, Update

KEYS = Keys("dev")
OK: Answer = (200, "ok", {})
BUSY: Answer = (503, "busy", {})


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    made = MemoryStore()
    yield made
    await made.close()


async def elect(store: MemoryStore) -> int:
    """Make the election key anew; return its create_revision."""
    await store.commit(Txn((), (Delete(KEYS.conductor),)))
    return await store.commit(Txn((), (Put(KEYS.conductor, b"c"),)))


async def tell(store: MemoryStore, fence: int, *alerts: Alert) -> None:
    for alert in alerts:
        await store.commit(alert_txn(KEYS, alert, fence=fence))


async def left(store: MemoryStore) -> list[str]:
    return [e.key.removeprefix(KEYS.alerts) for e in (await store.list(KEYS.alerts)).entries]


async def until_left(store: MemoryStore, expected: list[str]) -> None:
    async with asyncio.timeout(5):
        while await left(store) != expected:
            await asyncio.sleep(0.005)


def count(metrics: Metrics, outcome: str) -> float:
    found = metrics.registry.get_sample_value("vctl_alerts_total", {"outcome": outcome})
    return found or 0.0


@asynccontextmanager
async def running(
    store: MemoryStore, fence: int, *webhooks: Webhook, **more: Any
) -> AsyncIterator[Metrics]:
    metrics = Metrics()
    made = Outbox(
        store,
        KEYS,
        fence=fence,
        webhooks=webhooks,
        metrics=metrics,
        crashpoints=Crashpoints(),
        first_pause_s=0.01,
        **more,
    )
    task = asyncio.create_task(made.run())
    try:
        yield metrics
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_alert_is_sent_to_every_webhook_and_forgotten(store: MemoryStore):
    fence = await elect(store)
    async with receiving() as one, receiving() as two:
        hooks = (one.webhook(name="one"), two.webhook(name="two"))
        async with running(store, fence, *hooks) as metrics:
            await tell(store, fence, ALERT)
            await until_left(store, [])
    assert (["r2-5"], ["r2-5"]) == (one.ids, two.ids)
    assert 2 == count(metrics, "delivered")


async def test_webhook_that_is_busy_is_tried_until_it_takes_the_alert(store: MemoryStore):
    fence = await elect(store)
    async with (
        receiving(BUSY, BUSY, OK) as receiver,
        running(store, fence, receiver.webhook()) as metrics,
    ):
        await tell(store, fence, ALERT)
        await until_left(store, [])
    assert ["r2-5"] * 3 == receiver.ids
    assert (2, 1) == (count(metrics, "retried"), count(metrics, "delivered"))


async def test_webhook_that_refuses_is_not_tried_again(store: MemoryStore):
    fence = await elect(store)
    async with (
        receiving((404, "no_service", {})) as receiver,
        running(store, fence, receiver.webhook()) as metrics,
    ):
        await tell(store, fence, ALERT)
        await until_left(store, [])
    assert ["r2-5"] == receiver.ids
    assert 1 == count(metrics, "refused")


async def test_webhook_that_fails_stops_no_other_and_no_later_alert(store: MemoryStore):
    """One never answers, one is busy for ever: a third gets all; the keys stay meanwhile."""
    fence = await elect(store)
    alerts = [msgspec.structs.replace(ALERT, id=f"r2-{n}") for n in range(8)]
    async with receiving(None) as hung, receiving(BUSY) as busy, receiving() as good:
        hooks = [r.webhook(name=n) for n, r in (("hung", hung), ("busy", busy), ("good", good))]
        async with running(store, fence, *hooks):
            await tell(store, fence, *alerts)
            await until(lambda: len(good.ids) == len(alerts))
            assert len(alerts) == len(await left(store))
    assert sorted(alert.id for alert in alerts) == sorted(good.ids)


async def test_next_conductor_sends_what_was_left_with_the_same_id(store: MemoryStore):
    """It dies while a webhook has the alert and has not answered: told twice, by one id."""
    fence = await elect(store)
    async with receiving(None, OK) as receiver, running(store, fence, receiver.webhook()):
        await tell(store, fence, ALERT)
        await until(lambda: receiver.ids == ["r2-5"])
        assert ["r2-5"] == await left(store)
        async with running(store, await elect(store), receiver.webhook()):
            await until_left(store, [])
    assert ["r2-5", "r2-5"] == receiver.ids


async def test_alert_written_before_any_conductor_looked_is_sent(store: MemoryStore):
    """The crash between deciding and sending: what the decision wrote is all that is needed."""
    await tell(store, await elect(store), ALERT)
    async with receiving() as receiver, running(store, await elect(store), receiver.webhook()):
        await until_left(store, [])
    assert ["r2-5"] == receiver.ids


async def test_conductor_whose_term_ended_deletes_nothing(store: MemoryStore):
    """Whoever conducts now has not sent it perhaps."""
    old = await elect(store)
    await tell(store, old, ALERT)
    await elect(store)
    async with receiving() as receiver, running(store, old, receiver.webhook()):
        await until(lambda: receiver.ids == ["r2-5"])
        await asyncio.sleep(0.03)
        assert ["r2-5"] == await left(store)


async def test_webhook_gets_the_severities_that_it_wants(store: MemoryStore):
    fence = await elect(store)
    info = msgspec.structs.replace(ALERT, id="r2-6", severity=Severity.INFO)
    async with receiving() as receiver:
        hook = receiver.webhook(severities=frozenset({Severity.P0, Severity.P1}))
        async with running(store, fence, hook) as metrics:
            await tell(store, fence, info, ALERT)
            await until_left(store, [])
    assert ["r2-5"] == receiver.ids
    assert 1 == count(metrics, "logged")


async def test_alert_is_logged_and_forgotten_where_there_is_no_webhook(
    store: MemoryStore, capsys: pytest.CaptureFixture[str]
):
    fence = await elect(store)
    async with running(store, fence) as metrics:
        await tell(store, fence, ALERT)
        await until_left(store, [])
    assert "support: rolling back" in "".join(capsys.readouterr())
    assert 1 == count(metrics, "logged")


async def test_alert_is_given_up_after_a_day(store: MemoryStore):
    fence, now = await elect(store), [0.0]
    async with (
        receiving(BUSY) as receiver,
        running(store, fence, receiver.webhook(), clock=lambda: now[0]) as metrics,
    ):
        await tell(store, fence, ALERT)
        await until(lambda: len(receiver.ids) >= 2)
        now[0] = 24 * 3600.0
        await until_left(store, [])
    assert 1 == count(metrics, "expired")


async def test_wait_that_is_asked_for_is_kept(store: MemoryStore):
    """`Retry-After: 30` is longer than the pause of its own: no second try comes."""
    fence = await elect(store)
    async with (
        receiving((429, "", {"Retry-After": "30"}), OK) as receiver,
        running(store, fence, receiver.webhook()) as metrics,
    ):
        await tell(store, fence, ALERT)
        await until(lambda: count(metrics, "retried") == 1)
        await asyncio.sleep(0.05)
    assert ["r2-5"] == receiver.ids


async def test_alert_that_cannot_be_read_is_left_and_hides_no_other(store: MemoryStore):
    fence = await elect(store)
    await store.put(KEYS.alert("odd"), b'{"id": 7}')
    async with receiving() as receiver, running(store, fence, receiver.webhook()) as metrics:
        await tell(store, fence, ALERT)
        await until_left(store, ["odd"])
    assert ["r2-5"] == receiver.ids
    assert 1 == count(metrics, "unreadable")


class Late(MemoryStore):
    """A client whose watch tells, after a deletion, once more what was there before."""

    async def watch(self, prefix: str) -> AsyncIterator[Update]:
        before: Update | None = None
        async for update in super().watch(prefix):
            if before and before.entries and not update.entries:
                yield msgspec.structs.replace(before, changed=frozenset())
            yield update
            before = update


async def test_update_from_before_the_deletion_sends_nothing_again(store: MemoryStore):
    fence = await elect(store)
    async with receiving() as receiver:
        late = Late(cluster=store._cluster)
        async with running(late, fence, receiver.webhook()):
            await tell(store, fence, ALERT)
            await until_left(store, [])
            await tell(store, fence, msgspec.structs.replace(ALERT, id="r2-6"))
            await until_left(store, [])
    assert ["r2-5", "r2-6"] == receiver.ids


async def test_same_alert_told_again_later_is_sent_again(store: MemoryStore):
    fence = await elect(store)
    async with receiving() as receiver, running(store, fence, receiver.webhook()):
        for _ in range(2):
            await tell(store, fence, ALERT)
            await until_left(store, [])
    assert ["r2-5", "r2-5"] == receiver.ids


class Denied(MemoryStore):
    """A client that may not watch alerts until it may."""

    is_denied = True

    async def watch(self, prefix: str) -> AsyncIterator[Update]:
        if self.is_denied:
            raise Rejected("denied", code="PERMISSION_DENIED")
        async for update in super().watch(prefix):
            yield update


async def test_denied_watch_does_not_end_the_outbox(store: MemoryStore, monkeypatch):
    """It would end the term with it, and alerts are not worth a rollout."""
    monkeypatch.setattr(outbox_module, "_STORE_PAUSE_S", 0.01)
    fence = await elect(store)
    denied = Denied(cluster=store._cluster)
    async with receiving() as receiver, running(denied, fence, receiver.webhook()):
        await tell(store, fence, ALERT)
        await asyncio.sleep(0.03)
        assert [] == receiver.ids
        denied.is_denied = False
        await until_left(store, [])
    assert ["r2-5"] == receiver.ids


async def test_deletion_whose_reply_is_lost_is_settled(store: MemoryStore, monkeypatch):
    monkeypatch.setattr(outbox_module, "_STORE_PAUSE_S", 0.01)
    fence = await elect(store)
    mine = store.peer()
    mine.lose_reply(is_applied=False)
    async with receiving() as receiver, running(mine, fence, receiver.webhook()):
        await tell(store, fence, ALERT)
        await until_left(store, [])
    assert ["r2-5"] == receiver.ids

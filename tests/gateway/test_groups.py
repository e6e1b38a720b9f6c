"""A route is acted on once the groups that it names are read, and holds up no other."""

import asyncio
from typing import Any

import pytest

from tests.gateway.support import (
    KEYS,
    SERVICE,
    a_release,
    a_route,
    eventually,
    overridden,
    publish,
    publish_groups,
)
from tests.gateway.test_watch import a_live, followed
from vctl_agent.gateway import groups as groups_module
from vctl_plans.codec import encode
from vctl_plans.errors import StoreUnavailable
from vctl_plans.groups import Group, Groups
from vctl_plans.store.memory import MemoryStore
from vctl_plans.store.port import KeyValue

STAFF = Groups(groups=(Group(name="staff", users=("ann",)),))
ACME = Groups(groups=(Group(name="acme", tenant="acme", header={"x-tier": "beta"}),))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups_module, "FIRST_RETRY_S", 0.002)
    monkeypatch.setattr(groups_module, "MAX_RETRY_S", 0.005)


class SlowStore(MemoryStore):
    """Its single reads wait until they may answer, or fail as often as told."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.may_read = asyncio.Event()
        self.may_read.set()
        self.failures = 0
        self.reads: list[str] = []

    async def get(self, key: str) -> KeyValue | None:
        self.reads.append(key)
        await self.may_read.wait()
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("away")
        return await super().get(key)


async def test_route_is_acted_on_once_all_groups_that_it_names_are_read():
    live, store = a_live(), SlowStore()
    store.may_read.clear()
    async with followed(live, store):
        await publish_groups(store, STAFF, ACME)
        before = await publish(store, a_route(1), a_release(1))
        after = await publish(store, overridden(1, (STAFF, 2), (ACME, 3)))
        await eventually(lambda: len(store.reads) == 2)
        assert live.acted.known.route_revisions() == {SERVICE: before}
        assert live.acted.known.waiting[SERVICE].revision == after
        store.may_read.set()
        await eventually(lambda: live.acted.known.route_revisions() == {SERVICE: after})
        assert live.acted.known.groups == {STAFF.digest: STAFF, ACME.digest: ACME}
        assert live.acted.known.waiting == {}
        assert live.named_headers == {"x-tier"}


async def test_groups_are_read_once_and_kept_until_no_route_names_them():
    live, store = a_live(), SlowStore()
    async with followed(live, store):
        await publish_groups(store, STAFF)
        for route in (overridden(1, (STAFF, 2)), overridden(2, (STAFF, 2)), a_route(2)):
            revision = await publish(store, route)
            await eventually(lambda at=revision: live.acted.known.newest == at)  # type: ignore[misc]
            await eventually(lambda: not live.acted.known.waiting)
        assert live.acted.known.groups == {}
        assert store.reads == [KEYS.groups(STAFF.digest)]
        revision = await publish(store, overridden(1, (STAFF, 2)))
        await eventually(lambda: live.acted.known.route_revisions() == {SERVICE: revision})
        assert len(store.reads) == 2


async def test_read_that_fails_is_tried_again_and_no_other_service_waits():
    live, store = a_live(), SlowStore()
    store.failures = 3
    async with followed(live, store):
        await publish_groups(store, STAFF)
        waiting = await publish(store, overridden(1, (STAFF, 2)))
        other = await publish(store, a_route(4, service="chat"))
        await eventually(lambda: live.acted.known.route_revisions().get("chat") == other)
        await eventually(lambda: live.acted.known.route_revisions().get(SERVICE) == waiting)
    assert len(store.reads) == 4


async def test_rollback_waits_for_no_groups_and_the_route_before_it_never_comes_back():
    live, store = a_live(), SlowStore()
    store.may_read.clear()
    async with followed(live, store):
        await publish_groups(store, STAFF)
        await publish(store, overridden(1, (STAFF, 2)))
        await eventually(lambda: bool(store.reads))
        rollback = await publish(store, a_route(1))
        await eventually(lambda: live.acted.known.route_revisions() == {SERVICE: rollback})
        store.may_read.set()
        await publish(store, None, a_release(1))
        await eventually(lambda: (SERVICE, 1) in live.acted.known.releases)
        assert live.acted.known.route_revisions() == {SERVICE: rollback}
        assert live.acted.known.groups == {}


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (None, "there are no groups at"),
        (b"[]", "unreadable Groups at"),
        (encode(ACME), "are others: their digest is b3:"),
    ],
)
async def test_groups_that_are_not_those_make_the_route_unreadable_until_they_are(
    value: bytes | None, problem: str
):
    live, store = a_live(), SlowStore()
    async with followed(live, store):
        if value is not None:
            await store.put(KEYS.groups(STAFF.digest), value)
        before = await publish(store, a_route(1))
        await eventually(lambda: live.acted.known.route_revisions() == {SERVICE: before})
        after = await publish(store, overridden(1, (STAFF, 2)))
        await eventually(lambda: bool(live.acted.known.unreadable))
        (found,) = live.acted.known.unreadable
        assert (found.key, found.revision) == (KEYS.route(SERVICE), after)
        assert problem in found.problem
        await publish(store, a_route(4, service="chat"))
        await eventually(lambda: "chat" in live.acted.known.routes)
        assert live.acted.known.unreadable == (found,)
        assert live.acted.known.route_revisions()[SERVICE] == before
        await publish_groups(store, STAFF)
        await eventually(lambda: live.acted.known.route_revisions()[SERVICE] == after)
        assert len(live.acted.known.unreadable) == 0


async def test_first_route_of_a_service_waits_for_its_groups_as_well():
    live, store = a_live(), SlowStore()
    async with followed(live, store):
        revision = await publish(store, overridden(1, (STAFF, 2)))
        await eventually(lambda: bool(live.acted.known.unreadable))
        assert live.acted.known.routes == {}
        await publish_groups(store, STAFF)
        await eventually(lambda: live.acted.known.route_revisions() == {SERVICE: revision})

"""The conductor's summary: fenced, at most one a second, and only when it changed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.builders import SERVICE, a_report, a_route, a_service
from vctl_agent.summaries import Summaries
from vctl_plans.codec import decode
from vctl_plans.errors import StoreUnavailable
from vctl_plans.keys import Keys
from vctl_plans.node import NodeRecord
from vctl_plans.phase import NodePhase as N
from vctl_plans.snapshot import Fleet
from vctl_plans.store.memory import MemoryStore
from vctl_plans.store.port import Delete, KeyValue, Put, Txn
from vctl_plans.summary import Summary

KEYS = Keys("dev")


def fleet(*ready: str) -> Fleet:
    return Fleet(
        services={SERVICE: a_service(route=a_route())},
        records={n: NodeRecord(node=n, boot_id=f"boot-{n}") for n in ("a", "b")},
        reports={n: a_report(n, r1=N.READY) for n in ready},
    )


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    made = MemoryStore()
    yield made
    await made.close()


async def elect(store: MemoryStore) -> int:
    await store.commit(Txn((), (Delete(KEYS.conductor),)))
    return await store.commit(Txn((), (Put(KEYS.conductor, b"c"),)))


@asynccontextmanager
async def running(
    store: MemoryStore, fence: int, *, every_s: float = 0.01
) -> AsyncIterator[Summaries]:
    made = Summaries(store, KEYS, fence=fence, every_s=every_s)
    task = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until_ready(store: MemoryStore, count: int) -> KeyValue:
    async with asyncio.timeout(5):
        while True:
            found = await store.get(KEYS.summary)
            if found and decode(found.value, Summary).services[0].ready == count:
                return found
            await asyncio.sleep(0.005)


async def test_summary_is_written_when_it_changed_and_not_otherwise(store: MemoryStore):
    async with running(store, await elect(store)) as summaries:
        summaries.look(fleet("a"))
        first = await until_ready(store, 1)
        for _ in range(5):
            summaries.look(fleet("a"))
            await asyncio.sleep(0.02)
        summaries.look(fleet("a", "b"))
        second = await until_ready(store, 2)
    assert (1, 2) == (first.version, second.version)


async def test_looks_that_follow_each_other_closely_are_one_summary(store: MemoryStore):
    """The newest is written once the time is over."""
    every_s, clock = 0.2, asyncio.get_running_loop().time
    async with running(store, await elect(store), every_s=every_s) as summaries:
        began = clock()
        summaries.look(fleet())
        await until_ready(store, 0)
        for _ in range(3):
            for ready in (("a",), ("b",), ("a", "b")):
                summaries.look(fleet(*ready))
                await asyncio.sleep(0.005)
        found = await until_ready(store, 2)
    assert found.version <= 2 + int((clock() - began) / every_s) < 10


async def test_next_conductor_does_not_write_what_is_there(store: MemoryStore):
    for _ in range(2):
        async with running(store, await elect(store)) as summaries:
            summaries.look(fleet("a"))
            await until_ready(store, 1)
            await asyncio.sleep(0.03)
    found = await store.get(KEYS.summary)
    assert found is not None
    assert 1 == found.version


async def test_conductor_whose_term_ended_writes_no_summary(store: MemoryStore):
    old = await elect(store)
    await elect(store)
    async with running(store, old) as summaries:
        summaries.look(fleet("a"))
        await asyncio.sleep(0.05)
    assert await store.get(KEYS.summary) is None


@pytest.mark.parametrize("is_applied", [True, False])
async def test_store_that_fails_is_asked_again(store: MemoryStore, is_applied: bool):
    fence = await elect(store)
    mine = store.peer()
    mine.fail_next(StoreUnavailable("away"))
    mine.lose_reply(is_applied=is_applied)
    async with running(mine, fence) as summaries:
        summaries.look(fleet("a"))
        await until_ready(store, 1)


async def test_summary_is_the_newest_look(store: MemoryStore):
    """What was looked at while one was being written is not lost."""
    async with running(store, await elect(store)) as summaries:
        for n in range(20):
            summaries.look(fleet(*(["a"] * (n % 2))))
            await asyncio.sleep(0.002)
        summaries.look(fleet("a", "b"))
        await until_ready(store, 2)

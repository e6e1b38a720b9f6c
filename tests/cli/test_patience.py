"""Who waits for etcd is told so, once, and only when it takes long."""

import asyncio
import time

from tests.cli.support import KEYS
from vctl_cli.patience import Patience, PatientStore
from vctl_plans.store.memory import MemoryStore
from vctl_plans.store.port import KeyValue

TEXT = "etcd does not answer yet: http://a; trying again"


class Slow(MemoryStore):
    """A store that takes its time."""

    async def get(self, key: str) -> KeyValue | None:
        await asyncio.sleep(0.03)
        return await super().get(key)


async def test_long_call_is_told_once():
    told: list[str] = []
    store = PatientStore(Slow(), Patience("http://a", told.append, after_s=0.01))
    await store.get(KEYS.base)
    await store.get(KEYS.base)
    assert told == [TEXT]


async def test_short_call_is_not_told():
    told: list[str] = []
    store = PatientStore(MemoryStore(), Patience("http://a", told.append, after_s=5.0))
    await store.put(KEYS.base, b"{}")
    assert (await store.list(KEYS.root)).entries
    assert told == []


async def test_watch_is_told_of_until_it_has_its_first_answer():
    told: list[str] = []
    inner = MemoryStore()
    inner.disconnect()
    store = PatientStore(inner, Patience("http://a", told.append, after_s=0.01))
    async for update in store.watch(KEYS.root):
        if update.is_live:
            break
        await asyncio.sleep(0.03)
        inner.reconnect()
    assert told == [TEXT]


def test_thread_that_is_blocked_is_told_of():
    told: list[str] = []
    patience = Patience("http://a", told.append, after_s=0.01)
    with patience.beside_thread():
        time.sleep(0.04)
    with patience.beside_thread():
        pass
    assert told == [TEXT]

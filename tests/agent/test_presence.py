"""What a node says of itself stands in the store for as long as its agent lives."""

import asyncio
from collections.abc import AsyncIterator, Callable

import msgspec
import pytest

from vctl_agent.crashpoints import Crashpoints
from vctl_agent.presence import Presence
from vctl_plans.capability import EngineFacts
from vctl_plans.codec import decode
from vctl_plans.errors import StoreUnavailable
from vctl_plans.keys import Keys
from vctl_plans.node import NodeRecord, NodeReport
from vctl_plans.store.memory import MemoryStore
from vctl_plans.store.port import Delete, Txn

KEYS = Keys("dev")
KEY = KEYS.node("n1")
TTL_S = 0.05


class Agents:
    """Presences of agents that all call themselves n1, on one cluster."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.stores: dict[str, MemoryStore] = {}

    def start(self, boot_id: str, *, ttl_s: float = TTL_S) -> Presence:
        self.stores[boot_id] = self.store.peer()
        record = NodeRecord(node="n1", boot_id=boot_id)
        made = Presence(self.stores[boot_id], KEYS, record, ttl_s=ttl_s, crashpoints=Crashpoints())
        self._tasks[boot_id] = asyncio.create_task(made.keep_record())
        return made

    async def stop(self, boot_id: str) -> None:
        task = self._tasks.pop(boot_id)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def stop_all(self) -> None:
        for boot_id in list(self._tasks):
            await self.stop(boot_id)
        await self.store.close()

    async def registered(self) -> str:
        """Return the boot id that the record has; nothing when there is none."""
        found = await self.store.get(KEY)
        return decode(found.value, NodeRecord).boot_id if found else ""

    async def until(self, boot_id: str) -> None:
        async with asyncio.timeout(5):
            while await self.registered() != boot_id:
                await asyncio.sleep(0.005)


@pytest.fixture
async def agents() -> AsyncIterator[Agents]:
    made = Agents()
    yield made
    await made.stop_all()


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():
            await asyncio.sleep(0.005)


async def test_record_lives_as_long_as_its_agent(agents: Agents) -> None:
    """It is there at once, stays, and is gone with the agent."""
    presence = agents.start("b1")
    await agents.until("b1")
    await asyncio.sleep(3 * TTL_S)
    assert await agents.registered() == "b1"
    assert presence.is_registered

    await agents.stop("b1")

    assert await agents.registered() == ""
    assert not presence.is_registered


async def test_lost_lease_is_taken_out_anew(agents: Agents) -> None:
    """The same process goes on under the same boot id."""
    presence = agents.start("b1")
    await agents.until("b1")
    agents.stores["b1"].disconnect()
    await _until(lambda: not presence.is_registered)

    agents.stores["b1"].reconnect()

    await _until(lambda: presence.is_registered)
    assert await agents.registered() == "b1"


async def test_record_that_somebody_deleted_is_written_again(agents: Agents) -> None:
    """Else the node would be away for good, though its agent lives and its lease too."""
    agents.start("b1")
    await agents.until("b1")

    await agents.store.commit(Txn((), (Delete(KEY),)))
    assert await agents.registered() != "b1", "else nothing has to be written again"

    await agents.until("b1")
    assert await agents.registered() == "b1"


async def test_record_tells_at_once_which_engine_was_found(agents: Agents) -> None:
    """It stays this agent's own: reports go on, and the same facts again write nothing."""
    presence = agents.start("b1")
    await agents.until("b1")
    facts = EngineFacts(kind="vllm", version="1")
    for _ in range(2):
        presence.announce(facts)
    async with asyncio.timeout(TTL_S * 50):
        while (found := await agents.store.get(KEY)) is None or found.version == 1:
            await asyncio.sleep(0.005)
    await asyncio.sleep(3 * TTL_S)

    found = await agents.store.get(KEY)
    assert found is not None
    assert 2 == found.version
    assert facts == decode(found.value, NodeRecord).facts
    assert presence.is_registered


async def test_look_that_fails_costs_no_lease(agents: Agents) -> None:
    """Whether the node is there, the lease says; a short absence of etcd is none of the node."""
    presence = agents.start("b1")
    await agents.until("b1")

    agents.stores["b1"].fail_next(StoreUnavailable("away"))
    await asyncio.sleep(3 * TTL_S)

    found = await agents.store.get(KEY)
    assert found is not None
    assert found.version == 1
    assert presence.is_registered


async def test_two_agents_of_one_name_do_not_fight(agents: Agents) -> None:
    """The later one has the name; the earlier says so, and takes it back when the other ends."""
    first = agents.start("b1")
    await agents.until("b1")
    second = agents.start("b2")
    await agents.until("b2")
    await _until(lambda: not first.is_registered)
    await asyncio.sleep(3 * TTL_S)
    assert await agents.registered() == "b2"
    assert second.is_registered

    await agents.stop("b2")

    await agents.until("b1")
    await _until(lambda: first.is_registered)


async def test_newest_report_is_written_once_the_store_is_back(agents: Agents) -> None:
    """What was not written yet is replaced, and nothing is written twice."""
    presence = agents.start("b1")
    await agents.until("b1")
    writing = asyncio.create_task(presence.write_reports())
    store = agents.stores["b1"]
    store.fail_next(StoreUnavailable("away"))
    presence.report(NodeReport(node="n1", boot_id="b1", gateway_ok=False))
    await asyncio.sleep(0.03)
    newest = NodeReport(node="n1", boot_id="b1", gateway_ok=True)
    presence.report(newest)
    try:
        async with asyncio.timeout(5):
            while not (found := await agents.store.get(KEYS.report("n1"))):
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.03)
    finally:
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)

    said = decode(found.value, NodeReport)
    assert said.at
    assert newest == msgspec.structs.replace(said, at="")
    again = await agents.store.get(KEYS.report("n1"))
    assert again is not None
    assert again.version == 1


async def test_agent_without_the_name_leaves_the_report_alone(agents: Agents) -> None:
    """It would overwrite the word that counts, and the node would be missing to the fleet."""
    first = agents.start("b1")
    await agents.until("b1")
    second = agents.start("b2")
    await _until(lambda: second.is_registered and not first.is_registered)
    writing = [asyncio.create_task(each.write_reports()) for each in (first, second)]
    try:
        second.report(NodeReport(node="n1", boot_id="b2"))
        await asyncio.sleep(0.03)
        first.report(NodeReport(node="n1", boot_id="b1"))
        await asyncio.sleep(0.03)
        assert await _reported(agents) == "b2"

        await agents.stop("b2")
        await agents.until("b1")
        async with asyncio.timeout(5):
            while await _reported(agents) != "b1":
                await asyncio.sleep(0.01)
    finally:
        for task in writing:
            task.cancel()
        await asyncio.gather(*writing, return_exceptions=True)


async def test_agent_that_lost_the_name_unawares_writes_no_report(agents: Agents) -> None:
    """It hung, was replaced, wakes up, and has not looked at the record again yet."""
    first = agents.start("b1", ttl_s=60)
    await agents.until("b1")
    second = agents.start("b2")
    await agents.until("b2")
    writing = [asyncio.create_task(each.write_reports()) for each in (first, second)]
    try:
        second.report(NodeReport(node="n1", boot_id="b2"))
        async with asyncio.timeout(5):
            while await _reported(agents) != "b2":
                await asyncio.sleep(0.01)
        assert first.is_registered

        first.report(NodeReport(node="n1", boot_id="b1"))
        await _until(lambda: not first.is_registered)
        assert await _reported(agents) == "b2"
    finally:
        for task in writing:
            task.cancel()
        await asyncio.gather(*writing, return_exceptions=True)


async def _reported(agents: Agents) -> str:
    found = await agents.store.get(KEYS.report("n1"))
    return decode(found.value, NodeReport).boot_id if found else ""

"""What cannot be read takes nothing from a node that it serves."""

from pathlib import Path

from tests.agent.support import SERVICE, Node, a_rollout, make_releases
from vctl_agent.wishes import Wishes
from vctl_plans.codec import encode
from vctl_plans.keys import Keys
from vctl_plans.phase import NodePhase
from vctl_plans.route import Route
from vctl_plans.store.memory import MemoryStore
from vctl_plans.store.port import Delete, Txn

KEYS = Keys("dev")


class Told:
    """A store with one service that serves release 1, and the node that is told of it."""

    def __init__(self, folder: Path) -> None:
        self.store = MemoryStore()
        self.node = Node(folder)
        self.releases = make_releases(folder, 2)
        self.wishes = Wishes(KEYS)

    async def write(self, key: str, value: bytes) -> None:
        await self.store.put(key, value)

    async def begin(self) -> None:
        for number, release in self.releases.items():
            await self.write(KEYS.release(SERVICE, number), encode(release))
        route = Route(service=SERVICE, stable=1)
        await self.write(KEYS.route(SERVICE), encode(route))
        await self.tell()
        await self.node.settle(lambda: self.node.phase(1) is NodePhase.READY)

    async def tell(self) -> None:
        entries = {e.key: e for e in (await self.store.list(KEYS.services)).entries}
        self.node.reconciler.want(self.wishes.read(entries))
        await self.node.idle()

    def served(self) -> list[int]:
        told = self.node.link.told
        return [ready.number for ready in told.ready] if told else []


async def test_release_that_became_unreadable_serves_on(tmp_path: Path) -> None:
    """One bad write once took the release from every gateway of the fleet."""
    told = Told(tmp_path)
    await told.begin()

    await told.write(KEYS.release(SERVICE, 1), b'{"number": "one"}')
    await told.tell()

    assert [1] == told.served()


async def test_route_that_became_unreadable_is_still_wanted(tmp_path: Path) -> None:
    """The gateways go on with the last one, so what it names is loaded again after a restart."""
    told = Told(tmp_path)
    await told.begin()

    await told.write(KEYS.route(SERVICE), b"nonsense")
    told.node.engine.restart()
    await told.tell()
    await told.node.settle(lambda: told.served() == [1])

    assert [told.releases[1].engine_name] == list(told.node.engine.adapters)


async def test_rollout_that_became_unreadable_has_nothing_unloaded(tmp_path: Path) -> None:
    """What it wants now nobody knows: nothing is brought for it and nothing taken away."""
    told = Told(tmp_path)
    await told.write(KEYS.rollout(SERVICE), encode(a_rollout(2)))
    await told.begin()
    await told.node.settle(lambda: told.node.phase(2) is NodePhase.READY)

    await told.write(KEYS.rollout(SERVICE), b"[]")
    await told.tell()

    assert [1, 2] == sorted(told.served())


async def test_release_that_was_deleted_is_gone(tmp_path: Path) -> None:
    """Only what cannot be read is kept: a deletion can be read."""
    told = Told(tmp_path)
    await told.begin()

    await told.store.commit(Txn((), (Delete(KEYS.release(SERVICE, 1)),)))
    await told.tell()

    assert [] == told.served()


async def test_problems_are_told_once(tmp_path: Path) -> None:
    """And again when they have changed."""
    told = Told(tmp_path)
    await told.begin()
    counts = [len(told.wishes.new_problems)]

    await told.write(KEYS.route(SERVICE), b"nonsense")
    for _ in range(2):
        await told.tell()
        counts.append(len(told.wishes.new_problems))

    assert counts == [0, 1, 0]

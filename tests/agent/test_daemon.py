"""An agent in one process: it survives its store, says why it is not ready, and ends when told."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.agent.support import SERVICE, a_rollout, make_releases
from vctl_agent.agent import Agent
from vctl_agent.daemon import causes
from vctl_agent.engines.fake import FakeEngine
from vctl_agent.kept import lock_state
from vctl_agent.settings import read_settings
from vctl_plans.codec import encode
from vctl_plans.errors import PermanentEngineError, Rejected, VctlError
from vctl_plans.keys import Keys
from vctl_plans.route import Route
from vctl_plans.store.memory import MemoryStore
from vctl_plans.store.port import Update

KEYS = Keys("dev")


class Denying(MemoryStore):
    """A client that may not watch while `is_denied`."""

    is_denied = False

    async def watch(self, prefix: str) -> AsyncIterator[Update]:
        if self.is_denied:
            raise Rejected("etcd refused: permission denied", code="PERMISSION_DENIED")
        async for update in super().watch(prefix):
            yield update
            if self.is_denied:
                raise Rejected("etcd refused: permission denied", code="PERMISSION_DENIED")


@pytest.fixture
async def store() -> AsyncIterator[Denying]:
    made = Denying()
    yield made
    await made.close()


def make_agent(folder: Path, store: MemoryStore, engine: FakeEngine | None = None) -> Agent:
    arguments = {
        "fleet": "dev", "node": "n1", "state": folder / "state", "socket": folder / "gw.sock",
        "engine-url": "http://127.0.0.1:1", "allowed-root": folder, "lease-ttl": "1s",
    }  # fmt: skip
    flags = [part for name, value in arguments.items() for part in (f"--{name}", str(value))]
    (folder / "state").mkdir(exist_ok=True)
    return Agent(read_settings(flags, {}), store, engine or FakeEngine())


@asynccontextmanager
async def running(agent: Agent) -> AsyncIterator["asyncio.Task[None]"]:
    task = asyncio.create_task(agent.run())
    try:
        yield task
    finally:
        task.cancel()
        async with asyncio.timeout(5):
            await asyncio.gather(task, return_exceptions=True)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.01)


async def test_agent_registers_and_leaves_when_it_is_told_to(
    tmp_path: Path, store: Denying
) -> None:
    """Its record is gone at once, so that nobody waits for its lease."""
    agent = make_agent(tmp_path, store)
    async with running(agent):
        await until(lambda: agent.problem().startswith("the gateway"))
        assert await store.get(KEYS.node("n1")) is not None

    assert await store.get(KEYS.node("n1")) is None


async def test_denied_watch_does_not_end_the_agent(tmp_path: Path, store: Denying) -> None:
    """A role taken away for a minute would else end every agent of a fleet at once."""
    store.is_denied = True
    agent = make_agent(tmp_path, store)
    async with running(agent) as task:
        await until(lambda: "permission denied" in agent.problem())
        store.is_denied = False
        await until(lambda: agent.problem().startswith("the gateway"))

        assert not task.done()


async def test_restored_store_moves_nothing_and_ends_nothing(
    tmp_path: Path, store: Denying
) -> None:
    """The node goes on with what it was told, and says why it follows no more."""
    agent = make_agent(tmp_path, store)
    async with running(agent) as task:
        await until(lambda: agent.problem().startswith("the gateway"))
        store.mark_restored()
        await until(lambda: agent.problem() == "the store is not the one that was known")
        await asyncio.sleep(0.05)

        assert not task.done()


async def test_candidate_that_failed_leaves_the_agent_ready(tmp_path: Path, store: Denying) -> None:
    """Else a refused release would take all nodes out of a load balancer that asks /readyz."""
    engine = FakeEngine()
    releases = make_releases(tmp_path, 2)
    for number, release in releases.items():
        await store.put(KEYS.release(SERVICE, number), encode(release))
    await store.put(KEYS.route(SERVICE), encode(Route(service=SERVICE, stable=1)))
    agent = make_agent(tmp_path, store, engine)
    async with running(agent):
        await until(lambda: bool(engine.adapters) and not agent._reconciler.unserved)
        engine.failures["load"] = PermanentEngineError("refused")
        await store.put(KEYS.rollout(SERVICE), encode(a_rollout(2)))
        await until(lambda: ("load", releases[2].engine_name) in engine.calls)
        await asyncio.sleep(0.05)
        assert not agent._reconciler.unserved

        engine.restart()
        await until(lambda: "release 1 of support is failed" in agent._reconciler.unserved)
        assert agent.problem() != ""


def test_state_directory_belongs_to_one_agent(tmp_path: Path) -> None:
    """Two would sweep each other's half copies away."""
    lock_state(tmp_path / "state")

    with pytest.raises(VctlError, match="belongs to another agent"):
        lock_state(tmp_path / "state")


def test_every_cause_of_an_end_is_named() -> None:
    """Tasks within tasks: what ended the innermost is what a person must read."""
    inner = ExceptionGroup("inner", [VctlError("the watch is denied"), OSError("disk")])

    assert ["the watch is denied", "disk", "port"] == causes(
        ExceptionGroup("outer", [inner, OSError("port")])
    )

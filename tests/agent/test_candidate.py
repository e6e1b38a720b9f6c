"""An agent that only conducts: elected, it does all of it; it leaves no other trace."""

import asyncio
import urllib.request
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from tests.agent.test_conductor import KEYS, Stage
from tests.alerting.support import until
from vctl_agent.candidate import Candidate
from vctl_agent.settings import read_conductor_settings
from vctl_plans.codec import decode
from vctl_plans.phase import RolloutPhase
from vctl_plans.store.memory import MemoryStore
from vctl_plans.summary import Summary


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    made = Stage()
    yield made
    await made.store.close()


@asynccontextmanager
async def standing(
    store: MemoryStore, name: str, *, port_file: Path | None = None
) -> AsyncIterator[Candidate]:
    arguments = ["--conductor-only", "--fleet", "dev", "--node", name, "--lease-ttl", "1s"]
    arguments += ["--admin-port-file", str(port_file)] if port_file else []
    settings = read_conductor_settings(arguments, {})
    assert settings is not None
    made = Candidate(settings, store)
    task = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        task.cancel()
        async with asyncio.timeout(5):
            await asyncio.gather(task, return_exceptions=True)


async def elected(store: MemoryStore) -> str:
    found = await store.get(KEYS.conductor)
    return found.value.decode().split()[0] if found else ""


async def until_elected(store: MemoryStore, name: str) -> None:
    async with asyncio.timeout(5):
        while await elected(store) != name:
            await asyncio.sleep(0.005)


async def phases_of_summary(store: MemoryStore) -> list[str]:
    found = await store.get(KEYS.summary)
    return [each.phase for each in decode(found.value, Summary).services] if found else []


async def test_rollout_converges_under_an_agent_without_a_node(stage: Stage) -> None:
    """And the summary tells of it; nothing is written where nodes write."""
    async with standing(stage.store.peer(), "c1"):
        await until_elected(stage.store, "c1")
        await stage.begin()
        for phase in (RolloutPhase.SHIFTING, RolloutPhase.SETTLING, RolloutPhase.CONVERGED):
            await stage.report("n1")
            await stage.report("n2")
            await stage.until(lambda now, p=phase: now is p)  # type: ignore[misc]
        async with asyncio.timeout(5):
            while await phases_of_summary(stage.store) != ["converged"]:
                await asyncio.sleep(0.01)
    records = (await stage.store.list(KEYS.nodes)).entries
    assert [KEYS.node("n1"), KEYS.node("n2")] == [entry.key for entry in records]


async def test_next_candidate_takes_over_when_one_is_told_to_end(stage: Stage) -> None:
    """At once: the office is given up, nobody waits for a lease."""
    async with AsyncExitStack() as stack:
        async with standing(stage.store.peer(), "c1"):
            await until_elected(stage.store, "c1")
            await stack.enter_async_context(standing(stage.store.peer(), "c2"))
            await asyncio.sleep(0.02)
            assert "c1" == await elected(stage.store)
        await until_elected(stage.store, "c2")


async def test_readiness_says_that_the_store_is_away(stage: Stage) -> None:
    """A candidate that waits for its turn is ready as well."""
    first, second = stage.store.peer(), stage.store.peer()
    async with standing(first, "c1") as one:
        await until_elected(stage.store, "c1")
        async with standing(second, "c2") as two:
            await until(lambda: one.problem() == "" == two.problem())
            second.disconnect()
            await until(lambda: two.problem() == "the store does not answer")
            assert "" == one.problem()
            second.reconnect()
            await until(lambda: two.problem() == "")


async def test_restored_store_is_said_and_ends_nothing(stage: Stage) -> None:
    peer = stage.store.peer()
    async with standing(peer, "c1") as one:
        await until(lambda: one.problem() == "")
        peer.mark_restored()
        await until(lambda: one.problem() == "the store is not the one that was known")


async def test_admin_listener_shows_what_a_conductor_counts(stage: Stage, tmp_path: Path) -> None:
    """And no figure of a node that there is not."""
    port_file = tmp_path / "port"
    async with standing(stage.store.peer(), "c1", port_file=port_file) as one:
        await until_elected(stage.store, "c1")
        await until(lambda: one.problem() == "")
        url = f"http://{port_file.read_text().strip()}"

        def get(path: str) -> str:
            with urllib.request.urlopen(f"{url}{path}", timeout=5) as response:
                return str(response.read(), "utf-8")

        assert "ok\n" == await asyncio.to_thread(get, "/livez")
        assert "ok\n" == await asyncio.to_thread(get, "/readyz")
        said = await asyncio.to_thread(get, "/metrics")
    assert "vctl_agent_is_conductor 1.0" in said
    assert "vctl_agent_gateway_ok" not in said

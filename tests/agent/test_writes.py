"""A node writes its report when a phase changes, and nothing when nothing does (DESIGN section 4).

A whole agent on a store in memory that counts; its gateway is a socket that acts on what it hears.
"""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from tests.agent.support import SERVICE, a_rollout, make_releases
from tests.agent.test_daemon import make_agent, running, until
from vctl_agent.engines.fake import FakeEngine
from vctl_agent.local import AgentState, GatewayState, from_line, to_line
from vctl_plans.codec import decode, encode
from vctl_plans.inspection import CollectRequest
from vctl_plans.keys import Keys
from vctl_plans.node import NodeReport
from vctl_plans.phase import NodePhase, RolloutPhase
from vctl_plans.route import Route
from vctl_plans.store.memory import MemoryStore
from vctl_plans.store.port import Put, Txn

KEYS = Keys("dev")


class Counting(MemoryStore):
    """A store that keeps every report that is written."""

    def __init__(self) -> None:
        super().__init__()
        self.reports: list[NodeReport] = []

    async def commit(self, txn: Txn) -> int:
        revision = await super().commit(txn)
        self.reports += [
            decode(operation.value, NodeReport)
            for operation in txn.operations
            if isinstance(operation, Put) and operation.key == KEYS.report("n1")
        ]
        return revision

    @property
    def last(self) -> NodeReport:
        return self.reports[-1]

    def phase(self, number: int) -> NodePhase | None:
        """Return what the last report says of a release."""
        said = self.last.release(SERVICE, number) if self.reports else None
        return said.phase if said else None


class Gateway:
    """Acts on what it is told, and on the route that the test says."""

    def __init__(self) -> None:
        self.routes: dict[str, int] = {}
        self._told = AgentState(boot_id="", engine_url="")
        self._writers: set[asyncio.StreamWriter] = set()

    @asynccontextmanager
    async def listening(self, socket: Path) -> AsyncIterator[None]:
        server = await asyncio.start_unix_server(self._hear, path=str(socket))
        try:
            yield
        finally:
            server.close()
            for writer in self._writers:
                writer.close()

    async def _hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        while line := await reader.readline():
            told = from_line(line)
            assert isinstance(told, AgentState)
            self._told = told
            self.say()

    def say(self) -> None:
        """Tell the agent what is acted on."""
        state = GatewayState(boot_id="g", routes=self.routes, accepted=self._told.ready)
        for writer in self._writers:
            with contextlib.suppress(ConnectionError):
                writer.write(to_line(state))

    async def act_on(self, store: MemoryStore, route: Route) -> None:
        """Write a route, and act on it."""
        self.routes = {SERVICE: await store.put(KEYS.route(SERVICE), encode(route))}
        self.say()


@pytest.fixture
async def store() -> AsyncIterator[Counting]:
    made = Counting()
    yield made
    await made.close()


def news(before: NodeReport, after: NodeReport) -> set[str]:
    """Return what a report says that the one before it did not, of what is worth a write."""
    kinds = {
        "phase": lambda r: {(s.service, s.number, s.phase) for s in r.releases},
        "attempt": lambda r: {s.attempt for s in r.releases},
        "route": lambda r: r.routes,
        "gateway": lambda r: r.gateway_ok,
        "engine": lambda r: (r.incarnation, r.cache_epoch, r.problem, r.base),
        "answer": lambda r: (r.checks, r.hashed, r.collected),
    }
    return {kind for kind, of in kinds.items() if of(before) != of(after)}


async def test_rollout_costs_a_node_one_write_a_phase(tmp_path: Path, store: Counting) -> None:
    """From the fetch to the unload; and then, nothing."""
    releases = make_releases(tmp_path, 2)
    for number, release in releases.items():
        await store.put(KEYS.release(SERVICE, number), encode(release))
    gateway, engine = Gateway(), FakeEngine()
    engine.free_memory = 0.5
    route = Route(service=SERVICE, stable=1, good=(1,))
    async with gateway.listening(tmp_path / "gw.sock"):
        await gateway.act_on(store, route)
        async with running(make_agent(tmp_path, store, engine)):
            await until(lambda: store.phase(1) is NodePhase.READY and store.last.gateway_ok)
            await _quiet(store)
            begun = len(store.reports) - 1

            async def decide(phase: RolloutPhase, **more: object) -> None:
                await store.put(KEYS.rollout(SERVICE), encode(a_rollout(2, phase=phase, **more)))

            await decide(RolloutPhase.PREPARING)
            await until(lambda: store.phase(2) is NodePhase.READY and store.last.gateway_ok)
            await decide(RolloutPhase.SHIFTING)
            await gateway.act_on(store, msgspec.structs.replace(route, candidate=2, weight=50.0))
            await until(lambda: store.last.routes == gateway.routes)
            await decide(RolloutPhase.SETTLING)
            await gateway.act_on(store, Route(service=SERVICE, stable=2, good=(1, 2)))
            await until(lambda: store.last.routes == gateway.routes)
            await decide(RolloutPhase.SETTLING, unload=(1,))
            await until(lambda: store.phase(1) is None)
            await decide(RolloutPhase.CONVERGED, unload=(1,))
            await until(lambda: store.last.gateway_ok)
            await _quiet(store)
            written = store.reports[begun:]
            engine.free_memory = 0.495  # as it always moves a little
            await _quiet(store)

    assert len(written) == len(store.reports[begun:]), "nothing changed, and nothing was written"
    pairs = list(itertools.pairwise(written))
    assert [] == [(before, after) for before, after in pairs if not news(before, after)]
    phases = {(s.number, s.phase) for report in written for s in report.releases}
    gone, routes, confirmed = 1, 2, 2  # release 1; each route write; each change of what is ready
    assert len(pairs) <= len(phases) - 1 + gone + routes + confirmed


async def test_cache_epoch_costs_a_node_no_write_of_its_own(
    tmp_path: Path, store: Counting
) -> None:
    """It stands in the report of a restart; a flush is one, and the probes after it are none."""
    gateway, engine = Gateway(), FakeEngine()
    await store.put(KEYS.release(SERVICE, 1), encode(make_releases(tmp_path, 1)[1]))
    async with gateway.listening(tmp_path / "gw.sock"):
        await gateway.act_on(store, Route(service=SERVICE, stable=1, good=(1,)))
        agent = make_agent(tmp_path, store, engine)
        async with running(agent):
            await until(lambda: store.phase(1) is NodePhase.READY and store.last.gateway_ok)
            await _quiet(store)
            begun = len(store.reports)
            engine.calls.clear()
            await agent._counted.flush()
            await until(lambda: store.last.cache_epoch == 2)
            await until(lambda: any(method == "answer" for method, _ in engine.calls))
            await _quiet(store)
            flushed = len(store.reports)
            engine.restart()
            await until(lambda: store.last.incarnation == engine.incarnation)
            await until(lambda: store.phase(1) is NodePhase.READY and store.last.gateway_ok)
            await _quiet(store)

    assert begun + 1 == flushed
    epochs = {(report.incarnation, report.cache_epoch) for report in store.reports}
    assert {("fake-1", 1), ("fake-1", 2), ("fake-2", 3)} == epochs - {("", 0)}


async def test_request_costs_a_node_one_write_and_its_end_another(
    tmp_path: Path, store: Counting
) -> None:
    """However much is told in the answer."""
    gateway = Gateway()
    await store.put(KEYS.release(SERVICE, 1), encode(make_releases(tmp_path, 1)[1]))
    async with gateway.listening(tmp_path / "gw.sock"):
        await gateway.act_on(store, Route(service=SERVICE, stable=1, good=(1,)))
        async with running(make_agent(tmp_path, store)):
            await until(lambda: store.phase(1) is NodePhase.READY and store.last.gateway_ok)
            await _quiet(store)
            begun = len(store.reports)
            lease = await store.grant(30)
            request = encode(CollectRequest(id="q1", is_dry=True))
            await store.put(KEYS.request("q1"), request, lease_id=lease.id)
            await until(lambda: [a.request for a in store.last.collected] == ["q1"])
            await lease.revoke()
            await until(lambda: not store.last.collected)
            await _quiet(store)

    assert begun + 2 == len(store.reports)


async def _quiet(store: Counting) -> None:
    """Wait until no report has been written for some rounds of the agent's own looks."""
    async with asyncio.timeout(20):
        while True:
            before = len(store.reports)
            for _ in range(30):
                await asyncio.sleep(0.04)
            if before == len(store.reports):
                return

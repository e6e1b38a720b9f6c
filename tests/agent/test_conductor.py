"""A conductor looks, decides and writes; of any number of conductors one's writes count."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import msgspec
import pytest

from tests.agent.support import SERVICE
from vctl_agent import election
from vctl_agent.conductor import Conductor
from vctl_agent.crashpoints import Crashpoints
from vctl_agent.queries import Source
from vctl_plans import operate, steering
from vctl_plans.codec import decode, encode
from vctl_plans.errors import Rejected
from vctl_plans.events import PauseAsked, ResumeAsked
from vctl_plans.keys import Keys
from vctl_plans.node import NodeRecord, NodeReport, ReleaseReport
from vctl_plans.phase import Component, NodePhase, RolloutPhase
from vctl_plans.plan import Plan, PlanStep
from vctl_plans.release import Artifact
from vctl_plans.rollout import Entry, Progress, Rollout, elapsed_s
from vctl_plans.seen import Seen, Traffic
from vctl_plans.snapshot import Service, read_services
from vctl_plans.store.commit import begin_txn, continue_txn
from vctl_plans.store.memory import MemoryStore
from vctl_plans.store.port import Put, Txn, Update

KEYS = Keys("dev")
ROOT = "b3:" + "1" * 64


class Stage:
    """A store, one rollout in it, and nodes that do what they are asked at once."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.now = 0.0
        self.fence = 0

    async def elect(self) -> None:
        self.fence = await self.store.commit(Txn((), (Put(KEYS.conductor, b"c"),)))

    async def begin(self, *, nodes: tuple[str, ...] = ("n1", "n2"), soak_s: float = 0) -> Rollout:
        for node in nodes:
            await self.store.put(
                KEYS.node(node), encode(NodeRecord(node=node, boot_id=f"b-{node}"))
            )
        return await self._start(Service(name=SERVICE), nodes, soak_s, "r1")

    async def begin_again(self, *, nodes: tuple[str, ...] = ("n1", "n2")) -> Rollout:
        """Start the same release with the same nodes, after the first rollout ended."""
        return await self._start(await self.service(), nodes, 0, "r2")

    async def _start(
        self, service: Service, nodes: tuple[str, ...], soak_s: float, request: str
    ) -> Rollout:
        begun = operate.start(
            service,
            Plan(
                service=SERVICE,
                strategy="full-switch",
                steps=(PlanStep(soak_s=soak_s),),
                prepare_s=10,
            ),
            wish={Component.ADAPTER: Artifact(root=ROOT, source="file:///v1")}
            if not service.releases
            else 1,
            roster=nodes,
            request=operate.Request(id=request),
        )
        assert isinstance(begun, operate.Begin)
        await self.store.commit(begin_txn(KEYS, service, begun))
        return begun.rollout

    async def service(self) -> Service:
        entries = (await self.store.list(KEYS.services)).entries
        return read_services(KEYS, entries).services[SERVICE]

    async def phase(self) -> RolloutPhase:
        rollout = (await self.service()).rollout
        assert rollout is not None
        return rollout.phase

    async def report(
        self, node: str, *, boot_id: str = "", attempt: str = "r1", refusal: str = ""
    ) -> None:
        """Have *node* say that it holds release 1 ready and acts on the newest route."""
        release = ReleaseReport(
            service=SERVICE,
            number=1,
            digest="d",
            phase=NodePhase.FAILED if refusal else NodePhase.READY,
            attempt=attempt,
            reason=refusal,
            is_permanent=bool(refusal),
        )
        report = NodeReport(
            node=node,
            boot_id=boot_id or f"b-{node}",
            incarnation="i",
            releases=(release,),
            routes={SERVICE: (await self.service()).route_revision},
            gateway_ok=True,
        )
        await self.store.put(KEYS.report(node), encode(report))

    def conductor(
        self, store: MemoryStore | None = None, *, source: Source | None = None
    ) -> Conductor:
        return Conductor(
            store or self.store,
            KEYS,
            fence=self.fence,
            crashpoints=Crashpoints(),
            clock=lambda: self.now,
            source=source,
        )

    async def until(self, holds: Callable[[RolloutPhase], bool]) -> None:
        async with asyncio.timeout(5):
            while not holds(await self.phase()):
                await asyncio.sleep(0.005)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    made = Stage()
    await made.elect()
    yield made
    await made.store.close()


@contextlib.asynccontextmanager
async def running(conductor: Conductor) -> AsyncIterator[None]:
    task = asyncio.create_task(conductor.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_rollout_converges_when_the_nodes_do_their_part(stage: Stage) -> None:
    """Every decision stands in the history, without a hole."""
    await stage.begin()
    async with running(stage.conductor()):
        for phase in (RolloutPhase.SHIFTING, RolloutPhase.SETTLING, RolloutPhase.CONVERGED):
            await stage.report("n1")
            await stage.report("n2")
            await stage.until(lambda now, p=phase: now is p)  # type: ignore[misc]

    listing = await stage.store.list(KEYS.rollout_history(SERVICE, "r1"))
    entries = [decode(e.value, Entry) for e in listing.entries]
    assert [entry.seq for entry in entries] == [0, 1, 2, 3]
    assert entries[-1].sentence == "converged (2/2) on release 1"


async def test_history_says_what_was_seen_with_each_decision(stage: Stage) -> None:
    """When each node had followed, who holds what, and how traffic is split; of elapsed times."""
    await stage.begin()
    async with running(stage.conductor()):
        await asyncio.sleep(0.05)  # it has seen the phase begin
        for node, at in (("n1", 2.0), ("n2", 5.0)):
            stage.now = at
            await stage.report(node)
            await asyncio.sleep(0.05)
        await stage.until(lambda now: now is RolloutPhase.SHIFTING)

    listing = await stage.store.list(KEYS.rollout_history(SERVICE, "r1"))
    begun, ready = [decode(e.value, Entry).seen for e in listing.entries][:2]
    assert Seen() == begun
    assert ready is not None
    assert (5.0, {"n1": 2.0, "n2": 5.0}) == (ready.took_s, ready.arrivals)
    assert ((2.0, 1), (5.0, 2)) == ready.curve
    assert {"1": 2} == ready.holding
    assert Traffic(stable=1) == ready.traffic


async def test_report_of_an_agent_that_died_does_not_count(stage: Stage) -> None:
    """A report whose boot id is not the record's is a dead agent's last word."""
    await stage.begin(nodes=("n1",))
    await stage.report("n1", boot_id="before")
    async with running(stage.conductor()):
        await asyncio.sleep(0.05)

        assert await stage.phase() is RolloutPhase.PREPARING


async def test_conductor_whose_term_ended_writes_nothing(stage: Stage) -> None:
    """Whatever it believes: the election key was made anew, and its fence is old."""
    await stage.begin(nodes=("n1",))
    await stage.store.commit(Txn((), (Put(KEYS.conductor, b"other"),)))  # same key, still its fence
    await stage.report("n1")
    old = stage.conductor()
    await stage.store.commit(Txn((), ()))
    await _replace_conductor(stage)
    async with running(old):
        await asyncio.sleep(0.05)

        assert await stage.phase() is RolloutPhase.PREPARING


async def _replace_conductor(stage: Stage) -> None:
    from vctl_plans.store.port import Delete

    await stage.store.commit(Txn((), (Delete(KEYS.conductor),)))
    await stage.elect()


async def test_new_conductor_goes_on_with_the_time_that_had_passed(stage: Stage) -> None:
    """The prepare deadline is not begun anew with every conductor."""
    await stage.begin(nodes=("n1",))
    async with running(stage.conductor()):
        await asyncio.sleep(0.02)
        stage.now = 6.0
        await stage.store.put(KEYS.report("nobody"), b"{}")  # anything that wakes it
        await _until_elapsed(stage, 6.0)

    stage.now = 1000.0  # another machine's clock
    async with running(stage.conductor()):
        await asyncio.sleep(0.02)
        assert await stage.phase() is RolloutPhase.PREPARING
        stage.now = 1004.5
        await stage.store.put(KEYS.report("nobody"), b"{ }")
        await stage.until(lambda now: now is RolloutPhase.FAILED)


async def test_new_conductor_goes_on_with_a_soak(stage: Stage) -> None:
    """It neither skips what is left of it nor begins it anew, whatever its own clock says."""
    await stage.begin(nodes=("n1",), soak_s=20)
    async with running(stage.conductor()):
        await _until_soaking(stage)
        stage.now = 12.0
        await stage.store.put(KEYS.report("nobody"), b"{}")
        await _until_elapsed(stage, 12.0)

    stage.now = 5000.0
    async with running(stage.conductor()):
        await asyncio.sleep(0.02)
        stage.now = 5007.9
        await stage.store.put(KEYS.report("nobody"), b"{ }")
        await asyncio.sleep(0.05)
        assert await stage.phase() is RolloutPhase.SOAKING
        stage.now = 5008.1
        await stage.store.put(KEYS.report("nobody"), b"{}")
        await stage.until(lambda now: now is RolloutPhase.SETTLING)


async def test_paused_soak_is_gone_on_with(stage: Stage) -> None:
    """What had passed by the last checkpoint counts after the resume."""
    await stage.begin(nodes=("n1",), soak_s=20)
    async with running(stage.conductor()):
        await _until_soaking(stage)
        stage.now = 12.0
        await stage.store.put(KEYS.report("nobody"), b"{}")
        await _until_elapsed(stage, 12.0)
        await _steer(stage, PauseAsked())
        stage.now = 3000.0
        await _steer(stage, ResumeAsked())
        await asyncio.sleep(0.05)
        stage.now = 3007.9
        await stage.store.put(KEYS.report("nobody"), b"{ }")
        await asyncio.sleep(0.05)
        assert await stage.phase() is RolloutPhase.SOAKING
        stage.now = 3008.1
        await stage.store.put(KEYS.report("nobody"), b"{}")
        await stage.until(lambda now: now is RolloutPhase.SETTLING)


async def _until_soaking(stage: Stage) -> None:
    for phase in (RolloutPhase.SHIFTING, RolloutPhase.SOAKING):
        await stage.report("n1")
        await stage.until(lambda now, p=phase: now is p)  # type: ignore[misc]


async def _steer(stage: Stage, event: PauseAsked | ResumeAsked) -> None:
    """Do what the command does: it knows of the time only what was checkpointed."""
    service = await stage.service()
    assert service.rollout is not None
    found = await stage.store.get(KEYS.progress(SERVICE))
    passed_s = elapsed_s(decode(found.value, Progress) if found else None, service.rollout)
    turn = steering.steer(service, event, elapsed_s=passed_s)
    await stage.store.commit(continue_txn(KEYS, service, turn))


async def _until_elapsed(stage: Stage, elapsed_s: float) -> None:
    async with asyncio.timeout(5):
        while True:
            found = await stage.store.get(KEYS.progress(SERVICE))
            if found and decode(found.value, Progress).elapsed_s >= elapsed_s:
                return
            await asyncio.sleep(0.005)


async def test_lost_reply_is_settled_by_reading(stage: Stage) -> None:
    """A decision whose reply was lost is neither repeated nor given up."""
    await stage.begin(nodes=("n1",))
    conductor_store = stage.store.peer()
    async with running(stage.conductor(conductor_store)):
        await asyncio.sleep(0.02)
        conductor_store.lose_reply()
        await stage.report("n1")
        await stage.until(lambda now: now is RolloutPhase.SHIFTING)

    listing = await stage.store.list(KEYS.rollout_history(SERVICE, "r1"))
    assert [decode(e.value, Entry).seq for e in listing.entries] == [0, 1]


async def test_rollout_of_a_newer_schema_is_left_alone(stage: Stage) -> None:
    """An older conductor never takes over what it cannot read whole."""
    rollout = await stage.begin(nodes=("n1",))
    newer = msgspec.structs.replace(rollout, v=99)
    await stage.store.put(KEYS.rollout(SERVICE), encode(newer))
    await stage.report("n1")
    async with running(stage.conductor()):
        await asyncio.sleep(0.05)

        assert await stage.phase() is RolloutPhase.PREPARING


async def test_paused_rollout_writes_nothing(stage: Stage) -> None:
    """It waits for a person, perhaps for days, and no deadline runs."""
    rollout = await stage.begin(nodes=("n1",))
    paused = msgspec.structs.replace(rollout, phase=RolloutPhase.PAUSED, resume_phase="shifting")
    await stage.store.put(KEYS.rollout(SERVICE), encode(paused))
    before = stage.store.revision
    async with running(stage.conductor()):
        await asyncio.sleep(0.05)

        assert before == stage.store.revision


class Deaf(MemoryStore):
    """A client whose watch of the reports breaks once it has listed them."""

    async def watch(self, prefix: str) -> AsyncIterator[Update]:
        async for update in super().watch(prefix):
            yield update
            if prefix == KEYS.reports:
                yield msgspec.structs.replace(update, is_live=False)
                await asyncio.Event().wait()


async def test_conductor_that_does_not_hear_the_nodes_decides_nothing(stage: Stage) -> None:
    """Not even that they are late: it is the conductor's own ear that is at fault."""
    await stage.begin(nodes=("n1",))
    deaf = Deaf(cluster=stage.store._cluster)
    async with running(stage.conductor(deaf)):
        await asyncio.sleep(0.05)
        stage.now = 1000.0
        await stage.store.put(KEYS.node("n2"), b"{}")  # wakes it
        await asyncio.sleep(0.05)

        assert await stage.phase() is RolloutPhase.PREPARING


async def test_documents_of_ended_rollouts_are_let_go(stage: Stage) -> None:
    """A term may last for months, a roster may have ten thousand names."""
    await stage.begin()
    conductor = stage.conductor()
    async with running(conductor):
        for phase in (RolloutPhase.SHIFTING, RolloutPhase.SETTLING, RolloutPhase.CONVERGED):
            await stage.report("n1")
            await stage.report("n2")
            await stage.until(lambda now, p=phase: now is p)  # type: ignore[misc]
        await stage.store.put(KEYS.node("n3"), b"{}")
        await asyncio.sleep(0.02)

    assert {} == conductor._documents


async def test_conductor_that_cannot_conduct_does_not_write_without_pause() -> None:
    """Elected, and denied what it must read: each term would cost etcd three writes."""
    store = MemoryStore()
    terms: list[int] = []

    async def denied(fence: int) -> None:
        terms.append(fence)
        raise Rejected("denied", code="PERMISSION_DENIED")

    task = asyncio.create_task(election.stand(store, KEYS, candidate="a", ttl_s=5, conduct=denied))
    await asyncio.sleep(0.5)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await store.close()

    assert len(terms) == 1


async def test_one_candidate_of_many_is_elected_and_the_next_follows() -> None:
    """Terms do not overlap, and a lost lease ends one."""
    store = MemoryStore()
    terms: list[tuple[str, str]] = []

    def conduct(name: str) -> election.Conduct:
        async def term(fence: int) -> None:
            assert fence
            terms.append((name, "begins"))
            try:
                await asyncio.Event().wait()
            finally:
                terms.append((name, "ends"))

        return term

    tasks = [
        asyncio.create_task(
            election.stand(store.peer(), KEYS, candidate=name, ttl_s=5, conduct=conduct(name))
        )
        for name in ("a", "b", "c")
    ]
    try:
        for count in (1, 3, 5):
            await _until_len(terms, count)
            held = await store.get(KEYS.conductor)
            assert held is not None
            assert count == len(terms)
            name = held.value.decode()
            task = tasks["abc".index(name)]
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await store.close()

    assert [what for _, what in terms] == ["begins", "ends"] * 3
    assert len({name for name, _ in terms}) == 3


async def _until_len(items: list[tuple[str, str]], count: int) -> None:
    async with asyncio.timeout(5):
        while len(items) < count:
            await asyncio.sleep(0.005)

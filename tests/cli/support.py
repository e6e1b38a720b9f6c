"""A `vctl` in this process: its world is made of strings and a store in memory."""

import asyncio
import io
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.util import find_spec

import msgspec

from tests.builders import NODES, SERVICE, a_report, a_rollout, a_route, some_releases
from vctl_cli.app import run
from vctl_cli.world import World
from vctl_plans.capability import Capability, EngineFacts
from vctl_plans.codec import decode, encode
from vctl_plans.errors import StoreError
from vctl_plans.etcdhealth import EtcdMember
from vctl_plans.keys import Keys
from vctl_plans.node import NodeRecord, NodeReport
from vctl_plans.operate import Continue
from vctl_plans.phase import NodePhase, RolloutPhase
from vctl_plans.rollout import Rollout, Roster, ServiceSpec, advanced
from vctl_plans.route import Route
from vctl_plans.snapshot import Service, read_services
from vctl_plans.store.commit import continue_txn
from vctl_plans.store.memory import MemoryStore
from vctl_plans.store.port import KeyValue, Listing, Put, Txn

FLEET = "test"
KEYS = Keys(FLEET)
HAS_JSONSCHEMA = find_spec("jsonschema") is not None
"""Whether all that is printed as JSON is held to its schema; `test_schemas` must have it."""
NOON = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)

Scene = tuple[RolloutPhase, str, Mapping[str, object]]
Conduct = Callable[[MemoryStore], Awaitable[None]]


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@dataclass
class Said:
    """What a command came to."""

    code: int
    out: str
    err: str


class MemoryReader:
    """The synchronous reader over a store in memory."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def get(self, key: str) -> KeyValue | None:
        return asyncio.run(self._store.get(key))

    def list(self, prefix: str) -> Listing:
        return asyncio.run(self._store.list(prefix))

    def names(self, prefix: str, *, most: int) -> tuple[str, ...]:
        return tuple(entry.key for entry in self.list(prefix).entries[:most])

    def status(self, now: Callable[[], float]) -> EtcdMember:
        return EtcdMember(endpoint="memory", version="3.6.14", has_leader=True)

    def close(self) -> None:
        pass


@dataclass
class Vctl:
    """Runs commands against one store."""

    store: MemoryStore = field(default_factory=MemoryStore)
    conduct: Conduct | None = None  # runs beside each command, as a conductor would
    env: Mapping[str, str] = field(default_factory=dict)
    stdin: str = ""
    failure: StoreError | None = None  # what every opened store answers first
    out: io.StringIO = field(default_factory=io.StringIO)
    opened: MemoryStore = field(init=False)  # what the last command used

    def __call__(self, *arguments: str) -> Said:
        self.out = type(self.out)()
        err = io.StringIO()
        world = World(
            env={"VCTL_FLEET": FLEET, "VCTL_SERVICE": SERVICE, "USER": "ann", **self.env},
            out=self.out,
            err=err,
            stdin=io.StringIO(self.stdin),
            now=lambda: NOON,
            open_store=lambda _: self._open(),
            open_reader=lambda _: MemoryReader(self._peer()),
        )
        code = run(arguments, world)
        if HAS_JSONSCHEMA:
            from tests.cli import published

            if published.asks_for_json(arguments):
                published.check(self.out.getvalue())
        return Said(code, self.out.getvalue(), err.getvalue())

    def _peer(self) -> MemoryStore:
        peer = self.store.peer()
        if self.failure:
            peer.fail_next(self.failure)
        return peer

    def _open(self) -> MemoryStore:
        if self.conduct:
            self._conducting = asyncio.ensure_future(self.conduct(self.store.peer()))
        self.opened = self._peer()
        return self.opened

    def put(self, key: str, value: msgspec.Struct) -> None:
        put = Txn(operations=(Put(key, encode(value)),))
        asyncio.run(self.store.commit(put))

    def service(self) -> Service:
        entries = asyncio.run(self.store.list(KEYS.services)).entries
        return read_services(KEYS, entries).services[SERVICE]


def a_fleet(
    *, releases: int = 1, route: Route | None = None, rollout: Rollout | None = None, nodes: int = 3
) -> Vctl:
    """Return a `vctl` on a fleet where release 1 serves on all nodes."""
    vctl = Vctl()
    vctl.put(KEYS.spec(SERVICE), ServiceSpec(service=SERVICE))
    for number, release in some_releases(releases).items():
        vctl.put(KEYS.release(SERVICE, number), release)
    vctl.put(KEYS.route(SERVICE), route or a_route())
    if rollout:
        vctl.put(KEYS.rollout(SERVICE), rollout)
        vctl.put(KEYS.roster(rollout.roster), Roster(nodes=NODES))
    for node in NODES[:nodes]:
        vctl.put(KEYS.node(node), a_record(node))
        vctl.put(KEYS.report(node), a_report(node, route_revision=99, r1=NodePhase.READY))
    return vctl


def a_record(node: str, *capabilities: Capability) -> NodeRecord:
    """Return the record of a node whose engine can do all that one can, unless told otherwise."""
    facts = EngineFacts(kind="torch", capabilities=capabilities or tuple(Capability))
    return NodeRecord(node=node, boot_id=f"boot-{node}", engine="torch", facts=facts)


def conductor(
    *scenes: Scene, reports: Sequence[NodeReport] = (), begins: RolloutPhase | None = None
) -> Conduct:
    """Return one that leads each rollout that prepares or goes back through *scenes*.

    With *begins* it is one that was promoted in that phase.
    """

    async def conduct(store: MemoryStore) -> None:
        async for update in store.watch(KEYS.rollout(SERVICE)):
            entry = update.entries.get(KEYS.rollout(SERVICE))
            rollout = decode(entry.value, Rollout) if entry else None
            if rollout and begins and rollout.phase is begins and rollout.promoted:
                break
            if rollout and rollout.phase in {RolloutPhase.PREPARING, RolloutPhase.ROLLING_BACK}:
                break
        for report in reports:
            await store.put(KEYS.report(report.node), encode(report))
        for phase, sentence, changes in scenes:
            await write_decision(store, phase, sentence, **changes)

    return conduct


async def write_decision(
    store: MemoryStore, phase: RolloutPhase, sentence: str, **changes: object
) -> None:
    """Write the next decision of the service's rollout, as a conductor does."""
    entries = (await store.list(KEYS.services)).entries
    service = read_services(KEYS, entries).services[SERVICE]
    assert service.rollout is not None
    after = advanced(service.rollout, phase, sentence, **changes)
    await store.commit(continue_txn(KEYS, service, Continue(service.rollout, after, None)))


CONVERGES: tuple[Scene, ...] = (
    (RolloutPhase.SHIFTING, "release 2 is ready on 3 of 3 nodes: traffic moves to it", {}),
    (RolloutPhase.CONVERGED, "converged (3/3) on release 2", {"confirmed": 3}),
)


def running(phase: RolloutPhase = RolloutPhase.SHIFTING, **more: object) -> Rollout:
    """Return a rollout that runs, from release 1 to release 2."""
    return a_rollout(phase, has_moved=True, **more)

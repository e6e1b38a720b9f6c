"""A simulated gateway's process: the real `Live` and references, with the world around them.

As the program wires it: the store is watched; what is acknowledged to the agent follows the disk;
a request takes its reference first and checks after. A gateway that is cut off serves on.
"""

from collections.abc import Callable
from random import Random
from typing import Any, Protocol

from tests.builders import SERVICE
from tests.sim.client import Client
from tests.sim.disk import Disk
from tests.sim.engine import Engine
from tests.sim.facts import Acked, Answered, HandedOver, LostContact
from tests.sim.kernel import Process
from tests.sim.network import Network
from tests.sim.store import Etcd, State
from tests.sim.traffic import Traffic
from vctl_agent.gateway.answers import Refused
from vctl_agent.gateway.barrier import Barrier
from vctl_agent.gateway.groups import GroupsReader
from vctl_agent.gateway.inflight import References
from vctl_agent.gateway.live import Acted, Live
from vctl_agent.gateway.persist import restored, saved
from vctl_agent.gateway.state import RouteAt
from vctl_agent.local import AgentState, GatewayState, GatewayStatistics
from vctl_plans.errors import RestoredBackup
from vctl_plans.routing import Asked, Choice, choose

FLEET = "sim"
_SAVE_S, _SLOW_SAVE_S = 0.02, 1.0
_COALESCE_S = 0.01


class Session(Protocol):
    """Whose requests they are."""

    name: str
    key: str
    user: str
    tenant: str


class Gateway:
    """One node's gateway.

    Args:
        name: The node's.
        process: Where it runs.
        network: Its ways to etcd and to its agent.
        etcd: The store.
        engine: The node's engine.
        disk: The node's disk.
        tell: Told each fact that the checks are to see.
        count: Told what became of a request that had to wait.
        bad: Releases whose answers fail more often than not.
    """

    def __init__(
        self,
        name: str,
        process: Process,
        network: Network,
        *,
        etcd: Etcd,
        engine: Engine,
        disk: Disk,
        tell: Callable[[Any], None],
        count: Callable[[str], None],
        bad: set[int],
    ) -> None:
        self.name = name
        self.process = process
        self.network = network
        self._etcd = etcd
        self._engine = engine
        self._disk = disk
        self._tell = tell
        self._count = count
        self._bad = bad
        self._random: Random = network.random
        self.starts = 0
        self.is_cut = False
        self.to_agent: Callable[[GatewayState | None], None] = lambda _: None
        self.tell_statistics: Callable[[GatewayStatistics], None] = lambda _: None
        self.client: Client | None = None
        self.live: Live
        self.references: References
        self._requests: set[int] = set()
        self._numbers = 0  # of requests
        self._is_saving = self._is_ringing = self._is_reading = False
        process.on_death = self._drop

    @property
    def is_running(self) -> bool:
        """Whether it takes requests."""
        return self.process.is_running

    def start(self) -> None:
        """Start: what is on disk serves first, and etcd comes last."""
        self.process.start()
        self.starts += 1
        self._sent: GatewayState | None = None
        self._is_saving = self._is_ringing = self._is_reading = False
        kept = self._disk.saved
        self.live = Live(
            restored(kept) if kept else Acted(),
            prefix=self._etcd.keys.services,
            clock=self.process.clock,
            engine_url="http://engine",
        )
        self.references = References(self.ring)
        self.barrier = Barrier(self.live, clock=self.process.clock)
        self._traffic = Traffic(self, self._random, self._bad)
        self.live.bells += [self._save_soon, self.ring]
        client = self.client = Client(self._etcd, self.process, self.network)
        client.is_cut = self.is_cut
        self.process.on_pause = self.process.on_resume = client.feel
        if kept and kept.cluster_id not in {0, self._etcd.cluster_id}:
            client.cluster_id = kept.cluster_id
            self.live.suspend("the store is not the one that was known")
        else:
            client.follow(self._etcd.keys.services, self._learn)
        self.ring()

    def _drop(self) -> None:
        """Be gone: requests with it, and the agent hears so."""
        for number in self._requests:
            self._engine.drop(number)
        self._requests.clear()
        if self.client:
            self.client.drop()
            self.client = None
        self.to_agent(None)

    def cut(self, *, is_cut: bool) -> None:
        """Cut it off from etcd, or connect it again."""
        self.is_cut = is_cut
        if self.client:
            self.client.is_cut = is_cut
            self.client.feel()

    def _read_groups(self) -> None:
        """Read groups from the first time on that some are missing: until then there is no need."""
        if self.client and not self._is_reading and self.live.acted.known.missing():
            self._is_reading = True
            reader = GroupsReader(self.live, self.client, self._etcd.keys)
            self.process.spawn(reader.run())

    def _learn(self, state: State) -> None:
        before = self.live.acted
        if self.live.suspended:
            return
        client = self.client
        assert client
        if client.is_foreign:
            self.live.suspend("the store is not the one that was known")
        else:
            try:
                self.live.learn(state.update, cluster_id=client.cluster_id)
            except RestoredBackup as cause:
                self.live.suspend(cause.message)
        self._read_groups()
        if not state.update.is_live or self.live.suspended:
            self._tell(LostContact(self, before))

    # -- the disk, and the agent ---------------------------------------------------------------

    def _save_soon(self) -> None:
        if not self._is_saving and self.live.acknowledged is not self.live.acted:
            self._is_saving = True
            is_slow = self._random.random() < 0.1
            takes_s = _SLOW_SAVE_S if is_slow else _SAVE_S
            self.process.after(self._random.random() * takes_s, self._save)

    def _save(self) -> None:
        """Write what is acted on; whoever is told that it is acted on is told after this."""
        self._is_saving = False
        acted = self.live.acted
        self._disk.saved = saved(acted, FLEET)
        if self.live.acknowledged is not acted:
            self.live.acknowledge(acted)

    def greet(self) -> None:
        """Tell the agent, which has just connected."""
        self._sent = None
        self.ring()

    def ring(self) -> None:
        """Have the agent told soon."""
        if not self._is_ringing:
            self._is_ringing = True
            self.process.after(_COALESCE_S, self._send)

    def _send(self) -> None:
        self._is_ringing = False
        acted = self.live.acknowledged
        state = GatewayState(
            boot_id=f"{self.name}-gateway-{self.starts}",
            routes=acted.known.route_revisions(),
            in_flight=self.references.listing(),
            is_connected=self.live.is_connected,
            accepted=acted.agent.ready if acted.agent else (),
        )
        if state != self._sent:  # a heartbeat would say nothing new
            self._sent = state
            self._tell(Acked(self, state.routes.get(SERVICE, 0)))
            self.to_agent(state)

    def hear(self, state: AgentState) -> None:
        """Take the agent's word."""
        self.live.accept(state)
        self._traffic.watch(state)

    # -- requests ------------------------------------------------------------------------------

    def serve(self, session: Session, *, release: int, takes_s: float) -> str:
        """Serve one request of a session; return what became of it so far."""
        at = self.live.acted.known.routes.get(SERVICE)
        if at is None:
            return "no route"
        try:
            if not self.barrier.admits(at):
                self.process.spawn(self._held(session, release, takes_s))
                return "held"
        except Refused as refused:
            return refused.code
        return self._serve(at, session, release, takes_s)

    async def _held(self, session: Session, release: int, takes_s: float) -> None:
        try:
            at = await self.barrier.wait(SERVICE)
        except Refused as refused:
            self._count(refused.code)
            return
        self._count("served after a hold" if at else "no route")
        if at:
            self._serve(at, session, release, takes_s)

    def _serve(self, at: RouteAt, session: Session, release: int, takes_s: float) -> str:
        number = self._numbers = self._numbers + 1
        asked = Asked(
            session.key,
            release,
            request=f"request:{number}",
            user=session.user,
            tenant=session.tenant,
        )
        choice = choose(at.route, asked, self.live.acted.known.groups)
        if not isinstance(choice, Choice):
            return f"refused {choice.status}"
        reference = self.references.hold((SERVICE, choice.release))
        reference.__enter__()
        target = self.live.targets.get((SERVICE, choice.release))

        def told(is_answered: bool) -> None:
            """Give the reference back, however it ended."""
            if number in self._requests:
                self._requests.discard(number)
                reference.__exit__(None, None, None)

        if target is None:
            reference.__exit__(None, None, None)
            return "not ready"
        self._tell(HandedOver(self, choice.release, target, at, session, release))
        self._requests.add(number)
        path = self._engine.take(number, target.model, told)
        if path is None:
            told(False)
            return "engine away"
        answered = Answered(self, session, choice.release, at, target, path, release)
        self.process.after(takes_s, self._answer, number, answered)
        return "served"

    def _answer(self, number: int, answered: Answered) -> None:
        if number in self._requests:
            _, told = self._engine.asked[number]
            self._engine.drop(number)
            told(True)
            self._tell(answered)

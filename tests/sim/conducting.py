"""A candidate for conductor: the real election and the real conductor, in a process of its own."""

from collections.abc import Callable
from typing import Any

import msgspec

from tests.sim.client import Client
from tests.sim.kernel import Kernel, Process
from tests.sim.network import Network
from tests.sim.store import Etcd
from vctl_agent import election
from vctl_agent.conductor import Conductor
from vctl_agent.crashpoints import Crashpoints
from vctl_plans.events import Observed
from vctl_plans.phase import RolloutPhase
from vctl_plans.snapshot import Fleet, Service

LEASE_TTL_S = 6.0


class Grounds(msgspec.Struct, frozen=True):
    """What a conductor's write rests on."""

    candidate: str
    fence: int
    nodes: Fleet
    gone: frozenset[str]
    drained: frozenset[str]


class WatchedConductor(Conductor):
    """A conductor whose present decision's grounds can be looked at."""

    nodes: Fleet | None = None
    gone: frozenset[str] = frozenset()
    drained: frozenset[str] = frozenset()
    count_move: Callable[[str, RolloutPhase], None] = staticmethod(lambda *_: None)

    def _observed(self, *looked: Any) -> Observed:
        observed = super()._observed(*looked)
        self.gone, self.drained = observed.gone, observed.drained
        return observed

    async def _advance(self, service: Service, nodes: Fleet) -> float:
        self.nodes = nodes
        rollout = service.rollout
        sleep_s = await super()._advance(service, nodes)
        if rollout and not rollout.phase.is_terminal:
            clock = self._clocks.get(rollout.service)
            took_over = clock and clock.takeovers and clock.seq == rollout.seq
            self.count_move("TakenOver" if took_over else "Observed", rollout.phase)
        return sleep_s


class Candidate:
    """One candidate."""

    def __init__(
        self,
        kernel: Kernel,
        name: str,
        seed: str,
        etcd: Etcd,
        count_move: Callable[[str, RolloutPhase], None],
    ) -> None:
        self.name = name
        self.etcd = etcd
        self.count_move = count_move
        self.network = Network(f"{seed}/{name}/net")
        self.network.grid_s = 0.02  # many nodes report at about the same time
        self.process = Process(kernel, name)
        self.conductor: WatchedConductor | None = None
        self.client: Client | None = None
        self.is_cut = False
        self.starts = 0
        self.fence = 0  # of the term that it believes to serve
        self.before_commit: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Stand for election."""
        self.process.start()
        self.starts += 1
        client = self.client = Client(self.etcd, self.process, self.network)
        client.is_cut = self.is_cut
        client.grounds = self._grounds
        client.before_commit = self._before_commit
        self.process.on_pause = self.process.on_resume = client.feel
        self.process.on_death = self._drop
        self.process.spawn(self._stand())

    def _before_commit(self) -> None:
        self.before_commit()

    def _drop(self) -> None:
        if self.client:
            self.client.drop()
        self.client = self.conductor = None
        self.fence = 0

    def _grounds(self) -> Grounds | None:
        conductor = self.conductor
        if conductor is None or conductor.nodes is None:
            return None
        return Grounds(self.title, self.fence, conductor.nodes, conductor.gone, conductor.drained)

    async def _stand(self) -> None:
        client = self.client
        assert client
        await election.stand(
            client,
            self.etcd.keys,
            candidate=self.title,
            ttl_s=LEASE_TTL_S,
            conduct=self._conduct,
        )

    async def _conduct(self, fence: int) -> None:
        assert self.client
        self.fence = fence
        self.conductor = WatchedConductor(
            self.client,
            self.etcd.keys,
            fence=fence,
            crashpoints=Crashpoints(),
            clock=self.process.clock,
        )
        self.conductor.count_move = self.count_move
        try:
            await self.conductor.run()
        finally:
            self.conductor, self.fence = None, 0

    def hand_over(self) -> None:
        """Be ended and started by a person: the office is given up first."""
        for task in self.process.tasks:
            task.cancel()
        self.process.spawn(self._stand())

    @property
    def title(self) -> str:
        """What it writes into the election's key."""
        return f"{self.name} {self.starts}"

    @property
    def is_in_office(self) -> bool:
        """Whether it believes to conduct."""
        return self.conductor is not None and self.process.is_alive

    def cut(self, *, is_cut: bool) -> None:
        """Cut it off from etcd, or connect it again."""
        self.is_cut = is_cut
        if self.client:
            self.client.is_cut = is_cut
            self.client.feel()

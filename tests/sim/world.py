"""The simulated world: a fleet, its store, its candidates, what is noted, and what is checked."""

from collections.abc import Callable
from random import Random
from typing import Any

from tests.builders import SERVICE
from tests.sim import groundwork
from tests.sim.client import Client
from tests.sim.conducting import Candidate
from tests.sim.engine import Held
from tests.sim.facts import Wrote
from tests.sim.kernel import Kernel, Process
from tests.sim.network import Network
from tests.sim.node import Node
from tests.sim.store import Etcd
from vctl_plans.errors import StoreError
from vctl_plans.phase import RolloutPhase
from vctl_plans.rollout import Rollout, wanted
from vctl_plans.route import Route
from vctl_plans.snapshot import Service
from vctl_plans.store.port import KeyValue, Operation, Txn

KEYS = groundwork.KEYS
_CANDIDATES = 2


class Broken(AssertionError):  # noqa: N818  it says what is broken
    """An invariant does not hold."""


class World:
    """One fleet.

    Args:
        seed: Of everything that is drawn here.
        size: Nodes at the beginning.
        releases: How many have converged on it before.
        places: For adapters, in each engine.
    """

    def __init__(self, seed: str, size: int, *, releases: int, places: int = 8) -> None:
        self.seed = seed
        self.places = places
        self.random = Random(f"{seed}/world")  # noqa: S311  a history is repeated by its seed
        self.kernel = Kernel()
        self.etcd = Etcd(self.kernel, KEYS)
        self.log: list[tuple[float, str]] = []
        self.facts: list[Any] = []
        self.is_calm = False
        self.was_restored = self.is_accepted = False
        self.restored_at = 0  # the backup's revision: what is newer was written since
        self.bad: set[int] = set()  # releases that fail most of what they are asked
        self.ever_bad: set[int] = set()
        self.have_erred = False  # whether engines ever served what others left in their caches
        self.requests: dict[str, int] = {}
        self.moves: dict[str, int] = {}  # how often an event met a phase
        self.on_accept: Callable[[], None] = lambda: None
        self._writers = 0
        self._backup: tuple[int, dict[str, KeyValue]] | None = None
        self.service = Service(name=SERVICE)  # as the store has it
        self.nodes: dict[str, Node] = {}
        self.candidates = [
            Candidate(self.kernel, f"c{number}", seed, self.etcd, self.count_move)
            for number in range(_CANDIDATES)
        ]
        self.operators = Network(f"{seed}/operators/net")
        self.etcd.on_write = lambda *write: self.facts.append(Wrote(*write))
        self.etcd.load(groundwork.beginning(size, releases, retain=min(1, places - 1)))
        for name in groundwork.node_names(size):
            self.add_node(name)
        self.read()
        self._furnish()

    def add_node(self, name: str) -> Node:
        """Add a node, not started yet."""
        node = self.nodes[name] = Node(
            self.kernel,
            name,
            self.seed,
            etcd=self.etcd,
            tell=self.facts.append,
            count=self.count_request,
            bad=self.bad,
            places=self.places,
        )
        return node

    def _furnish(self) -> None:
        """Have every node hold what it should."""
        numbers = wanted(self.service.route, self.service.rollout)
        for node in self.nodes.values():
            names = []
            for number in sorted(numbers):
                release = self.service.releases[number]
                adapter = release.adapter
                assert adapter
                node.disk.staged.add(adapter.root)
                held = Held(node.disk.path(adapter.root), is_probed=True)
                node.engine.adapters[release.engine_name] = held
                node.engine.proven.add(release.engine_name)
                names.append(release.engine_name)
            node.disk.probed = (node.engine.incarnation, tuple(sorted(names)))

    def start(self) -> None:
        """Start everything."""
        for node in self.nodes.values():
            node.start()
        for candidate in self.candidates:
            candidate.start()

    def stop(self) -> None:
        """End every process, so that nothing is left behind."""
        for node in self.nodes.values():
            node.end_older()
            node.stop_agent()
            node.gateway.process.kill()
        for candidate in self.candidates:
            candidate.process.kill()

    # -- a backup ----------------------------------------------------------------------------

    def keep_backup(self) -> None:
        """Make a backup of the store."""
        self._backup = self.etcd.backup()

    def restore(self) -> None:
        """Have another cluster in the store's place, with what the backup holds."""
        if self._backup and not self.was_restored and not self.is_calm:
            self.was_restored = True
            self.note("-- the backup is restored")
            self.etcd.restore(self._backup)
            self.restored_at = self.etcd.cluster.revision

    def accept_restore(self) -> None:
        """Start everything anew on the restored store, by an operator's word."""
        if not self.was_restored or self.is_accepted:
            return
        self.is_accepted = True
        self.note("-- the restored backup is accepted")
        self.read()
        self.on_accept()
        for node in self.present():
            node.end_older()
            node.stop_agent()
            node.gateway.process.kill()
            node.disk.saved = None
            node.start()
        for candidate in self.candidates:
            candidate.process.kill()
            candidate.start()

    def heal(self) -> None:
        """Have everything go on that is stopped, and start what is down."""
        for node in self.present():
            node.end_older()
            if node.agent:
                node.agent.process.resume()
            node.gateway.process.resume()
            node.start()
        for candidate in self.candidates:
            candidate.before_commit = lambda: None
            candidate.process.resume()
            if not candidate.process.is_alive:
                candidate.start()
        self.accept_restore()

    # -- what is so --------------------------------------------------------------------------

    def read(self) -> None:
        """Read the service anew."""
        self.service = self.etcd.topic(KEYS.services).state.fleet(KEYS).services.get(
            SERVICE
        ) or Service(name=SERVICE)

    @property
    def rollout(self) -> Rollout | None:
        """The rollout as the store has it."""
        return self.service.rollout

    @property
    def route(self) -> Route:
        """The route as the store has it."""
        return self.service.current_route

    @property
    def phase(self) -> RolloutPhase | None:
        """The rollout's phase."""
        return self.service.rollout.phase if self.service.rollout else None

    def present(self) -> list[Node]:
        """Return the nodes that are there."""
        return [node for node in self.nodes.values() if not node.is_gone]

    def in_office(self) -> Candidate | None:
        """Return the candidate that holds the election key, if it lives."""
        found = self.etcd.cluster.get(KEYS.conductor)
        for candidate in self.candidates:
            if found and candidate.is_in_office and candidate.fence == found.create_revision:
                return candidate
        return None

    def count_move(self, event: str, phase: RolloutPhase) -> None:
        """Count that an event met a phase."""
        move = f"{event} in {phase}"
        self.moves[move] = self.moves.get(move, 0) + 1

    def count_request(self, outcome: str) -> None:
        """Count what became of a request."""
        self.requests[outcome] = self.requests.get(outcome, 0) + 1

    def note(self, line: str) -> None:
        """Keep a line of the transcript."""
        self.log.append((self.kernel.now, line))

    def transcript(self) -> str:
        """Return what happened, for people."""
        return "\n".join(f"{when:8.3f}  {line}" for when, line in self.log)

    def write(self, operation: Operation, then: Callable[[], None] = lambda: None) -> None:
        """Write as a command that is not otherwise looked at, again until it is done; *then* go on.

        What is to come after another write is written by its *then*: two that are tried again
        beside each other may come in any order.
        """
        self._writers += 1
        client = self.client(f"w{self._writers}")
        client.process.spawn(self._write(client, operation, then))

    async def _write(self, client: Client, operation: Operation, then: Callable[[], None]) -> None:
        try:
            await client.commit(Txn((), (operation,)))
        except StoreError:
            self.kernel.after(1.0, None, self.write, operation, then)
        else:
            then()
        self.etcd.clients.remove(client)

    def client(self, name: str) -> Client:
        """Return a way to the store for a command, in a process of its own."""
        process = Process(self.kernel, name)
        process.start()
        return Client(self.etcd, process, self.operators)

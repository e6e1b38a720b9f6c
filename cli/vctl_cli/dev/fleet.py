"""`DevFleet`: starts the programs in order, waits until the fleet sees itself ready, ends them all.

What counts as ready is what a user's command would see: each node's record and report in etcd, its
engine alive, its gateway heard. A program that is started again is started as it was.
"""

import fcntl
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

from vctl_cli.dev.layout import Layout, Options, clean
from vctl_cli.dev.models import Models
from vctl_cli.dev.ports import Ports
from vctl_cli.dev.program import Program, ended
from vctl_cli.reading import fleet_of, fleet_prefixes
from vctl_plans.errors import StoreError, VctlError
from vctl_plans.keys import Keys
from vctl_plans.snapshot import Fleet
from vctl_plans.store.gateway import GatewayReader
from vctl_plans.store.settings import StoreSettings

READY_WITHIN_S = 90.0
END_WITHIN_S = 8.0
LOOK_EVERY_S = 0.1

PARTS = ("engine", "gateway", "agent")

Say = Callable[[str], None]


def end_on_signals() -> None:
    """Let SIGTERM and SIGHUP end the program as Ctrl-C does; what nohup ignores stays ignored."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)


class DevFleet:
    """A fleet on this machine; a context manager that leaves nothing running.

    Args:
        folder: All of its state; kept, and used again by the next run.
        options: Its size and settings.
        env: The environment that the programs inherit.
        allowed_roots: Where agents may read artifacts, beside *folder*.
        say: Gets a sentence for each thing that takes time.
    """

    def __init__(
        self,
        folder: Path,
        options: Options | None = None,
        *,
        env: Mapping[str, str],
        allowed_roots: Sequence[Path] = (),
        say: Say = lambda _: None,
    ) -> None:
        self.folder = folder.resolve()
        self.options = options or Options()
        self.models = Models(self.folder / "models", clean(env))
        self._env = env
        self._allowed = (self.folder, *allowed_roots)
        self._say = say
        self._ports = Ports(self.options.base_port)
        self._programs: dict[str, Program] = {}
        self._told: set[str] = set()
        self._earlier: set[str] = set()  # boot ids of agents that are no longer ours
        self._lock: IO[str] | None = None
        self._layout: Layout | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def layout(self) -> Layout:
        """Where everything is; chosen at the first use."""
        if self._layout is None:
            self._layout = Layout(
                self.folder, self.models.base, self.options, ports=self._ports, env=self._env
            )
        return self._layout

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes' names."""
        return self.layout.nodes

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which `vctl` acts on this fleet."""
        return {"VCTL_FLEET": self.options.fleet, "VCTL_ENDPOINTS": self.layout.endpoint}

    @property
    def gateway_urls(self) -> dict[str, str]:
        """Where clients ask, by node."""
        return {node: self.layout.url(node, "gateway") for node in self.nodes}

    @property
    def engine_urls(self) -> dict[str, str]:
        """Where each node's engine is."""
        return {node: self.layout.engine_url(node) for node in self.nodes}

    def start(self) -> None:
        """Start everything; return when every node is ready for a rollout.

        Raises:
            VctlError: A program ended, or the fleet was not ready in time; with the log's end.
        """
        self.begin()
        self.wait_ready()

    def begin(self) -> None:
        """Start everything and do not wait: so that something else can be done meanwhile."""
        self._take_folder()
        layout = self.layout
        self._say(f"starting etcd and {len(self.nodes)} nodes in {self.folder}")
        self._start(layout.etcd())
        if not self.options.engine_urls:
            self.models.make_base()
            for node in self.nodes:
                self._start(layout.engine(node))
        for node in self.nodes:
            self._start(layout.gateway(node))
        self._note_earlier_agents()
        for node in self.nodes:
            self._start(layout.agent(node, self._allowed))

    def wait_ready(self, *, within_s: float = READY_WITHIN_S) -> None:
        """Wait until every node says in etcd that its engine and its gateway answer.

        Raises:
            VctlError: See `start`.
        """
        deadline = time.monotonic() + within_s
        told: set[str] = set()
        while True:
            self.check()
            ready = self._ready_nodes()
            for count, node in enumerate(sorted(ready - told), start=len(ready & told) + 1):
                self._say(f"{node} is ready ({count}/{len(self.nodes)})")
            told = ready
            if len(ready) == len(self.nodes):
                return
            if time.monotonic() > deadline:
                raise self._late(sorted(set(self.nodes) - ready))
            time.sleep(LOOK_EVERY_S)

    def read(self) -> Fleet:
        """Return the fleet as its etcd has it.

        Raises:
            StoreError: etcd does not answer.
        """
        keys = Keys(self.options.fleet)
        settings = StoreSettings(endpoints=(self.layout.endpoint,))
        with GatewayReader(settings, budget_s=2.0) as reader:
            return fleet_of(keys, [reader.list(p).entries for p in fleet_prefixes(keys)])

    def program(self, node: str, part: str) -> Program:
        """Return one program, for example ``program("n2", "agent")``; etcd is of no node."""
        return self._programs[f"{node}/{part}" if node else part]

    def kill(self, node: str, part: str) -> None:
        """End a program as a power cut would."""
        self.program(node, part).kill()

    def restart(self, node: str, part: str, *, more_env: Mapping[str, str] | None = None) -> None:
        """Start a program again, as it was; it is killed first if it still runs.

        Args:
            node: Its node.
            part: Which of the node's programs.
            more_env: Variables for this run only.
        """
        program = self.program(node, part)
        program.kill()
        program.start(more_env=more_env)
        self._told.discard(program.name)

    def check(self) -> None:
        """Raise if a program ended by itself.

        Raises:
            VctlError: Naming the first, with the end of its log.
        """
        for program in self._programs.values():
            if program.has_died:
                raise program.death()

    def newly_dead(self) -> list[Program]:
        """Return the programs that ended by themselves and were not returned before."""
        dead = [p for p in self._programs.values() if p.has_died and p.name not in self._told]
        self._told.update(program.name for program in dead)
        return dead

    def stop(self) -> None:
        """End everything: agents, gateways, engines, then etcd; what does not end is killed.

        A KeyboardInterrupt meanwhile (a second Ctrl-C) kills at once.
        """
        try:
            for part in (*reversed(PARTS), "etcd"):
                self._end(p for name, p in self._programs.items() if name.endswith(part))
        except KeyboardInterrupt:
            self._say("killing what still runs")
        finally:
            for program in self._programs.values():
                program.signal(signal.SIGKILL)
            ended(self._programs.values(), within_s=END_WITHIN_S)
            self._ports.close()
            self._leave_folder()

    def _end(self, programs: Iterable[Program]) -> None:
        ending = list(programs)
        for program in ending:
            program.ask_to_end()
        ended(ending, within_s=END_WITHIN_S)

    def _start(self, program: Program) -> None:
        self._programs[program.name] = program
        program.start()

    def _ready_nodes(self) -> set[str]:
        with suppress(StoreError):
            present = self.read().present().items()
            new = [(node, said) for node, said in present if said.boot_id not in self._earlier]
            return {node for node, said in new if said.incarnation and said.gateway_ok}
        return set()

    def _note_earlier_agents(self) -> None:
        """Remember whose word still stands in etcd: a killed agent's lease lives on for a while."""
        deadline = time.monotonic() + READY_WITHIN_S
        while time.monotonic() < deadline:
            self.check()
            with suppress(StoreError):
                self._earlier |= {record.boot_id for record in self.read().records.values()}
                return
            time.sleep(LOOK_EVERY_S)
        raise VctlError("etcd does not answer", hint=self.program("", "etcd").log_tail())

    def _late(self, missing: Sequence[str]) -> VctlError:
        names = ", ".join(missing)
        parts = [self._programs.get(f"{missing[0]}/{part}") for part in PARTS]
        tails = [program.log_tail() for program in parts if program]
        return VctlError(f"not ready in time: {names}", hint="\n  ".join(tails))

    def _take_folder(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = (self.folder / "lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as cause:
            lock.close()
            raise VctlError(
                f"another fleet runs in {self.folder}", hint="end it, or give another --dir"
            ) from cause
        self._lock = lock

    def _leave_folder(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

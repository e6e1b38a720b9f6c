"""A simulated node: the real reconciler, executor and presence, on a simulated disk and engine.

What the agent's daemon wires with sockets and timers is wired here with delays. The agent's idle
looks are left out where nothing can come of them.
"""

import math
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from tests.builders import SERVICE
from tests.sim.client import Client
from tests.sim.disk import Artifacts, Disk, Handed, Shelf
from tests.sim.engine import Engine
from tests.sim.facts import Asks, Loads, Removes, Takes, Unloads
from tests.sim.gateway import Gateway
from tests.sim.kernel import Event, Kernel, Process
from tests.sim.network import Network
from tests.sim.store import Etcd, State
from vctl_agent.collecting import Collecting, Needs, Room
from vctl_agent.crashpoints import Crashpoints
from vctl_agent.draining import Draining
from vctl_agent.engines.epochs import EpochFile, Epochs
from vctl_agent.engines.watch import EngineWatch
from vctl_agent.executor import Executor
from vctl_agent.gatewaylink import GatewayLink
from vctl_agent.golden import GoldenReader
from vctl_agent.local import GatewayState, GatewayStatistics
from vctl_agent.orphans import Orphans
from vctl_agent.presence import Presence
from vctl_agent.probed import Probed
from vctl_agent.reconciler import Reconciler
from vctl_agent.registered import Registered
from vctl_agent.reporting import StatisticsWriter
from vctl_agent.requests import read_requests
from vctl_agent.telling import ThisNode
from vctl_agent.watched import report_interval_s, watched
from vctl_plans.capability import EngineFacts
from vctl_plans.node import NodeRecord, NodeReport
from vctl_plans.phase import NodePhase
from vctl_plans.snapshot import Fleet

LEASE_TTL_S = 8.0
_LONG_S = 4.9  # the reconciler's longest sleep, and a little less
_POLL_S = 1.0
_COALESCE_S = 0.01


class MemoryProbed(Probed):
    """What was probed, on a simulated disk."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(Path(disk.name))
        self._disk = disk
        self._record = _record(*disk.probed)

    def _save(self) -> None:
        self._disk.probed = (self._record.incarnation, tuple(self._record.names))


class MemoryRegistered(Registered):
    """What the engine was given, on a simulated disk."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(Path(disk.name))
        self._disk = disk
        self._record = _registered(*disk.registered)

    def _save(self) -> None:
        self._disk.registered = (self._record.incarnation, tuple(self._record.roots))


class MemoryEpoch(EpochFile):
    """The cache epoch, on a simulated disk."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(Path(disk.name))
        self._disk = disk
        self._record = _epoch(*disk.epoch)

    def _save(self) -> None:
        self._disk.epoch = (self._record.incarnation, self._record.epoch)


def _epoch(incarnation: str, epoch: int) -> Any:
    from vctl_agent.engines.epochs import _Record

    return _Record(incarnation, epoch)


def _registered(incarnation: str, roots: tuple[str, ...]) -> Any:
    from vctl_agent.registered import _Record

    return _Record(incarnation, list(roots))


def _record(incarnation: str, names: tuple[str, ...]) -> Any:
    from vctl_agent.probed import _Record

    return _Record(incarnation, list(names))


class Wakened(Reconciler):
    """A reconciler without a loop of its own: the simulation runs its cycles."""

    def __init__(self, wake: Callable[[], None], *node: Any, **parts: Any) -> None:
        self._wake_agent = wake
        super().__init__(*node, **parts)

    def wake(self) -> None:
        self._wake_agent()


class Attached:
    """The engine that an agent asks: of the machine that it is on."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)


class Agent:
    """One run of an agent's process."""

    def __init__(self, node: "Node", process: Process, boot_id: str) -> None:
        self.node = node
        self.process = process
        self.boot_id = boot_id
        self.client = Client(node.etcd, process, node.network)
        self.client.is_cut = node.is_cut
        crashpoints = Crashpoints()
        artifacts: Any = Artifacts(node.disk, lambda: node.engine.mood)
        self._attached = Attached(node.engine)
        probed = MemoryProbed(node.disk)
        attached: Any = self._attached
        attached = Epochs(attached, probed, MemoryEpoch(node.disk))
        self._watch = EngineWatch(attached, self.wake, on_facts=self._on_facts)
        application: Any = Handed(node.disk, node.takes)
        registered = MemoryRegistered(node.disk)
        executor = Executor(
            engine=attached,
            golden=GoldenReader(self.client, node.etcd.keys),
            watch=self._watch,
            artifacts=artifacts,
            probed=probed,
            registered=registered,
            application=application,
            crashpoints=crashpoints,
        )
        self.link = GatewayLink("sim", self.wake)
        self._connected_to = ""  # the gateway's run
        shelf: Any = Shelf(node.disk, node.removes)
        self.collecting = Collecting(
            shelf,
            Needs(self._known, self._watch, self.link, application, registered),
            room=Room(keep=0, space_bytes=1),  # nothing stays but what must
            wake=lambda: None,
            crashpoints=crashpoints,
        )
        self.draining = Draining(node.name, node.etcd.keys, self.wake)
        self.reconciler = Wakened(
            self.wake,
            ThisNode(node.name, boot_id, "http://engine"),
            engine=self._watch,
            artifacts=artifacts,
            probed=probed,
            application=application,
            executor=executor,
            on_report=self._on_report,
            completed=self._completed,
            draining=self.draining,
            clock=process.clock,
        )
        self.orphans = self._made_orphans(artifacts)
        self.presence = self._made_presence(crashpoints)
        self.statistics = self._made_statistics(crashpoints)
        self._watching: tuple[tuple[str, ...], float] | None = None
        self._report: NodeReport | None = None
        self._is_awake = False
        self._is_live = False  # the store answers
        self._timer: Event | None = None
        process.on_pause = process.on_resume = self.client.feel
        process.on_death = self.client.drop

    def _made_presence(self, crashpoints: Crashpoints) -> Presence:
        name, keys = self.node.name, self.node.etcd.keys
        record = NodeRecord(
            node=name, boot_id=self.boot_id, engine="sim", gateway_url=f"http://{name}"
        )
        return Presence(self.client, keys, record, ttl_s=LEASE_TTL_S, crashpoints=crashpoints)

    def _made_statistics(self, crashpoints: Crashpoints) -> StatisticsWriter:
        return StatisticsWriter(
            self.client,
            self.node.etcd.keys,
            node=self.node.name,
            boot_id=self.boot_id,
            is_registered=lambda: self.presence.is_registered,
            crashpoints=crashpoints,
        )

    def _made_orphans(self, artifacts: Any) -> Orphans:
        return Orphans(
            artifacts,
            self._watch,
            self.link,
            fleet=self._known,
            unload=self.reconciler.unload_orphan,
            clock=self.process.clock,
        )

    def start(self) -> None:
        """Start all that an agent does."""
        process = self.process
        process.loop.executor_s = self._fetch_s
        process.spawn(self.presence.keep_record())
        process.spawn(self.presence.write_reports())
        process.spawn(self.statistics.run())
        process.spawn(self.collecting.run())
        process.spawn(self.orphans.run())
        process.spawn(self._watch.refresh())
        self.client.follow(self.node.etcd.keys.services, self._want)
        self.client.follow(self.node.etcd.keys.requests, self._ask)
        self.node.gateway.greet()

    def _fetch_s(self) -> float:
        return 0.3 * (0.5 + self.node.random.random()) * self.node.engine.mood.slowness

    def _known(self) -> Fleet | None:
        return self.reconciler.fleet if self._is_live else None

    def _want(self, state: State) -> None:
        self._is_live = state.update.is_live
        if state.update.is_live:
            fleet = state.fleet(self.node.etcd.keys)
            self.draining.follow(fleet, state.update.entries)
            self.reconciler.want(fleet)
            self.collecting.follow(fleet)
            watching = (watched(fleet), report_interval_s(fleet))
            if watching != self._watching:  # else it would be woken for nothing
                self._watching = watching
                self.statistics.watch(fleet)

    def _ask(self, state: State) -> None:
        if state.update.is_live:
            self.draining.ask(read_requests(state.update.entries, self.node.name))

    def _completed(self, report: NodeReport) -> NodeReport:
        return msgspec.structs.replace(report, drain=self.draining.answer(self.link.heard))

    def _on_facts(self, facts: EngineFacts) -> None:
        self.presence.announce(facts)

    def leave(self, engine: Engine) -> None:
        """Be on another machine, whose engine is dead and whose gateway is gone."""
        engine.stop()
        self._attached.engine = engine
        self.hear(None)

    def look_at_engine(self) -> None:
        """Look at the engine within the time that the agent asks it again."""
        self.process.after(0.02 + self.node.random.random() * _POLL_S, self._look)

    def _look(self) -> None:
        self.process.spawn(self._watch.refresh())

    def hear(self, state: GatewayState | None) -> None:
        """Take the gateway's word; None: the socket is broken."""
        if state is None:
            self._connected_to = ""
        elif self._connected_to != state.boot_id:
            self._connected_to = state.boot_id
            self.link._to_tell.set()
        self._tell_gateway()
        if state != self.link.heard:
            self.link.heard = state
            self.wake()

    def wake(self) -> None:
        """Have another cycle run soon."""
        if not self._is_awake and self.process.is_alive:
            self._is_awake = True
            self.process.after(_COALESCE_S, self._cycle)

    def _cycle(self) -> None:
        self._is_awake = False
        if self._timer:
            self._timer.cancel()
            self._timer = None
        self.collecting.look()
        self.orphans.look()
        sleep_s = self.reconciler.cycle(self.link)
        self._tell_gateway()
        if sleep_s < _LONG_S or self._has_something_to_wait_for():
            self._timer = self.process.after(sleep_s, self._cycle)

    def _has_something_to_wait_for(self) -> bool:
        report = self._report
        if report is None:
            return False
        return any(line.phase is not NodePhase.READY for line in report.releases)

    def _tell_gateway(self) -> None:
        if self._connected_to and self.link._told and self.link._to_tell.is_set():
            self.link._to_tell.clear()
            self.node.to_gateway(self, self.link._told)

    def _on_report(self, report: NodeReport) -> None:
        self._report = report
        self.presence.report(report)


class Node:
    """One machine of the fleet: disk, engine, gateway, and the agents that ran on it."""

    def __init__(
        self,
        kernel: Kernel,
        name: str,
        seed: str,
        *,
        etcd: Etcd,
        tell: Callable[[Any], None],
        count: Callable[[str], None],
        bad: set[int],
        places: int,
    ) -> None:
        self.kernel = kernel
        self.name = name
        self.etcd = etcd
        self._tell = tell
        self._seed = seed
        self.random = Random(f"{seed}/{name}/agent")  # noqa: S311
        self.network = Network(f"{seed}/{name}/agent/net")
        self.disk = Disk(name)
        own = Random(f"{seed}/{name}/engine")  # noqa: S311
        self.engine = Engine(kernel, name, own, places=places)
        self.engine.on_ask = lambda adapter: tell(Asks(self, adapter))
        self.engine.on_load = self._loads
        self.engine.on_unload = self._unloads
        self.engine.on_change = self._engine_changed
        self.gateway = Gateway(
            name,
            Process(kernel, f"{name}/gateway"),
            Network(f"{seed}/{name}/gateway/net"),
            etcd=etcd,
            engine=self.engine,
            disk=self.disk,
            tell=tell,
            count=count,
            bad=bad,
        )
        self.gateway.tell_statistics = self._statistics
        self.gateway.to_agent = self._from_gateway
        self.boots = 0
        self.rate = 1.0
        self.is_cut = False  # the agent from etcd
        self.is_gone = False  # for good
        self.is_link_broken = False  # between agent and gateway
        self.agent: Agent | None = None
        self._socket = Network(f"{seed}/{name}/socket")  # local: no fault of the network slows it
        self.link_mended_at = -math.inf
        self._carried: dict[str, float] = {}  # when the last line came there, by process
        self.older: list[Agent] = []  # that were stopped, and may wake up beside a newer one

    def start(self) -> None:
        """Start all of it."""
        if not self.engine.is_up:
            self.engine.start()
        if not self.gateway.process.is_alive:
            self.gateway.start()
        if not self.is_agent_alive:
            self.start_agent()

    @property
    def is_agent_alive(self) -> bool:
        """Whether an agent's process is there."""
        return bool(self.agent and self.agent.process.is_alive)

    def start_agent(self) -> None:
        """Start a new agent on what is on disk and in the engine."""
        self.boots += 1
        boot_id = f"{self.name}-{self.boots}"
        process = Process(self.kernel, boot_id, rate=self.rate)
        process.start()
        self.agent = Agent(self, process, boot_id)
        self.agent.start()

    def stop_agent(self) -> None:
        """Kill the agent."""
        if self.agent:
            self.agent.process.kill()

    def set_aside(self) -> None:
        """Stop the agent where it is, and start another of the node's name beside it.

        As where a machine that hangs was replaced: it wakes up alone, without an engine.
        """
        agent = self.agent
        if agent and agent.process.is_running:
            agent.process.pause()
            places = self.engine.places
            agent.leave(Engine(self.kernel, f"{self.name}-old", self.random, places=places))
            self.older.append(agent)
            self.start_agent()

    def wake_older(self) -> None:
        """Let those that were set aside go on."""
        for agent in self.older:
            agent.process.resume()

    def end_older(self) -> None:
        """End those that were set aside."""
        for agent in self.older:
            agent.process.kill()
        self.older.clear()

    def cut(self, *, is_cut: bool) -> None:
        """Cut the agent off from etcd, or connect it again."""
        self.is_cut = is_cut
        for agent in [self.agent, *self.older]:
            if agent and agent.process.is_alive:
                agent.client.is_cut = is_cut
                agent.client.feel()

    def stop(self) -> None:
        """Lose power: what is on disk stays."""
        self.stop_agent()
        self.end_older()
        self.gateway.process.kill()
        self.engine.stop()

    def break_link(self, *, is_broken: bool) -> None:
        """Break the socket between agent and gateway, or let it be made anew."""
        self.is_link_broken = is_broken
        self.link_mended_at = self.kernel.now
        if is_broken and self.agent and self.is_agent_alive:
            self.kernel.after(0.001, self.agent.process, self.agent.hear, None)
        elif self.gateway.process.is_alive:
            self.kernel.soon(self.gateway.process, self.gateway.greet)

    def to_gateway(self, agent: Agent, state: Any) -> None:
        """Carry an agent's word over the socket; only the newest agent has it."""
        gateway = self.gateway
        if agent is self.agent and not self.is_link_broken and gateway.process.is_alive:
            self._carry(agent.process, gateway.process, gateway.hear, state)

    def _from_gateway(self, state: GatewayState | None) -> None:
        agent = self.agent
        if agent and agent.process.is_alive and (state is None or not self.is_link_broken):
            self._carry(self.gateway.process, agent.process, agent.hear, state)

    def _statistics(self, told: GatewayStatistics) -> None:
        agent = self.agent
        if agent and agent.process.is_alive and not self.is_link_broken:
            self._carry(self.gateway.process, agent.process, agent.statistics.take, told)

    def _carry(self, sender: Process, taker: Process, hear: Any, state: Any) -> None:
        """Carry a line; a socket keeps the order."""
        arrives = self.kernel.now + self._socket.message_s(sender)
        arrives = self._carried[taker.name] = max(arrives, self._carried.get(taker.name, 0.0))
        self.kernel.at(arrives, taker, hear, state)

    @property
    def is_deaf(self) -> bool:
        """Whether the gateway may not have heard the agent's last word yet."""
        return self.is_link_broken or self.kernel.now - self.link_mended_at < 1.0

    def _loads(self, adapter: str, path: str) -> None:
        gateway = self.gateway
        is_served = False
        if gateway.starts:
            known = gateway.live.acted.known
            releases = [known.releases[i].release for i in known.serving() if i in known.releases]
            is_served = any(release.engine_name == adapter for release in releases)
        self._tell(Loads(self, adapter, path, is_served))

    def takes(self, number: int) -> None:
        """Tell that the application loses a release's file."""
        gateway = self.gateway
        asked = gateway.references.count((SERVICE, number)) if gateway.is_running else 0
        self._tell(Takes(self, number, asked))

    def removes(self, root: str) -> None:
        """Tell that an artifact goes."""
        self._tell(Removes(self, root))

    def _unloads(self, adapter: str, asked_at: float) -> None:
        asked = sum(1 for model, _ in self.engine.asked.values() if model == adapter)
        self._tell(Unloads(self, adapter, asked, asked_at))

    def _engine_changed(self) -> None:
        if self.agent and self.is_agent_alive:
            self.agent.look_at_engine()

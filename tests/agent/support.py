"""A node in one process: real files and a real reconciler, a fake engine and a fake gateway."""

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from tests.weights.building import fill, pack, zeros
from vctl_agent.application import Application
from vctl_agent.artifacts.stage import ArtifactStore
from vctl_agent.crashpoints import Crashpoints
from vctl_agent.engines.epochs import EpochFile, Epochs
from vctl_agent.engines.fake import FakeEngine
from vctl_agent.engines.watch import EngineWatch
from vctl_agent.executor import Executor
from vctl_agent.golden import GoldenReader
from vctl_agent.hook import Hook
from vctl_agent.local import AgentState, GatewayState, InFlight
from vctl_agent.probed import Probed
from vctl_agent.reconciler import Reconciler
from vctl_agent.registered import Registered
from vctl_agent.telling import ThisNode
from vctl_plans import weights
from vctl_plans.keys import Keys
from vctl_plans.node import NodeReport
from vctl_plans.phase import Component, NodePhase, RolloutPhase
from vctl_plans.release import Actor, Artifact, Release, compose
from vctl_plans.rollout import Rollout
from vctl_plans.route import Route
from vctl_plans.snapshot import Fleet, Service
from vctl_plans.store.memory import MemoryStore

SERVICE = "support"
KEYS = Keys("dev")
RANK = 2


def make_adapter(path: Path, *, fill_byte: int = 1, **changes: object) -> Artifact:
    """Write a small adapter directory and return the artifact that it is.

    *changes* are of its configuration; the tensors are of its rank.
    """
    config: dict[str, object] = {
        "peft_type": "LORA",
        "r": RANK,
        "lora_alpha": 4,
        "target_modules": ["q_proj"],
        "base_model_name_or_path": "base",
        **changes,
    }
    rank = int(str(config["r"]))
    stem = "base_model.model.model.layers.0.self_attn.q_proj"
    tensors = [
        zeros(f"{stem}.lora_A.weight", "F32", rank, 8),
        zeros(f"{stem}.lora_B.weight", "F32", 8, rank),
    ]
    filled = [t._replace(content=bytes([fill_byte]) * len(t.content)) for t in tensors]
    fill(
        path,
        {"adapter_config.json": json.dumps(config), "adapter_model.safetensors": pack(filled)},
    )
    return Artifact(root=weights.scan(path).root, source=f"file://{path}")


def make_files(path: Path, files: Mapping[str, str | bytes]) -> Artifact:
    """Write a prompt or an index and return the artifact that it is."""
    fill(path, files)
    return Artifact(root=weights.scan(path, kind="plain").root, source=f"file://{path}")


def next_release(made: dict[int, Release], **components: Artifact) -> Release:
    """Add the next release to *made*: the one before with *components* in their places."""
    release = compose(
        SERVICE,
        {Component(name): artifact for name, artifact in components.items()},
        known=made.values(),
        stable=made.get(len(made)),
        by=Actor(),
    )
    made[release.number] = release
    return release


def make_releases(folder: Path, count: int) -> dict[int, Release]:
    """Return releases 1 to *count*, each with its own adapter on disk."""
    made: dict[int, Release] = {}
    for number in range(1, count + 1):
        artifact = make_adapter(folder / f"v{number}", fill_byte=number)
        made[number] = compose(
            SERVICE,
            {Component.ADAPTER: artifact},
            known=made.values(),
            stable=made.get(number - 1),
            by=Actor(),
        )
    return made


def a_rollout(to: int, *, phase: RolloutPhase = RolloutPhase.PREPARING, **more: object) -> Rollout:
    """Return a rollout of the service."""
    plain = Rollout(
        id=f"r{to}",
        service=SERVICE,
        plan="p",
        strategy="full-switch",
        phase=phase,
        from_release=to - 1,
        to_release=to,
        roster="x",
        roster_size=1,
    )
    return msgspec.structs.replace(plain, **more)


def a_fleet(
    releases: dict[int, Release], *, rollout: Rollout | None = None, route: Route | None = None
) -> Fleet:
    """Return a fleet with the one service."""
    service = Service(name=SERVICE, releases=releases, rollout=rollout, route=route)
    return Fleet(services={SERVICE: service})


class FakeLink:
    """A gateway that acts at once on what it is told; `is_away` and `in_flight` are scripted."""

    is_absent = False

    def __init__(self) -> None:
        self.told: AgentState | None = None
        self.routes: dict[str, int] = {}
        self.in_flight: dict[int, int] = {}
        self.is_away = False

    def tell(self, state: AgentState) -> None:
        self.told = state

    @property
    def heard(self) -> GatewayState | None:
        if self.is_away:
            return None
        return GatewayState(
            boot_id="g",
            routes=self.routes,
            in_flight=tuple(
                InFlight(service=SERVICE, number=n, count=c) for n, c in self.in_flight.items() if c
            ),
            accepted=self.told.ready if self.told else (),
        )

    @property
    def is_current(self) -> bool:
        return not self.is_away and self.told is not None


class Killed(BaseException):
    """The agent's process ends here: nothing of it runs any more."""


class Cut(Crashpoints):
    """Ends the agent right after one of its effects."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self._at = at
        self._count = 0
        self.effect = ""  # after which it ended

    def passed(self, effect: str) -> None:
        self._count += 1
        if self._count == self._at:
            self.effect = effect
        if self._count >= self._at:
            raise Killed(effect)


class Node:
    """One node; make another with the same folder and engine to restart its agent."""

    def __init__(
        self,
        folder: Path,
        engine: FakeEngine | None = None,
        *,
        hook: Hook | None = None,
        crashpoints: Crashpoints | None = None,
        artifacts: ArtifactStore | None = None,
        has_gateway: bool = True,
    ) -> None:
        self.folder = folder
        self._crashpoints = crashpoints = crashpoints or Crashpoints()
        self.engine = engine or FakeEngine()
        self.link = FakeLink()
        self.store = MemoryStore()
        self.now = 0.0
        self.reports: list[NodeReport] = []
        state = folder / "state"
        self.artifacts = artifacts or ArtifactStore(state, [folder])
        self.artifacts.open()
        self.probed = probed = Probed(state / "probed.json")
        probed.open()
        self.registered = Registered(state / "registered.json")
        self.registered.open(())
        epoch = EpochFile(state / "epoch.json")
        epoch.open()
        self.counted = Epochs(self.engine, probed, epoch)
        self.watch = EngineWatch(self.counted, lambda: None)
        self.application = Application(
            state,
            self.artifacts,
            incarnation=lambda: self.watch.incarnation,
            crashpoints=crashpoints,
            hook=hook,
        )
        self.application.open()
        self.executor = Executor(
            engine=self.counted,
            golden=GoldenReader(self.store, KEYS),
            watch=self.watch,
            artifacts=self.artifacts,
            probed=probed,
            registered=self.registered,
            application=self.application,
            crashpoints=crashpoints,
            clock=lambda: self.now,
        )
        self.reconciler = Reconciler(
            ThisNode("n1", "b1", "http://engine"),
            engine=self.watch,
            artifacts=self.artifacts,
            probed=probed,
            application=self.application,
            executor=self.executor,
            has_gateway=has_gateway,
            on_report=self.reports.append,
            clock=lambda: self.now,
        )

    @property
    def is_killed(self) -> bool:
        """Whether its agent ended at a cut."""
        return isinstance(self._crashpoints, Cut) and bool(self._crashpoints.effect)

    async def bury(self) -> None:
        """End what still runs of an agent that was killed."""
        tasks = list(self.reconciler._doing._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def phase(self, number: int) -> NodePhase | None:
        """Return what the last report says of a release."""
        release = self.reports[-1].release(SERVICE, number) if self.reports else None
        return release.phase if release else None

    async def settle(self, until: Callable[[], bool]) -> None:
        """Run cycles until something holds."""
        async with asyncio.timeout(5):
            while True:
                await self.watch.refresh()
                self.reconciler.cycle(self.link)  # type: ignore[arg-type]
                if until():
                    return
                await asyncio.sleep(0.002)

    async def idle(self, cycles: int = 20) -> None:
        """Run some cycles, in which nothing should happen."""
        for _ in range(cycles):
            await self.watch.refresh()
            self.reconciler.cycle(self.link)  # type: ignore[arg-type]
            await asyncio.sleep(0.001)

"""Does the one thing that the node machine asked for: stage, load, probe, replace or unload.

Whether a failure is final is told by its type (`tries.is_permanent`), and it is final only within
the rollout that it happened in.
"""

import time
from collections.abc import Callable

import structlog

from vctl_agent import admission
from vctl_agent.application import Application
from vctl_agent.artifacts.stage import ArtifactStore
from vctl_agent.crashpoints import Crashpoints
from vctl_agent.engines.changes import Changes, condemning
from vctl_agent.engines.epochs import Epochs
from vctl_agent.engines.watch import EngineWatch
from vctl_agent.golden import GoldenReader
from vctl_agent.placing import directory, source_directory
from vctl_agent.probed import Probed
from vctl_agent.probing import Probing
from vctl_agent.registered import Registered
from vctl_agent.stager import MakeRoom, OnPhase, Stager, all_room
from vctl_plans.errors import PermanentEngineError, TemporaryEngineError
from vctl_plans.node_machine import Action
from vctl_plans.release import Artifact, Release

_log = structlog.get_logger(__name__)


class Executor:
    """Carries out actions on this node's disk and engine."""

    def __init__(
        self,
        *,
        engine: Epochs,
        golden: GoldenReader,
        watch: EngineWatch,
        artifacts: ArtifactStore,
        probed: Probed,
        registered: Registered,
        application: Application,
        crashpoints: Crashpoints,
        make_room: MakeRoom = all_room,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._watch = watch
        self._artifacts = artifacts
        self._application = application
        self._crashpoints = crashpoints
        self._stager = Stager(artifacts, make_room, clock=clock)
        self._changes = Changes(
            engine,
            watch,
            artifacts=artifacts,
            probed=probed,
            registered=registered,
            crashpoints=crashpoints,
        )
        self._probing = Probing(
            engine, watch, probed=probed, golden=golden, application=application
        )

    def stop(self) -> None:
        """Have a copy or a hash that runs in a thread end soon."""
        self._stager.stop()

    async def perform(
        self,
        action: Action,
        release: Release,
        on_phase: OnPhase,
        *,
        keeps_adapter: bool = False,
        golden: str = "",
        under: str = "",
    ) -> None:
        """Do *action* for *release*.

        Args:
            action: What to do.
            release: For which release.
            on_phase: Told when the release enters a phase within the action.
            keeps_adapter: Another release needs the same adapter, or vctl did not load it: it is
                not unloaded.
            golden: Digest of the golden prompts that it must pass; empty: none.
            under: The name of its adapter in the engine; empty: its identity's.

        Raises:
            VctlError: It did not work; `is_permanent` tells whether trying again is vain.
        """
        name = release.engine_name
        with condemning(self._watch):
            if action is Action.STAGE:
                await self._stager.stage(release, on_phase)
            elif action is Action.LOAD:
                await self._load(release)
            elif action is Action.PROBE:
                await self._probing.probe(release, golden, under=under)
            elif action is Action.REPLACE:
                assert release.adapter is not None  # noqa: S101  a start refuses it in direct mode
                await self._changes.replace(under, release.adapter, identity=name)
            elif action is Action.UNLOAD:
                if name and not keeps_adapter:
                    await self._changes.unload(name)
                await self._application.take(release)
        _log.info("done", action=action.value, service=release.service, release=release.number)
        self._crashpoints.passed(action.value)

    async def _load(self, release: Release) -> None:
        """Load the adapter; else, where it is loaded already, hand the rest to the application.

        One of them a call, so that another release that has the adapter as well does not wait for
        this one's hook; and an adapter that serves another is not touched: its probe still counts.
        """
        seen = self._watch.latest
        adapter = release.adapter
        path = directory(self._artifacts, adapter) if adapter else ""
        if adapter and not (seen and seen.has(release.engine_name, path)):
            _refuse_unverified(adapter)
            if seen:
                await admission.check(self._artifacts, release, seen)
            await self._changes.load(release.engine_name, adapter)
        else:
            await self._application.give(release)

    async def unload_orphan(self, name: str) -> None:
        """Have the engine hold *name* no more, which is no release's that is known.

        Raises:
            VctlError: It lists it still, or refused.
        """
        with condemning(self._watch):
            await self._changes.unload(name)
        self._crashpoints.passed("orphan unloaded")

    async def name_publicly(self, release: Release) -> str:
        """Have the engine hold *release* under its service's own name, and list it; or find it so.

        Returns:
            The directory that it is held from: the node's verified copy, or the release's source,
            where somebody loaded it from there before vctl came.

        Raises:
            VctlError: It cannot, or the name is taken.
        """
        adapter, name = release.adapter, release.service
        seen = await self._watch.refresh()
        if seen is None:
            raise TemporaryEngineError(self._watch.problem)
        if adapter is None:
            raise PermanentEngineError(f"release {release.number} of {name} has no adapter")
        path = directory(self._artifacts, adapter)
        held = next((each.path for each in seen.adapters if each.name == name), "")
        if held and held not in {path, source_directory(adapter)}:
            raise PermanentEngineError(
                f"the engine holds {name} from {held}, which is not release {release.number}:"
                " it must be unloaded by hand first"
            )
        if held:
            return held
        _refuse_unverified(adapter)
        with condemning(self._watch):
            await self._stager.stage(release, lambda _phase, _percent: None)
            await self._changes.load(name, adapter)
        self._crashpoints.passed("named publicly")
        return path

    async def swap_base(self, root: str) -> None:
        """Have the engine hold the base of *root*; see `Changes.swap_base`."""
        await self._changes.swap_base(root)


def _refuse_unverified(adapter: Artifact) -> None:
    """Refuse to hand an engine bytes that nobody verified; it may be put back by hand any time."""
    if adapter.adopted:
        raise TemporaryEngineError(
            f"the engine does not hold {adapter.adopted} from {adapter.source} any more, and vctl"
            " cannot load what it never verified: load it by hand, or roll out a verified release"
        )

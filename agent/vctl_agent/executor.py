"""Does the one thing that the node machine asked for: stage, load, probe or unload.

After each call the engine is looked at again: its yes is not believed. Whether a failure is final
is told by its type, and it is final only within the rollout that it happened in.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext

import structlog

from vctl_agent import admission
from vctl_agent.application import Application
from vctl_agent.artifacts.stage import ArtifactStore
from vctl_agent.crashpoints import Crashpoints
from vctl_agent.engines.epochs import Epochs
from vctl_agent.engines.port import Description
from vctl_agent.engines.proving import Prover
from vctl_agent.engines.watch import EngineWatch
from vctl_agent.fetched import Fetched
from vctl_agent.golden import GoldenReader, ask_golden
from vctl_agent.placing import directory, source_directory
from vctl_agent.probed import BASE, Probed, golden_name
from vctl_agent.registered import Registered
from vctl_plans.errors import (
    ArtifactError,
    EngineError,
    MalformedPrompt,
    MalformedWeights,
    NoRoom,
    NotAllowed,
    PermanentEngineError,
    RootMismatch,
    SourceMissing,
    SourceRefused,
    SuspectEngineError,
    TemporaryEngineError,
    VctlError,
)
from vctl_plans.node_machine import Action
from vctl_plans.phase import Component, NodePhase
from vctl_plans.release import Artifact, Release
from vctl_plans.weights import KIND_OF

_PERMANENT = (
    RootMismatch,
    MalformedWeights,
    MalformedPrompt,
    NotAllowed,
    SourceMissing,
    SourceRefused,
    PermanentEngineError,
)

_log = structlog.get_logger(__name__)

OnPhase = Callable[[NodePhase, int], None]
"""Told the phase, and how much of a long fetch is done, in per cent; 0: nothing worth a word."""

MakeRoom = Callable[[Artifact, bool], Awaitable[None]]
"""Makes room on the disk for an artifact before it is brought, or, told so, since the disk is full;
raises `NoRoom` where it knows that there is too little."""


class Stopped(VctlError):  # noqa: N818  it stops, nothing is wrong
    """The agent is shutting down: no word about the bytes, hence no `ArtifactError`."""


class _Told:
    """What was told of one artifact's way to the disk; used from the thread that brings it."""

    def __init__(self, index: int, fetched: Fetched, on_phase: OnPhase, *, is_last: bool) -> None:
        self._index = index
        self._fetched = fetched
        self._is_last = is_last
        self._phase = NodePhase.FETCHING
        self.on_phase = on_phase

    def news(self, phase: NodePhase, done: int, size: int) -> tuple[NodePhase, int] | None:
        """Return what is to be told; None: nothing that was not told before."""
        if phase is NodePhase.FETCHING:
            step = self._fetched.step(self._index, done, size)
            was, self._phase = self._phase, phase
            return (phase, step) if step or was is not phase else None
        if phase is self._phase or not self._is_last:
            return None
        self._phase = phase
        return phase, 0


async def _all_room(_artifact: Artifact, _is_full: bool) -> None:  # noqa: FBT001  as `MakeRoom`
    pass


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
        make_room: MakeRoom = _all_room,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._golden = golden
        self._prover = Prover(engine, probed)
        self._watch = watch
        self._artifacts = artifacts
        self._probed = probed
        self._registered = registered
        self._make_room = make_room
        self._application = application
        self._crashpoints = crashpoints
        self._changing = asyncio.Lock()  # an engine is asked for one change at a time
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Have a copy or a hash that runs in a thread end soon."""
        self._stopping.set()

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
        with self._condemning():
            if action is Action.STAGE:
                await self._stage(release, on_phase)
            elif action is Action.LOAD:
                await self._load(release)
            elif action is Action.PROBE:
                await self._probe(release, golden, under=under)
            elif action is Action.REPLACE:
                await self._replace(under, release)
            elif action is Action.UNLOAD:
                if name and not keeps_adapter:
                    await self._unload(name)
                await self._application.take(release)
        _log.info("done", action=action.value, service=release.service, release=release.number)
        self._crashpoints.passed(action.value)

    @contextmanager
    def _condemning(self) -> Iterator[None]:
        """Note an engine of which nobody can know any more what it would answer."""
        incarnation = self._watch.incarnation  # the run that was asked
        try:
            yield
        except SuspectEngineError as found:
            self._watch.condemn(incarnation, found.message)
            raise

    async def _stage(self, release: Release, on_phase: OnPhase) -> None:
        """Stage what is missing; the release fetches until the last of it is verified."""
        missing = [
            (component, made)
            for component, made in release.staged.items()
            if not self._artifacts.is_staged(made.root)
        ]
        fetched = Fetched([made.size_bytes for _, made in missing], self._clock)
        for n, (component, artifact) in enumerate(missing):
            told = _Told(n, fetched, on_phase, is_last=n == len(missing) - 1)
            try:
                await self._stage_one(component, artifact, told)
            except ArtifactError as problem:
                if component is not Component.ADAPTER:
                    problem.message = f"{component}: {problem.message}"
                raise

    async def _stage_one(self, component: Component, artifact: Artifact, told: _Told) -> None:
        loop = asyncio.get_running_loop()

        def progress(phase: NodePhase, done: int, size: int) -> None:
            if self._stopping.is_set():
                raise Stopped("the agent is shutting down")
            news = told.news(phase, done, size)
            if news:
                loop.call_soon_threadsafe(told.on_phase, *news)

        kind = KIND_OF[component]
        await self._make_room(artifact, False)
        try:
            await asyncio.to_thread(self._artifacts.stage, artifact, progress, kind=kind)
        except NoRoom:
            await self._make_room(artifact, True)  # for the next try
            raise

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
            await self._load_adapter(release.engine_name, adapter)
        else:
            await self._application.give(release)

    async def _load_adapter(self, name: str, adapter: Artifact) -> None:
        path = str(self._artifacts.path(adapter.root))
        async with self._changing:
            self._probed.discard(name)  # a probe counts since the load, whoever unloaded it
            with self._giving(adapter.root):
                await self._engine.load(name, path)
                seen = await self._look()
        if not seen or not seen.has(name, path):
            raise TemporaryEngineError(f"the engine took {name} and does not list it")

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
        with self._condemning():
            await self._stage(release, lambda _phase, _percent: None)
            await self._load_adapter(name, adapter)
        self._crashpoints.passed("named publicly")
        return path

    async def _replace(self, name: str, release: Release) -> None:
        """Give a service's own name the release; it counts as unprobed from before until after."""
        assert release.adapter is not None  # noqa: S101  a start refuses it in direct mode
        path = str(self._artifacts.path(release.adapter.root))
        async with self._changing:
            self._probed.discard(release.engine_name)
            with self._giving(release.adapter.root):
                await self._engine.replace(name, path)
                seen = await self._look()
        if not seen or not seen.has(name, path):
            raise TemporaryEngineError(f"the engine replaced {name} and does not list it so")

    @contextmanager
    def _giving(self, root: str) -> Iterator[None]:
        """Note that the engine gets *root*, unless it was removed, or rotted, since it was staged.

        The look and the note are one step of the event loop, and so is a removal with its own look
        at what is noted: either comes first, and the other heeds it.

        Raises:
            ArtifactError: It is to be verified, or brought, anew.
        """
        if not self._artifacts.is_staged(root):
            raise ArtifactError(f"{root[:15]} does not lie here verified any more")
        with self._registered.giving(root):
            self._crashpoints.passed("given")
            yield

    async def _look(self) -> Description | None:
        seen = await self._watch.refresh()
        self._registered.see(seen)
        return seen

    async def _probe(self, release: Release, golden: str, *, under: str) -> None:
        """Prove the model, and then the release: each is noted by itself, and not asked again."""
        name, before = release.engine_name, self._watch.latest
        asked, drops = under or name, self._probed.drops
        is_proven = before is not None and self._probed.is_current(before.incarnation, name or BASE)
        noted = golden_name(name, release.digest, golden) if is_proven and golden else name or BASE
        try:
            if noted == (name or BASE):
                note = await self._prover.prove(asked)
            else:
                note = await self._asked(before, release, golden, under=under)
        except PermanentEngineError as refusal:
            await self._same_engine(before, asked, refusal)
            raise
        after = await self._same_engine(before, asked)
        self._probed.add(after.incarnation, noted, note, drops=drops)

    async def _asked(
        self, engine: Description | None, release: Release, golden: str, *, under: str
    ) -> str:
        """Ask what the plan says, as a client would be answered: with the release's prompt."""
        model = under or release.engine_name or (engine.facts.base if engine else "")
        prompts, template = await self._golden.read(golden), self._application.template(release)
        return await ask_golden(self._engine, model, prompts, template=template)

    async def swap_base(self, root: str) -> None:
        """Have the engine hold the base of *root*, and nothing of the one before.

        Raises:
            PermanentEngineError: It refused, or what it says afterwards does not confirm it.
            TemporaryEngineError: It is away or busy; trying again may help.
        """
        path = str(self._artifacts.path(root)) if root else ""
        async with self._changing:
            before = self._watch.latest
            with self._giving(root) if root else nullcontext():
                with self._condemning():
                    await self._engine.swap_base(path)
                self._crashpoints.passed("base swapped")
                after = await self._look()
        if after is None:
            raise TemporaryEngineError("the engine does not answer since its base was swapped")
        problem = _unconfirmed(before, after, path)
        if problem:
            raise PermanentEngineError(f"the change of the base is not confirmed: {problem}")
        _log.info("base swapped", root=root[:12])

    async def _same_engine(
        self, before: Description | None, name: str, cause: EngineError | None = None
    ) -> Description:
        """Return the engine; a word about an adapter counts only of the run that it is loaded in.

        Raises:
            TemporaryEngineError: It was restarted meanwhile, or does not list *name* any more.
        """
        after = await self._watch.refresh()
        if not before or not after or before.incarnation != after.incarnation:
            raise TemporaryEngineError("the engine was restarted while it was probed") from cause
        if name and all(resident.name != name for resident in after.adapters):
            raise TemporaryEngineError(f"{name} was unloaded while it was probed") from cause
        return after

    async def _unload(self, name: str) -> None:
        async with self._changing:
            await self._engine.unload(name)
            seen = await self._watch.refresh()
        if not seen or any(resident.name == name for resident in seen.adapters):
            raise TemporaryEngineError(f"the engine was told to unload {name} and still lists it")


def _unconfirmed(before: Description | None, after: Description, path: str) -> str:
    """Return what speaks against it that the engine holds the base at *path* and nothing else."""
    if after.base_path != path:
        return f"the engine holds {after.base_path or 'the base that it was started with'}"
    if before and before.incarnation == after.incarnation and before.base_path != path:
        return "the engine says that it is as it was"
    if after.adapters:
        return f"{after.adapters[0].name} is still loaded"
    return f"{after.cached} entries are still cached" if after.cached else ""


def _refuse_unverified(adapter: Artifact) -> None:
    """Refuse to hand an engine bytes that nobody verified; it may be put back by hand any time."""
    if adapter.adopted:
        raise TemporaryEngineError(
            f"the engine does not hold {adapter.adopted} from {adapter.source} any more, and vctl"
            " cannot load what it never verified: load it by hand, or roll out a verified release"
        )


def is_permanent(error: VctlError) -> bool:
    """Whether trying again is vain, by the error's type."""
    return isinstance(error, _PERMANENT)

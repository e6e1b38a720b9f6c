"""Asks the engine for one change at a time, and looks at it again: its yes is not believed.

The order that a change must keep: what was probed before is forgotten, then it is noted that the
engine gets a directory, then the engine is asked, then looked at; only what it lists counts.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import structlog

from vctl_agent.artifacts.stage import ArtifactStore
from vctl_agent.crashpoints import Crashpoints
from vctl_agent.engines.epochs import Epochs
from vctl_agent.engines.port import Description
from vctl_agent.engines.watch import EngineWatch
from vctl_agent.probed import Probed
from vctl_agent.registered import Registered
from vctl_plans.errors import (
    ArtifactError,
    PermanentEngineError,
    SuspectEngineError,
    TemporaryEngineError,
)
from vctl_plans.release import Artifact

_log = structlog.get_logger(__name__)


class Changes:
    """Changes what one engine holds.

    Args:
        engine: The engine.
        watch: Its latest description.
        artifacts: Where the verified copies lie.
        probed: What was probed: a probe counts since the load.
        registered: Notes which directories the engine was given.
        crashpoints: Counts effects.
    """

    def __init__(
        self,
        engine: Epochs,
        watch: EngineWatch,
        *,
        artifacts: ArtifactStore,
        probed: Probed,
        registered: Registered,
        crashpoints: Crashpoints,
    ) -> None:
        self._engine = engine
        self._watch = watch
        self._artifacts = artifacts
        self._probed = probed
        self._registered = registered
        self._crashpoints = crashpoints
        self._turn = asyncio.Lock()

    async def load(self, name: str, adapter: Artifact) -> None:
        """Have the engine hold *adapter* under *name*, from its verified copy.

        Raises:
            VctlError: It does not list it so afterwards, or refused it.
        """
        path = str(self._artifacts.path(adapter.root))
        async with self._turn:
            self._probed.discard(name)  # a probe counts since the load, whoever unloaded it
            with self._giving(adapter.root):
                await self._engine.load(name, path)
                seen = await self._look()
        if not seen or not seen.has(name, path):
            raise TemporaryEngineError(f"the engine took {name} and does not list it")

    async def replace(self, name: str, adapter: Artifact, *, identity: str) -> None:
        """Give a service's own name another adapter, in one step.

        Args:
            name: The service's.
            adapter: What it is to stand for.
            identity: The release's name, which counts as unprobed from before until after.

        Raises:
            VctlError: The engine does not list it so afterwards, or refused it.
        """
        path = str(self._artifacts.path(adapter.root))
        async with self._turn:
            self._probed.discard(identity)
            with self._giving(adapter.root):
                await self._engine.replace(name, path)
                seen = await self._look()
        if not seen or not seen.has(name, path):
            raise TemporaryEngineError(f"the engine replaced {name} and does not list it so")

    async def unload(self, name: str) -> None:
        """Have the engine hold *name* no more.

        Raises:
            VctlError: It lists it still, or refused.
        """
        async with self._turn:
            await self._engine.unload(name)
            seen = await self._watch.refresh()
        if not seen or any(resident.name == name for resident in seen.adapters):
            raise TemporaryEngineError(f"the engine was told to unload {name} and still lists it")

    async def swap_base(self, root: str) -> None:
        """Have the engine hold the base of *root*, and nothing of the one before.

        Raises:
            PermanentEngineError: It refused, or what it says afterwards does not confirm it.
            TemporaryEngineError: It is away or busy; trying again may help.
        """
        path = str(self._artifacts.path(root)) if root else ""
        async with self._turn:
            before = self._watch.latest
            with self._giving(root) if root else nullcontext():
                with condemning(self._watch):
                    await self._engine.swap_base(path)
                self._crashpoints.passed("base swapped")
                after = await self._look()
        if after is None:
            raise TemporaryEngineError("the engine does not answer since its base was swapped")
        problem = _unconfirmed(before, after, path)
        if problem:
            raise PermanentEngineError(f"the change of the base is not confirmed: {problem}")
        _log.info("base swapped", root=root[:12])

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


@contextmanager
def condemning(watch: EngineWatch) -> Iterator[None]:
    """Note an engine of which nobody can know any more what it would answer."""
    incarnation = watch.incarnation  # the run that was asked
    try:
        yield
    except SuspectEngineError as found:
        watch.condemn(incarnation, found.message)
        raise


def _unconfirmed(before: Description | None, after: Description, path: str) -> str:
    """Return what speaks against it that the engine holds the base at *path* and nothing else."""
    if after.base_path != path:
        return f"the engine holds {after.base_path or 'the base that it was started with'}"
    if before and before.incarnation == after.incarnation and before.base_path != path:
        return "the engine says that it is as it was"
    if after.adapters:
        return f"{after.adapters[0].name} is still loaded"
    return f"{after.cached} entries are still cached" if after.cached else ""

"""Brings to the disk what a release needs, and verifies it there.

The work is done in a thread, that tells here how far it came. A release fetches until the last of
its artifacts is verified.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable

from vctl_agent.artifacts.stage import ArtifactStore
from vctl_agent.fetched import Fetched
from vctl_plans.errors import ArtifactError, NoRoom, VctlError
from vctl_plans.phase import Component, NodePhase
from vctl_plans.release import Artifact, Release
from vctl_plans.weights import KIND_OF

OnPhase = Callable[[NodePhase, int], None]
"""Told the phase, and how much of a long fetch is done, in per cent; 0: nothing worth a word."""

MakeRoom = Callable[[Artifact, bool], Awaitable[None]]
"""Makes room on the disk for an artifact before it is brought, or, told so, since the disk is full;
raises `NoRoom` where it knows that there is too little."""


class Stopped(VctlError):  # noqa: N818  it stops, nothing is wrong
    """The agent is shutting down: no word about the bytes, hence no `ArtifactError`."""


async def all_room(_artifact: Artifact, _is_full: bool) -> None:  # noqa: FBT001  as `MakeRoom`
    """Make no room: where nothing is ever collected."""


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


class Stager:
    """Stages what is missing of a release.

    Args:
        artifacts: The node's artifacts.
        make_room: Makes room for what is to be brought.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        artifacts: ArtifactStore,
        make_room: MakeRoom = all_room,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._artifacts = artifacts
        self._make_room = make_room
        self._clock = clock
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Have a copy or a hash that runs in a thread end soon."""
        self._stopping.set()

    async def stage(self, release: Release, on_phase: OnPhase) -> None:
        """Stage what is missing; what is staged is passed over.

        Args:
            release: Of which release.
            on_phase: Told when it enters a phase, and how far a long fetch came.

        Raises:
            VctlError: One could not be brought, or is not what its root says; those before it stay.
        """
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

"""A simulated node's disk: what outlives its processes, and the agent's stores on it."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from vctl_agent.artifacts.collect import Survey
from vctl_plans.errors import RootMismatch, TemporaryEngineError
from vctl_plans.names import root_hex
from vctl_plans.phase import NodePhase
from vctl_plans.release import Artifact, Release
from vctl_plans.retention import Lying
from vctl_plans.weights import AdapterFacts


class Disk:
    """What of a node outlives its processes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.staged: set[str] = set()  # roots whose every byte was verified
        self.probed: tuple[str, tuple[str, ...]] = ("", ())  # incarnation, adapters
        self.epoch: tuple[str, int] = ("", 0)  # incarnation, cache epoch
        self.registered: tuple[str, tuple[str, ...]] = ("", ())  # incarnation, roots
        self.handed: set[int] = set()  # releases whose files the application has
        self.saved: Any = None  # the gateway's

    def path(self, root: str) -> str:
        """Return where an artifact lies."""
        return f"/{self.name}/{root_hex(root)}"


class Mood(msgspec.Struct):
    """How an engine, and the way to the bytes, behave now."""

    slowness: float = 1.0
    refuses: str = ""  # "", "temporary" or "permanent"
    lies: bool = False  # says yes and does nothing
    errs: bool = False  # adapters are answered from what others left in the cache
    spoils: bool = False  # what is fetched is not what was released
    is_dry: bool = False  # nothing can be fetched


class Artifacts:
    """The agent's store of artifacts on a simulated disk, as the reconciler and executor use it."""

    def __init__(self, disk: Disk, mood: Callable[[], Mood]) -> None:
        self._disk = disk
        self._mood = mood

    def path(self, root: str) -> str:
        """Return where an artifact lies."""
        return self._disk.path(root)

    def is_staged(self, root: str) -> bool:
        """Whether it lies there, verified."""
        return root in self._disk.staged

    def adapter_facts(self, root: str) -> AdapterFacts:
        """Return what an adapter says of itself."""
        del root
        return AdapterFacts(rank=8, max_rank=8, alpha=16.0, target_modules=("q_proj",), base="base")

    def stage(
        self,
        artifact: Artifact,
        on_progress: Callable[[NodePhase, int, int], None],
        *,
        kind: str = "adapter",
    ) -> None:
        """Fetch and verify; other bytes than were released never get their place."""
        mood = self._mood()
        on_progress(NodePhase.FETCHING, 0, 0)
        if mood.is_dry:
            raise TemporaryEngineError(f"{artifact.source} cannot be read")
        on_progress(NodePhase.VERIFYING, 0, 0)
        if mood.spoils:
            raise RootMismatch(f"{artifact.source} is not {artifact.root}")
        self._disk.staged.add(artifact.root)


class Shelf:
    """Removes from a simulated disk, as `vctl_agent.artifacts.collect.Collector`."""

    def __init__(self, disk: Disk, on_remove: Callable[[str], None]) -> None:
        self._disk = disk
        self._on_remove = on_remove

    def survey(self) -> Survey:
        """Return what lies there; all artifacts are of one size."""
        whole = tuple(Lying(root, 1, age_s=1.0) for root in sorted(self._disk.staged))
        return Survey(whole=whole, begun=(), free_bytes=1000, size_bytes=1000)

    def set_aside(self, root: str) -> bool:
        """Have no artifact of *root*."""
        if root not in self._disk.staged:
            return False
        self._on_remove(root)
        self._disk.staged.discard(root)
        return True

    def give_up(self, _root: str) -> bool:
        """Say that nothing was begun."""
        return False

    def delete(self, _in_use: Iterable[str] = ()) -> None:
        """Do nothing: what is set aside takes no room here."""


class Handed:
    """What the application was handed, as `vctl_agent.application.Application` without a hook."""

    def __init__(self, disk: Disk, on_take: Callable[[int], None]) -> None:
        self._disk = disk
        self._on_take = on_take

    def held(self, _service: str) -> frozenset[int]:
        """Return the releases that the application has."""
        return frozenset(self._disk.handed)

    def has(self, release: Release) -> bool:
        """Whether the application has all of *release*."""
        return not release.for_application or release.number in self._disk.handed

    def template(self, _release: Release) -> None:
        """Apply nothing to chats."""

    def applied_prompt(self, _release: Release) -> str:
        """Return that nothing is applied."""
        return ""

    async def give(self, release: Release) -> None:
        """Hand over *release*."""
        if release.for_application:
            self._disk.handed.add(release.number)

    async def take(self, release: Release) -> None:
        """Take back *release*."""
        if release.number in self._disk.handed:
            self._on_take(release.number)
            self._disk.handed.discard(release.number)

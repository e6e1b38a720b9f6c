"""What the application sees of the releases on this node: a small file for each, and the hook.

`<state>/releases/<service>/<number>.json` says where the verified prompt and index of a release
lie. It is there, whole and read-only, before the release is ready, and goes after it was unloaded:
an application that is answered with ``x-vctl-release: 7`` finds the prompt of release 7. Releases
that only the engine reads have none.

The order that a change must keep: file, hook, note that the hook was done; and back: note, hook,
file. So a crash between any two leaves a file, by which the next agent knows what is still to be
done.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import structlog

from vctl_agent.artifacts.stage import ArtifactStore
from vctl_agent.crashpoints import Crashpoints
from vctl_agent.hook import AnyHook
from vctl_agent.probed import Probed
from vctl_plans import weights
from vctl_plans.errors import ArtifactError, NotAllowed, PlanError, TemporaryEngineError
from vctl_plans.names import check_name
from vctl_plans.phase import Component
from vctl_plans.prompt import Template
from vctl_plans.release import Release

_READ_ONLY = 0o444
_SUFFIX = ".json"
_MOST_KEPT = 64

_log = structlog.get_logger(__name__)


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One component of a release, on this node."""

    path: str  # of the verified directory, absolute
    root: str


class ReleaseFile(msgspec.Struct, frozen=True, kw_only=True):
    """What an application may rely on; fields are added, never changed."""

    v: int = 1
    service: str
    release: int
    digest: str
    vector: dict[Component, int]
    components: dict[Component, Part]


class Application:
    """Hands releases to the application, and takes them back.

    Args:
        state: The agent's directory.
        artifacts: Where the components lie.
        incarnation: Gives the engine's run; empty while it is away. A hook counts for one run.
        crashpoints: Counts effects.
        hook: The operator's command or address, if there is one.
    """

    def __init__(
        self,
        state: Path,
        artifacts: ArtifactStore,
        *,
        incarnation: Callable[[], str],
        crashpoints: Crashpoints,
        hook: AnyHook | None = None,
    ) -> None:
        self._directory = state / "releases"
        self._artifacts = artifacts
        self._incarnation = incarnation
        self._crashpoints = crashpoints
        self._hook = hook
        self._hooked = Probed(state / "hooked.json")
        self._templates: dict[str, Template | None] = {}  # by the prompt's root
        self._turns: dict[str, asyncio.Lock] = {}  # by service: its hook is called once at a time

    def open(self) -> None:
        """Read what an earlier process noted."""
        self._hooked.open()

    def path(self, service: str, number: int) -> Path:
        """Return where the file of a release is.

        Raises:
            NotAllowed: The service's name would lead out of our directory.
        """
        try:
            check_name(service, what="service")
        except PlanError as cause:
            raise NotAllowed(cause.message) from cause
        return self._directory / service / f"{number}{_SUFFIX}"

    def held(self, service: str) -> frozenset[int]:
        """Return the releases of *service* that the application was handed, and still has."""
        try:
            found = list(self.path(service, 0).parent.iterdir())
        except (OSError, NotAllowed):
            return frozenset()
        return frozenset(int(path.stem) for path in found if path.stem.isdecimal())

    def has(self, release: Release) -> bool:
        """Whether the application has all of *release*; looked at anew, not remembered."""
        if not release.for_application:
            return True
        is_handed = self._is_written(release) and self._is_told(release)
        return is_handed and self._can_be_applied(release)

    async def give(self, release: Release) -> None:
        """Hand over *release*, whose components are all staged; what is done already stays so.

        Raises:
            MalformedPrompt: Its prompt is to be applied to chats, and cannot be.
            ArtifactError: The file cannot be written now.
            EngineError: The hook did not do what was asked.
        """
        if not release.for_application:
            return
        self.template(release)
        if not self._is_written(release):
            self._write(release)
            self._crashpoints.passed("release file")
        if self._hook and not self._is_told(release):
            before = self._incarnation()
            await self._tell("load", release)
            if not before or before != self._incarnation():
                raise TemporaryEngineError("the engine was restarted while the hook ran")
            self._hooked.add(before, release.digest)
            self._crashpoints.passed("hook load")

    def template(self, release: Release) -> Template | None:
        """Return what is applied to the chats of *release*, which is staged; None: nothing.

        Raises:
            ArtifactError: It cannot be read.
        """
        prompt = release.components.get(Component.PROMPT)
        if prompt is None:
            return None
        if prompt.root not in self._templates:
            template = weights.read_template(self._artifacts.path(prompt.root))
            while len(self._templates) >= _MOST_KEPT:
                del self._templates[next(iter(self._templates))]
            self._templates[prompt.root] = template
        return self._templates[prompt.root]

    def applied_prompt(self, release: Release) -> str:
        """Return the directory of the prompt that is applied to chats; empty: none is."""
        prompt = release.components.get(Component.PROMPT)
        if prompt is None or not self._templates.get(prompt.root):
            return ""
        return str(self._artifacts.path(prompt.root).absolute())

    def _can_be_applied(self, release: Release) -> bool:
        try:
            self.template(release)
        except ArtifactError:
            return False  # `give` says why
        return True

    async def take(self, release: Release) -> None:
        """Take back *release*; one that was not handed over is no error.

        Raises:
            ArtifactError: The file cannot be removed now.
            EngineError: The hook did not do what was asked.
        """
        path = self.path(release.service, release.number)
        if not path.exists():
            return
        self._hooked.discard(release.digest)
        if self._hook:
            await self._tell("unload", release)
            self._crashpoints.passed("hook unload")
        try:
            path.unlink(missing_ok=True)
        except OSError as cause:
            raise ArtifactError(f"{path}: cannot be removed: {cause.strerror}") from cause
        self._crashpoints.passed("release file removed")

    def _is_written(self, release: Release) -> bool:
        parts = self._parts(release)
        try:
            written = self.path(release.service, release.number).read_bytes()
        except (OSError, NotAllowed):
            return False
        is_same = written == msgspec.json.encode(_file(release, parts))
        return is_same and all(Path(part.path).is_dir() for part in parts.values())

    def _is_told(self, release: Release) -> bool:
        return self._hook is None or self._hooked.has(self._incarnation(), release.digest)

    def _parts(self, release: Release) -> dict[Component, Part]:
        return {
            name: Part(path=str(self._artifacts.path(made.root).absolute()), root=made.root)
            for name, made in release.staged.items()
        }

    def _write(self, release: Release) -> None:
        """Write the file under another name, flushed and read-only, and rename it."""
        path = self.path(release.service, release.number)
        draft = path.with_name(f".{path.name}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            draft.unlink(missing_ok=True)  # of an agent that was killed; read-only, so not opened
            with draft.open("xb") as file:
                file.write(msgspec.json.encode(_file(release, self._parts(release))))
                os.fchmod(file.fileno(), _READ_ONLY)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        except OSError as cause:
            raise ArtifactError(f"{path}: cannot be written: {cause.strerror}") from cause

    async def _tell(self, event: str, release: Release) -> None:
        assert self._hook is not None  # noqa: S101  callers have looked
        file = _file(release, self._parts(release))
        document = msgspec.json.encode({"event": event, **msgspec.to_builtins(file)})
        async with self._turns.setdefault(release.service, asyncio.Lock()):
            await self._hook.run(event, document)
        _log.info("hook done", hook_event=event)


def _file(release: Release, parts: dict[Component, Part]) -> ReleaseFile:
    return ReleaseFile(
        service=release.service,
        release=release.number,
        digest=release.digest,
        vector=dict(sorted(release.vector.items())),
        components=parts,
    )

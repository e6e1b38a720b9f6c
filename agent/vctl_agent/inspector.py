"""Hashes again what lies on this node's disk: when an operator asks, and now and then by itself.

The scrub tells only of what has rotted. An artifact that has rotted counts as not verified any
more, so that no engine is given it again before it was brought anew; what is resident stays.
"""

import asyncio
from collections.abc import Callable, Iterable

import structlog

from vctl_agent.answering import Answering
from vctl_agent.artifacts.check import check_apart
from vctl_agent.artifacts.stage import ArtifactStore
from vctl_plans.errors import ArtifactError
from vctl_plans.inspection import SCRUB, Checked, Checks, VerifyRequest
from vctl_plans.phase import Component
from vctl_plans.release import Release
from vctl_plans.weights import KIND_OF

_log = structlog.get_logger(__name__)


class Inspector:
    """Checks staged artifacts, one at a time; `requests` are those for it.

    Args:
        artifacts: The node's artifacts.
        releases: Gives every release that is known now.
        wake: Called when there is something new to report.
    """

    def __init__(
        self,
        artifacts: ArtifactStore,
        releases: Callable[[], Iterable[Release]],
        wake: Callable[[], None],
    ) -> None:
        self._artifacts = artifacts
        self._releases = releases
        self._wake = wake
        self._rotten: dict[str, Checked] = {}  # by root
        self.requests = Answering(VerifyRequest, self._checks_of, wake)

    @property
    def checks(self) -> tuple[Checks, ...]:
        """What the node's report says."""
        scrub = (Checks(request=SCRUB, found=self.rotten),) if self.rotten else ()
        return (*self.requests.answers, *scrub)

    @property
    def rotten(self) -> tuple[Checked, ...]:
        """What has rotted on this disk, and was not brought anew since."""
        return tuple(
            self._rotten[root]
            for root in sorted(self._rotten)
            if not self._artifacts.is_staged(root)
        )

    async def _checks_of(self, request: VerifyRequest) -> Checks:
        found = [
            await self._check(*staged, request.id, is_background=False)
            for staged in self._staged(request.service)
        ]
        return Checks(request=request.id, found=tuple(found))

    async def scrub(self, every_s: float) -> None:
        """Check everything that is staged, spread over each *every_s* seconds, until cancelled."""
        while True:
            staged = self._staged("")
            for release, component in staged:
                await asyncio.sleep(every_s / len(staged))
                await self._check(release, component, SCRUB, is_background=True)
            if not staged:
                await asyncio.sleep(every_s)

    def _staged(self, service: str) -> list[tuple[Release, Component]]:
        """Return what lies here of which release, once for each root."""
        by_root = {
            made.root: (release, component)
            for release in self._releases()
            for component, made in release.staged.items()
            if service in {"", release.service} and self._artifacts.path(made.root).is_dir()
        }
        return [by_root[root] for root in sorted(by_root)]

    async def _check(
        self, release: Release, component: Component, request: str, *, is_background: bool
    ) -> Checked:
        root = release.components[component].root
        path, manifest = self._artifacts.path(root), self._artifacts.manifest_path(root)
        kind = KIND_OF[component]
        try:
            found = await check_apart(path, root, manifest, kind=kind, is_background=is_background)
            problem, size_bytes = found.problem, found.size_bytes
        except ArtifactError as cause:
            problem, size_bytes = cause.message, 0
        checked = Checked(
            request=request,
            service=release.service,
            number=release.number,
            root=root,
            component=component,
            size_bytes=size_bytes,
            problem=problem,
        )
        self._take(checked)
        return checked

    def _take(self, checked: Checked) -> None:
        was_rotten = checked.root in self._rotten
        if checked.is_good:
            self._rotten.pop(checked.root, None)
        elif self._artifacts.path(checked.root).is_dir():  # else it was removed meanwhile
            self._artifacts.distrust(checked.root)
            self._rotten[checked.root] = checked
            _log.error(
                "artifact has rotted",
                service=checked.service,
                release=checked.number,
                component=checked.component.value,
                problem=checked.problem,
            )
        if was_rotten != (checked.root in self._rotten):
            self._wake()

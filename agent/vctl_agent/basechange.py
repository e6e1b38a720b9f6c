"""The node's base weights: which it is to hold, and the change from one to another.

The order that a change must keep: first no release of the old base is offered, then the gateway has
confirmed it and nothing is in flight (or the drain deadline is over), then the engine swaps, and
only what it says afterwards counts: another incarnation, the base's directory, no adapter, empty
caches. Else the node is quarantined for that base.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import structlog

from vctl_agent.artifacts.stage import ArtifactStore
from vctl_agent.engines.port import Description
from vctl_agent.local import GatewayState
from vctl_agent.tries import Occasion, Tries
from vctl_plans.base import base_root, base_wanted
from vctl_plans.errors import VctlError
from vctl_plans.node_machine import Action, Failure
from vctl_plans.release import Release
from vctl_plans.snapshot import Fleet, Service

_log = structlog.get_logger(__name__)

_WHOLE = 0
"""Stands for the number of a release in `Tries`: a base is of no release alone."""


class Wanted(msgspec.Struct, frozen=True):
    """The base that the node is to hold."""

    root: str  # empty: the one that the engine was started with
    attempt: str  # of the rollout that wants it, within which a failure is final
    drain_s: float


class BaseChange:
    """Looks which base is wanted, and changes it when it may.

    Args:
        node: The node's name.
        artifacts: Where bases lie once they are staged.
        swap: Has the engine change to a root, and confirms it.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        node: str,
        *,
        artifacts: ArtifactStore,
        swap: Callable[[str], Awaitable[None]],
        clock: Callable[[], float],
    ) -> None:
        self._node = node
        self._artifacts = artifacts
        self._swap = swap
        self._clock = clock
        self._tries = Tries(clock)
        self._wanted: Wanted | None = None
        self._engine: Description | None = None
        self._drain_began: float | None = None
        self._is_swapping = False

    def look(self, fleet: Fleet, engine: Description | None) -> None:
        """Take what is wanted and what there is; all else here is said of these two."""
        self._wanted, self._engine = wanted(fleet, self._node), engine
        if self._is_settled:
            self._drain_began = None

    def path(self, root: str) -> str:
        """Return the directory of a base as the engine tells it."""
        return str(self._artifacts.path(root)) if root else ""

    def is_on_base(self, release: Release) -> bool:
        """Whether the engine holds the release's base, and no other is wanted."""
        is_wanted = self._wanted is None or base_root(release) == self._wanted.root
        return is_wanted and self._is_settled and self.is_held(release)

    def is_held(self, release: Release) -> bool:
        """Whether the engine holds the release's base, wanted or not."""
        return self._engine is not None and self._engine.base_path == self.path(base_root(release))

    @property
    def held_root(self) -> str:
        """The root of the base that the engine holds; empty: the one that it was started with."""
        path = self._engine.base_path if self._engine else ""
        return f"b3:{Path(path).name}" if path else ""

    def failure(self, release: Release) -> Failure | None:
        """Return why the node cannot hold the release's base, if it tried in vain."""
        if self._wanted is None or base_root(release) != self._wanted.root:
            return None
        found = self._failure(self._wanted)
        return found if found and (found.is_permanent or not self._is_settled) else None

    def wait_s(self) -> float | None:
        """Return when to look again though nothing happens; None: nothing is waited for."""
        if self._wanted is None or self._drain_began is None:
            return None
        return max(0.0, self._drain_began + self._wanted.drain_s - self._clock())

    def is_due(self, heard: GatewayState | None) -> bool:
        """Whether the engine is to swap now."""
        want, engine = self._wanted, self._engine
        if want is None or engine is None or self._is_settled or self._is_swapping:
            return False
        if engine.problem:
            return False
        failed = self._failure(want)
        if failed and (failed.is_permanent or failed.retry_in_s > 0):
            return False
        if want.root and not self._artifacts.is_staged(want.root):
            return False
        if self._drain_began is None:
            self._drain_began = self._clock()
        is_idle = heard is not None and not heard.accepted and not _in_flight(heard)
        return is_idle or self._clock() - self._drain_began >= want.drain_s

    async def change(self) -> None:
        """Swap; what went wrong is told by `failure` until another base, or attempt, is wanted."""
        want, engine = self._wanted, self._engine
        if want is None or engine is None:
            return
        self._is_swapping = True
        key, on = (want.root, _WHOLE), Occasion(want.attempt, engine.incarnation)
        try:
            await self._swap(want.root)
            self._tries.forget(key)
        except VctlError as error:
            self._tries.note(key, Action.SWAP_BASE, error, on=on)
        except Exception as bug:  # noqa: BLE001  it costs the node a wait, and not the agent
            _log.exception("the change of the base failed by a bug")
            self._tries.note(
                key, Action.SWAP_BASE, VctlError(f"{type(bug).__name__}: {bug}"), on=on
            )
        finally:
            self._is_swapping = False

    @property
    def _is_settled(self) -> bool:
        if self._wanted is None:
            return True
        held = self._engine.base_path if self._engine else None
        return not self._is_swapping and held == self.path(self._wanted.root)

    def _failure(self, want: Wanted) -> Failure | None:
        on = Occasion(want.attempt, "")
        key = (want.root, _WHOLE)
        return self._tries.failure(key, on, is_wanted=True, is_resident=False)


def wanted(fleet: Fleet, node: str) -> Wanted | None:
    """Return the base that the fleet's services have *node* hold; None: any.

    They want the same one, for no start lets it be otherwise; while a rollout changes it, its
    service decides.
    """
    for service in sorted(fleet.services.values(), key=_moves_no_base):
        release = base_wanted(service, node)
        if release:
            rollout = service.rollout
            return Wanted(
                root=base_root(release),
                attempt=rollout.attempt if rollout else "",
                drain_s=rollout.drain_s if rollout else 0.0,
            )
    return None


def _moves_no_base(service: Service) -> bool:
    return not (service.is_running and service.rollout and service.rollout.moves_base)


def _in_flight(heard: GatewayState) -> int:
    return sum(each.count for each in heard.in_flight)

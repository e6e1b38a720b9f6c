"""Unloads what the engine holds of releases that nobody knows any more, see `vctl_plans.orphans`.

Only what vctl itself loaded: its name is made of a root, and its directory is our verified copy of
that root. It must have been an orphan at every look for as long as a drain takes, with the store
and the gateway there to say so. A release that comes to be known while its adapter goes waits for
the end of that, see `doing`: by what is still listed it would be ready.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog

from vctl_agent.artifacts.stage import ArtifactStore
from vctl_agent.engines.watch import EngineWatch
from vctl_agent.gatewaylink import GatewayLink
from vctl_agent.placing import is_identity
from vctl_plans.errors import VctlError
from vctl_plans.names import is_root
from vctl_plans.orphans import orphans
from vctl_plans.snapshot import Fleet

_DRAIN_S = 30.0
_LOOK_S = 1.0

_log = structlog.get_logger(__name__)


class Orphans:
    """Looks, waits, and unloads.

    Args:
        artifacts: Where what vctl loads lies.
        watch: The engine.
        link: The gateway.
        fleet: What the store has; None: it does not answer.
        unload: Has the engine hold an adapter no more.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        artifacts: ArtifactStore,
        watch: EngineWatch,
        link: GatewayLink,
        *,
        fleet: Callable[[], Fleet | None],
        unload: Callable[[str], Awaitable[None]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._artifacts = artifacts
        self._watch = watch
        self._link = link
        self._fleet = fleet
        self._unload = unload
        self._clock = clock
        self._due = asyncio.Event()
        self._since: dict[str, float] = {}

    def look(self) -> None:
        """Take it that something has changed."""
        if self._found():
            self._due.set()

    def follow(self, fleet: Fleet) -> None:
        """Take it that the fleet has changed."""
        del fleet  # asked for anew whenever it counts
        self.look()

    async def run(self) -> None:
        """Unload orphans until cancelled."""
        while True:
            await self._due.wait()
            self._due.clear()
            while self._counted():
                for name in self._ripe():
                    await self._end(name)
                await asyncio.sleep(_LOOK_S)

    def _counted(self) -> bool:
        """Note since when each is an orphan without a break; return whether there is any."""
        now, found = self._clock(), self._found()
        self._since = {name: self._since.get(name, now) for name in sorted(found)}
        return bool(found)

    def _ripe(self) -> list[str]:
        now = self._clock()
        return [name for name, since in self._since.items() if now - since >= _DRAIN_S]

    async def _end(self, name: str) -> None:
        if name not in self._found():  # since the one before was unloaded
            return
        _log.warning("unloading what no release that is known names", adapter=name)
        try:
            await self._unload(name)
        except VctlError as cause:
            self._since[name] = self._clock()  # it waits as long again
            _log.warning("not unloaded", adapter=name, cause=cause.message)

    def _found(self) -> frozenset[str]:
        engine, fleet, heard = self._watch.latest, self._fleet(), self._link.heard
        if engine is None or engine.problem or fleet is None:
            return frozenset()
        if heard is None and not self._link.is_absent:
            return frozenset()
        held = {each.name for each in engine.adapters if self._is_ours(each.name, each.path)}
        ready, in_flight = (heard.accepted, heard.in_flight) if heard else ((), ())
        return orphans(
            fleet,
            held,
            requested={(r.service, r.number) for r in ready}
            | {(r.service, r.number) for r in in_flight},
            offered={each.model.rpartition(":")[2] for each in ready},
        )

    def _is_ours(self, name: str, path: str) -> bool:
        root = f"b3:{Path(path).name}"
        is_copy = is_root(root) and path == str(self._artifacts.path(root))
        return is_copy and is_identity(name, path)

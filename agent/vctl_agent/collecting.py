"""Removes artifacts that nothing needs: after a rollout, each hour, for room, and when asked.

What may go is decided by `vctl_plans.retention`, on what is known at that very moment, and set
aside in the same step of the event loop; so nothing can begin to need it in between. Deleting it
takes its time in a thread.
"""

import asyncio
import sys
from collections.abc import Callable

import msgspec
import structlog

from vctl_agent.answering import Answering
from vctl_agent.application import Application
from vctl_agent.artifacts.collect import Collector, Survey
from vctl_agent.crashpoints import Crashpoints
from vctl_agent.engines.watch import EngineWatch
from vctl_agent.gatewaylink import GatewayLink
from vctl_agent.local import GatewayState
from vctl_agent.registered import Registered, listed_roots
from vctl_plans.errors import NoRoom
from vctl_plans.inspection import Collected, CollectRequest
from vctl_plans.release import Artifact
from vctl_plans.retention import Known, Retention, retain, shortage
from vctl_plans.snapshot import Fleet
from vctl_plans.units import bytes_text

_EVERY_S = 3600.0
_AGAIN_S = 60.0
"""After a look at which not all was known."""

_NAMED_ROOTS = 50
_USE_STEP = 0.1
"""Of the room for artifacts: a smaller change is not reported."""

_log = structlog.get_logger(__name__)


class Room(msgspec.Struct, frozen=True):
    """What the operator allows."""

    keep: int = 3  # of each service's newest releases
    space_bytes: int = 0  # that artifacts may take; 0: what the disk has


class Needs(msgspec.Struct, frozen=True):
    """Those who know what is needed."""

    fleet: Callable[[], Fleet | None]  # None: the store is away
    engine: EngineWatch
    link: GatewayLink
    application: Application
    registered: Registered

    def known(self) -> Known:
        """Return what is needed just now."""
        engine, heard, fleet = self.engine.latest, self.link.heard, self.fleet()
        self.registered.see(engine)
        services = fleet.services if fleet else ()
        return Known(
            fleet=fleet,
            listed=listed_roots(engine) if engine else None,
            registered=self.registered.roots,
            requested=_requested(heard) if heard or self.link.is_absent else None,
            handed=frozenset((s, n) for s in services for n in self.application.held(s)),
        )


def _requested(heard: GatewayState | None) -> frozenset[tuple[str, int]]:
    """Return the releases that requests are on, or that the gateway may hand out now."""
    if heard is None:
        return frozenset()
    on = ((each.service, each.number) for each in heard.in_flight)
    offered = ((each.service, each.number) for each in heard.accepted)
    return frozenset((*on, *offered))


class Collecting:
    """Collects one node's artifacts, one collection at a time; `requests` are those for it.

    Args:
        collector: Removes.
        needs: Says what is needed.
        room: What the operator allows.
        wake: Called when there is something new to report.
        crashpoints: Counts effects.
    """

    def __init__(
        self,
        collector: Collector,
        needs: Needs,
        *,
        room: Room,
        wake: Callable[[], None],
        crashpoints: Crashpoints,
    ) -> None:
        self._collector = collector
        self._needs = needs
        self._room = room
        self._wake = wake
        self._crashpoints = crashpoints
        self._turn = asyncio.Lock()
        self._due = asyncio.Event()
        self._ended: set[tuple[str, str]] | None = None  # rollouts, by service; None: not told yet
        self._incarnation = ""
        self.requests = Answering(CollectRequest, self._answer, wake)
        self.used: float | None = None  # share of the room, in coarse steps

    def follow(self, fleet: Fleet) -> None:
        """Take the services as they are now; once a rollout has ended, collect."""
        ended = {
            (service.name, service.rollout.id)
            for service in fleet.services.values()
            if service.rollout and service.rollout.phase.is_terminal
        }
        if self._ended is None or ended - self._ended:
            self._due.set()
        self._ended = ended

    def look(self) -> None:
        """Take the engine as it is now; once another run of it is there, collect."""
        engine = self._needs.engine.latest
        self._needs.registered.see(engine)
        if engine and engine.incarnation != self._incarnation:
            self._incarnation = engine.incarnation
            self._due.set()

    async def _answer(self, request: CollectRequest) -> Collected:
        return _answer(request, await self.collect(is_dry=request.is_dry))

    async def run(self) -> None:
        """Collect whenever it is due, until cancelled."""
        wait_s = _AGAIN_S
        while True:
            try:
                async with asyncio.timeout(wait_s):
                    await self._due.wait()
            except TimeoutError:
                pass
            self._due.clear()
            found = await self.collect()
            wait_s = _AGAIN_S if found.unknown else _EVERY_S

    async def make_room(
        self,
        artifact: Artifact,
        is_full: bool,  # noqa: FBT001  as `stager.MakeRoom`
    ) -> None:
        """Have room for an artifact that is to be brought; one of unknown size is let pass.

        Args:
            artifact: Which.
            is_full: It was tried, and the disk was full: whatever may go, goes.

        Raises:
            NoRoom: There is too little, and nothing more may go.
        """
        if is_full:
            await self.collect(needed_bytes=sys.maxsize)
            return
        if not artifact.size_bytes:
            return
        found = await asyncio.to_thread(self._collector.survey)
        if any(each.root == artifact.root for each in found.whole):
            return  # it is only to be verified
        begun = sum(each.size_bytes for each in found.begun if each.root == artifact.root)
        needed_bytes = max(0, artifact.size_bytes - begun)
        if not self._shortage(found, needed_bytes):
            return
        decided = await self.collect(needed_bytes=needed_bytes)
        found = await asyncio.to_thread(self._collector.survey)
        short = self._shortage(found, needed_bytes)
        if short:
            raise NoRoom(
                f"{bytes_text(needed_bytes)} are to be brought and {bytes_text(short)} are missing;"
                f" what stays: {decided.unknown or stays_text(decided)}",
                hint="see vctl node gc --dry-run, and --artifact-space of vctl-agent",
            )

    async def collect(self, *, is_dry: bool = False, needed_bytes: int = 0) -> Retention:
        """Remove what may go; return what was decided, less what could not be removed.

        Args:
            is_dry: Decide, and remove nothing.
            needed_bytes: What is to be brought: where there is too little room, more may go.
        """
        async with self._turn:
            found = await asyncio.to_thread(self._collector.survey)
            decided = retain(
                found.whole,
                found.begun,
                self._needs.known(),
                keep=self._room.keep,
                shortage_bytes=self._shortage(found, needed_bytes),
            )
            if not is_dry:
                decided = self._set_aside(decided)
                in_use = [root for root, why in decided.stays.items() if not why.is_comfort]
                await asyncio.to_thread(self._collector.delete, in_use)
                self._tell(decided)
            self._note_use(found, 0 if is_dry else decided.freed_bytes)
        return decided

    def _set_aside(self, decided: Retention) -> Retention:
        """Set aside what goes, in the step of the event loop that decided it."""
        return msgspec.structs.replace(
            decided,
            goes=tuple(e for e in decided.goes if self._collector.set_aside(e.root)),
            given_up=tuple(e for e in decided.given_up if self._collector.give_up(e.root)),
        )

    def _shortage(self, found: Survey, needed_bytes: int) -> int:
        return shortage(
            found.used_bytes,
            limit_bytes=self._room.space_bytes,
            needed_bytes=needed_bytes,
            free_bytes=found.free_bytes if needed_bytes else None,
        )

    def _tell(self, decided: Retention) -> None:
        if not decided.goes and not decided.given_up:
            return
        self._crashpoints.passed("artifacts removed")
        _log.info(
            "artifacts removed",
            removed=[each.root[:15] for each in decided.goes],
            given_up=len(decided.given_up),
            freed_bytes=decided.freed_bytes,
            stays=len(decided.stays),
        )

    def _note_use(self, found: Survey, freed_bytes: int) -> None:
        """Note the share of the room that is used; a small change is no news."""
        limit = self._room.space_bytes
        taken = found.used_bytes if limit else found.size_bytes - found.free_bytes
        now = round(max(0, taken - freed_bytes) / max(1, limit or found.size_bytes), 2)
        if self.used is None or abs(now - self.used) >= _USE_STEP:
            self.used = now
            self._wake()


def _answer(request: CollectRequest, decided: Retention) -> Collected:
    reasons: dict[str, int] = {}
    for why in decided.stays.values():
        reasons[why.value] = reasons.get(why.value, 0) + 1
    return Collected(
        request=request.id,
        removed=tuple(each.root for each in decided.goes[:_NAMED_ROOTS]),
        count=len(decided.goes),
        freed_bytes=decided.freed_bytes,
        kept=len(decided.stays),
        reasons=reasons,
        problem=decided.unknown,
    )


def stays_text(decided: Retention) -> str:
    """Return why what stays does, as in ``2 routed, 1 loaded``."""
    counts = {why: list(decided.stays.values()).count(why) for why in decided.stays.values()}
    return ", ".join(f"{n} {why}" for why, n in sorted(counts.items())) or "nothing else is here"

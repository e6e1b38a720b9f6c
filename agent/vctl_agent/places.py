"""Whether this node's engine has a place, and memory, for an adapter that is to be loaded.

An engine whose places are full is asked for nothing: it would drop an adapter by its own choice,
perhaps one that serves. The release waits, with the numbers as its reason. What serves comes first,
then what a rollout brings, then what is retained: after a restart of the engine the last place is
not taken by what nobody asks for.
"""

from collections.abc import Callable, Mapping

from vctl_agent.engines.port import Description
from vctl_agent.gpu import Memory
from vctl_agent.holdings import is_adapter
from vctl_plans.base import has_place
from vctl_plans.capacity import no_place, too_little_memory
from vctl_plans.phase import NodePhase
from vctl_plans.release import Release
from vctl_plans.rollout import wanted
from vctl_plans.snapshot import Fleet, Service

IsHopeless = Callable[[Service, Release], bool]


class Places:
    """Judges by the engine's latest description.

    Args:
        node: The node's name.
        doing: What is being done, by what is changed.
        is_hopeless: Whether a release can never be loaded here: no place is kept for it.
        memory: What a GPU tells of its memory, for engines that tell nothing of theirs.
    """

    def __init__(
        self,
        node: str,
        *,
        doing: Mapping[str, NodePhase],
        is_hopeless: IsHopeless,
        memory: Callable[[], Memory | None],
    ) -> None:
        self._node = node
        self._doing = doing
        self._is_hopeless = is_hopeless
        self._memory = memory
        self._engine: Description | None = None
        self._ranks: dict[str, tuple[int, Service, Release]] = {}  # by adapter

    def look(self, fleet: Fleet, engine: Description | None) -> None:
        """Take what is wanted of all services, and what there is."""
        self._engine, self._ranks = engine, {}
        for service in fleet.services.values():
            for number in wanted(service.route, service.rollout):
                release = service.releases.get(number)
                if release and release.engine_name and has_place(service, number, self._node):
                    rank = _rank(service, number)
                    known = self._ranks.get(release.engine_name)
                    if known is None or rank < known[0]:
                        self._ranks[release.engine_name] = (rank, service, release)

    def problem(self, service: Service, release: Release) -> str:
        """Return why the release's adapter cannot be loaded now; empty: it can."""
        engine, name = self._engine, release.engine_name
        if engine is None or not name or any(held.name == name for held in engine.adapters):
            return ""
        loading = {n for n, phase in self._doing.items() if phase is NodePhase.LOADING}
        held = {each.name for each in engine.adapters} | {n for n in loading if is_adapter(n)}
        own = self._ranks[name][0] if name in self._ranks else _LAST
        before = {
            other
            for other, (rank, theirs, made) in self._ranks.items()
            if rank < own and not self._is_hopeless(theirs, made)
        }
        full = no_place(engine.facts, name=name, held=held, before=before)
        return full or self._memory_problem(service, release, engine)

    def _memory_problem(self, service: Service, release: Release, engine: Description) -> str:
        least = service.rollout.free_memory if service.rollout else None
        free, total = engine.free_memory, engine.memory_bytes
        if free is None and least is not None:
            told = self._memory()
            free, total = (told.free, told.total_bytes) if told else (None, None)
        size = release.adapter.size_bytes if release.adapter else 0
        return too_little_memory(free=free, total_bytes=total, size_bytes=size, least=least)


_SERVES, _BROUGHT, _LAST = range(3)


def _rank(service: Service, number: int) -> int:
    """Return how much a release that is wanted is wanted; less is more."""
    route, rollout = service.current_route, service.rollout
    if number in route.serving:
        return _SERVES
    brought = {rollout.to_release, rollout.back_to} if rollout and service.is_running else set()
    return _LAST if number in route.instant and number not in brought else _BROUGHT

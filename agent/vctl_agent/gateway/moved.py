"""Who was answered by what while a service moves: the gateway's own table of sessions.

The hash alone holds on the candidate whom its share has reached. This holds those as well that were
sent there by another rule (by name, by a weight that was lowered), and tells how many sessions hold
on to which release. It never holds a session back.

Bounded three ways: in sessions, of which those not seen for longest are forgotten first, and of
each of which little is kept (a long key's digest, for a client may choose its own); in time,
for a session that has been idle that long will hardly notice; and to what moves, for a table is
emptied once its service has no candidate, or another one.
"""

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping

from vctl_agent.gateway.pins import bounded

MAX_SESSIONS = 65_536
"""Of all services, that a gateway remembers."""

IDLE_S = 3600.0
"""After which a session is forgotten."""


class Moved:
    """The table.

    Args:
        limit: The most sessions.
        idle_s: Seconds after which one that asked nothing is forgotten.
        clock: Seconds, monotonic.
    """

    def __init__(
        self,
        limit: int = MAX_SESSIONS,
        *,
        idle_s: float = IDLE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit = limit
        self._idle_s = idle_s
        self._clock = clock
        self._size = 0
        self._tables: dict[str, _Table] = {}

    def has(self, service: str, key: str, candidate: int) -> bool:
        """Whether the session was answered last by this candidate."""
        table = self._tables.get(service)
        return table is not None and table.release_of(bounded(key)) == candidate

    def note(self, service: str, key: str, release: int, *, candidate: int) -> None:
        """Note which release answers a session while there is a candidate."""
        table = self._tables.get(service)
        if table is None or table.candidate != candidate:
            self._forget(service)
            table = self._tables[service] = _Table(candidate)
        now = self._clock()
        self._size += table.put(bounded(key), release, now)
        self._size -= table.pop_before(now - self._idle_s)
        if self._size > self._limit:
            largest = max(self._tables.values(), key=len)
            self._size -= largest.pop_oldest()

    def keep(self, candidates: Mapping[str, int]) -> None:
        """Forget what is of no service that moves, or of another candidate than it has."""
        for service, table in list(self._tables.items()):
            if candidates.get(service, 0) != table.candidate:
                self._forget(service)

    def held(self) -> dict[str, dict[int, int]]:
        """Return how many sessions each release of each service that moves has."""
        return {service: table.counts() for service, table in sorted(self._tables.items())}

    def _forget(self, service: str) -> None:
        table = self._tables.pop(service, None)
        self._size -= len(table) if table else 0


class _Table:
    """The sessions of one service, those seen last at the end."""

    def __init__(self, candidate: int) -> None:
        self.candidate = candidate
        self._seen: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._counts: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self._seen)

    def release_of(self, key: str) -> int:
        return self._seen.get(key, (0, 0.0))[0]

    def counts(self) -> dict[int, int]:
        return {release: count for release, count in sorted(self._counts.items()) if count}

    def put(self, key: str, release: int, now: float) -> int:
        """Put a session last; return how many more there are."""
        before = self._seen.pop(key, None)
        if before:
            self._counts[before[0]] -= 1
        self._seen[key] = release, now
        self._counts[release] += 1
        return 0 if before else 1

    def pop_before(self, moment: float) -> int:
        """Forget who was not seen since; return how many."""
        popped = 0
        while self._seen and next(iter(self._seen.values()))[1] < moment:
            popped += self.pop_oldest()
        return popped

    def pop_oldest(self) -> int:
        """Forget who was not seen for longest; return how many that is."""
        _, (release, _) = self._seen.popitem(last=False)
        self._counts[release] -= 1
        return 1

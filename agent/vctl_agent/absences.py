"""How long nodes have been away, on this conductor's clock: a new one counts anew."""

from collections.abc import Callable, Collection, Iterable


class Absences:
    """Since when each node has been missed.

    Args:
        clock: Seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}

    def look(self, present: Collection[str]) -> None:
        """Forget the absence of those who are here; to be called with each look at the fleet."""
        for node in self._since.keys() & set(present):
            del self._since[node]

    def gone(
        self, roster: Iterable[str], present: Collection[str], *, longer_than_s: float
    ) -> frozenset[str]:
        """Return who of *roster* has been away for longer than that, without a break."""
        now = self._clock()
        away = [node for node in roster if node not in present]
        return frozenset(
            node for node in away if now - self._since.setdefault(node, now) > longer_than_s
        )

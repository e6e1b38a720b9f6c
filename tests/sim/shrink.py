"""Make a broken history smaller: fewer troubles, fewer nodes, a shorter time, the same breakage.

Delta debugging (Zeller and Hildebrandt, 2002) over the list of troubles; since each process draws
its own delays, a trouble less changes little of what the others live through.
"""

from collections.abc import Callable, Iterator

import msgspec

from tests.sim.history import History, Outcome, Spec, run

Run = Callable[[Spec], Outcome]

MOST_TRIES = 300


def kind_of(broken: str) -> str:
    """Return what makes two breakages the same: the invariant, or the error's type."""
    return broken.partition(":")[0]


class _Shrinker:
    def __init__(self, spec: Spec, outcome: Outcome, attempt: Run) -> None:
        self.best, self.outcome = spec, outcome
        self.tries = 0
        self._kind = kind_of(outcome.broken)
        self._attempt = attempt

    def is_better(self, spec: Spec) -> bool:
        """Whether *spec* breaks too; then it is the best so far."""
        if self.tries >= MOST_TRIES:
            return False
        self.tries += 1
        outcome = self._attempt(spec)
        if not outcome.broken or kind_of(outcome.broken) != self._kind:
            return False
        self.best, self.outcome = spec, outcome
        return True

    def drop_troubles(self, count: int) -> None:
        """Leave out as many troubles as can be, in halves, quarters, ... and one by one."""
        parts = 2
        while parts <= 2 * count:
            left = [place for place in range(count) if place not in self.best.without]
            dropped = any(self._without(part) for part in _parts(left, parts))
            if not dropped:
                if parts >= len(left):
                    return
                parts = min(parts * 2, max(1, len(left)))

    def _without(self, places: list[int]) -> bool:
        without = tuple(sorted({*self.best.without, *places}))
        if without == self.best.without:
            return False
        return self.is_better(msgspec.structs.replace(self.best, without=without))

    def shorten(self, nodes: int, until_s: float) -> None:
        """Use the fewest nodes, and the shortest trouble."""
        for fewer in range(1, nodes):
            if self.is_better(msgspec.structs.replace(self.best, nodes=fewer)):
                break
        for share in (0.1, 0.25, 0.5, 0.75):
            earlier = msgspec.structs.replace(self.best, until_s=round(until_s * share, 3))
            if self.is_better(earlier):
                break


def _parts(places: list[int], count: int) -> Iterator[list[int]]:
    size = max(1, -(-len(places) // count))
    for start in range(0, len(places), size):
        yield places[start : start + size]


def shrunk(spec: Spec, outcome: Outcome, attempt: Run = run) -> tuple[Spec, Outcome, int]:
    """Return the smallest spec found that breaks as *outcome* did, its outcome, and the tries."""
    history = History(spec)
    shrinker = _Shrinker(spec, outcome, attempt)
    shrinker.drop_troubles(len(history.troubles))
    shrinker.shorten(history.size, history.until_s)
    shrinker.drop_troubles(len(history.troubles))
    return shrinker.best, shrinker.outcome, shrinker.tries

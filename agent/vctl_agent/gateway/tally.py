"""Counts by release, as cheap to add to as a request allows; Prometheus reads them at a scrape."""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate

from vctl_plans.statistics import ErrorClass

# From a cached embedding to a long stream.
BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)

MOST = 1024
"""Releases that are counted for at a time; beyond, the one whose counting began first is let go."""


class Spread:
    """How long something took: how often up to each of `BUCKETS_S`, and in all."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_S) + 1)
        self.sum_s = 0.0

    def add(self, seconds: float) -> None:
        """Count one."""
        self.counts[bisect_left(BUCKETS_S, seconds)] += 1
        self.sum_s += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Return the counts up to each bound, as Prometheus has them."""
        bounds = [*map(str, map(float, BUCKETS_S)), "+Inf"]
        return list(zip(bounds, accumulate(self.counts), strict=True))


class Tally:
    """One release's counts."""

    __slots__ = ("errors", "first_token", "hops", "seconds", "statuses")

    def __init__(self) -> None:
        self.statuses: dict[int, int] = {}
        self.errors: dict[ErrorClass, int] = {}
        self.hops: dict[tuple[str, str], int] = {}  # direction and outcome
        self.seconds = Spread()
        self.first_token = Spread()


class Tallies:
    """All releases' counts, bounded whatever is routed and released."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._found: dict[tuple[str, int], Tally] = {}

    def of(self, service: str, release: int) -> Tally:
        """Return a release's counts, to add to."""
        tally = self._found.get((service, release))
        if tally is None:
            if len(self._found) >= self._most:
                del self._found[next(iter(self._found))]
            tally = self._found[service, release] = Tally()
        return tally

    def items(self) -> Iterator[tuple[str, str, Tally]]:
        """Yield service, release and counts."""
        for (service, release), tally in self._found.items():
            yield service, str(release), tally

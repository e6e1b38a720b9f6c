"""How far a long fetch is, in steps of a quarter: what a report says of it, and no more often.

A node's report is a write to etcd, and a fleet has thousands of nodes. So a fetch that is over soon
is not told of at all, and a long one three times.
"""

from collections.abc import Callable, Sequence

STEPS = (25, 50, 75)
"""Per cent."""

LONG_S = 3.0
"""A fetch that takes less than this is not told of."""


class Fetched:
    """What of one release's artifacts has come; used from the thread that fetches.

    Args:
        sizes: Each artifact's bytes as its release says them; 0 where it does not.
        clock: Monotonic seconds.
    """

    def __init__(self, sizes: Sequence[int], clock: Callable[[], float]) -> None:
        self._sizes = list(sizes)
        self._done = [0] * len(sizes)
        self._clock = clock
        self._began = clock()
        self._told = 0

    def step(self, index: int, done: int, size: int) -> int:
        """Take how far one artifact is; return the step that is to be told now, or 0.

        Args:
            index: Which artifact.
            done: Its bytes that are here.
            size: Its bytes in all; 0: not known.
        """
        self._sizes[index] = size or self._sizes[index]
        self._done[index] = done
        total = sum(self._sizes)
        if not total or self._clock() - self._began < LONG_S:
            return 0
        percent = 100 * sum(self._done) // total
        reached = max((step for step in STEPS if step <= percent), default=0)
        if reached <= self._told:
            return 0
        self._told = reached
        return reached

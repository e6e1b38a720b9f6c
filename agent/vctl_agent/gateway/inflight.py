"""References: how many requests hold each release now.

A reference is taken before the release is checked and given back on every path out, so a count of 0
means that no request is, or can come to be, on the release. Taking and checking happen in one
event-loop step, so no lock is needed.
"""

from collections.abc import Callable
from types import TracebackType

from vctl_agent.gateway.state import ReleaseId
from vctl_agent.local import InFlight


class References:
    """The counts.

    Args:
        on_edge: Called when a count leaves 0 or returns to it; must not wait.
    """

    def __init__(self, on_edge: Callable[[], None]) -> None:
        self._on_edge = on_edge
        self._counts: dict[ReleaseId, int] = {}  # every count is above 0
        self._last: Reference | None = None  # of the release that was held last; it has no state

    def hold(self, release_id: ReleaseId) -> "Reference":
        """Return a reference; it counts from entering the ``with`` block to leaving it."""
        last = self._last
        if last is None or last.release_id != release_id:
            last = self._last = Reference(self, release_id)
        return last

    def count(self, release_id: ReleaseId) -> int:
        """Return how many requests hold the release."""
        return self._counts.get(release_id, 0)

    @property
    def total(self) -> int:
        """How many requests hold any release."""
        return sum(self._counts.values())

    def listing(self) -> tuple[InFlight, ...]:
        """Return all counts above 0, in order."""
        return tuple(
            InFlight(service=service, number=number, count=count)
            for (service, number), count in sorted(self._counts.items())
        )

    def take(self, release_id: ReleaseId) -> None:
        """Count one more; `Reference` calls it."""
        count = self._counts.get(release_id, 0)
        self._counts[release_id] = count + 1
        if not count:
            self._on_edge()

    def give_back(self, release_id: ReleaseId) -> None:
        """Count one less; `Reference` calls it."""
        count = self._counts[release_id] - 1
        if count:
            self._counts[release_id] = count
        else:
            del self._counts[release_id]
            self._on_edge()


class Reference:
    """References on one release: each that enters is counted until it leaves."""

    __slots__ = ("_references", "release_id")

    def __init__(self, references: References, release_id: ReleaseId) -> None:
        self._references = references
        self.release_id = release_id

    def __enter__(self) -> None:
        self._references.take(self.release_id)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._references.give_back(self.release_id)

"""The latest values of the queries that guardrails name, asked for beside everything else.

Nobody waits for an answer: a decision takes the latest there is. A value counts for the step in
which it was asked for, since what was true before says nothing of the step's traffic.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol

import structlog

_log = structlog.get_logger(__name__)


class Source(Protocol):
    """Where values come from; `prometheus.Prometheus` is one."""

    async def value(self, query: str) -> float | None:
        """Return a query's value, None when it has none."""
        ...


class Occasion(NamedTuple):
    """A rollout's step under its route: what a value counts for."""

    rollout: str
    step: int
    route_revision: int


class _Asked:
    """What one rollout's present step asks for."""

    def __init__(self, occasion: Occasion, queries: Collection[str], every_s: float) -> None:
        self.occasion = occasion
        self.queries = tuple(queries)
        self.every_s = every_s
        self.due: float | None = None  # None: at once
        self.values: dict[str, float | None] = {}


class Queries:
    """Asks while it is wanted.

    Args:
        source: Who answers; None: nobody does, and no query has a value.
        clock: Seconds, monotonic.
    """

    def __init__(
        self, source: Source | None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._source = source
        self._clock = clock
        self._asked: dict[str, _Asked] = {}  # by service
        self._changed = asyncio.Event()

    def values(
        self, service: str, occasion: Occasion, queries: Collection[str], *, every_s: float
    ) -> Mapping[str, float | None]:
        """Return what is known, and have it asked for again every so often from now on."""
        asked = self._asked.get(service)
        if asked is None or asked.occasion != occasion:
            asked = self._asked[service] = _Asked(occasion, queries, every_s)
            self._changed.set()
            if queries and self._source is None:
                _log.warning("a plan has queries, and no --prometheus-url is set", service=service)
        return dict(asked.values)

    def keep(self, services: Collection[str]) -> None:
        """Ask no more for any but *services*."""
        self._asked = {s: asked for s, asked in self._asked.items() if s in services}

    async def run(self) -> None:
        """Ask for what is due, until cancelled."""
        while True:
            for asked in list(self._asked.values()):
                if asked.due is None or asked.due <= self._clock():
                    await self._ask(asked)
            dues = [asked.due or 0.0 for asked in self._asked.values() if asked.queries]
            try:
                async with asyncio.timeout(max(0.0, min(dues) - self._clock()) if dues else None):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()

    async def _ask(self, asked: _Asked) -> None:
        asked.due = self._clock() + asked.every_s
        if self._source:
            found = await asyncio.gather(*map(self._source.value, asked.queries))
            asked.values = dict(zip(asked.queries, found, strict=True))

"""Follows what the store holds of the fleet, for ever: no refusal of the store ends an agent.

A role may be given back, and a store may come back. Only one that was restored or replaced is
followed no more, until an operator accepts it: what it says now may be older than what was acted
on.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

import structlog

from vctl_agent.requests import read_requests
from vctl_agent.wishes import Wishes
from vctl_plans.errors import RestoredBackup, StoreError
from vctl_plans.inspection import OperatorRequest
from vctl_plans.keys import Keys
from vctl_plans.snapshot import Fleet
from vctl_plans.store.port import KeyValue, Store

_RETRY_S = 2.0

_log = structlog.get_logger(__name__)

UNHEARD = "the store has not answered yet"
SILENT = "the store does not answer"


async def _for_ever() -> None:
    await asyncio.Event().wait()


async def keep_following(
    follow: Callable[[], Awaitable[None]],
    note: Callable[[str], None],
    *,
    what: str,
    on_restored: Callable[[], Awaitable[None]] = _for_ever,
) -> None:
    """Follow for ever, again whenever it ends.

    Args:
        follow: Follows until the store refuses.
        note: Told why nothing is followed just now.
        what: What is followed, for the log.
        on_restored: Awaited once the store is another than it was; it may end this by raising.
    """
    while True:
        try:
            await follow()
        except RestoredBackup as cause:
            note(cause.message)
            _log.error("the store was restored or replaced: nothing moves", cause=cause.message)
            await on_restored()
        except StoreError as cause:
            note(cause.message)
            _log.error("cannot be followed", what=what, cause=cause.message)
        await asyncio.sleep(_RETRY_S)


class Following:
    """Follows the fleet's services.

    Args:
        store: The store.
        keys: The fleet's keys.
        takers: Each is given what the fleet wants, whenever that changed.
        on_entries: Given the same with the keys that it was read from, before the takers are.
        on_restored: See `keep_following`.
    """

    def __init__(
        self,
        store: Store,
        keys: Keys,
        takers: Sequence[Callable[[Fleet], None]],
        *,
        on_entries: Callable[[Fleet, Mapping[str, KeyValue]], None] = lambda *_: None,
        on_restored: Callable[[], Awaitable[None]] = _for_ever,
    ) -> None:
        self._store = store
        self._keys = keys
        self._takers = takers
        self._on_entries = on_entries
        self._on_restored = on_restored
        self._wishes = Wishes(keys)
        self.problem = UNHEARD  # empty while the store answers

    async def run(self) -> None:
        """Follow until cancelled."""
        await keep_following(
            self._follow, self._note, what="services", on_restored=self._on_restored
        )

    def _note(self, problem: str) -> None:
        self.problem = problem

    async def _follow(self) -> None:
        updates = self._store.watch(self._keys.services)
        async with contextlib.aclosing(updates):  # type: ignore[type-var]
            async for update in updates:
                if not update.is_live:
                    self.problem = SILENT
                    continue
                self.problem = ""
                fleet = self._wishes.read(update.entries)
                self._on_entries(fleet, update.entries)
                for take in self._takers:
                    take(fleet)
                for problem in self._wishes.new_problems:
                    _log.error("unreadable", problem=problem)


async def follow_requests(
    store: Store,
    keys: Keys,
    node: str,
    askers: Iterable[Callable[[list[OperatorRequest]], None]],
    *,
    on_refused: Callable[[], None] = lambda: None,
) -> None:
    """Take what operators ask of *node*, for ever; it serves on where it may not read that.

    Args:
        store: The store.
        keys: The fleet's keys.
        node: The node's name.
        askers: Each is given the requests that stand, whenever they changed.
        on_refused: Called when they cannot be read.
    """
    while True:
        try:
            updates = store.watch(keys.requests)
            async with contextlib.aclosing(updates):  # type: ignore[type-var]
                async for update in updates:
                    if update.is_live:
                        requests = read_requests(update.entries, node)
                        for ask in askers:
                            ask(requests)
        except StoreError as cause:
            on_refused()
            _log.warning("requests cannot be followed", cause=cause.message)
        await asyncio.sleep(_RETRY_S)

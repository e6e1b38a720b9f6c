"""What a watch's reader is told: the newest state, never a queue of events.

A feed lies between whoever follows the store and the reader of `Store.watch`. Writers call its
plain methods as often as they like; the reader gets one `Update` for all that happened since it
last looked. So a slow reader costs no memory, never works through history, and both stores behave
alike.
"""

import asyncio
import time
from collections.abc import AsyncIterator

from vctl_plans.store.port import KeyValue, Listing, Update


class Feed:
    """The state under one watched prefix, and what of it the reader has not seen."""

    def __init__(self) -> None:
        self._entries: dict[str, KeyValue] = {}
        self._revision = 0  # never goes back
        self._unseen: set[str] = set()  # keys written or deleted since the last update
        self._is_listed = False  # True once the state was known at all
        self._is_live = True
        self._end: Exception | None = None
        self._wake = asyncio.Event()
        self.heard_at = time.monotonic()  # no later than the moment at which all was as known here

    def relist(self, listing: Listing) -> None:
        """Take *listing* as the whole state; tell the reader what differs, or that all is live."""
        entries = {entry.key: entry for entry in listing.entries}
        differing = {
            key
            for key in entries.keys() | self._entries.keys()
            if entries.get(key) != self._entries.get(key)
        }
        if differing or not self._is_live or not self._is_listed:
            self._wake.set()
        self._unseen |= differing
        self._entries = entries
        self._revision = max(self._revision, listing.revision)
        self._is_live = self._is_listed = True

    def write(self, entry: KeyValue) -> None:
        """Take over one written key."""
        self._entries[entry.key] = entry
        self._note(entry.key, entry.mod_revision)

    def delete(self, key: str, revision: int) -> None:
        """Take over that *key* was deleted at *revision*."""
        self._entries.pop(key, None)
        self._note(key, revision)

    def lose(self) -> None:
        """Tell the reader, once, that what it knows may be old."""
        if self._is_live:
            self._is_live = False
            self._wake.set()

    def end(self, error: Exception) -> None:
        """End the watch: the reader gets *error* raised."""
        self._end = error
        self._wake.set()

    async def updates(self) -> AsyncIterator[Update]:
        """Yield the state whenever the reader has not seen all of it, for ever.

        Raises:
            Exception: The one that `end` was given, a `StoreError` unless it is a bug.
        """
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._end is not None:
                raise self._end
            update = Update(
                revision=self._revision,
                entries=dict(self._entries),
                changed=frozenset(self._unseen),
                is_live=self._is_live,
            )
            self._unseen.clear()
            yield update

    def _note(self, key: str, revision: int) -> None:
        self._unseen.add(key)
        self._revision = max(self._revision, revision)
        self._wake.set()

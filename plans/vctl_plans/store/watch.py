"""Keeps a feed at the state of a prefix: list, watch from the next revision, and again on any end.

A watch of etcd can end by an error, by silence, by a cancel (denied, token expired, compacted), and
each end may have lost events. There is no arithmetic about where to resume: the prefix is listed
again, and the feed finds the difference. Silence is noticed by asking for progress: the answer
proves that the stream lives, and nothing more (it may overtake events, etcd#15220).
"""

import asyncio
import time

import msgspec

from vctl_plans.errors import StoreUnavailable
from vctl_plans.store.backoff import backoff_s
from vctl_plans.store.connection import Connection
from vctl_plans.store.feed import Feed
from vctl_plans.store.messages import (
    WATCH,
    Message,
    is_delete,
    key_value,
    progress_request,
    watch_request,
)
from vctl_plans.store.ranges import decode_key, prefix_range
from vctl_plans.store.reads import list_prefix
from vctl_plans.store.streams import SilentError, Stream
from vctl_plans.store.verdicts import BrokenAttemptError, TokenRefusedError, TooLargeError


class Patience(msgspec.Struct, frozen=True):
    """How long a watch may be silent."""

    probe_s: float = 5.0  # of silence, then it is asked for progress
    grace_s: float = 3.0  # more, then it is given up

    @property
    def longest_s(self) -> float:
        """The longest that a watch is silent before it is given up, to ask being slow as well."""
        return self.probe_s + 2 * self.grace_s


class EndedError(Exception):
    """The server ended the watch and said so: list again, nothing is wrong with the way to it."""


class Follower:
    """Follows one prefix into one feed, until it is cancelled or cannot go on."""

    def __init__(self, connection: Connection, feed: Feed, prefix: str, patience: Patience) -> None:
        self._connection = connection
        self._feed = feed
        self._prefix = prefix
        self._patience = patience
        self._failures = 0  # in a row, for the pause between attempts

    async def run(self) -> None:
        """Follow until cancelled; what cannot be survived ends the feed."""
        try:
            while True:
                await self._follow_once()
                await asyncio.sleep(backoff_s(self._failures, longest_s=5.0))
                self._failures += 1
        except Exception as error:  # noqa: BLE001  the reader of the feed gets it raised
            self._feed.end(error)

    async def _follow_once(self) -> None:
        """List, then watch until the stream ends; both may fail."""
        try:
            sent_at = time.monotonic()
            listing = await list_prefix(self._connection, self._prefix)
            self._feed.heard_at = sent_at
            self._feed.relist(listing)
            async with self._connection.stream(WATCH) as stream:
                await self._follow_stream(stream, listing.revision + 1)
        except (EndedError, TokenRefusedError):
            return
        except (BrokenAttemptError, TooLargeError, StoreUnavailable):
            self._connection.check_usable()
            self._feed.lose()

    async def _follow_stream(self, stream: Stream, revision: int) -> None:
        """Pass on events from *revision* on, for ever.

        Raises:
            EndedError: The server cancelled the watch.
            BrokenAttemptError: The stream broke, or was silent for too long.
        """
        timeout_s = self._connection.settings.timeout_s
        start, end = prefix_range(self._prefix)
        await stream.write(watch_request(start, end, revision), timeout_s)
        silence_s = timeout_s  # for the answer that the watch is created
        while True:
            try:
                answer = await stream.read(silence_s)
                self._feed.heard_at = time.monotonic()
            except SilentError:
                answer = await self._probe(stream)
            if answer.canceled or answer.compact_revision:
                raise EndedError(answer.cancel_reason)
            if not answer.created:
                self._failures = 0
            self._pass_on(answer, revision)
            silence_s = self._patience.probe_s

    async def _probe(self, stream: Stream) -> Message:
        """Return the next answer, having asked for one."""
        sent_at = time.monotonic()
        await stream.write(progress_request(), self._patience.grace_s)
        try:
            answer = await stream.read(self._patience.grace_s)
        except SilentError as error:
            raise BrokenAttemptError("the watch is silent") from error
        self._feed.heard_at = sent_at  # the answer may have lain here while the process was stopped
        return answer

    def _pass_on(self, answer: Message, revision: int) -> None:
        for event in answer.events:
            # A member that lags may first deliver what is older than asked for (before 3.5.22).
            if event.kv.mod_revision < revision:
                continue
            self._connection.guard.note_committed(event.kv.mod_revision)
            if is_delete(event):
                self._feed.delete(decode_key(event.kv.key), event.kv.mod_revision)
            else:
                self._feed.write(key_value(event.kv))

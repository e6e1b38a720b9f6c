"""An operator's word that a restored backup of etcd is to be taken as it is.

A program that finds that etcd went back keeps what it last knew and advances nothing. The word is a
key in the restored etcd, and a backup may hold one of an earlier time; so every program notes, as
long as all is well, which word stands, and goes on only once one does that it never saw. A word
names those before it, for a program that came after them.
"""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import msgspec
import structlog

from vctl_agent.gateway.persist import write_atomically
from vctl_plans.codec import decode
from vctl_plans.errors import RestoredBackup, StoreError, VctlError
from vctl_plans.inspection import ACCEPT_RESTORE, KEPT_WORDS, AcceptRestore
from vctl_plans.keys import Keys
from vctl_plans.store.guard import Fingerprint
from vctl_plans.store.port import KeyValue, Store
from vctl_plans.store.settings import StoreSettings

POLL_S = 2.0
_RETRY_S = 5.0

_log = structlog.get_logger(__name__)


class RestoreAccepted(Exception):  # noqa: N818  nothing went wrong
    """An operator accepted the restored backup: this program begins anew."""


def opened(settings: StoreSettings) -> Store:
    """Return a store that takes any cluster for the right one."""
    from vctl_plans.store.etcd import open_store  # noqa: PLC0415  gRPC; it is there by then

    return open_store(settings)


class _Noted(msgspec.Struct):
    """What is on disk."""

    cluster_id: int = 0
    raft_term: int = 0
    revision: int = 0
    accepted: str = ""  # the word that stands
    earlier: tuple[str, ...] = ()  # those that stood before it, the newest last

    def knows(self, word: AcceptRestore) -> bool:
        """Whether it stood before, and was used up then if a restore was waiting."""
        return word.id == self.accepted or word.id in self.earlier

    def words(self, standing: AcceptRestore | None) -> tuple[str, ...]:
        """Return the words before *standing*, as this program and it know them."""
        told = standing.earlier if standing else ()
        known = dict.fromkeys((*told, *self.earlier, self.accepted))
        return tuple(w for w in known if w and not (standing and w == standing.id))[-KEPT_WORDS:]


class Acceptance:
    """What is known of the cluster, and of the operator's last word on it.

    Args:
        keys: The fleet's keys.
        path: Where it is kept from one run to the next; None: nowhere.
    """

    def __init__(self, keys: Keys, path: Path | None) -> None:
        self._key = keys.request(ACCEPT_RESTORE)
        self._path = path
        self._noted = _load(path)

    @property
    def fingerprint(self) -> Fingerprint:
        """The cluster as this program, or the run before it, knew it last."""
        noted = self._noted
        return Fingerprint(noted.cluster_id, noted.raft_term, noted.revision)

    def know(self, seen: Fingerprint) -> None:
        """Note how far the cluster has come."""
        if seen != self.fingerprint:
            self._note(msgspec.structs.replace(self._noted, **msgspec.structs.asdict(seen)))

    async def follow(self, store: Store) -> None:
        """Note the word that stands, for as long as all is well with *store*."""
        while True:
            try:
                updates = store.watch(self._key)
                async with contextlib.aclosing(updates):  # type: ignore[type-var]
                    async for update in updates:
                        if update.is_live:
                            self._take(update.entries.get(self._key))
            except RestoredBackup:
                return
            except StoreError as cause:
                _log.warning("cannot see whether restores are accepted", cause=cause.message)
            await asyncio.sleep(_RETRY_S)

    async def wait(self, open_store: Callable[[], Store]) -> None:
        """Return once an operator has accepted the cluster as it is now.

        Args:
            open_store: Opens a store that takes any cluster for the right one.
        """
        while True:
            if await self._is_accepted(open_store()):
                break
            await asyncio.sleep(POLL_S)
        _log.warning("an operator accepted the restored store", accepted=self._noted.accepted)

    async def _is_accepted(self, store: Store) -> bool:
        try:
            word = _word(await store.get(self._key))
        except StoreError:
            return False
        finally:
            await store.close()
        if word is None or self._noted.knows(word):
            return False
        self._note(_Noted(accepted=word.id, earlier=self._noted.words(word)))
        return True

    def _take(self, entry: KeyValue | None) -> None:
        word, noted = _word(entry), self._noted
        after = msgspec.structs.replace(
            noted, accepted=word.id if word else "", earlier=noted.words(word)
        )
        if after != noted:
            self._note(after)

    def _note(self, noted: _Noted) -> None:
        self._noted = noted
        if self._path is None:
            return
        try:
            write_atomically(self._path, msgspec.json.encode(noted))
        except OSError as cause:
            _log.error("cluster not noted", path=str(self._path), error=str(cause))


def _load(path: Path | None) -> _Noted:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Noted) if path else _Noted()
    except FileNotFoundError:
        return _Noted()
    except (OSError, msgspec.MsgspecError) as cause:
        _log.warning("what was known of the cluster is unreadable", error=str(cause))
        return _Noted()


def _word(entry: KeyValue | None) -> AcceptRestore | None:
    """Return the word that stands; what cannot be read is none."""
    try:
        return decode(entry.value, AcceptRestore, key=entry.key) if entry else None
    except VctlError as problem:
        _log.warning("unreadable", problem=problem.message)
        return None

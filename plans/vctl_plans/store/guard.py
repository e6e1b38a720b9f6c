"""Is this still the cluster that we know? What each answer's header says about it.

Three things never happen in a healthy cluster: its id changes, its raft term goes back, its
revision goes back. A single member that lags can show the last two for a moment; so a stale answer
first makes the caller turn to another member, and only a majority of endpoints that say the same,
repeatedly, make it a restored backup. A false alarm would stop a fleet until an operator comes.

Only what needed a quorum teaches the guard anything: a member cut off from its peers counts terms
upward alone, and must not make the healthy rest look stale. The events of a watch are of that kind:
a member shows only what was committed. Whoever watches and never asks learns by them alone.
"""

import msgspec

from vctl_plans.errors import RestoredBackup

_STALE_ANSWERS_TO_BELIEVE = 3
_HINT = "if a backup was restored on purpose: vctl config accept-restore"


class Fingerprint(msgspec.Struct, frozen=True):
    """What tells a cluster, and how far it had come; 0 where unknown."""

    cluster_id: int = 0
    raft_term: int = 0
    revision: int = 0


class StaleMemberError(Exception):
    """The member that answered is behind what was already seen: ask another."""


class HeaderGuard:
    """Watches the headers of all answers of one store.

    Args:
        endpoint_count: How many endpoints there are to ask.
        known: What an earlier process saw, so that a restore between two starts is noticed.
    """

    def __init__(self, endpoint_count: int, known: Fingerprint | None = None) -> None:
        self._majority = endpoint_count // 2 + 1
        self._known = known or Fingerprint()
        self._stale_answers = 0  # in a row
        self._stale_endpoints: set[str] = set()
        self._alarm: RestoredBackup | None = None  # once raised, raised for ever

    @property
    def fingerprint(self) -> Fingerprint:
        """What is known now; taken before sending, `check_quorum` gets it with the answer."""
        return self._known

    def raise_alarm(self) -> None:
        """Raise `RestoredBackup` if it was ever raised: a store that saw one is not used again."""
        if self._alarm is not None:
            raise self._alarm

    def check_member(self, seen: Fingerprint) -> None:
        """Judge the header of an answer that one member gives by itself (a stream's).

        Raises:
            RestoredBackup: It is another cluster.
            StaleMemberError: The member's term is behind.
        """
        self._check_cluster(seen)
        if seen.raft_term < self._known.raft_term:
            raise StaleMemberError(f"raft term {seen.raft_term} after {self._known.raft_term}")

    def note_committed(self, revision: int) -> None:
        """Remember the revision of an event that a watch brought."""
        if revision > self._known.revision:
            self._known = msgspec.structs.replace(self._known, revision=revision)

    def check_quorum(self, seen: Fingerprint, *, before: Fingerprint, endpoint: str) -> None:
        """Judge and remember the header of an answer that needed a quorum.

        Args:
            seen: The answer's header.
            before: `fingerprint` from before the request was sent; answers may overtake each other.
            endpoint: Who answered.

        Raises:
            RestoredBackup: It is another cluster, or a majority of endpoints went back.
            StaleMemberError: This answer went back; no data of it may be used.
        """
        self._check_cluster(seen)
        if seen.raft_term < before.raft_term or seen.revision < before.revision:
            self._note_stale(seen, before, endpoint)
        self._stale_answers = 0
        self._stale_endpoints.clear()
        self._known = Fingerprint(
            seen.cluster_id,
            max(seen.raft_term, self._known.raft_term),
            max(seen.revision, self._known.revision),
        )

    def _check_cluster(self, seen: Fingerprint) -> None:
        self.raise_alarm()
        if self._known.cluster_id in {0, seen.cluster_id}:
            return
        self._alarm = RestoredBackup(
            f"etcd's cluster id was {self._known.cluster_id:x} and is now {seen.cluster_id:x}",
            hint=_HINT,
        )
        raise self._alarm

    def _note_stale(self, seen: Fingerprint, before: Fingerprint, endpoint: str) -> None:
        self._stale_answers += 1
        self._stale_endpoints.add(endpoint)
        text = (
            f"term {seen.raft_term}, revision {seen.revision} after "
            f"term {before.raft_term}, revision {before.revision}"
        )
        is_believed = self._stale_answers >= _STALE_ANSWERS_TO_BELIEVE
        if is_believed and len(self._stale_endpoints) >= self._majority:
            self._alarm = RestoredBackup(f"etcd went back: {text}", hint=_HINT)
            raise self._alarm
        raise StaleMemberError(text)

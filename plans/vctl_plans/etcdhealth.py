"""How the members of etcd are, as they say themselves, and what of it needs somebody."""

from collections.abc import Iterable, Iterator

import msgspec

from vctl_plans.diagnosis import Finding, error, ok, warning
from vctl_plans.units import bytes_text

DEFAULT_QUOTA_BYTES = 2 * 1024**3
"""What etcd takes where ``--quota-backend-bytes`` is not set; before 3.6 it does not tell it."""

FULL = 0.8
"""Of the quota: at all of it etcd takes no more writes, until it was compacted and defragmented."""


class EtcdMember(msgspec.Struct, frozen=True, kw_only=True):
    """One member."""

    endpoint: str
    version: str = ""
    size_bytes: int = 0  # of its database
    quota_bytes: int = 0  # 0: not told
    has_leader: bool = False
    alarms: tuple[str, ...] = ()
    problem: str = ""  # why it does not tell; the rest is empty then
    is_away: bool = False  # it does not answer at all


def of_etcd(members: Iterable[EtcdMember]) -> Iterator[Finding]:
    """Yield what is found about the members."""
    for member in members:
        yield from _of_member(member)


def _of_member(member: EtcdMember) -> Iterator[Finding]:
    where = f"etcd {member.endpoint}"
    if member.is_away:
        yield warning(where, f"does not answer: {member.problem}", "see its log; start it again")
        return
    if member.problem:
        yield ok(where, f"does not tell how it is: {member.problem}")
        return
    if not member.has_leader:
        yield error(where, "has no leader: nothing can be written", "bring a majority up again")
    for alarm in member.alarms:
        yield error(where, f"alarm: {alarm}", _remedy(alarm))
    quota = member.quota_bytes or DEFAULT_QUOTA_BYTES
    of_quota = f"{bytes_text(member.size_bytes)} of {bytes_text(quota)}" + (
        "" if member.quota_bytes else " (the default quota: it does not tell its own)"
    )
    if member.size_bytes >= FULL * quota:
        yield warning(
            where,
            f"its database is nearly full: {of_quota}",
            "set --auto-compaction-retention, then: etcdctl defrag; or a larger"
            " --quota-backend-bytes",
        )
    yield ok(where, f"version {member.version}, {of_quota}")


def _remedy(alarm: str) -> str:
    if "NOSPACE" in alarm:
        return "etcdctl compact, etcdctl defrag, and then: etcdctl alarm disarm"
    if "CORRUPT" in alarm:
        return "replace this member: etcdctl member remove, then add a new one"
    return "see etcdctl endpoint status and etcdctl alarm list"

"""How the members of etcd are, as they say themselves, and what of it needs somebody."""

import re
from collections.abc import Iterable, Iterator

import msgspec

from vctl_plans.diagnosis import Finding, error, ok, warning
from vctl_plans.units import bytes_text

DEFAULT_QUOTA_BYTES = 2 * 1024**3
"""What etcd takes where ``--quota-backend-bytes`` is not set; before 3.6 it does not tell it."""

SKEW_S = 5.0
"""Between clocks: less is common, and is not told."""

MANY_REVISIONS = 100_000

SOUND = "3.5.28, 3.6.9 or later"

# From etcd's changelogs (CHANGELOG-3.4.md to CHANGELOG-3.6.md): from, up to but without, and what.
FAULTS = (
    ((3, 5, 0), (3, 5, 3), "its members' data can come to differ after a crash"),
    ((3, 4, 0), (3, 4, 25), "a watch can go back in time"),
    ((3, 5, 0), (3, 5, 8), "a watch can go back in time"),
    ((3, 4, 0), (3, 4, 31), "a former leader can end a lease that lives"),
    ((3, 5, 0), (3, 5, 13), "a former leader can end a lease that lives"),
    ((3, 5, 0), (3, 5, 18), "a watch can miss a deletion"),
    ((3, 4, 0), (3, 5, 28), "a read can be stale after the server stood still (etcd#20418)"),
    ((3, 6, 0), (3, 6, 9), "a read can be stale after the server stood still (etcd#20418)"),
)

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
    clock_ahead_s: float | None = None  # of the asker's clock; None: not told
    has_compacted: bool | None = None  # whether it ever forgot old revisions; None: not told
    revision: int = 0
    has_users: bool | None = None  # whether it asks who asks; None: not told
    is_superuser: bool | None = None  # whether we may do everything there; None: not told
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
    yield from _of_settings(where, member)
    yield ok(where, f"version {member.version}, {of_quota}")


def _of_settings(where: str, member: EtcdMember) -> Iterator[Finding]:
    """Yield what is found about how it was set up, and about its version."""
    faults = known_faults(member.version)
    if faults:
        yield warning(
            where, f"version {member.version}: {'; '.join(faults)}", f"upgrade to {SOUND}"
        )
    if member.has_compacted is False and member.revision > MANY_REVISIONS:
        yield warning(
            where,
            f"has kept all of its {member.revision} revisions: its database only grows",
            "set --auto-compaction-mode periodic --auto-compaction-retention 1h",
        )
    if member.has_users is False and not _is_local(member.endpoint):
        yield warning(
            where,
            "asks nobody who they are: whoever reaches it can move traffic",
            "vctl config init-auth prints the users; or let only vctl reach it",
        )
    if member.is_superuser:
        yield warning(
            where,
            "we ask as a user of the role root, who may also delete all keys and users",
            "vctl config init-auth prints a user for each kind of work; use the operator's",
        )
    ahead_s = member.clock_ahead_s
    if ahead_s is not None and abs(ahead_s) > SKEW_S:
        word = "ahead of" if ahead_s > 0 else "behind"
        yield warning(
            where,
            f"its clock is {abs(ahead_s):.0f} s {word} this machine's: vctl decides nothing by"
            " clocks, certificates and logs do",
            "see that both keep time: timedatectl, chronyc tracking",
        )


def known_faults(version: str) -> tuple[str, ...]:
    """Return the known faults of a version of etcd that can matter to vctl, the worst first."""
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    if not found:
        return ()
    number = tuple(int(part) for part in found.groups())
    return tuple(what for low, high, what in FAULTS if low <= number < high)


def _is_local(endpoint: str) -> bool:
    host = endpoint.rpartition("://")[2].rpartition(":")[0].strip("[]")
    return host in {"localhost", "::1"} or host.startswith("127.")


def _remedy(alarm: str) -> str:
    if "NOSPACE" in alarm:
        return "etcdctl compact, etcdctl defrag, and then: etcdctl alarm disarm"
    if "CORRUPT" in alarm:
        return "replace this member: etcdctl member remove, then add a new one"
    return "see etcdctl endpoint status and etcdctl alarm list"

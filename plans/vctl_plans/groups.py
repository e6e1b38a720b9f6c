"""Who belongs to a group of requests: what a user-group plan names, and an override in a route.

A value of its own under its digest, immutable, so that the watched route stays small. Membership is
pure, so that every gateway decides alike.
"""

from bisect import bisect_left
from collections.abc import Mapping

import msgspec

from vctl_plans.codec import Value, digest, encode
from vctl_plans.errors import PlanError
from vctl_plans.share import FULL_WEIGHT, share

MAX_BYTES = 512 * 1024
"""What the groups of one plan may take as a value of etcd, whose requests end at 1.5 MiB."""


class Group(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Requests for which all that is given holds."""

    name: str
    tenant: str = ""
    users: tuple[str, ...] = ()  # sorted, each once
    header: dict[str, str] = {}  # by lower-case name: the value, exactly
    percent: float = FULL_WEIGHT  # of those for which the rest holds; by user, or else by session


class Groups(Value, frozen=True, kw_only=True):
    """The groups of one plan: a request that is in any of them gets the plan's release."""

    groups: tuple[Group, ...] = ()

    @property
    def digest(self) -> str:
        """The name of the groups: the same people are the same value."""
        return digest(self, context="groups")

    @property
    def names(self) -> str:
        """The groups' names, for a sentence."""
        return ", ".join(group.name for group in self.groups)


class Caller(msgspec.Struct, frozen=True):
    """What a request says of who makes it."""

    user: str = ""
    tenant: str = ""
    headers: Mapping[str, str] = {}  # by lower-case name; those that groups name are enough
    key: str = ""  # of the session, or what stands for it


def check_size(groups: Groups) -> None:
    """Refuse groups that are too large to be kept in etcd.

    Raises:
        PlanError: With the limit.
    """
    size = len(encode(groups))
    if size > MAX_BYTES:
        raise PlanError(
            f"take {size} bytes, and may take {MAX_BYTES} (512 KiB)",
            path="groups",
            hint="name a tenant, a header that your proxy sets, or a percentage instead of users",
        )


def match(groups: Groups, caller: Caller, *, salt: str) -> str:
    """Return the name of the first group that *caller* is in; empty for none."""
    for group in groups.groups:
        if _is_in(group, caller, salt):
            return group.name
    return ""


def _is_in(group: Group, caller: Caller, salt: str) -> bool:
    if group.tenant and group.tenant != caller.tenant:
        return False
    if group.users and not _holds(group.users, caller.user):
        return False
    for name, value in group.header.items():
        if caller.headers.get(name) != value:
            return False
    if group.percent >= FULL_WEIGHT:  # everybody: the hash would decide nothing
        return True
    # Salted with the group's name, so that two halves of two groups are not the same people.
    return share(f"{salt}/{group.name}", caller.user or caller.key) < group.percent


def _holds(users: tuple[str, ...], user: str) -> bool:
    """Whether *user* is one of the sorted *users*; tens of thousands are looked through at once."""
    at = bisect_left(users, user)
    return bool(user) and at < len(users) and users[at] == user

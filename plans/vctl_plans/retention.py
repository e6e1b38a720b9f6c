"""Which artifacts stay on a node's disk, and why; what may go, and what goes first.

Whatever a route, a rollout, a request, the application or this run of the engine may still read
stays, whether the disk is full or not: an engine may die of a directory that is gone, also of one
whose adapter was unloaded (DESIGN section 6). What is not known counts as needed: while the engine
or the gateway is away, or a value cannot be read, nothing goes.

The rest is kept for comfort: the newest releases, and the last good one, so that going back fetches
nothing. Where room is needed, of that the longest unused goes first.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum

import msgspec

from vctl_plans.rollout import Rollout, wanted
from vctl_plans.snapshot import Fleet, Service

PARTIAL_S = 3600.0
"""After so long what was begun to be fetched, and nothing wants any more, is given up."""


class Why(StrEnum):
    """Why an artifact stays; the first that holds, in this order."""

    UNKNOWN = "not all is known"
    STAGING = "being brought"
    ROUTED = "routed"
    ROLLOUT = "of a rollout"
    REQUESTED = "requests are on it"
    HANDED = "the application has it"
    LISTED = "loaded"
    REGISTERED = "this run of the engine was given it"
    LAST_GOOD = "last good"
    NEWEST = "among the newest"

    @property
    def is_comfort(self) -> bool:
        """Whether it may go where room is needed."""
        return self in {Why.LAST_GOOD, Why.NEWEST}


class Lying(msgspec.Struct, frozen=True):
    """An artifact on the node's disk, whole or begun."""

    root: str
    size_bytes: int
    age_s: float  # since it was last in use


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """All that may need an artifact, as far as it is known just now."""

    fleet: Fleet | None = None  # None: the store has not told yet, or is away
    listed: frozenset[str] | None = None  # roots that the engine lists; None: it does not answer
    registered: frozenset[str] = frozenset()  # roots that this run of the engine was given
    requested: frozenset[tuple[str, int]] | None = None  # releases; None: the gateway is away
    handed: frozenset[tuple[str, int]] = frozenset()  # releases that the application has
    staging: frozenset[str] = frozenset()  # roots that are being brought


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of each artifact on the disk."""

    stays: Mapping[str, Why] = {}
    goes: tuple[Lying, ...] = ()  # whole, the longest unused first
    given_up: tuple[Lying, ...] = ()  # only begun
    unknown: str = ""  # why nothing goes

    @property
    def freed_bytes(self) -> int:
        """What its going frees."""
        return sum(each.size_bytes for each in (*self.goes, *self.given_up))


def retain(
    whole: Iterable[Lying],
    begun: Iterable[Lying],
    known: Known,
    *,
    keep: int,
    shortage_bytes: int = 0,
) -> Retention:
    """Return what stays and what goes.

    Args:
        whole: The artifacts on the disk.
        begun: Those of which only a part is there.
        known: What may need them.
        keep: How many of each service's newest releases are kept for comfort.
        shortage_bytes: How much must go if it may: see `shortage`.
    """
    disk, parts = tuple(whole), tuple(begun)
    problem = unknown(known)
    if problem:
        return Retention(stays=dict.fromkeys((each.root for each in disk), Why.UNKNOWN),
                         unknown=problem)  # fmt: skip
    needed = _needed(known)
    comfort = _comfort(known, {each.root for each in disk}, keep)
    stays = {e.root: why for e in disk if (why := needed.get(e.root, comfort.get(e.root)))}
    given_up = [
        each
        for each in parts
        if each.root not in needed and (each.age_s >= PARTIAL_S or shortage_bytes > 0)
    ]
    goes = [each for each in disk if each.root not in stays]
    short = shortage_bytes - sum(each.size_bytes for each in (*goes, *given_up))
    for each in _longest_unused(e for e in disk if e.root in stays and stays[e.root].is_comfort):
        if short <= 0:
            break
        del stays[each.root]
        goes.append(each)
        short -= each.size_bytes
    return Retention(stays=stays, goes=_longest_unused(goes), given_up=_longest_unused(given_up))


def shortage(
    used_bytes: int, *, limit_bytes: int = 0, needed_bytes: int = 0, free_bytes: int | None = None
) -> int:
    """Return how many bytes must go, so that there is room.

    Args:
        used_bytes: What artifacts take now.
        limit_bytes: What they may take; 0: whatever the disk has.
        needed_bytes: What is to be brought.
        free_bytes: What the disk has free; None: that is no matter.
    """
    by_limit = used_bytes + needed_bytes - limit_bytes if limit_bytes else 0
    by_disk = needed_bytes - free_bytes if free_bytes is not None else 0
    return max(0, by_limit, by_disk)


def unknown(known: Known) -> str:
    """Return what is not known, so that nothing may go; empty: all is."""
    fleet = known.fleet
    if fleet is None:
        return "the store does not answer"
    if known.listed is None:
        return "the engine does not answer"
    if known.requested is None:
        return "the gateway is away"
    none = () if fleet.services else ("the store names no service",)
    lost = (
        f"release {number} of {service} is in use, and the store has none"
        for service, number in sorted(known.requested | known.handed)
        if service not in fleet.services or number not in fleet.services[service].releases
    )
    return next(iter((*none, *fleet.problems, *lost)), "")


def _needed(known: Known) -> dict[str, Why]:
    """Return the roots that something may read, each with why."""
    services = known.fleet.services if known.fleet else {}
    found = dict.fromkeys(known.registered, Why.REGISTERED)
    found |= dict.fromkeys(known.listed or (), Why.LISTED)
    for whose, why in ((known.handed, Why.HANDED), (known.requested or (), Why.REQUESTED)):
        for name, number in whose:
            found |= dict.fromkeys(_roots(services[name], (number,)), why)
    for service in services.values():
        found |= dict.fromkeys(_roots(service, _of_rollout(service.rollout)), Why.ROLLOUT)
        routed = wanted(service.route, None)
        found |= dict.fromkeys(_roots(service, routed), Why.ROUTED)
    return found | dict.fromkeys(known.staging, Why.STAGING)


def _of_rollout(rollout: Rollout | None) -> frozenset[int]:
    """Return the releases that a running rollout may still have a node read."""
    if rollout is None or rollout.phase.is_terminal:
        return frozenset()
    ends = {rollout.from_release, rollout.to_release, rollout.back_to, rollout.from_override}
    return wanted(None, rollout) | (ends | set(rollout.unload)) - {0}


def _comfort(known: Known, lying: set[str], keep: int) -> dict[str, Why]:
    """Return the roots that are kept so that going back fetches nothing."""
    found: dict[str, Why] = {}
    for service in known.fleet.services.values() if known.fleet else ():
        newest = list(_whole(service, lying))[:keep]
        found |= dict.fromkeys(_roots(service, newest), Why.NEWEST)
        good = service.current_route.last_good()
        found |= dict.fromkeys(_roots(service, (good,)), Why.LAST_GOOD)
    return found


def _whole(service: Service, lying: set[str]) -> Iterator[int]:
    """Yield the releases that are here in whole and may serve again, the newest first."""
    for number in sorted(service.releases, reverse=True):
        roots = _roots(service, (number,))
        if roots and roots <= lying and number not in service.current_route.revoked:
            yield number


def _roots(service: Service, numbers: Iterable[int]) -> set[str]:
    releases = (service.releases[n] for n in numbers if n in service.releases)
    return {made.root for release in releases for made in release.staged.values()}


def _longest_unused(found: Iterable[Lying]) -> tuple[Lying, ...]:
    return tuple(sorted(found, key=lambda each: (-each.age_s, each.root)))

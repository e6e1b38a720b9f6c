"""The route: how a service's traffic is split now. One small key, watched by every gateway.

Its mod_revision is the *route revision*. Everything in it is carried from write to write; the
functions here are the only ones that make the next route from the present one.
"""

from enum import StrEnum

import msgspec

from vctl_plans.codec import Value

KEPT_GOOD = 32
"""Releases that converged and are remembered; enough to go back, small enough to watch."""

HASH_VERSION = 1


class Consistency(StrEnum):
    """How requests meet a change of the route."""

    SESSION = "session"  # a session moves once
    EVENTUAL = "eventual"  # each request is hashed by itself
    STRICT = "strict"  # all gateways change together: behind a barrier


class Mode(StrEnum):
    """How clients reach a service; it never changes while the service is served."""

    GATEWAY = "gateway"  # by a gateway, which asks the engine for the release that it chose
    DIRECT = "direct"  # by the engine itself, under the service's own name: see `direct`


class Stage(StrEnum):
    """How far a barrier is (DESIGN section 7)."""

    FENCED = "fenced"  # a gateway that is cut off for `Hold.fence_s` stops
    HOLD = "hold"  # and new requests wait


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """A barrier before a strict change. Only a route write ends it."""

    stage: Stage
    fence_s: float  # without contact to etcd for so long, a gateway answers 503
    limit_s: float  # that a request waits at most, and is then answered 503


class Override(msgspec.Struct, frozen=True, kw_only=True):
    """Requests in a group that get a release of their own, whatever the weight."""

    group: str  # digest of `Groups`
    release: int


class Route(Value, frozen=True, kw_only=True):
    """How a service's traffic is split."""

    service: str
    stable: int = 0  # 0: nothing is served yet
    candidate: int = 0  # 0: nothing moves
    weight: float = 0.0  # percent of keys on the candidate, 0 to 100
    salt: str = ""
    hash_version: int = HASH_VERSION
    revoked: tuple[int, ...] = ()  # never to serve again until an operator lifts it
    good: tuple[int, ...] = ()  # converged, in the order in which they did; may hold revoked ones
    instant: tuple[int, ...] = ()  # loaded on all counted nodes: a rollback to it needs no load
    overrides: tuple[Override, ...] = ()  # the first that matches decides
    pinnable: tuple[int, ...] = ()  # a session that echoes its pin stays on such a release
    consistency: Consistency = Consistency.SESSION
    hold: Hold | None = None
    mode: Mode = Mode.GATEWAY  # the service's: gateways and agents need no other key to know it

    @property
    def serving(self) -> frozenset[int]:
        """The releases that a request may get."""
        return self.default | frozenset(override.release for override in self.overrides)

    @property
    def default(self) -> frozenset[int]:
        """The releases that a request may get that no override is for."""
        return frozenset(n for n in (self.stable, self.candidate) if n)

    def last_good(self) -> int:
        """Return the newest good release, neither revoked nor stable itself, or 0."""
        usable = [n for n in self.good if n not in self.revoked and n != self.stable]
        return usable[-1] if usable else 0


def overridden(route: Route, group: str, release: int, *, place: int = 0) -> Route:
    """Return the route on which the groups of digest *group* get *release*; 0: nothing of theirs.

    What they had before gives way; a new override comes first, for it is the latest word. One that
    is given back comes to its *place* among the others, for who is in two groups gets the first's.
    """
    others = tuple(o for o in route.overrides if o.group != group)
    own = (Override(group=group, release=release),) if release else ()
    return msgspec.structs.replace(route, overrides=(*others[:place], *own, *others[place:]))


def pinned(route: Route) -> Route:
    """Return the route on which sessions stay with the release that they are on, old or new."""
    held = tuple(sorted(route.default)) if route.candidate else ()
    return msgspec.structs.replace(route, pinnable=held)


def place_of(route: Route, group: str) -> int:
    """Return where the override of the groups of digest *group* stands; 0 without one."""
    places = (n for n, o in enumerate(route.overrides) if o.group == group)
    return next(places, 0)


def override_of(route: Route, group: str) -> int:
    """Return the release that the groups of digest *group* get, or 0."""
    return next((o.release for o in route.overrides if o.group == group), 0)


def has_same_traffic(one: Route, other: Route) -> bool:
    """Whether every request gets the same release by both routes."""
    return (one.default, one.weight, one.stable, one.overrides) == (
        other.default, other.weight, other.stable, other.overrides,
    )  # fmt: skip


def held(route: Route, hold: Hold | None) -> Route:
    """Return the route with the barrier at this stage, or without one."""
    return msgspec.structs.replace(route, hold=hold)


def shifted(route: Route, candidate: int, weight: float) -> Route:
    """Return the route of a step: *weight* percent on *candidate*.

    A service that serves nothing yet has nothing to split: the candidate becomes stable at once.
    The same where the candidate serves already, in a rollout that only confirms it.
    """
    if route.stable in {0, candidate}:
        return msgspec.structs.replace(route, stable=candidate, candidate=0, weight=0.0)
    return msgspec.structs.replace(route, candidate=candidate, weight=weight)


def settled(route: Route, release: int, *, retained: tuple[int, ...]) -> Route:
    """Return the route once *release* has taken over: stable, good, and nothing moving."""
    good = tuple(n for n in route.good if n != release)
    return msgspec.structs.replace(
        route,
        stable=release,
        candidate=0,
        weight=0.0,
        good=(*good, release)[-KEPT_GOOD:],
        instant=retained,
        pinnable=(),
    )


def without(route: Route, given: tuple[int, ...]) -> Route | None:
    """Return the route that retains *given* no more; None: as it is."""
    kept = tuple(n for n in route.instant if n not in given)
    return msgspec.structs.replace(route, instant=kept) if kept != route.instant else None


def returned(route: Route, target: int, *, revoke: tuple[int, ...]) -> Route:
    """Return the route of a rollback: all traffic on *target*, *revoke* never to serve again.

    A good target becomes the newest good one: a later rollback returns to what served last, and
    not to a release that was passed over here.
    """
    good = tuple(n for n in route.good if n != target)
    return msgspec.structs.replace(
        route,
        stable=target,
        candidate=0,
        weight=0.0,
        revoked=tuple(sorted({*route.revoked, *revoke})),
        good=(*good, target) if target in route.good else good,
        instant=tuple(n for n in route.instant if n not in revoke and n != target),
        overrides=tuple(o for o in route.overrides if o.release not in revoke),
        pinnable=(),
    )

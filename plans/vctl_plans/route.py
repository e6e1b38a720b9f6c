"""The route: how a service's traffic is split now. One small key, watched by every gateway.

Its mod_revision is the *route revision*. Everything in it is carried from write to write; the
functions here are the only ones that make the next route from the present one.
"""

import msgspec

from vctl_plans.codec import Value

FULL_WEIGHT = 100.0
"""Percent."""

KEPT_GOOD = 32
"""Releases that converged and are remembered; enough to go back, small enough to watch."""

HASH_VERSION = 1


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

    @property
    def serving(self) -> frozenset[int]:
        """The releases that a request may get."""
        return frozenset(n for n in (self.stable, self.candidate) if n)

    def last_good(self) -> int:
        """Return the newest good release, neither revoked nor stable itself, or 0."""
        usable = [n for n in self.good if n not in self.revoked and n != self.stable]
        return usable[-1] if usable else 0


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
    )


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
    )

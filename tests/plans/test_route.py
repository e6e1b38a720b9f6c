"""The next route is made of the present one, and carries all that it must."""

import msgspec

from tests.builders import SERVICE, a_route
from vctl_plans.route import KEPT_GOOD, Override, Route, returned, settled, shifted
from vctl_plans.share import FULL_WEIGHT


def test_first_release_serves_at_once() -> None:
    """There is nothing to split."""
    route = shifted(Route(service=SERVICE), 1, 10.0)

    assert (1, 0, 0.0) == (route.stable, route.candidate, route.weight)


def test_shift_splits_and_keeps_the_rest() -> None:
    """Salt, revoked, good and retained releases are carried on."""
    before = a_route(revoked=(3,), instant=(2,))
    after = shifted(before, 4, 25.0)

    assert msgspec.structs.replace(before, candidate=4, weight=25.0) == after
    assert frozenset({1, 4}) == after.serving


def test_shift_to_what_serves_changes_nothing() -> None:
    """A release is never its own candidate."""
    assert a_route() == shifted(a_route(), 1, FULL_WEIGHT)


def test_settled_release_is_stable_and_the_newest_good_one() -> None:
    """It is good from now on; nothing moves any more."""
    after = settled(a_route(candidate=2, weight=100.0), 2, retained=(1,))

    assert (2, 0, 0.0, (1, 2), (1,)) == (
        after.stable,
        after.candidate,
        after.weight,
        after.good,
        after.instant,
    )


def test_good_releases_are_remembered_up_to_a_limit() -> None:
    """The oldest are forgotten, for the key stays small."""
    route = Route(service=SERVICE)
    for number in range(1, KEPT_GOOD + 5):
        route = settled(route, number, retained=())

    assert tuple(range(5, KEPT_GOOD + 5)) == route.good


def test_return_revokes_and_never_forgets() -> None:
    """What was revoked stays so; what is revoked is not retained."""
    before = a_route(stable=4, good=(1, 2, 4), instant=(1, 2), revoked=(3,))
    after = returned(before, 1, revoke=(4,))

    assert (1, (3, 4), (2,), (2, 4, 1)) == (
        after.stable,
        after.revoked,
        after.instant,
        after.good,
    )


def test_return_ends_the_overrides_of_what_it_revokes() -> None:
    """Groups get what all others do; what other groups have of their own stays."""
    theirs = (Override(group="b3:one", release=2), Override(group="b3:two", release=3))
    after = returned(a_route(stable=4, overrides=theirs), 1, revoke=(2,))

    assert (Override(group="b3:two", release=3),) == after.overrides


def test_last_good_is_neither_revoked_nor_what_serves() -> None:
    """0 when there is none."""
    assert 2 == a_route(stable=4, good=(1, 2, 3, 4), revoked=(3,)).last_good()
    assert 0 == a_route().last_good()

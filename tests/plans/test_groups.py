"""Who is in a group: by all that is given of it, the same on every gateway."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vctl_plans.codec import decode, encode
from vctl_plans.errors import PlanError
from vctl_plans.groups import MAX_BYTES, Caller, Group, Groups, check_size, match

NAMES = st.text("abc", min_size=1, max_size=3)
PEOPLE = [f"user-{n}" for n in range(4000)]


def are_in(caller: Caller, *groups: Group, salt: str = "salt") -> str:
    return match(Groups(groups=groups), caller, salt=salt)


@given(st.lists(NAMES, unique=True).map(sorted), NAMES)
def test_user_is_in_a_group_exactly_when_it_is_listed(users: list[str], user: str) -> None:
    """Found by halving, so the list's order is what it stands on. No list: no condition."""
    found = are_in(Caller(user=user), Group(name="g", users=tuple(users)))

    assert ("g" if user in users or not users else "") == found


@given(st.sampled_from(["acme", "other"]), NAMES, st.sampled_from(["beta", "Beta", ""]))
def test_request_is_in_a_group_when_all_that_is_given_holds(
    tenant: str, user: str, tier: str
) -> None:
    """Tenant, user and header together."""
    group = Group(name="g", tenant="acme", users=("a", "b"), header={"x-tier": "beta"})
    holds = (tenant, tier) == ("acme", "beta") and user in {"a", "b"}
    caller = Caller(user=user, tenant=tenant, headers={"x-tier": tier})

    assert ("g" if holds else "") == are_in(caller, group)


def test_header_is_named_in_lower_case_and_its_value_is_exact() -> None:
    """The gateway finds a field whatever its case; what it says is compared as it is."""
    group = Group(name="g", header={"x-tier": "beta"})

    assert "g" == are_in(Caller(headers={"x-tier": "beta"}), group)
    assert "" == are_in(Caller(headers={"x-tier": "BETA"}), group)
    assert "" == are_in(Caller(), group)


def test_request_without_a_user_is_in_no_list() -> None:
    """Not even in one that holds the empty name."""
    assert "" == are_in(Caller(), Group(name="g", users=("", "ann")))


def test_first_group_that_matches_is_named() -> None:
    """They are tried in their order."""
    groups = (Group(name="a", users=("ann",)), Group(name="b", tenant="acme"), Group(name="c"))

    assert "b" == are_in(Caller(user="bo", tenant="acme"), *groups)
    assert "a" == are_in(Caller(user="ann", tenant="acme"), *groups)
    assert "c" == are_in(Caller(), *groups)


@pytest.mark.parametrize("percent", [5.0, 30.0, 50.0])
def test_percentage_takes_about_that_many_users(percent: float) -> None:
    """Within four standard deviations (binomial, of 4000)."""
    group = Group(name="g", percent=percent)
    count = sum(bool(are_in(Caller(user=user), group)) for user in PEOPLE)
    share = percent / 100
    deviation = (len(PEOPLE) * share * (1 - share)) ** 0.5

    assert abs(count - len(PEOPLE) * share) < 4 * deviation


@given(NAMES, st.text(max_size=5), st.text(max_size=5), st.floats(1, 100))
def test_percentage_is_by_user_whatever_the_session(
    user: str, one: str, other: str, percent: float
) -> None:
    """A user is in or out for good; only without one does the session decide."""
    group = Group(name="g", percent=percent)
    by_user = {are_in(Caller(user=user, key=key), group) for key in (one, other)}

    assert 1 == len(by_user)
    assert are_in(Caller(key=user), group) in by_user


@given(NAMES, st.floats(0, 100), st.floats(0, 100))
def test_who_is_in_a_percentage_stays_as_it_grows(user: str, one: float, other: float) -> None:
    """The first half of a group is part of its first three quarters."""
    low, high = sorted((one, other))
    at_low = are_in(Caller(user=user), Group(name="g", percent=low))
    at_high = are_in(Caller(user=user), Group(name="g", percent=high))

    assert len(at_low) <= len(at_high)


def test_percentages_of_two_groups_are_other_people() -> None:
    """And another service's salt takes others again."""
    half, same = (Group(name=name, percent=50.0) for name in ("g", "h"))
    in_half = {user for user in PEOPLE if are_in(Caller(user=user), half)}
    in_same = {user for user in PEOPLE if are_in(Caller(user=user), same)}
    salted = {user for user in PEOPLE if are_in(Caller(user=user), half, salt="other")}

    assert 800 < len(in_half & in_same) < 1200
    assert 800 < len(in_half & salted) < 1200


def test_digest_names_the_people_and_not_how_they_were_written() -> None:
    """The order of a header's fields does not count; that of groups does: the first decides."""
    one = Group(name="a", header={"x-a": "1", "x-b": "2"})
    same = Group(name="a", header={"x-b": "2", "x-a": "1"})
    other = Group(name="b", users=("ann", "bo"))

    assert Groups(groups=(one,)).digest == Groups(groups=(same,)).digest
    assert Groups(groups=(one, other)).digest != Groups(groups=(other, one)).digest
    assert Groups(groups=(one,)).digest != Groups(groups=(other,)).digest


@given(st.lists(st.builds(Group, name=NAMES, tenant=NAMES, percent=st.floats(0, 100)), max_size=3))
def test_digest_survives_the_store(groups: list[Group]) -> None:
    """A gateway compares it with the key's name."""
    written = Groups(groups=tuple(groups))

    assert written.digest == decode(encode(written), Groups).digest


def test_groups_that_are_too_large_are_refused_with_the_limit() -> None:
    """512 KiB is about thirty thousand users."""
    users = tuple(sorted(f"{n:08x}.user" for n in range(30_000)))
    fits = Groups(groups=(Group(name="g", users=users),))
    check_size(fits)
    larger = Group(name="g", users=(*users, "~" * (MAX_BYTES - len(encode(fits)))))
    with pytest.raises(PlanError) as error:
        check_size(msgspec.structs.replace(fits, groups=(larger,)))

    assert error.value.path == "groups"
    assert "may take 524288 (512 KiB)" in str(error.value)

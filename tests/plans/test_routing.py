"""Every gateway decides alike, and who has moved never moves back as the weight grows."""

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import SERVICE, a_route
from vctl_plans.groups import Group, Groups
from vctl_plans.route import Consistency, Override, Route
from vctl_plans.routing import Asked, Choice, Refusal, Why, cache_salt, choose, session_key
from vctl_plans.share import share

SPLIT = a_route(candidate=2, weight=50.0, revoked=(3,))


def test_named_release_is_served_by_it() -> None:
    """Whatever the weight says."""
    assert Choice(2, Why.NAMED) == choose(SPLIT, Asked("k", release=2))
    assert Choice(1, Why.NAMED) == choose(SPLIT, Asked("k", release=1))


@pytest.mark.parametrize(
    ("release", "reason"),
    [
        (3, "release 3 of support is revoked"),
        (9, "release 9 of support is not routed (routed: 1, 2)"),
    ],
)
def test_named_release_that_may_not_serve_is_refused(release: int, reason: str) -> None:
    """409, and never another release in its place."""
    assert Refusal(409, reason) == choose(SPLIT, Asked("k", release=release))


def test_retained_release_is_not_served_by_name() -> None:
    """It is loaded, and no more."""
    choice = choose(a_route(stable=2, instant=(1,)), Asked("k", release=1))

    assert Refusal(409, "release 1 of support is not routed (routed: 2)") == choice


def test_service_without_a_release_is_unavailable() -> None:
    """503."""
    choice = choose(Route(service=SERVICE), Asked("k"))

    assert Refusal(503, "service support serves no release yet") == choice


@pytest.mark.parametrize(("weight", "release"), [(100.0, 2), (0.0, 1)])
@given(key=st.text(max_size=40))
def test_whole_weight_is_everybody_and_none_is_nobody(
    weight: float, release: int, key: str
) -> None:
    """No key falls outside."""
    choice = choose(a_route(candidate=2, weight=weight), Asked(key))

    assert isinstance(choice, Choice)
    assert release == choice.release


@given(
    st.text(max_size=20), st.floats(0, 100, exclude_min=True), st.floats(0, 100, exclude_min=True)
)
def test_who_has_moved_does_not_move_back_as_the_weight_grows(
    key: str, one: float, other: float
) -> None:
    """A key on the candidate at a weight is on it at every higher one."""
    low, high = sorted((one, other))
    at_low = choose(a_route(candidate=2, weight=low), Asked(key))
    at_high = choose(a_route(candidate=2, weight=high), Asked(key))

    assert isinstance(at_low, Choice)
    assert isinstance(at_high, Choice)
    assert at_low.release <= at_high.release


def test_share_is_uniform() -> None:
    """Within four standard deviations of a tenth in each tenth (binomial: sd 42 of 20 000)."""
    counts = Counter(int(share("salt", f"key-{i}") // 10) for i in range(20_000))

    assert set(range(10)) == set(counts)
    assert all(abs(count - 2000) < 170 for count in counts.values())


@pytest.mark.parametrize(
    ("salt", "key", "percent"),
    [
        ("", "", 92.25435396587456),
        ("support", "session:1", 84.32619475881611),
        ("support", "session:2", 77.9398569872536),
        ("s", "ü", 87.43245503332595),
    ],
)
def test_share_is_fixed(salt: str, key: str, percent: float) -> None:
    """Gateways of two versions send a key to the same release."""
    assert percent == pytest.approx(share(salt, key), abs=1e-12)


def test_salt_and_key_do_not_run_together() -> None:
    """A longer salt with a shorter key is another place."""
    assert share("ab", "c") != share("a", "bc")


CHAT = {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]}


def test_session_key_takes_the_first_that_exists() -> None:
    """Session, conversation, cache key, user, request: each only where none before it is."""
    body: dict[str, object] = {**CHAT, "prompt_cache_key": "p", "user": "ann"}
    without = {name: value for name, value in body.items() if name != "messages"}

    assert "session:7" == session_key({"x-vctl-session": "7"}, body, "r")
    assert session_key({}, body, "r").startswith("conversation:")
    assert "prompt_cache_key:p" == session_key({}, without, "r")
    assert "user:ann" == session_key({}, {"user": "ann"}, "r")
    assert "request:r" == session_key({}, {"user": "", "messages": "x"}, "r")


def test_conversation_keeps_its_key_as_it_goes_on() -> None:
    """What follows the first user message does not count; what comes before does."""
    turn = {"role": "assistant", "content": "a"}
    longer = {"messages": [*CHAT["messages"], turn, {"role": "user", "content": "more"}]}
    other = {"messages": [{"role": "user", "content": "u"}]}

    assert session_key({}, CHAT, "1") == session_key({}, longer, "2")
    assert session_key({}, CHAT, "1") != session_key({}, other, "1")


def test_conversation_key_holds_nothing_of_its_contents() -> None:
    """It may be logged."""
    key = session_key({}, {"messages": [{"role": "user", "content": "my secret"}]}, "1")

    assert "secret" not in key


@pytest.mark.parametrize("messages", [[], [1], [{"role": "system", "content": "s"}], "text", None])
def test_conversation_without_a_user_is_none(messages: object) -> None:
    """Then the request's own id decides."""
    assert "request:r" == session_key({}, {"messages": messages}, "r")


PARTS = ("tenant", "weights_root", "adapter_root", "client_salt")


def test_cache_salt_separates_every_part() -> None:
    """Tenant, weights, adapter, the client's own salt; and parts do not run together."""
    plain = dict.fromkeys(PARTS, "x")
    salts = {cache_salt(**plain)} | {cache_salt(**{**plain, part: "y"}) for part in PARTS}
    shifted = cache_salt(tenant="xx", weights_root="", adapter_root="x", client_salt="x")

    assert 5 == len(salts)
    assert shifted not in salts


STAFF = Groups(groups=(Group(name="staff", users=("ann", "bo")),))
ACME = Groups(groups=(Group(name="acme", tenant="acme"), Group(name="tier", header={"x-t": "1"})))
KNOWN = {each.digest: each for each in (STAFF, ACME)}
OVERRIDDEN = a_route(
    candidate=2,
    weight=30.0,
    overrides=(Override(group=STAFF.digest, release=3), Override(group=ACME.digest, release=4)),
)

CALLERS = st.builds(
    Asked,
    st.text(max_size=8),
    user=st.sampled_from(["", "ann", "bo", "cy"]),
    tenant=st.sampled_from(["", "acme", "other"]),
    headers=st.sampled_from([{}, {"x-t": "1"}, {"x-t": "2"}]),
)


@given(CALLERS)
def test_first_override_that_matches_decides_and_all_others_go_by_weight(asked: Asked) -> None:
    """An override is for its groups, and nobody else notices it."""
    choice = choose(OVERRIDDEN, asked, KNOWN)

    if asked.user in {"ann", "bo"}:
        assert Choice(3, Why.OVERRIDE, "staff") == choice
    elif asked.tenant == "acme":
        assert Choice(4, Why.OVERRIDE, "acme") == choice
    elif asked.headers.get("x-t") == "1":
        assert Choice(4, Why.OVERRIDE, "tier") == choice
    else:
        assert choose(a_route(candidate=2, weight=30.0), asked) == choice


@given(CALLERS, st.sampled_from([1, 2, 3, 4]))
def test_named_release_goes_before_any_override(asked: Asked, release: int) -> None:
    """And an override's release may be named by anybody: it is routed."""
    named = msgspec.structs.replace(asked, release=release)

    assert Choice(release, Why.NAMED) == choose(OVERRIDDEN, named, KNOWN)


@given(CALLERS)
def test_override_whose_groups_are_unknown_refuses_rather_than_guesses(asked: Asked) -> None:
    """But not the members of one that stands before it."""
    choice = choose(OVERRIDDEN, asked, {STAFF.digest: STAFF})

    if asked.user in {"ann", "bo"}:
        assert Choice(3, Why.OVERRIDE, "staff") == choice
    else:
        reason = "the groups of release 4 are not known here yet"
        assert Refusal(503, reason) == choice


@given(st.text(max_size=8), st.text(min_size=1, max_size=8), st.floats(0, 100, exclude_min=True))
def test_eventual_goes_by_request_and_session_by_session(
    key: str, request: str, weight: float
) -> None:
    """Where a request brings no id of its own, its session decides."""
    session = a_route(candidate=2, weight=weight)
    eventual = msgspec.structs.replace(session, consistency=Consistency.EVENTUAL)
    asked = Asked(key, request=request)

    assert choose(session, Asked(key)) == choose(session, asked)
    assert choose(session, Asked(request)) == choose(eventual, asked)
    assert choose(session, Asked(key)) == choose(eventual, Asked(key))


def test_key_that_is_no_utf8_falls_somewhere() -> None:
    """A header field may hold any byte; as text it then has surrogates."""
    odd = b"\xff".decode(errors="surrogateescape")

    assert 0 <= share("salt", odd) < 100
    assert share("salt", odd) != share("salt", b"\xfe".decode(errors="surrogateescape"))


@pytest.mark.parametrize(
    ("first", "later"),
    [
        ({"input": "hi"}, {"input": [{"role": "user", "content": "hi"}, {"role": "assistant"}]}),
        ({"instructions": "be kind", "input": "hi"}, {"instructions": "be kind", "input": "hi"}),
        (
            {"system": "be kind", "messages": [{"role": "user", "content": "hi"}]},
            {
                "system": "be kind",
                "messages": [{"role": "user", "content": "hi"}, {"role": "assistant"}],
            },
        ),
    ],
)
def test_conversation_of_every_kind_keeps_its_key(first: dict[str, Any], later: dict[str, Any]):
    key = session_key({}, first, "1")

    assert key.startswith("conversation:")
    assert key == session_key({}, later, "2")
    assert key != session_key({}, first | {"system": "be rude"}, "3")

"""`vctl route show | explain | override rm`, and groups given by flags."""

import json

import msgspec
import pytest

from tests.builders import SERVICE, a_rollout, a_route
from tests.cli.support import KEYS, Vctl, a_fleet, a_record
from vctl_plans.groups import Group, Groups
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.rollout import Cause
from vctl_plans.route import Consistency, Override
from vctl_plans.share import share

BETA = Groups(groups=(Group(name="beta", tenant="acme"), Group(name="staff", users=("ann", "bo"))))


def overridden(**more: object) -> Vctl:
    """Return a `vctl` on a service whose groups have release 2."""
    route = a_route(overrides=(Override(group=BETA.digest, release=2),), **more)
    converged = a_rollout(
        P.CONVERGED, strategy="user-group", groups=BETA.digest, has_moved=True, confirmed=3
    )
    vctl = a_fleet(releases=3, route=route, rollout=converged)
    vctl.put(KEYS.groups(BETA.digest), BETA)
    return vctl


def test_show_tells_traffic_and_overrides():
    said = overridden(candidate=3, weight=25.0, revoked=(4,), good=(1,))("route", "show")
    assert (0, "") == (said.code, said.err)
    assert "25 % on release 3, groups on 2\n" in said.out
    assert f"override  release 2 for beta, staff ({BETA.digest[:15]})\n" in said.out
    assert "revoked   4" in said.out


def test_show_names_no_revoked_release_as_good():
    said = a_fleet(releases=3, route=a_route(good=(2, 3, 1), revoked=(2,)))("route", "show")
    assert "good      3, 1\nrevoked   2\n" in said.out


def test_show_of_a_route_without_any_says_so():
    said = a_fleet()("route", "show", "-o", "json")
    shown = json.loads(said.out)
    assert ("route", SERVICE, [], 1) == (
        shown["kind"], shown["service"], shown["overrides"], shown["route"]["stable"],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "release", "why"),
    [
        (["--tenant", "acme"], 2, "it is in the group beta"),
        (["--user", "bo"], 2, "it is in the group staff"),
        (["--user", "cleo"], 1, "stable release"),
        (["--release", "1", "--user", "bo"], 1, "it names that release itself"),
        ([], 1, "stable release"),
    ],
)
def test_explain_says_what_a_gateway_would_choose(arguments: list[str], release: int, why: str):
    said = overridden()("route", "explain", *arguments)
    assert (0, "") == (said.code, said.err)
    assert said.out.startswith(f"release {release}: ")
    assert why in said.out


def test_explain_tells_where_the_key_falls():
    vctl = overridden(candidate=3, weight=50.0)
    moved = next(n for n in range(99) if share(SERVICE, f"session:s{n}") < 50)
    stays = next(n for n in range(99) if share(SERVICE, f"session:s{n}") >= 50)
    assert "below the weight of 50 %" in vctl("route", "explain", "--session", f"s{moved}").out
    said = vctl("route", "explain", "--session", f"s{stays}", "-o", "json")
    shown = json.loads(said.out)
    assert (1, "stable") == (shown["release"], shown["why"])
    assert share(SERVICE, f"session:s{stays}") == shown["share"]


@pytest.mark.parametrize(
    ("more", "arguments"),
    [
        ({}, ()),
        ({"consistency": Consistency.EVENTUAL}, ("--session", "s1")),
    ],
    ids=["nothing to tell requests by", "eventual"],
)
def test_explain_claims_nothing_of_requests_that_are_split_one_by_one(
    more: dict[str, object], arguments: tuple[str, ...]
):
    vctl = overridden(candidate=3, weight=25.0, **more)
    said = vctl("route", "explain", *arguments)
    told = "release 3 for 25 % of such requests, release 1 for the others: each is split by itself"
    assert (0, f"{told}\n") == (said.code, said.out)


def test_explain_of_what_is_refused_is_1():
    said = overridden()("route", "explain", "--release", "3")
    assert 1 == said.code
    assert "refused with 409: release 3 of support is not routed" in said.out


def test_explain_refuses_a_header_without_value():
    said = overridden()("route", "explain", "--header", "x-tier")
    assert 2 == said.code
    assert "write NAME=VALUE" in said.err


@pytest.mark.parametrize("name", ["beta", "staff", BETA.digest, BETA.digest[:12]])
def test_override_rm_ends_it_without_revoking(name: str):
    vctl = overridden()
    said = vctl("route", "override", "rm", name, "--no-watch", "--reason", "beta is over")
    assert 0 == said.code, said
    after = vctl.service()
    assert after.route is not None
    assert after.rollout is not None
    assert ((), (), 1) == (after.route.overrides, after.route.revoked, after.route.stable)
    assert (P.ROLLING_BACK, Cause.OVERRIDE) == (after.rollout.phase, after.rollout.cause)
    assert "the override is ended by an operator" in after.rollout.sentence
    assert "beta is over" == after.rollout.reason


def test_override_rm_suggests_the_name_that_was_meant():
    said = overridden()("route", "override", "rm", "betta")
    assert 2 == said.code
    assert "no groups of support named 'betta' have a release of their own" in said.err
    assert "did you mean 'beta'?" in said.err


def test_override_rm_while_a_rollout_runs_is_7():
    vctl = overridden()
    vctl.put(KEYS.rollout(SERVICE), a_rollout(P.SOAKING, has_moved=True))
    assert 7 == vctl("route", "override", "rm", "beta").code


def test_rollback_now_after_groups_ends_theirs_and_revokes():
    vctl = overridden()
    assert 0 == vctl("rollback", "--now", "--no-watch").code
    route = vctl.service().current_route
    assert (1, (), (2,)) == (route.stable, route.overrides, route.revoked)


def test_rollback_by_plan_after_groups_asks_which_is_meant():
    said = overridden(good=(3, 1))("rollback", "--no-watch")
    assert 7 == said.code
    assert "was for groups: what is to be rolled back?" in said.err


def test_start_by_flags_gives_a_group_a_release():
    vctl = a_fleet(releases=2)
    said = vctl(
        *(
            "rollout",
            "start",
            "--release",
            "2",
            "--tenant",
            "acme",
            "--user",
            "bo",
            "--user",
            "ann",
        ),
        *("--header", "X-Tier=beta", "--percent", "50", "--group", "beta", "--no-watch"),
    )
    assert 0 == said.code, said
    rollout = vctl.service().rollout
    assert rollout is not None
    wanted = Groups(
        groups=(
            Group(
                name="beta",
                tenant="acme",
                users=("ann", "bo"),
                header={"x-tier": "beta"},
                percent=50.0,
            ),
        )
    )
    assert ("user-group", wanted.digest) == (rollout.strategy, rollout.groups)


def test_start_for_a_group_of_everybody_is_refused():
    said = a_fleet(releases=2)("rollout", "start", "--release", "2", "--group", "all")
    assert 2 == said.code
    assert "groups[0]: is everybody" in said.err


def test_start_for_groups_before_anything_serves_is_refused():
    vctl = a_fleet(releases=2, route=a_route(stable=0, good=()))
    said = vctl("rollout", "start", "--release", "2", "--tenant", "acme", "--no-watch")
    assert 2 == said.code
    assert "bring its first release by full-switch" in said.err


def test_export_sends_to_the_nodes_that_are_ready():
    vctl = a_fleet(releases=2, route=a_route())
    record = msgspec.structs.replace(a_record("a"), gateway_url="http://a.example:8080")
    vctl.put(KEYS.node("a"), record)
    said = vctl("route", "export", "--format", "nginx")

    assert (0, "") == (said.code, said.err)
    assert "    server a.example:8080;" in said.out
    assert 1 == said.out.count("server ")


def test_export_of_what_nobody_reaches_says_what_to_set():
    said = a_fleet(releases=2, route=a_route())("route", "export", "--format", "haproxy")

    assert 1 == said.code
    assert "--gateway-url" in said.err


def test_show_watch_is_one_object_a_line_until_the_timeout():
    said = a_fleet(releases=2, route=a_route())(
        "--timeout", "1s", "-o", "json", "route", "show", "--watch"
    )

    assert 0 == said.code, said
    (line,) = said.out.splitlines()
    assert ("route", 1) == (json.loads(line)["kind"], json.loads(line)["route"]["stable"])

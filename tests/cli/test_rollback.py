"""`vctl rollback`, with --now and without; abort and resume beside it."""

import msgspec
import pytest

from tests.builders import SERVICE, a_rollout, a_root, a_route
from tests.cli.support import KEYS, a_fleet, conductor, running
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.release import Artifact
from vctl_plans.rollout import Cause

ROLLED_BACK = (P.ROLLED_BACK, "rolled back (3/3) on release 1", {"confirmed": 3})


def serving_2(**more):
    """Return a fleet where release 2 serves, and release 1 is loaded everywhere."""
    route = a_route(stable=2, good=(1, 2), instant=(1,))
    return a_fleet(releases=2, route=route, rollout=a_rollout(P.CONVERGED), **more)


def test_now_moves_traffic_before_it_follows():
    vctl = serving_2()
    said = vctl("rollback", "--now", "--reason", "INC-1", "--no-watch")
    service = vctl.service()
    assert service.route is not None
    assert service.rollout is not None
    assert said.code == 0
    assert (service.route.stable, service.route.revoked) == (1, (2,))
    assert (service.rollout.reason, service.rollout.phase) == ("INC-1", P.ROLLING_BACK)
    assert "traffic returns to release 1; release 2 is revoked" in said.err


def test_now_is_0_when_rolled_back_and_confirmed():
    vctl = serving_2()
    vctl.conduct = conductor(ROLLED_BACK)
    said = vctl("rollback", "--now")
    assert said.code == 0
    assert said.out.splitlines()[-1] == "12:00:00  rolled back (3/3) on release 1"


def test_now_is_8_when_a_node_is_unconfirmed():
    vctl = serving_2()
    vctl.conduct = conductor((P.ROLLED_BACK, "rolled back (2/3)", {"unconfirmed": ("c",)}))
    said = vctl("rollback", "--now")
    assert said.code == 8
    assert "unconfirmed: c\n  they follow once they can; the same command again" in said.err


def test_now_pressed_twice_follows_the_first():
    vctl = serving_2()
    first = vctl("rollback", "--now", "--no-watch")
    again = vctl("rollback", "--now", "--no-watch")
    assert (0, first.out) == (again.code, again.out)
    assert "already does this" in again.err
    assert vctl.service().current_route.revoked == (2,)


def test_now_pressed_after_the_end_says_that_nothing_is_left_to_do():
    vctl = serving_2()
    vctl.conduct = conductor(ROLLED_BACK)
    first = vctl("rollback", "--now")
    again = vctl("rollback", "--now")
    assert (0, 0) == (first.code, again.code)
    assert "nothing to do: rollout" in again.err
    assert [line[:8] for line in again.out.splitlines() if "roll" in line] == ["earlier "] * 2
    assert "further back: vctl rollback --now -s support --to N" in again.err


@pytest.mark.parametrize("cause", [Cause.ABORTED, Cause.GUARDRAIL])
def test_now_pressed_after_an_abort_or_a_guardrail_went_back_revokes_nothing(cause: Cause):
    went_back = a_rollout(P.ROLLED_BACK, cause=cause, back_to=2, from_release=2, to_release=3)
    route = a_route(stable=2, good=(1, 2), instant=(1,))
    vctl = a_fleet(releases=3, route=route, rollout=went_back)
    said = vctl("rollback", "--now", "--no-watch")
    assert (said.code, vctl.service().current_route.revoked) == (0, ())
    assert "nothing to do: rollout" in said.err


def test_now_ends_a_rollout_that_runs():
    vctl = a_fleet(releases=2, route=a_route(candidate=2, weight=100.0), rollout=running())
    vctl.conduct = conductor(ROLLED_BACK)
    said = vctl("rollback", "--now")
    assert said.code == 0
    assert vctl.service().current_route.stable == 1


def test_nothing_to_return_to_is_7_and_says_what_to_do():
    said = a_fleet()("rollback", "--now")
    assert (said.code, said.out) == (7, "")
    assert "no earlier good release" in said.err
    assert "--to N" in said.err


def test_release_that_does_not_exist_is_2():
    said = serving_2()("rollback", "--now", "--to", "9")
    assert (said.code, said.out) == (2, "")
    assert "release 9 of support does not exist; known: 1, 2" in said.err


def test_without_now_it_is_a_plan_that_moves_nothing_yet():
    vctl = serving_2()
    said = vctl("rollback", "--to", "1", "--no-watch")
    service = vctl.service()
    assert service.rollout is not None
    assert said.code == 0
    assert (service.current_route.stable, service.rollout.phase) == (2, P.PREPARING)
    assert service.rollout.strategy == "rollback"


def test_unknown_service_is_not_offered_to_be_made():
    said = serving_2()("rollback", "--now", "-s", "suport")
    assert (said.code, said.out) == (2, "")
    assert "did you mean 'support'?" in said.err
    assert "--new-service" not in said.err


def test_abort_gives_up_and_is_done_as_asked():
    vctl = a_fleet(releases=2, rollout=a_rollout(P.PREPARING))
    said = vctl("rollout", "abort", "--reason", "mistake")
    assert said.code == 0
    assert "aborted by an operator; no traffic moved" in said.out
    assert vctl.service().current_route.revoked == ()


def test_abort_asks_nobody_where_no_person_is():
    vctl = a_fleet(releases=2, rollout=a_rollout(P.PREPARING))
    assert "?" not in vctl("rollout", "abort", "--no-watch").err


def test_abort_of_what_has_ended_is_7_and_says_what_is_allowed():
    said = serving_2()("rollout", "abort")
    assert (said.code, said.out) == (7, "")
    assert "no rollout of support runs: r2, the last, is converged" in said.err
    assert "vctl rollout start" in said.err


def test_resume_lets_a_paused_rollout_go_on():
    rollout = running(P.PAUSED, resume_phase=P.SHIFTING.value)
    vctl = a_fleet(releases=2, rollout=rollout)
    said = vctl("rollout", "resume", "--no-watch")
    after = vctl.service().rollout
    assert after is not None
    assert (said.code, after.phase) == (0, P.SHIFTING)


def test_resume_of_what_is_not_paused_is_7_and_names_the_phase():
    said = a_fleet(releases=2, rollout=running())("rollout", "resume")
    assert (said.code, said.out) == (7, "")
    assert "rollout resume is not allowed" in said.err
    assert "is shifting" in said.err
    assert SERVICE in said.err


def test_now_says_up_front_that_the_base_comes_back_by_waves():
    weights = Artifact(root=a_root(9), source="file:///base")
    vctl = serving_2()
    second = vctl.service().releases[2]
    based = msgspec.structs.replace(second, components={**second.components, "weights": weights})
    vctl.put(KEYS.release(SERVICE, 2), based)
    said = vctl("rollback", "--now", "--no-watch")
    assert said.code == 0, said
    assert (
        "rollback to release 1 asked: no node holds its base: it is loaded by waves of 1 node;"
        " 2 serves on meanwhile"
    ) in said.err
    assert (2, 0) == (vctl.service().current_route.stable, vctl.service().current_route.candidate)

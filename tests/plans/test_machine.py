"""The machine is total: each phase and event is a move, is ignored, or is refused."""

import itertools
from collections.abc import Mapping

import msgspec
import pytest

from tests.builders import NODES, SERVICE, a_plan, a_report, a_route, a_state
from vctl_plans.decision import NOBODY, State
from vctl_plans.errors import InvariantError, TransitionError, VctlError
from vctl_plans.events import (
    EVENTS,
    AbortAsked,
    Event,
    Observed,
    PauseAsked,
    PromoteAsked,
    ResumeAsked,
    RollbackAsked,
    SupersedeAsked,
    TakenOver,
)
from vctl_plans.machine import MAX_TAKEOVERS, TABLE, step
from vctl_plans.node import NodeReport
from vctl_plans.phase import NodePhase
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.rollout import Cause

ASKED: dict[type, Event] = {
    Observed: Observed({}),
    RollbackAsked: RollbackAsked(target=1, request="q"),
    AbortAsked: AbortAsked(),
    PauseAsked: PauseAsked(),
    PromoteAsked: PromoteAsked(),
    ResumeAsked: ResumeAsked(),
    SupersedeAsked: SupersedeAsked(),
    TakenOver: TakenOver(MAX_TAKEOVERS),
}

MOVING = (P.SHIFTING, P.SOAKING)


def a_phase(phase: P) -> State:
    """Return a state that a rollout from 1 to 2 can be in."""
    if phase in MOVING:
        route = a_route(candidate=2, weight=100.0)
        return a_state(phase, route=route, has_moved=True)
    if phase in {P.SETTLING, P.CONVERGED}:
        route = a_route(stable=2, good=(1, 2), instant=(1,))
        return a_state(phase, route=route, has_moved=True)
    if phase in {P.ROLLING_BACK, P.ROLLED_BACK}:
        return a_state(phase, route=a_route(revoked=(2,)), has_moved=True, back_to=1)
    if phase is P.PAUSED:
        route = a_route(candidate=2, weight=100.0)
        return a_state(phase, route=route, has_moved=True, resume_phase="soaking")
    return a_state(phase)


def all_ready(state: State) -> Mapping[str, NodeReport]:
    """Return what the roster says once it has done all that release 2 takes."""
    return {n: a_report(n, rollout=state.rollout, r2=NodePhase.READY) for n in state.roster}


@pytest.mark.parametrize(("phase", "kind"), list(itertools.product(P, EVENTS)))
def test_event_in_a_phase_is_a_move_or_ignored_or_refused(phase: P, kind: type) -> None:
    """What is not in the table is refused to an operator and ignored of a conductor."""
    state = a_phase(phase)
    before = msgspec.json.encode(state.rollout), state.route

    if kind in TABLE[phase]:
        after = step(state, ASKED[kind], 0.0)
        assert {phase, *TABLE[phase][kind].to} >= {after.rollout.phase}
    elif kind in {Observed, TakenOver}:
        assert state == step(state, ASKED[kind], 0.0).state
    else:
        with pytest.raises(TransitionError):
            step(state, ASKED[kind], 0.0)

    assert before == (msgspec.json.encode(state.rollout), state.route)


@pytest.mark.parametrize("phase", list(P))
def test_terminal_phase_allows_nothing(phase: P) -> None:
    """A rollout that has ended never moves; one that has not can always be moved by somebody."""
    assert phase.is_terminal == (not TABLE[phase])


def test_refusal_names_event_phase_and_what_is_allowed() -> None:
    """An operator learns what can be done instead."""
    with pytest.raises(TransitionError) as refused:
        step(a_phase(P.SOAKING), SupersedeAsked(), 0.0)

    assert refused.value.message == (
        "rollout start --supersede is not allowed: rollout r2 of support is soaking"
    )
    assert refused.value.hint == (
        "allowed now: rollback --now, rollout abort, rollout pause, rollout promote"
    )


def test_decision_counts_once_and_says_why() -> None:
    """Each decision raises seq by one, and its sentence is the rollout's."""
    state = a_state()
    decision = step(state, Observed(all_ready(state)), 0.0)

    assert (1, "release 2 is ready on 3 of 3 nodes: traffic moves to it") == (
        decision.rollout.seq,
        decision.rollout.sentence,
    )
    assert decision.sentence == decision.rollout.sentence


def test_looking_again_decides_the_same() -> None:
    """A decision that was not written is taken again, word by word."""
    state = a_state()
    seen = Observed(all_ready(state))

    assert step(state, seen, 1.0) == step(state, seen, 1.0)


def test_waiting_says_when_to_look_again() -> None:
    """Without any event the deadline is not missed."""
    assert step(a_state(), Observed({}), 5.0).wake_s == a_plan().prepare_s


def test_word_from_before_the_rollout_does_not_count() -> None:
    """A node that said ready before it saw the rollout may be unloading it."""
    state = a_state()
    earlier = {n: a_report(n, r2=NodePhase.READY) for n in NODES}

    assert step(state, Observed(earlier), 0.0).rollout.phase is P.PREPARING


def test_word_from_before_a_rollback_does_not_count() -> None:
    """A release that was on the unload list is loaded only if a node says so after the rollback.

    (1) settling lists release 1; (2) a node that has not reported since begins to unload it;
    (3) an operator rolls back to 1; (4) the last reports, of the same rollout, still say ready.
    """
    route = a_route(stable=2, good=(1, 2))
    settling = a_state(P.SETTLING, route=route, has_moved=True, unload=(1,))
    earlier = {n: a_report(n, rollout=settling.rollout, r1=NodePhase.READY) for n in NODES}
    back = step(settling, RollbackAsked(target=1, request="q7"), 0.0).state

    assert step(back, Observed(earlier), 0.0).state == back
    later = {n: a_report(n, rollout=back.rollout, r1=NodePhase.READY) for n in NODES}
    assert step(back, Observed(later), 0.0).state.route.stable == 1


def test_gateway_that_is_away_makes_a_node_not_ready() -> None:
    """Traffic does not move to a node whose gateway the agent does not hear."""
    state = a_state()
    reports = dict(all_ready(state))
    reports["b"] = msgspec.structs.replace(reports["b"], gateway_ok=False)

    assert step(state, Observed(reports), 0.0).rollout.phase is P.PREPARING


def test_empty_roster_passes_no_gate() -> None:
    """Nobody's readiness is not everybody's."""
    state = msgspec.structs.replace(a_state(), roster=())
    failed = step(state, Observed({}), a_plan().prepare_s)

    assert step(state, Observed({}), 0.0).rollout.phase is P.PREPARING
    assert f"release 2 is not ready within 1m on {NOBODY}; no traffic moved" == failed.sentence


@pytest.mark.parametrize("count", [1, MAX_TAKEOVERS - 1])
def test_takeover_below_the_limit_changes_nothing(count: int) -> None:
    """A new conductor simply goes on."""
    state = a_state()

    assert state == step(state, TakenOver(count), 0.0).state


def test_revoked_release_is_no_target() -> None:
    """No event puts traffic back on what was revoked."""
    state = a_state(P.SHIFTING, route=a_route(stable=3, candidate=2, weight=100.0, revoked=(1,)))

    with pytest.raises(TransitionError, match="release 1 of support is revoked"):
        step(state, RollbackAsked(target=1, request="q"), 0.0)


def test_abort_of_a_rollback_does_not_return_to_what_it_left() -> None:
    """Paused, with traffic back on 1 and 3 revoked: an abort would serve 3 again."""
    route = a_route(stable=1, good=(3, 1), revoked=(3,))
    paused = a_state(
        P.PAUSED,
        route=route,
        strategy="rollback",
        from_release=3,
        to_release=1,
        back_to=1,
        cause=Cause.ASKED,
        has_moved=True,
        resume_phase="rolling_back",
    )

    with pytest.raises(TransitionError, match="release 3 of support is revoked"):
        step(paused, AbortAsked(), 0.0)


def test_abort_does_not_return_to_what_is_not_loaded() -> None:
    """Paused while settling with retain 0: what served before may be unloaded already."""
    route = a_route(stable=2, good=(1, 2))
    paused = a_state(P.PAUSED, route=route, has_moved=True, unload=(1,), resume_phase="settling")

    with pytest.raises(TransitionError, match="is not loaded any more"):
        step(paused, AbortAsked(), 0.0)


def test_rollback_plan_revokes_only_what_it_leaves() -> None:
    """Going further back than a plan that still prepares does not revoke that plan's target."""
    preparing = a_state(
        route=a_route(stable=3, good=(1, 2, 3), instant=(1,)),
        strategy="rollback",
        from_release=3,
        to_release=2,
        back_to=2,
        cause=Cause.ASKED,
    )
    after = step(preparing, RollbackAsked(target=1, request="q"), 0.0).state

    assert (1, (3,)) == (after.route.stable, after.route.revoked)


def test_abort_hands_on_what_an_earlier_rollout_left_to_be_unloaded() -> None:
    """Else a release that failed to go out would stay loaded until another one succeeds."""
    failed = step(a_state(unload=(5,)), AbortAsked(), 0.0).rollout

    assert (P.FAILED, (2, 5)) == (failed.phase, failed.unload)


def test_list_that_was_handed_on_is_not_taken_for_the_rollouts_own() -> None:
    """Settling names what may go by itself, after the nodes reported the route."""
    shifting = a_state(
        P.SHIFTING, route=a_route(candidate=2, weight=100.0), has_moved=True, unload=(5,)
    )
    reports = {n: a_report(n, rollout=shifting.rollout) for n in NODES}
    preparing = a_state(
        route=a_route(stable=3, good=(1, 3), instant=(1,)),
        strategy="rollback",
        to_release=1,
        back_to=1,
        unload=(5,),
    )
    ready = {n: a_report(n, rollout=preparing.rollout, r1=NodePhase.READY) for n in NODES}

    assert (P.SETTLING, ()) == _phase_and_list(step(shifting, Observed(reports), 0.0).state)
    assert (P.ROLLING_BACK, ()) == _phase_and_list(step(preparing, Observed(ready), 0.0).state)


def _phase_and_list(state: State) -> tuple[P, tuple[int, ...]]:
    return state.rollout.phase, state.rollout.unload


def test_unreadable_route_stops_every_decision() -> None:
    """A route that was written and cannot be read may revoke what would be served."""
    state = msgspec.structs.replace(a_state(), route=a_route(stable=0))

    with pytest.raises(VctlError, match=f"the route of {SERVICE} cannot be read"):
        step(state, Observed({}), 0.0)


def test_move_outside_the_table_is_a_bug() -> None:
    """A handler that leads where the diagram has no arrow is caught before it is written."""
    state = a_phase(P.PAUSED)
    wrong = msgspec.structs.replace(
        state, rollout=msgspec.structs.replace(state.rollout, resume_phase="converged")
    )

    with pytest.raises(InvariantError):
        step(wrong, ResumeAsked(), 0.0)

"""Every phase and event, over every kind of plan: a move that the table allows and that is said."""

import itertools
from typing import Any

import msgspec
import pytest

from tests.builders import NODES, a_plan, a_report, a_route, a_state, a_weighted_plan
from tests.plans.story import FAILED, GROUPS, PASSED, UNSURE, a_group_plan
from vctl_plans.decision import Decision, State
from vctl_plans.errors import TransitionError
from vctl_plans.events import (
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
from vctl_plans.plan import Plan, Watch
from vctl_plans.route import Consistency, Hold, Override, Route, Stage
from vctl_plans.watching import Watching

PLANS: dict[str, Plan] = {
    "weighted": a_weighted_plan(50, 100),
    "manual": a_weighted_plan(50, 100, manual=(50, 100)),
    "guarded": a_weighted_plan(50, 100, watch=Watch()),
    "strict": a_weighted_plan(50, 100, consistency=Consistency.STRICT),
    "eventual": a_weighted_plan(50, 100, consistency=Consistency.EVENTUAL),
    "groups": a_group_plan(),
    "guarded groups": a_group_plan(watch=Watch(on_breach="pause")),
    "strict groups": a_group_plan(consistency=Consistency.STRICT),
    "full-switch": a_plan(),
    "rollback": a_plan(strategy="rollback"),
}
OLDER = Override(group=GROUPS.digest, release=7)
BROUGHT = Override(group=GROUPS.digest, release=2)
HOLDS = {
    "fenced": Hold(stage=Stage.FENCED, fence_s=5, limit_s=10),
    "held": Hold(stage=Stage.HOLD, fence_s=5, limit_s=10),
}


def a_phase(plan: Plan, phase: P, **more: Any) -> State:
    """Return a state that a rollout from 1 to 2 by *plan* can be in."""
    of_plan: dict[str, Any] = {
        "strategy": plan.strategy,
        "groups": plan.groups,
        "from_override": 7 if plan.groups else 0,
        "steps": len(plan.steps),
        "watches": plan.watch is not None,
        "has_moved": phase not in {P.PREPARING, P.FAILED, P.SUPERSEDED},
        "soak_s": 60.0,
    }
    if plan.strategy == "rollback" or phase in {P.ROLLING_BACK, P.ROLLED_BACK}:
        of_plan["back_to"] = 1
    if phase is P.PAUSED:
        of_plan["resume_phase"] = "soaking"
    state = a_state(phase, route=a_phases_route(plan, phase), **(of_plan | more))
    return msgspec.structs.replace(state, plan=plan)


def a_phases_route(plan: Plan, phase: P) -> Route:
    """Return the route that belongs to it."""
    has_moved = phase not in {P.PREPARING, P.ROLLING_BACK, P.ROLLED_BACK, P.FAILED, P.SUPERSEDED}
    if plan.groups:
        return a_route(overrides=(BROUGHT if has_moved else OLDER,))
    if phase in {P.SETTLING, P.CONVERGED}:
        return a_route(stable=2, good=(1, 2), instant=(1,))
    if has_moved and plan.strategy != "rollback":
        return a_route(candidate=2, weight=plan.steps[0].weight)
    return a_route()


def states() -> dict[str, State]:
    """Return one of each, by a name."""
    found = {f"{kind}, {p}": a_phase(plan, p) for kind, plan in PLANS.items() for p in P}
    for kind, (stage, hold) in itertools.product(("strict", "strict groups"), HOLDS.items()):
        state = a_phase(PLANS[kind], P.SHIFTING, has_moved=False)
        route = a_phases_route(PLANS[kind], P.PREPARING)
        route = msgspec.structs.replace(route, hold=hold)
        found[f"{kind}, {stage}"] = msgspec.structs.replace(state, route=route)
    waits = {"awaits_promote": True, "soaked_s": 60.0}
    found["manual, waits"] = a_phase(PLANS["manual"], P.PAUSED, **waits)
    found["guarded, waits"] = a_phase(PLANS["guarded"], P.PAUSED, **waits)
    for phase in (P.PREPARING, P.SHIFTING, P.SETTLING, P.ROLLING_BACK):
        back = {"back_to": 1} if phase is P.ROLLING_BACK else {}
        state = a_phase(PLANS["weighted"], P.PAUSED, resume_phase=phase.value, **back)
        found[f"weighted, paused while {phase}"] = state
    for p, kind in itertools.product(P, ("weighted", "rollback")):
        of_base = {"wave_size": 1, "wave": 100.0 if p in {P.SETTLING, P.CONVERGED} else 50.0}
        found[f"base, {kind}, {p}"] = a_phase(PLANS[kind], p, **of_base)
    found["weighted, promoted"] = a_phase(PLANS["weighted"], P.SOAKING, promoted="step")
    found["first"] = msgspec.structs.replace(
        a_phase(PLANS["full-switch"], P.SHIFTING, from_release=0), route=a_route(stable=2)
    )
    return found


STATES = states()


def reports(state: State, *, phase: NodePhase = NodePhase.READY) -> dict[str, NodeReport]:
    """Return what all say that have seen everything, one of them a node that joined."""
    held: dict[str, Any] = {"r1": NodePhase.READY, "r2": phase, "r7": NodePhase.READY}
    return {n: a_report(n, rollout=state.rollout, **held) for n in (*NODES, "joined")}


def events(state: State) -> dict[str, Event]:
    """Return what can happen, by a name."""
    ready, gone = reports(state), frozenset("c")
    staying = {node: report for node, report in ready.items() if node not in gone}
    found: dict[str, Event] = {
        "nobody is there": Observed({}),
        "everybody has vanished": Observed({}, frozenset(NODES)),
        "one has vanished": Observed(staying, gone),
        "all are ready": Observed(ready),
        "all find fault": Observed(reports(state, phase=NodePhase.QUARANTINED)),
        "rollback": RollbackAsked(target=1, request="q"),
        "rollback further": RollbackAsked(target=9, request="q"),
        "end of an override": RollbackAsked(target=1, request="q", revokes=False),
        "abort": AbortAsked(),
        "pause": PauseAsked(),
        "promote": PromoteAsked(),
        "promote in full": PromoteAsked(is_full=True),
        "resume": ResumeAsked(),
        "supersede": SupersedeAsked(),
        "take-over": TakenOver(1),
        "last take-over": TakenOver(MAX_TAKEOVERS),
    }
    for verdict in (PASSED, FAILED, UNSURE):
        watching = Watching(verdicts=(verdict,))
        found[verdict.outcome.value] = Observed(ready, watching=watching)
    return found


def outcome(state: State, event: Event, now_s: float) -> Decision | None:
    """Return the decision; none where the event is refused, which a conductor's never is."""
    try:
        return step(state, event, now_s)
    except TransitionError:
        assert not isinstance(event, Observed | TakenOver)
        return None


@pytest.mark.parametrize("now_s", [0.0, 60.0, 1000.0])
@pytest.mark.parametrize("name", list(STATES))
def test_event_is_a_move_that_is_said_or_a_refusal(name: str, now_s: float) -> None:
    """Nothing else comes out, the state that went in is as it was, and the same comes out again."""
    state = STATES[name]
    before, phase = msgspec.json.encode(state), state.rollout.phase
    for event_name, event in events(state).items():
        decision = outcome(state, event, now_s)
        assert decision == outcome(state, event, now_s), event_name
        if decision is None:
            continue
        rule, moved = TABLE[phase].get(type(event)), decision.rollout
        assert moved.phase in {phase, *(rule.to if rule else ())}, event_name
        assert bool(decision.sentence) == (decision.state != state), event_name
        assert moved.seq - state.rollout.seq == bool(decision.sentence), event_name
        assert not decision.sentence or decision.sentence == moved.sentence, event_name
    assert before == msgspec.json.encode(state)


@pytest.mark.parametrize("name", list(STATES))
def test_conductor_never_waits_for_nothing(name: str) -> None:
    """What neither has ended nor waits for a person is looked at again in time."""
    state = STATES[name]
    if state.rollout.phase.is_terminal or state.rollout.phase is P.PAUSED:
        return
    waits = step(state, Observed({}), 0.0)

    assert waits.sentence or waits.wake_s
    if waits.wake_s:
        late = step(state, Observed({}), 10_000.0)
        assert late.sentence


@pytest.mark.parametrize("name", list(STATES))
def test_hold_ends_with_every_decision_but_a_barriers_own(name: str) -> None:
    """So that no request waits for a rollout that does something else."""
    state = STATES[name]
    for event_name, event in events(state).items():
        after = outcome(state, event, 1000.0)
        if after is None or after.state.route.hold is None:
            continue
        assert after.rollout.phase is P.SHIFTING, event_name
        assert isinstance(event, Observed | TakenOver), event_name

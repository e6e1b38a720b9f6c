"""The rollout's machine. All that moves a phase stands in `TABLE`; the diagram is made of it.

`step` takes a state, an event and the time that the phase has lasted, and returns the next state
with one sentence that says why. It is total: every phase and event is a move, is ignored, or is
refused with a `TransitionError` that names what is allowed. It knows no clock, no store, and no
node but by its report; it is level-triggered.

The order that keeps requests safe, and that no change may break:

1. traffic moves to a release only after every counted node reported it ready;
2. the unload list is written only after every counted node reported the route that leaves it out;
3. a revoked release is in no later route.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from vctl_plans.backward import abort, roll_back, rollback
from vctl_plans.decision import Decision, State, dropped, move, pause
from vctl_plans.errors import InvariantError, TransitionError, VctlError
from vctl_plans.events import (
    EVENTS,
    AbortAsked,
    Event,
    Observed,
    ResumeAsked,
    RollbackAsked,
    SupersedeAsked,
    TakenOver,
)
from vctl_plans.forward import finish, prepare, shift, soak
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.rollout import Rollout

MAX_TAKEOVERS = 10
"""Conductors that may take over within one phase before it waits for a person (DESIGN 4)."""


def step(state: State, event: Event, now_s: float) -> Decision:
    """Decide what *event* changes.

    Args:
        state: The rollout, its plan, its roster, and the route as it is.
        event: What happened.
        now_s: Seconds that the present phase has lasted; each decision starts it at 0 again.

    Raises:
        TransitionError: The phase does not allow the event; nothing changed.
        VctlError: The route cannot be read; deciding without it would lose what is revoked.
        InvariantError: A bug: a handler moved where the table does not let it.
    """
    if state.route_revision and not state.route.stable:
        raise VctlError(f"the route of {state.rollout.service} cannot be read: nothing is decided")
    phase = state.rollout.phase
    rule = TABLE[phase].get(type(event))
    if rule is None:
        if isinstance(event, Observed | TakenOver):
            return Decision(state)
        raise _refusal(state.rollout, event)
    decision = rule.decide(state, event, now_s)
    if decision.rollout.phase not in {phase, *rule.to}:
        raise InvariantError(f"{phase} + {type(event).__name__} led to {decision.rollout.phase}")
    return decision


def _refusal(rollout: Rollout, event: Event) -> TransitionError:
    verbs = {
        RollbackAsked: "rollback --now",
        AbortAsked: "rollout abort",
        ResumeAsked: "rollout resume",
        SupersedeAsked: "rollout start --supersede",
    }
    allowed = [verb for kind, verb in verbs.items() if kind in TABLE[rollout.phase]]
    return TransitionError(
        f"{verbs[type(event)]} is not allowed: rollout {rollout.id} of {rollout.service}"
        f" is {rollout.phase}",
        hint="allowed now: " + (", ".join(allowed) or "vctl rollout start"),
    )


def _resume(state: State, event: ResumeAsked, _now_s: float) -> Decision:
    phase = P(state.rollout.resume_phase)
    return move(state, phase, f"resumed: {phase}", resume_phase="", unconfirmed=(), by=event.by)


def _supersede(state: State, event: SupersedeAsked, _now_s: float) -> Decision:
    return move(
        state,
        P.SUPERSEDED,
        "superseded by a newer plan; no traffic moved",
        unload=dropped(state),
        by=event.by,
    )


def _take_over(state: State, event: TakenOver, _now_s: float) -> Decision:
    if event.takeovers < MAX_TAKEOVERS:
        return Decision(state)
    return pause(
        state,
        f"{event.takeovers} conductors took over in one phase: see what stops them, then resume",
        (),
    )


class Rule(NamedTuple):
    """What decides, and the phases other than the present one that it may lead to."""

    decide: Callable[[State, Any, float], Decision]
    to: frozenset[P]


def _rule(decide: Callable[[State, Any, float], Decision], *to: P) -> Rule:
    return Rule(decide, frozenset(to))


_TAKE_OVER = _rule(_take_over, P.PAUSED)
_ROLLBACK = _rule(rollback, P.ROLLING_BACK)
_ABORT = _rule(abort, P.ROLLING_BACK)

TABLE: dict[P, dict[type, Rule]] = {
    P.PREPARING: {
        Observed: _rule(prepare, P.SHIFTING, P.ROLLING_BACK, P.FAILED),
        RollbackAsked: _ROLLBACK,
        AbortAsked: _rule(abort, P.FAILED),
        SupersedeAsked: _rule(_supersede, P.SUPERSEDED),
        TakenOver: _TAKE_OVER,
    },
    P.SHIFTING: {
        Observed: _rule(shift, P.SOAKING, P.SETTLING, P.PAUSED),
        RollbackAsked: _ROLLBACK,
        AbortAsked: _ABORT,
        TakenOver: _TAKE_OVER,
    },
    P.SOAKING: {
        Observed: _rule(soak, P.SETTLING),
        RollbackAsked: _ROLLBACK,
        AbortAsked: _ABORT,
        TakenOver: _TAKE_OVER,
    },
    P.SETTLING: {
        Observed: _rule(finish, P.CONVERGED),
        RollbackAsked: _ROLLBACK,
        TakenOver: _TAKE_OVER,
    },
    P.ROLLING_BACK: {
        Observed: _rule(roll_back, P.ROLLED_BACK, P.PAUSED),
        RollbackAsked: _ROLLBACK,
        TakenOver: _TAKE_OVER,
    },
    P.PAUSED: {
        ResumeAsked: _rule(_resume, P.PREPARING, P.SHIFTING, P.SOAKING, P.SETTLING, P.ROLLING_BACK),
        RollbackAsked: _ROLLBACK,
        AbortAsked: _rule(abort, P.ROLLING_BACK, P.FAILED),
    },
    P.CONVERGED: {},
    P.ROLLED_BACK: {},
    P.FAILED: {},
    P.SUPERSEDED: {},
}

assert all(kind in EVENTS for rules in TABLE.values() for kind in rules)  # noqa: S101

"""The rollout's machine. All that moves a phase stands in `TABLE`; the diagram is made of it.

`step` takes a state, an event and the time that the phase has lasted, and returns the next state
with one sentence that says why. It is total: every phase and event is a move, is ignored, or is
refused with a `TransitionError` that names what is allowed. It knows no clock, no store, and no
node but by its report; it is level-triggered.

The order that keeps requests safe, and that no change may break:

1. traffic moves to a release only after so many nodes reported it ready as the gate asks for;
2. more traffic moves only in the plan's order: after the soak of the step before, with its
   guardrails passed, or an operator's promotion of it, and while the gate is met;
3. the unload list is written only after every counted node reported the route that leaves it out;
   a start may list what was only retained, which had no traffic before it;
4. a revoked release is in no later route.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from vctl_plans.backward import abort, roll_back, rollback
from vctl_plans.decision import Decision, State, dropped, move, pause, soaked
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
from vctl_plans.forward import finish, prepare, shift
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.rollout import Promotion, Rollout
from vctl_plans.soaking import attend, soak
from vctl_plans.units import duration_text

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
        PauseAsked: "rollout pause",
        PromoteAsked: "rollout promote",
        ResumeAsked: "rollout resume",
        SupersedeAsked: "rollout start --supersede",
    }
    allowed = [
        verb
        for kind, verb in verbs.items()
        if kind in TABLE[rollout.phase] and not (kind is ResumeAsked and rollout.awaits_promote)
    ]
    return TransitionError(
        f"{verbs[type(event)]} is not allowed: rollout {rollout.id} of {rollout.service}"
        f" is {rollout.phase}",
        hint="allowed now: " + (", ".join(allowed) or "vctl rollout start"),
    )


def _pause(state: State, event: PauseAsked, now_s: float) -> Decision:
    """Stop where it is; a promotion that was not acted on yet is taken back."""
    rollout = state.rollout
    why = f"paused by an operator while {rollout.phase}"
    if rollout.phase is P.SOAKING:
        spent = duration_text(min(soaked(rollout, now_s), rollout.soak_s))
        why += f", {spent} of {duration_text(rollout.soak_s)}"
    return pause(
        state,
        why,
        (),
        now_s=now_s,
        promoted=Promotion.NONE,
        by=event.by,
        reason=event.reason,
    )


def _promote(state: State, event: PromoteAsked, _now_s: float) -> Decision:
    """End the step's soak; what comes next is the conductor's to decide, on what it sees.

    The one write of an operator that lets more traffic move writes no route itself: whether all
    nodes are ready for more of it, only the conductor knows.
    """
    rollout = state.rollout
    if P.SOAKING not in {rollout.phase, rollout.resume_phase}:
        raise TransitionError(
            f"rollout promote is not allowed: rollout {rollout.id} of {rollout.service}"
            f" is paused while {rollout.resume_phase}",
            hint="allowed now: rollout resume, rollout abort, rollback --now",
        )
    is_last = rollout.step + 1 >= rollout.steps
    ahead = rollout.steps if event.is_full else rollout.step + 2
    comes = "it settles" if is_last else f"step {ahead} of {rollout.steps} is next"
    return move(
        state,
        P.SOAKING,
        f"promoted by an operator: {comes}",
        promoted=Promotion.FULL if event.is_full else Promotion.STEP,
        awaits_promote=False,
        resume_phase="",
        unconfirmed=(),
        by=event.by,
        reason=event.reason,
    )


def _resume(state: State, event: ResumeAsked, _now_s: float) -> Decision:
    rollout = state.rollout
    if rollout.awaits_promote:
        raise TransitionError(
            f"rollout resume is not allowed: step {rollout.step + 1} of rollout {rollout.id}"
            f" of {rollout.service} waits for vctl rollout promote",
            hint="allowed now: rollout promote, rollout abort, rollback --now",
        )
    phase = P(rollout.resume_phase)
    left = ""
    if phase is P.SOAKING and not rollout.promoted:
        left = f", {duration_text(max(0.0, rollout.soak_s - rollout.soaked_s))} left"
    return move(
        state,
        phase,
        f"resumed: {phase}{left}",
        resume_phase="",
        unconfirmed=(),
        by=event.by,
        reason=event.reason,
    )


def _supersede(state: State, event: SupersedeAsked, _now_s: float) -> Decision:
    return move(
        state,
        P.SUPERSEDED,
        "superseded by a newer plan; no traffic moved",
        unload=dropped(state),
        by=event.by,
    )


def _take_over(state: State, event: TakenOver, now_s: float) -> Decision:
    if event.takeovers < MAX_TAKEOVERS:
        return Decision(state)
    return pause(
        state,
        f"{event.takeovers} conductors took over in one phase: see what stops them, then resume",
        (),
        now_s=now_s,
    )


class Rule(NamedTuple):
    """What decides, and the phases other than the present one that it may lead to."""

    decide: Callable[[State, Any, float], Decision]
    to: frozenset[P]


def _rule(decide: Callable[[State, Any, float], Decision], *to: P) -> Rule:
    return Rule(decide, frozenset(to))


_TAKE_OVER = _rule(_take_over, P.PAUSED)
_ROLLBACK = _rule(rollback, P.ROLLING_BACK)
_ABORT = _rule(abort, P.ROLLING_BACK, P.FAILED)
_PAUSE = _rule(_pause, P.PAUSED)

TABLE: dict[P, dict[type, Rule]] = {
    P.PREPARING: {
        Observed: _rule(prepare, P.SHIFTING, P.ROLLING_BACK, P.FAILED, P.PAUSED),
        RollbackAsked: _ROLLBACK,
        AbortAsked: _rule(abort, P.FAILED),
        PauseAsked: _PAUSE,
        SupersedeAsked: _rule(_supersede, P.SUPERSEDED),
        TakenOver: _TAKE_OVER,
    },
    P.SHIFTING: {
        Observed: _rule(shift, P.SHIFTING, P.SOAKING, P.SETTLING, P.PAUSED, P.FAILED),
        RollbackAsked: _ROLLBACK,
        AbortAsked: _ABORT,
        PauseAsked: _PAUSE,
        TakenOver: _TAKE_OVER,
    },
    P.SOAKING: {
        Observed: _rule(soak, P.SOAKING, P.SHIFTING, P.SETTLING, P.PAUSED, P.ROLLING_BACK),
        RollbackAsked: _ROLLBACK,
        AbortAsked: _rule(abort, P.ROLLING_BACK),
        PauseAsked: _PAUSE,
        PromoteAsked: _rule(_promote, P.SOAKING),
        TakenOver: _TAKE_OVER,
    },
    P.SETTLING: {
        Observed: _rule(finish, P.CONVERGED),
        RollbackAsked: _ROLLBACK,
        TakenOver: _TAKE_OVER,
    },
    P.ROLLING_BACK: {
        Observed: _rule(roll_back, P.ROLLED_BACK, P.PAUSED, P.FAILED),
        RollbackAsked: _ROLLBACK,
        TakenOver: _TAKE_OVER,
    },
    P.PAUSED: {
        Observed: _rule(attend, P.ROLLING_BACK),
        ResumeAsked: _rule(_resume, P.PREPARING, P.SHIFTING, P.SOAKING, P.SETTLING, P.ROLLING_BACK),
        PromoteAsked: _rule(_promote, P.SOAKING),
        RollbackAsked: _ROLLBACK,
        AbortAsked: _rule(abort, P.ROLLING_BACK, P.FAILED),
    },
    P.CONVERGED: {},
    P.ROLLED_BACK: {},
    P.FAILED: {},
    P.SUPERSEDED: {},
}

assert all(kind in EVENTS for rules in TABLE.values() for kind in rules)  # noqa: S101

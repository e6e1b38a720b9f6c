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

import msgspec

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
from vctl_plans.gate import Tally, absence, acknowledgement, readiness, residents
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.plan import Plan
from vctl_plans.rollout import NAMED, Cause, Rollout, advanced, listed, wanted
from vctl_plans.route import FULL_WEIGHT, Route, returned, settled, shifted
from vctl_plans.units import duration_text

NOBODY = "an empty roster"
"""Stands for the nodes where there are none, so that nothing passes for confirmed by nobody."""

MAX_TAKEOVERS = 10
"""Conductors that may take over within one phase before it waits for a person (DESIGN 4)."""


class State(msgspec.Struct, frozen=True):
    """All that a decision stands on, beside the event."""

    plan: Plan
    rollout: Rollout
    route: Route
    route_revision: int  # at which `route` was written; 0: not yet
    roster: tuple[str, ...]


class Decision(msgspec.Struct, frozen=True):
    """The next state; what of it differs from the state before is written at once, or never."""

    state: State
    sentence: str = ""  # empty: nothing was decided
    wake_s: float | None = None  # phase age at which to look again though nothing happens

    @property
    def rollout(self) -> Rollout:
        """The rollout to write."""
        return self.state.rollout


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


def _move(
    state: State, phase: P, sentence: str, *, route: Route | None = None, **changes: Any
) -> Decision:
    """Return the decision that changes the phase and, with *route*, the traffic too."""
    rollout = advanced(state.rollout, phase, sentence, **changes)
    after = msgspec.structs.replace(state, rollout=rollout, route=route or state.route)
    return Decision(after, sentence)


def _stay(state: State, *, until_s: float | None) -> Decision:
    return Decision(state, wake_s=until_s)


def _count(tally: Tally) -> str:
    return f"{len(tally.done)} of {tally.size} nodes"


# -- preparing ---------------------------------------------------------------------------------


def _prepare(state: State, event: Observed, now_s: float) -> Decision:
    rollout, plan = state.rollout, state.plan
    tally = readiness(state.roster, event.reports, rollout=rollout, number=rollout.to_release)
    if tally.refused:
        node, why = tally.refused[0]
        rest = f" (and {len(tally.refused) - 1} more)" if len(tally.refused) > 1 else ""
        return _fail(state, f"release {rollout.to_release} was refused by {node}{rest}: {why}")
    if tally.is_complete:
        if rollout.back_to:
            return _go_back(state, f"release {rollout.to_release} is ready on {_count(tally)}")
        route = shifted(state.route, rollout.to_release, FULL_WEIGHT)
        sentence = f"release {rollout.to_release} is ready on {_count(tally)}: traffic moves to it"
        return _move(state, P.SHIFTING, sentence, route=route, has_moved=True)
    if now_s >= plan.prepare_s:
        late = _named(tally.missing)
        return _fail(
            state,
            f"release {rollout.to_release} is not ready within {duration_text(plan.prepare_s)}"
            f" on {late}",
            unconfirmed=tally.missing[:NAMED],
        )
    return _stay(state, until_s=plan.prepare_s)


def _fail(state: State, why: str, **changes: Any) -> Decision:
    """End a rollout that moved nothing; nodes may unload what it made them load."""
    return _move(state, P.FAILED, f"{why}; no traffic moved", unload=_dropped(state), **changes)


def _dropped(state: State) -> tuple[int, ...]:
    """Return what nodes may unload once a rollout that moved nothing is given up.

    What an earlier rollout left to be unloaded is handed on, else it would stay for ever.
    """
    rollout = state.rollout
    brought = {rollout.to_release, rollout.back_to, *rollout.unload} - {0}
    return tuple(sorted(brought - wanted(state.route, None)))


# -- shifting, soaking -------------------------------------------------------------------------


def _shift(state: State, event: Observed, now_s: float) -> Decision:
    plan = state.plan
    tally = _acknowledged(state, event)
    if not tally.is_complete and now_s < plan.converge_s:
        return _stay(state, until_s=plan.converge_s)
    if not tally.is_complete and state.rollout.from_release:
        return _pause(
            state,
            f"after {duration_text(plan.converge_s)} these nodes do not report the route:"
            f" {_named(tally.missing)}",
            tally.missing,
        )
    sentence = f"{_count(tally)} route to release {state.rollout.to_release}"
    if tally.missing:  # nothing served before: they serve nothing yet, and no older release
        sentence += f", without {_named(tally.missing)}"
    if plan.soak_s > 0:
        return _move(state, P.SOAKING, f"{sentence}: soaking {duration_text(plan.soak_s)}")
    return _settle(state, sentence)


def _soak(state: State, _event: Observed, now_s: float) -> Decision:
    if now_s < state.plan.soak_s:
        return _stay(state, until_s=state.plan.soak_s)
    return _settle(state, f"soaked {duration_text(state.plan.soak_s)}")


def _acknowledged(state: State, event: Observed) -> Tally:
    return acknowledgement(
        state.roster,
        event.reports,
        service=state.rollout.service,
        revision=state.route_revision,
    )


def _pause(state: State, why: str, nodes: tuple[str, ...]) -> Decision:
    phase = state.rollout.phase.value
    return _move(state, P.PAUSED, why, resume_phase=phase, unconfirmed=nodes[:NAMED])


def _named(nodes: tuple[str, ...]) -> str:
    return listed(nodes) or NOBODY


# -- settling ----------------------------------------------------------------------------------


def _settle(state: State, why: str) -> Decision:
    """Make the candidate stable; what served before stays loaded, up to the plan's `retain`."""
    route, number, retain = state.route, state.rollout.to_release, state.plan.retain
    before = [*route.instant, *([route.stable] if route.stable != number else [])]
    kept = [n for n in before if n and n != number and n not in route.revoked]
    after = settled(route, number, retained=tuple(kept[-retain:]) if retain else ())
    sentence = f"{why}: release {number} is stable"
    return _move(state, P.SETTLING, sentence, route=after, unload=())


def _finish(state: State, event: Observed, now_s: float) -> Decision:
    return _clear(state, event, now_s, end=P.CONVERGED, word="converged")


def _clear(state: State, event: Observed, now_s: float, *, end: P, word: str) -> Decision:
    """Wait for the route, name what may be unloaded, wait until it is, and end.

    A node that never reports the route does not keep the rollout open, which would keep every
    later one from starting: at the deadline it is named as unconfirmed, and nothing is unloaded.
    """
    rollout = state.rollout
    if not rollout.unload:
        tally = _acknowledged(state, event)
        if not tally.is_complete and now_s < state.plan.converge_s:
            return _stay(state, until_s=state.plan.converge_s)
        if not tally.is_complete:
            return _end(state, tally, end=end, word=word)
        surplus = _surplus(state, event)
        if not surplus:
            return _end(state, tally, end=end, word=word)
        numbers = ", ".join(str(n) for n in surplus)
        sentence = f"{_count(tally)} report the route: release {numbers} may be unloaded"
        return _move(state, rollout.phase, sentence, unload=surplus)
    gone = absence(
        state.roster,
        event.reports,
        service=rollout.service,
        numbers=frozenset(rollout.unload),
    )
    limit_s = state.plan.drain_s + state.plan.converge_s
    if gone.is_complete or now_s >= limit_s:
        return _end(state, gone, end=end, word=word)
    return _stay(state, until_s=limit_s)


def _surplus(state: State, event: Observed) -> tuple[int, ...]:
    """Return the releases that some node may hold and that nothing wants."""
    held = {
        number
        for node in state.roster
        if node in event.reports
        for number in residents(event.reports[node], state.rollout.service)
    }
    keep = wanted(state.route, None)
    brought = {state.rollout.to_release} if state.rollout.back_to else set()
    return tuple(sorted((held | brought) - keep))


def _end(state: State, tally: Tally, *, end: P, word: str) -> Decision:
    missing = tally.missing if tally.size else (NOBODY,)
    sentence = (
        f"{word} ({len(tally.done)}/{tally.size}) on release {state.route.stable}"
        f"{'; unconfirmed: ' + listed(missing) if missing else ''}"
    )
    return _move(state, end, sentence, confirmed=len(tally.done), unconfirmed=missing[:NAMED])


# -- going back --------------------------------------------------------------------------------


def _rollback(state: State, event: RollbackAsked, _now_s: float) -> Decision:
    """Go back at an operator's word: at once where the target is loaded, else when it is."""
    target = event.target
    if not target:
        raise TransitionError(
            f"service {state.rollout.service} has no earlier good release to return to",
            hint="name one with --to N",
        )
    _refuse_revoked(state, target)
    asked = msgspec.structs.replace(
        state.rollout,
        back_to=target,
        cause=Cause.ASKED,
        request=event.request,
        by=event.by,
        reason=event.reason,
        unload=(),
        resume_phase="",
        unconfirmed=(),
    )
    why = f"rollback to release {target} asked"
    after = msgspec.structs.replace(state, rollout=asked)
    if target not in state.route.serving | set(state.route.instant):
        numbers = ", ".join(str(n) for n in sorted(state.route.serving))
        return _move(after, P.ROLLING_BACK, f"{why}: it is loaded first; {numbers} serves on")
    return _go_back(after, why)


def _refuse_revoked(state: State, target: int) -> None:
    if target in state.route.revoked:
        raise TransitionError(
            f"release {target} of {state.rollout.service} is revoked",
            hint="name another with vctl rollback --now --to N",
        )


def _go_back(state: State, why: str) -> Decision:
    """Write the route of the target and revoke what it leaves, unless the rollout was aborted."""
    rollout = state.rollout
    target = rollout.back_to
    brought = set() if rollout.strategy == "rollback" else {rollout.to_release}
    left = tuple(sorted((set(state.route.serving) | brought) - {target}))
    revoke = () if rollout.cause is Cause.ABORTED else left
    said = f"; release {', '.join(map(str, revoke))} is revoked" if revoke else ""
    return _move(
        state,
        P.ROLLING_BACK,
        f"{why}: traffic returns to release {target}{said}",
        route=returned(state.route, target, revoke=revoke),
        has_moved=True,
        unload=(),
    )


def _roll_back(state: State, event: Observed, now_s: float) -> Decision:
    rollout = state.rollout
    if state.route.stable == rollout.back_to and not state.route.candidate:
        return _clear(state, event, now_s, end=P.ROLLED_BACK, word="rolled back")
    tally = readiness(state.roster, event.reports, rollout=rollout, number=rollout.back_to)
    if tally.is_complete:
        return _go_back(state, f"release {rollout.back_to} is ready on {_count(tally)}")
    if now_s < state.plan.prepare_s and not tally.refused:
        return _stay(state, until_s=state.plan.prepare_s)
    late = tally.missing + tuple(node for node, _ in tally.refused)
    why = "".join(f": {reason}" for _, reason in tally.refused[:1])
    return _pause(
        state, f"release {rollout.back_to} cannot be made ready on {_named(late)}{why}", late
    )


def _abort(state: State, event: AbortAsked, _now_s: float) -> Decision:
    """Give the rollout up: traffic, if it moved, returns to what served before, if that is loaded.

    What a rollback has left is not returned to: it is revoked, and stays so.
    """
    rollout = msgspec.structs.replace(
        state.rollout,
        cause=Cause.ABORTED,
        by=event.by,
        reason=event.reason,
        resume_phase="",
        unconfirmed=(),
    )
    asked = msgspec.structs.replace(state, rollout=rollout)
    if not rollout.has_moved:
        return _fail(asked, "aborted by an operator")
    _refuse_no_way_back(state)
    back = msgspec.structs.replace(rollout, back_to=rollout.from_release)
    return _go_back(msgspec.structs.replace(asked, rollout=back), "aborted by an operator")


def _refuse_no_way_back(state: State) -> None:
    rollout, route = state.rollout, state.route
    if not rollout.from_release:
        raise TransitionError(
            f"rollout {rollout.id} brought the first release: there is none to return to"
        )
    _refuse_revoked(state, rollout.from_release)
    if rollout.from_release not in route.serving | set(route.instant):
        raise TransitionError(
            f"release {rollout.from_release}, which served before, is not loaded any more",
            hint="allowed now: rollback --now, rollout resume",
        )


# -- waiting for a person ----------------------------------------------------------------------


def _resume(state: State, event: ResumeAsked, _now_s: float) -> Decision:
    phase = P(state.rollout.resume_phase)
    return _move(state, phase, f"resumed: {phase}", resume_phase="", unconfirmed=(), by=event.by)


def _supersede(state: State, event: SupersedeAsked, _now_s: float) -> Decision:
    return _move(
        state,
        P.SUPERSEDED,
        "superseded by a newer plan; no traffic moved",
        unload=_dropped(state),
        by=event.by,
    )


def _take_over(state: State, event: TakenOver, _now_s: float) -> Decision:
    if event.takeovers < MAX_TAKEOVERS:
        return Decision(state)
    return _pause(
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
_ROLLBACK = _rule(_rollback, P.ROLLING_BACK)
_ABORT = _rule(_abort, P.ROLLING_BACK)

TABLE: dict[P, dict[type, Rule]] = {
    P.PREPARING: {
        Observed: _rule(_prepare, P.SHIFTING, P.ROLLING_BACK, P.FAILED),
        RollbackAsked: _ROLLBACK,
        AbortAsked: _rule(_abort, P.FAILED),
        SupersedeAsked: _rule(_supersede, P.SUPERSEDED),
        TakenOver: _TAKE_OVER,
    },
    P.SHIFTING: {
        Observed: _rule(_shift, P.SOAKING, P.SETTLING, P.PAUSED),
        RollbackAsked: _ROLLBACK,
        AbortAsked: _ABORT,
        TakenOver: _TAKE_OVER,
    },
    P.SOAKING: {
        Observed: _rule(_soak, P.SETTLING),
        RollbackAsked: _ROLLBACK,
        AbortAsked: _ABORT,
        TakenOver: _TAKE_OVER,
    },
    P.SETTLING: {
        Observed: _rule(_finish, P.CONVERGED),
        RollbackAsked: _ROLLBACK,
        TakenOver: _TAKE_OVER,
    },
    P.ROLLING_BACK: {
        Observed: _rule(_roll_back, P.ROLLED_BACK, P.PAUSED),
        RollbackAsked: _ROLLBACK,
        TakenOver: _TAKE_OVER,
    },
    P.PAUSED: {
        ResumeAsked: _rule(_resume, P.PREPARING, P.SHIFTING, P.SOAKING, P.SETTLING, P.ROLLING_BACK),
        RollbackAsked: _ROLLBACK,
        AbortAsked: _rule(_abort, P.ROLLING_BACK, P.FAILED),
    },
    P.CONVERGED: {},
    P.ROLLED_BACK: {},
    P.FAILED: {},
    P.SUPERSEDED: {},
}

assert all(kind in EVENTS for rules in TABLE.values() for kind in rules)  # noqa: S101

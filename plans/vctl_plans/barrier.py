"""The barrier before a strict change: fenced, then held, then the switch, or undone.

Two gateways never answer by different routes to requests that begin one after the other, whatever
is cut off from what (DESIGN section 7):

1. `fenced`: every gateway has said that it stops serving once it is cut off for so long. Without
   it, a gateway that loses etcd after this would serve the old release for ever;
2. `hold`: every gateway has said that new requests wait. Now none is answered by anybody;
3. the switch: each lets its requests go as it sees the new route; whoever does not see it is held,
   and later stopped by its fence.

So the next write is made only once every node has reported the one before: those that vanished
included, and those that joined and hold nothing of the release yet, for their gateways answer by
the old route as well. And all the while the gate must be met, for this is when traffic moves. Where
that takes too long the barrier is undone: traffic stays where it was.
"""

from vctl_plans.decision import Decision, State, count, hold, named, pause, ready, stay
from vctl_plans.events import Observed
from vctl_plans.gate import Tally, acknowledgement
from vctl_plans.route import Consistency, Hold, Stage, has_same_traffic
from vctl_plans.steps import begun, split, take
from vctl_plans.units import duration_text

FENCE_S = 5.0
"""How long a fenced gateway may serve without contact: more than etcd takes to elect a leader."""


def is_needed(state: State, index: int) -> bool:
    """Whether the traffic of the step *index* has yet to be switched behind a barrier."""
    if state.plan.consistency is not Consistency.STRICT or not state.route.stable:
        return False
    return not has_same_traffic(state.route, split(state, index))


def fence(state: State, sentence: str, *, index: int) -> Decision:
    """Begin the barrier of the step *index*."""
    said = f"{sentence}; first all gateways are fenced"
    return hold(state, said, _stage(state, Stage.FENCED), **begun(index))


def _stage(state: State, stage: Stage) -> Hold:
    return Hold(stage=stage, fence_s=FENCE_S, limit_s=2 * state.plan.hold_s)


def advance(state: State, event: Observed, now_s: float) -> Decision:
    """Take the barrier's next turn, or undo it."""
    plan, present = state.plan, state.route.hold
    tally = _everyone(state, event)
    is_held = present is not None and present.stage is Stage.HOLD
    limit_s = plan.hold_s if is_held else plan.converge_s
    holding = ready(state, event)
    is_ready = holding.is_met(plan)
    if now_s < limit_s and not (tally.is_complete and is_ready) and not holding.is_beyond(plan):
        return stay(state, until_s=limit_s)
    if not is_ready:
        what, late = f"hold release {state.rollout.to_release} ready", _lacking(holding)
        return _undo(state, what, late, now_s=now_s)
    if not tally.is_complete:
        what = "hold their requests" if is_held else "report the route"
        return _undo(state, what, tally.missing, now_s=now_s)
    if present is None:
        return fence(state, f"{count(tally)} report the route", index=state.rollout.step)
    if not is_held:
        why = f"{count(tally)} are fenced: they hold new requests"
        return hold(state, why, _stage(state, Stage.HOLD))
    return take(state, state.rollout.step, f"{count(tally)} hold new requests: they switch now")


def _undo(state: State, what: str, nodes: tuple[str, ...], *, now_s: float) -> Decision:
    return pause(
        state,
        f"the strict switch is undone, no traffic moved: after {duration_text(now_s)} these nodes"
        f" do not {what}: {named(nodes)}",
        nodes,
        now_s=now_s,
    )


def _lacking(holding: Tally) -> tuple[str, ...]:
    return (*holding.missing, *(node for node, _ in holding.refused))


def _everyone(state: State, event: Observed) -> Tally:
    """Return which gateways act on the route as it is: of the roster and of all who joined."""
    joined = sorted(event.reports.keys() - set(state.roster)) if state.roster else []
    return acknowledgement(
        (*state.roster, *joined),
        event.reports,
        service=state.rollout.service,
        revision=state.route_revision,
    )

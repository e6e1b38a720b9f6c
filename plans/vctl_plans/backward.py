"""The way back: a rollback that is asked, and an abort.

What a rollback leaves is revoked, what an abort leaves is not; neither puts traffic on a revoked
release, nor on one that is not loaded.
"""

import msgspec

from vctl_plans import waves
from vctl_plans.decision import (
    Decision,
    State,
    acknowledged,
    clear,
    count,
    fail,
    gone,
    make_room,
    move,
    named,
    pause,
    ready,
    stay,
)
from vctl_plans.errors import TransitionError
from vctl_plans.events import AbortAsked, Observed, RollbackAsked
from vctl_plans.gate import Tally
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.rollout import Cause, Promotion
from vctl_plans.route import Route, overridden, override_of, returned
from vctl_plans.share import FULL_WEIGHT


def rollback(state: State, event: RollbackAsked, _now_s: float) -> Decision:
    """Go back at an operator's word: at once where the target is loaded, else when it is."""
    target = event.target
    if not target:
        raise TransitionError(
            f"service {state.rollout.service} has no earlier good release to return to",
            hint="name one with --to N",
        )
    _refuse_revoked(state, target)
    _refuse_other_base(state, target)
    asked = msgspec.structs.replace(
        state.rollout,
        back_to=target,
        cause=Cause.ASKED if event.revokes else Cause.OVERRIDE,
        request=event.request,
        by=event.by,
        reason=event.reason,
        from_override=_loaded_override(state),
        unload=(),
        resume_phase="",
        unconfirmed=(),
        promoted=Promotion.NONE,
        awaits_promote=False,
    )
    why = f"rollback to release {target} asked"
    if not event.revokes:
        why = "the override is ended by an operator"
    after = msgspec.structs.replace(state, rollout=asked)
    if asked.is_by_waves and not waves.has_way_back(asked, state.route, target):
        return by_waves(after, why)
    if target not in state.route.serving | set(state.route.instant):
        numbers = ", ".join(str(n) for n in sorted(state.route.serving))
        return move(after, P.ROLLING_BACK, f"{why}: it is loaded first; {numbers} serves on")
    return go_back(after, why)


def _loaded_override(state: State) -> int:
    """Return what the rollout's groups had of their own before, unless nodes may unload it."""
    before = state.rollout.from_override
    return 0 if before in state.rollout.unload else before


def _refuse_revoked(state: State, target: int) -> None:
    if target in state.route.revoked:
        raise TransitionError(
            f"release {target} of {state.rollout.service} is revoked",
            hint="name another with vctl rollback --now --to N",
        )


def _refuse_other_base(state: State, target: int) -> None:
    """Refuse to go further back while nodes hold two bases: there may be a third."""
    rollout = state.rollout
    only = rollout.back_to or rollout.from_release
    if rollout.is_by_waves and target != only:
        raise TransitionError(
            f"rollout {rollout.id} of {rollout.service} changes what nodes hold:"
            f" only release {only} can be returned to now",
            hint="once it has ended: vctl rollback --now --to N",
        )


def by_waves(state: State, why: str) -> Decision:
    """Go back to a base that no node holds: what they hold serves on, and is revoked at the end."""
    rollout, route = state.rollout, state.route
    if route.stable == rollout.back_to:  # the candidate has all traffic
        route = msgspec.structs.replace(route, stable=route.candidate, candidate=0, weight=0.0)
    return move(
        state,
        P.ROLLING_BACK,
        f"{why}: no node holds {'it' if rollout.exchanges else 'its base'}:"
        f" it is loaded {waves.by_waves_of(rollout.wave_size)};"
        f" {route.stable} serves on meanwhile",
        route=route,
    )


def go_back(state: State, why: str) -> Decision:
    """Write the route of the target and revoke what it leaves, unless the rollout was aborted."""
    rollout = state.rollout
    target = rollout.back_to
    revoke = () if rollout.cause in {Cause.ABORTED, Cause.OVERRIDE} else _left(state)
    route = _returned(state, revoke)
    theirs = override_of(route, rollout.groups) if rollout.groups else 0
    said = f", the groups' to release {theirs}" if theirs else ""
    said += f"; release {', '.join(map(str, revoke))} is revoked" if revoke else ""
    return move(
        state,
        P.ROLLING_BACK,
        f"{why}: traffic returns to release {target}{said}",
        route=route,
        has_moved=True,
        unload=(),
    )


def _left(state: State) -> tuple[int, ...]:
    """Return the releases that traffic leaves, or would have come to.

    What the rollout's groups had before is not left by them: they have it, or get it back.
    """
    rollout, route = state.rollout, state.route
    brought = set() if rollout.strategy == "rollback" else {rollout.to_release}
    theirs = override_of(route, rollout.groups) if rollout.groups else 0
    groups = {theirs} - {0, rollout.from_override}
    return tuple(sorted((route.default | brought | groups) - {rollout.back_to}))


def _returned(state: State, revoke: tuple[int, ...]) -> Route:
    """Return the route of the target; the rollout's groups get what they had of their own before.

    Other groups keep theirs, unless it is revoked.
    """
    rollout, route = state.rollout, state.route
    if rollout.groups:
        before = 0 if rollout.from_override in route.revoked else rollout.from_override
        route = overridden(route, rollout.groups, before, place=rollout.from_place)
    return returned(route, rollout.back_to, revoke=revoke)


def roll_back(state: State, event: Observed, now_s: float) -> Decision:
    """Move traffic to the target once it is ready, then clear up; without soaks."""
    rollout = state.rollout
    if rollout.is_by_waves:
        return _roll_back_by_waves(state, event, now_s)
    if _is_back(state):
        return clear(state, event, now_s, end=P.ROLLED_BACK, word="rolled back")
    tally = ready(state, event, rollout.back_to)
    if tally.is_met(state.plan):
        return go_back(state, f"release {rollout.back_to} is ready on {count(tally)}")
    return make_room(state, event) or _not_ready(state, event, tally, now_s)


def _not_ready(state: State, event: Observed, tally: Tally, now_s: float) -> Decision:
    """Wait for the target on all nodes; no longer where they refuse, or at the deadline."""
    if now_s < state.plan.prepare_s and not tally.is_beyond(state.plan):
        return stay(state, until_s=state.plan.prepare_s)
    refused = tuple(node for node, _ in tally.refused)
    late = (*tally.missing, *refused, *gone(state, event))
    why = "".join(f": {reason}" for _, reason in tally.refused[:1])
    return pause(
        state,
        f"release {state.rollout.back_to} cannot be made ready on {named(late)}{why}",
        late,
        now_s=now_s,
    )


def _roll_back_by_waves(state: State, event: Observed, now_s: float) -> Decision:
    """Let nodes come back to the target's base, and traffic with them; then clear up."""
    target = state.rollout.back_to
    if _is_back(state):
        left = waves.leave(state, event, now_s)
        return left or clear(state, event, now_s, end=P.ROLLED_BACK, word="rolled back")
    tally = waves.staged(state, event, target)
    if not tally.is_met(state.plan):
        return _not_ready(state, event, tally, now_s)
    turn = waves.turn(state, event, now_s, weight=FULL_WEIGHT)
    if turn:
        return turn
    nodes = f"{count(acknowledged(state, event))} route 100 % to release {target}"
    if not waves.is_whole(state.rollout):
        return waves.rest(state, event, nodes, now_s=now_s, until_s=state.plan.prepare_s)
    return go_back(state, f"all nodes hold {waves.what(state.rollout, target)}")


def _is_back(state: State) -> bool:
    rollout, route = state.rollout, state.route
    theirs = override_of(route, rollout.groups) if rollout.groups else 0
    is_default_back = route.stable == rollout.back_to and not route.candidate
    return is_default_back and theirs in {0, rollout.from_override}


def abort(state: State, event: AbortAsked, _now_s: float) -> Decision:
    """Give the rollout up: traffic, if it moved, returns to what served before, if that is loaded.

    What a rollback has left is not returned to: it is revoked, and stays so.
    """
    rollout = msgspec.structs.replace(
        state.rollout,
        cause=Cause.ABORTED,
        from_override=_loaded_override(state),
        by=event.by,
        reason=event.reason,
        resume_phase="",
        unconfirmed=(),
        promoted=Promotion.NONE,
        awaits_promote=False,
    )
    asked = msgspec.structs.replace(state, rollout=rollout)
    if not rollout.has_moved:
        return fail(asked, "aborted by an operator")
    _refuse_no_way_back(state)
    back = msgspec.structs.replace(rollout, back_to=rollout.from_release)
    return go_back(msgspec.structs.replace(asked, rollout=back), "aborted by an operator")


def _refuse_no_way_back(state: State) -> None:
    rollout, route = state.rollout, state.route
    if not rollout.from_release:
        raise TransitionError(
            f"rollout {rollout.id} brought the first release: there is none to return to"
        )
    _refuse_revoked(state, rollout.from_release)
    is_by_waves = rollout.is_by_waves and not waves.has_way_back(
        rollout, route, rollout.from_release
    )
    if is_by_waves or rollout.from_release not in route.serving | set(route.instant):
        raise TransitionError(
            f"release {rollout.from_release}, which served before, is not loaded any more",
            hint="allowed now: rollback --now, rollout resume",
        )

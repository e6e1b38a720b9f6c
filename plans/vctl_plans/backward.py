"""The way back: a rollback that is asked, and an abort.

What a rollback leaves is revoked, what an abort leaves is not; neither puts traffic on a revoked
release, nor on one that is not loaded.
"""

import msgspec

from vctl_plans.decision import Decision, State, clear, count, fail, move, named, pause, stay
from vctl_plans.errors import TransitionError
from vctl_plans.events import AbortAsked, Observed, RollbackAsked
from vctl_plans.gate import readiness
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.rollout import Cause, Promotion
from vctl_plans.route import returned


def rollback(state: State, event: RollbackAsked, _now_s: float) -> Decision:
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
        promoted=Promotion.NONE,
        awaits_promote=False,
    )
    why = f"rollback to release {target} asked"
    after = msgspec.structs.replace(state, rollout=asked)
    if target not in state.route.serving | set(state.route.instant):
        numbers = ", ".join(str(n) for n in sorted(state.route.serving))
        return move(after, P.ROLLING_BACK, f"{why}: it is loaded first; {numbers} serves on")
    return go_back(after, why)


def _refuse_revoked(state: State, target: int) -> None:
    if target in state.route.revoked:
        raise TransitionError(
            f"release {target} of {state.rollout.service} is revoked",
            hint="name another with vctl rollback --now --to N",
        )


def go_back(state: State, why: str) -> Decision:
    """Write the route of the target and revoke what it leaves, unless the rollout was aborted."""
    rollout = state.rollout
    target = rollout.back_to
    brought = set() if rollout.strategy == "rollback" else {rollout.to_release}
    left = tuple(sorted((set(state.route.serving) | brought) - {target}))
    revoke = () if rollout.cause is Cause.ABORTED else left
    said = f"; release {', '.join(map(str, revoke))} is revoked" if revoke else ""
    return move(
        state,
        P.ROLLING_BACK,
        f"{why}: traffic returns to release {target}{said}",
        route=returned(state.route, target, revoke=revoke),
        has_moved=True,
        unload=(),
    )


def roll_back(state: State, event: Observed, now_s: float) -> Decision:
    """Move traffic to the target once it is ready, then clear up; without soaks."""
    rollout = state.rollout
    if state.route.stable == rollout.back_to and not state.route.candidate:
        return clear(state, event, now_s, end=P.ROLLED_BACK, word="rolled back")
    tally = readiness(state.roster, event.reports, rollout=rollout, number=rollout.back_to)
    if tally.is_complete:
        return go_back(state, f"release {rollout.back_to} is ready on {count(tally)}")
    if now_s < state.plan.prepare_s and not tally.refused:
        return stay(state, until_s=state.plan.prepare_s)
    late = tally.missing + tuple(node for node, _ in tally.refused)
    why = "".join(f": {reason}" for _, reason in tally.refused[:1])
    return pause(
        state,
        f"release {rollout.back_to} cannot be made ready on {named(late)}{why}",
        late,
        now_s=now_s,
    )


def abort(state: State, event: AbortAsked, _now_s: float) -> Decision:
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
    if rollout.from_release not in route.serving | set(route.instant):
        raise TransitionError(
            f"release {rollout.from_release}, which served before, is not loaded any more",
            hint="allowed now: rollback --now, rollout resume",
        )

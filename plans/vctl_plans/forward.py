"""A release's way forward: prepared, shifted to and soaked step by step, settled.

Traffic moves, and each time more of it, only while every counted node reports the release ready
(rules 1 and 2 of `machine`).
"""

from vctl_plans.backward import go_back
from vctl_plans.decision import (
    Decision,
    State,
    acknowledged,
    clear,
    count,
    fail,
    move,
    named,
    pause,
    stay,
)
from vctl_plans.events import Observed
from vctl_plans.gate import readiness
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.plan import PlanStep
from vctl_plans.rollout import NAMED, Promotion
from vctl_plans.route import settled, shifted
from vctl_plans.units import duration_text


def prepare(state: State, event: Observed, now_s: float) -> Decision:
    """Move traffic once the release is ready everywhere; fail on a refusal or the deadline."""
    rollout, plan = state.rollout, state.plan
    tally = readiness(state.roster, event.reports, rollout=rollout, number=rollout.to_release)
    if tally.refused:
        node, why = tally.refused[0]
        rest = f" (and {len(tally.refused) - 1} more)" if len(tally.refused) > 1 else ""
        return fail(state, f"release {rollout.to_release} was refused by {node}{rest}: {why}")
    if tally.is_complete:
        if rollout.back_to:
            return go_back(state, f"release {rollout.to_release} is ready on {count(tally)}")
        return _begin(state, f"release {rollout.to_release} is ready on {count(tally)}")
    if now_s >= plan.prepare_s:
        late = named(tally.missing)
        return fail(
            state,
            f"release {rollout.to_release} is not ready within {duration_text(plan.prepare_s)}"
            f" on {late}",
            unconfirmed=tally.missing[:NAMED],
        )
    return stay(state, until_s=plan.prepare_s)


def _begin(state: State, why: str) -> Decision:
    """Take the first step; where there is nothing to split traffic with, the last one at once."""
    last, number = len(state.plan.steps) - 1, state.rollout.to_release
    if last == 0:
        return _take(state, 0, f"{why}: traffic moves to it")
    if state.route.stable == number:
        return _take(state, last, f"{why}: it serves already, so there are no steps")
    if not state.route.stable:
        return _take(
            state,
            last,
            f"{why}: all traffic moves to it in one step, since nothing served before",
        )
    return _take(state, 0, f"{why}: {_moves(state, 0)}")


def _take(state: State, index: int, sentence: str) -> Decision:
    """Write the route of the step *index*."""
    route = shifted(state.route, state.rollout.to_release, state.plan.steps[index].weight)
    return move(
        state,
        P.SHIFTING,
        sentence,
        route=route,
        has_moved=True,
        step=index,
        promoted=Promotion.NONE,
        soak_s=0.0,
        soaked_s=0.0,
    )


def _moves(state: State, index: int) -> str:
    weight = state.plan.steps[index].weight
    return f"{_nth(state, index)}, {weight:g} % of traffic moves to release {_to(state)}"


def _nth(state: State, index: int) -> str:
    return f"step {index + 1} of {len(state.plan.steps)}"


def _to(state: State) -> int:
    return state.rollout.to_release


def _present(state: State) -> PlanStep:
    return state.plan.steps[state.rollout.step]


def shift(state: State, event: Observed, now_s: float) -> Decision:
    """Soak, go on or settle, once every node acts on the route; else wait for a person."""
    plan, present = state.plan, _present(state)
    tally = acknowledged(state, event)
    if not tally.is_complete and now_s < plan.converge_s:
        return stay(state, until_s=plan.converge_s)
    if not tally.is_complete and state.rollout.from_release:
        return pause(
            state,
            f"after {duration_text(plan.converge_s)} these nodes do not report the route:"
            f" {named(tally.missing)}",
            tally.missing,
            now_s=now_s,
        )
    share = f"{present.weight:g} % " if len(plan.steps) > 1 else ""
    sentence = f"{count(tally)} route {share}to release {_to(state)}"
    if tally.missing:  # nothing served before: they serve nothing yet, and no older release
        sentence += f", without {named(tally.missing)}"
    if present.soak_s > 0 or present.manual:
        wait = f"soaking {duration_text(present.soak_s)}" if present.soak_s else "no soak"
        sentence += f": {wait}"
        return move(state, P.SOAKING, sentence, soak_s=present.soak_s)
    return _go_on(state, event, sentence, now_s=now_s, until_s=plan.prepare_s)


def soak(state: State, event: Observed, now_s: float) -> Decision:
    """Go on when the soak is over, or when an operator promoted; a manual step waits for that."""
    rollout, present = state.rollout, _present(state)
    left_s = 0.0 if rollout.promoted else max(0.0, present.soak_s - rollout.soaked_s)
    if now_s < left_s:
        return stay(state, until_s=left_s)
    if rollout.promoted:
        why = "promoted"
    else:
        why = f"soaked {duration_text(present.soak_s)}" if present.soak_s else "no soak"
    if present.manual and not rollout.promoted:
        sentence = f"{why}: {_nth(state, rollout.step)} waits for vctl rollout promote"
        return pause(state, sentence, (), now_s=now_s, awaits_promote=True)
    return _go_on(state, event, why, now_s=now_s, until_s=left_s + state.plan.prepare_s)


def _go_on(state: State, event: Observed, why: str, *, now_s: float, until_s: float) -> Decision:
    """Take the next step, or settle after the last.

    While some node does not hold the release ready any more, as after its engine started again, no
    more traffic moves to it; from phase age *until_s* on a person is waited for.
    """
    rollout, last = state.rollout, len(state.plan.steps) - 1
    if rollout.step >= last:
        return _settle(state, why)
    tally = readiness(state.roster, event.reports, rollout=rollout, number=_to(state))
    if tally.is_complete:
        index = last if rollout.promoted is Promotion.FULL else rollout.step + 1
        return _take(state, index, f"{why}: {_moves(state, index)}")
    if now_s < until_s and not tally.refused:
        return stay(state, until_s=until_s)
    late = tally.missing + tuple(node for node, _ in tally.refused)
    cause = "".join(f": {reason}" for _, reason in tally.refused[:1])
    return pause(
        state,
        f"release {_to(state)} is not ready any more on {named(late)}{cause}:"
        f" {_nth(state, rollout.step + 1)} is not taken",
        late,
        now_s=now_s,
    )


def _settle(state: State, why: str) -> Decision:
    """Make the candidate stable; what served before stays loaded, up to the plan's `retain`."""
    route, number, retain = state.route, state.rollout.to_release, state.plan.retain
    before = [*route.instant, *([route.stable] if route.stable != number else [])]
    kept = [n for n in before if n and n != number and n not in route.revoked]
    after = settled(route, number, retained=tuple(kept[-retain:]) if retain else ())
    sentence = f"{why}: release {number} is stable"
    return move(
        state,
        P.SETTLING,
        sentence,
        route=after,
        unload=(),
        promoted=Promotion.NONE,
    )


def finish(state: State, event: Observed, now_s: float) -> Decision:
    """Converge once what should be gone is gone."""
    return clear(state, event, now_s, end=P.CONVERGED, word="converged")

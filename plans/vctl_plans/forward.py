"""A release's way forward: prepared, shifted to, soaked, settled.

Traffic moves only after every counted node reported the release ready (rule 1 of `machine`).
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
from vctl_plans.rollout import NAMED
from vctl_plans.route import FULL_WEIGHT, settled, shifted
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
        route = shifted(state.route, rollout.to_release, FULL_WEIGHT)
        sentence = f"release {rollout.to_release} is ready on {count(tally)}: traffic moves to it"
        return move(state, P.SHIFTING, sentence, route=route, has_moved=True)
    if now_s >= plan.prepare_s:
        late = named(tally.missing)
        return fail(
            state,
            f"release {rollout.to_release} is not ready within {duration_text(plan.prepare_s)}"
            f" on {late}",
            unconfirmed=tally.missing[:NAMED],
        )
    return stay(state, until_s=plan.prepare_s)


def shift(state: State, event: Observed, now_s: float) -> Decision:
    """Soak, or settle, once every node routes to the release; wait for a person if some do not."""
    plan = state.plan
    tally = acknowledged(state, event)
    if not tally.is_complete and now_s < plan.converge_s:
        return stay(state, until_s=plan.converge_s)
    if not tally.is_complete and state.rollout.from_release:
        return pause(
            state,
            f"after {duration_text(plan.converge_s)} these nodes do not report the route:"
            f" {named(tally.missing)}",
            tally.missing,
        )
    sentence = f"{count(tally)} route to release {state.rollout.to_release}"
    if tally.missing:  # nothing served before: they serve nothing yet, and no older release
        sentence += f", without {named(tally.missing)}"
    if plan.soak_s > 0:
        return move(state, P.SOAKING, f"{sentence}: soaking {duration_text(plan.soak_s)}")
    return _settle(state, sentence)


def soak(state: State, _event: Observed, now_s: float) -> Decision:
    """Settle when the soak is over."""
    if now_s < state.plan.soak_s:
        return stay(state, until_s=state.plan.soak_s)
    return _settle(state, f"soaked {duration_text(state.plan.soak_s)}")


def _settle(state: State, why: str) -> Decision:
    """Make the candidate stable; what served before stays loaded, up to the plan's `retain`."""
    route, number, retain = state.route, state.rollout.to_release, state.plan.retain
    before = [*route.instant, *([route.stable] if route.stable != number else [])]
    kept = [n for n in before if n and n != number and n not in route.revoked]
    after = settled(route, number, retained=tuple(kept[-retain:]) if retain else ())
    sentence = f"{why}: release {number} is stable"
    return move(state, P.SETTLING, sentence, route=after, unload=())


def finish(state: State, event: Observed, now_s: float) -> Decision:
    """Converge once what should be gone is gone."""
    return clear(state, event, now_s, end=P.CONVERGED, word="converged")

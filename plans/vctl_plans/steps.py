"""The steps of a plan: the route that each means, and the decision that takes one."""

import msgspec

from vctl_plans.decision import Decision, State, move
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.plan import PlanStep
from vctl_plans.rollout import Promotion
from vctl_plans.route import Consistency, Route, overridden, pinned, shifted


def present(state: State) -> PlanStep:
    """Return the step that the rollout is at."""
    return state.plan.steps[state.rollout.step]


def nth(state: State, index: int) -> str:
    """Return which step it is, in words."""
    return f"step {index + 1} of {len(state.plan.steps)}"


def split(state: State, index: int) -> Route:
    """Return the route on which the step *index* has its traffic."""
    rollout, number = state.rollout, state.rollout.to_release
    route = (
        overridden(state.route, rollout.groups, number)
        if rollout.groups
        else shifted(state.route, number, state.plan.steps[index].weight)
    )
    route = msgspec.structs.replace(route, consistency=state.plan.consistency, pinnable=())
    return pinned(route) if _keeps_sessions(state) else route


def _keeps_sessions(state: State) -> bool:
    """Whether a session that echoes its pin stays where it is while others move."""
    is_by_session = state.plan.consistency is Consistency.SESSION
    return is_by_session and state.plan.strategy == "weighted"


def moves(state: State, index: int) -> str:
    """Return what the step *index* does, in words."""
    weight = state.plan.steps[index].weight
    release = f"release {state.rollout.to_release}"
    return f"{nth(state, index)}, {weight:g} % of traffic moves to {release}"


def take(state: State, index: int, sentence: str) -> Decision:
    """Write the route of the step *index*."""
    return move(
        state,
        P.SHIFTING,
        sentence,
        route=split(state, index),
        has_moved=True,
        **begun(index),
    )


def begun(index: int) -> dict[str, object]:
    """Return what of a rollout begins anew with the step *index*."""
    return {"step": index, "promoted": Promotion.NONE, "soak_s": 0.0, "soaked_s": 0.0}

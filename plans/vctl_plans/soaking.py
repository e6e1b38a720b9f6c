"""The wait after a step: its soak, its guardrails, and a person where the step is manual.

A breach goes back at once, all else waits for the end of the soak: until then few requests are no
news. What an operator promotes goes on whatever the guardrails say: they have read it.
"""

import msgspec

from vctl_plans import drift, guardrail
from vctl_plans.backward import go_back
from vctl_plans.decision import Decision, State, move, pause, stay, too_many_gone
from vctl_plans.events import Observed
from vctl_plans.forward import go_on
from vctl_plans.guardrail import Action, Consequence, Policy
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.plan import Watch
from vctl_plans.rollout import Cause, Promotion
from vctl_plans.steps import nth, present
from vctl_plans.units import duration_text
from vctl_plans.watching import Watching

EXTENDED = "the soak is extended"

_LEAST_S = 0.25
"""Between two looks at a window that has lasted, and has too few requests still."""


def soak(state: State, event: Observed, now_s: float) -> Decision:
    """Go on when the soak is over, or when an operator promoted; a manual step waits for that."""
    rollout, here = state.rollout, present(state)
    left_s = 0.0 if rollout.promoted else max(0.0, here.soak_s - rollout.soaked_s)
    until_s = left_s + state.plan.prepare_s
    found = _judged(state, event, is_soaked=now_s >= left_s, is_overdue=now_s >= until_s)
    if found.action in {Action.ROLLBACK, Action.PAUSE}:
        return _breached(state, found, now_s=now_s)
    lost = too_many_gone(state, event, now_s)
    if lost:
        return lost
    if now_s < left_s:
        return stay(state, until_s=_next_look_s(state, event, left_s, now_s))
    if found.action is Action.WAIT:
        return _extended(state, event, found, now_s=now_s, until_s=until_s)
    return _passed(state, event, found, now_s=now_s, until_s=until_s)


def _passed(
    state: State, event: Observed, found: Consequence, *, now_s: float, until_s: float
) -> Decision:
    """Go on; where that waits for nodes the step is watched meanwhile."""
    rollout, here = state.rollout, present(state)
    if rollout.promoted:
        why = "promoted"
    else:
        why = f"soaked {duration_text(here.soak_s)}" if here.soak_s else "no soak"
    why += f", {found.sentence}" if found.sentence else ""
    if here.manual and not rollout.promoted:
        sentence = f"{why}: {nth(state, rollout.step)} waits for vctl rollout promote"
        return pause(state, sentence, (), now_s=now_s, awaits_promote=True)
    decision = go_on(state, event, why, now_s=now_s, until_s=until_s)
    if decision.sentence:
        return decision
    return stay(state, until_s=_next_look_s(state, event, until_s, now_s))


def attend(state: State, event: Observed, now_s: float) -> Decision:
    """Watch on while a step waits for a person: traffic is on the release, and a breach goes back.

    Where it may not, whoever is to promote is told once, and looks before they go on.
    """
    rollout, watch = state.rollout, state.plan.watch
    if watch is None or not rollout.is_soaking:
        return Decision(state)
    found = _judged(state, event, is_soaked=False, is_overdue=False)
    goes_back = watch.on_breach == "rollback" and _has_way_back(state)
    if found.action is Action.ROLLBACK and goes_back:
        return _back(state, found.sentence)
    is_bad = found.action in {Action.ROLLBACK, Action.PAUSE}
    if is_bad and not goes_back and rollout.awaits_promote:
        return move(state, P.PAUSED, found.sentence, awaits_promote=False)
    return Decision(state, wake_s=now_s + watch.interval_s)


def _judged(state: State, event: Observed, *, is_soaked: bool, is_overdue: bool) -> Consequence:
    """Return what follows from the guardrails; where there are none, nothing does.

    A service's first release has nothing to be compared with, and nothing to go back to.
    """
    watch, watching = state.plan.watch, event.watching or Watching()
    if watch is None or state.rollout.promoted or not state.rollout.from_release:
        return Consequence(Action.PROCEED, "")
    policy = Policy(
        consecutive=watch.consecutive,
        on_breach=watch.on_breach,
        on_inconclusive=watch.on_inconclusive,
    )
    history = watching.history(is_soaked=is_soaked)
    found = [guardrail.decide(history, policy, is_soaked=is_soaked, is_overdue=is_overdue)]
    if watch.drift and watching.finding:
        found.append(_of_drift(watch, watching.finding))
    return guardrail.strongest(found)


def _of_drift(watch: Watch, finding: drift.Finding) -> Consequence:
    answer = drift.respond(finding, pause_on_p1=bool(watch.drift and watch.drift.pause))
    if answer.action is Action.ROLLBACK and watch.on_breach == "pause":
        return Consequence(Action.PAUSE, answer.sentence)
    return answer


def _breached(state: State, found: Consequence, *, now_s: float) -> Decision:
    if found.action is Action.ROLLBACK and _has_way_back(state):
        return _back(state, found.sentence)
    why = found.sentence
    if found.action is Action.ROLLBACK:
        why += "; there is no release to go back to"
    return pause(state, why, (), now_s=now_s)


def _has_way_back(state: State) -> bool:
    """Whether what served before the rollout is another, and there to take its traffic."""
    rollout, target = state.rollout, state.rollout.from_release
    if target == rollout.to_release and not rollout.groups:
        return False
    return bool(target) and target in state.route.serving and target not in state.route.revoked


def _back(state: State, why: str) -> Decision:
    rollout = msgspec.structs.replace(
        state.rollout,
        back_to=state.rollout.from_release,
        cause=Cause.GUARDRAIL,
        resume_phase="",
        promoted=Promotion.NONE,
        awaits_promote=False,
    )
    return go_back(msgspec.structs.replace(state, rollout=rollout), why)


def _extended(
    state: State, event: Observed, found: Consequence, *, now_s: float, until_s: float
) -> Decision:
    """Soak on; the first time it is said why."""
    if state.rollout.sentence.startswith(EXTENDED):
        return stay(state, until_s=_next_look_s(state, event, until_s, now_s))
    rest_s = max(0.0, until_s - now_s)
    why = found.sentence.removeprefix("soak extended; ")
    said = f"{EXTENDED} for {duration_text(rest_s)} at most: {why}"
    return move(state, P.SOAKING, said, soaked_s=state.rollout.soaked_s + now_s)


def _next_look_s(state: State, event: Observed, until_s: float, now_s: float) -> float:
    """Return when to look again: at the end, or when the present window may be whole."""
    if state.plan.watch is None:
        return until_s
    since_s = event.watching.since_s if event.watching else 0.0
    return min(until_s, max(since_s + state.plan.watch.interval_s, now_s + _LEAST_S))

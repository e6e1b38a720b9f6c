"""A release's way forward: prepared, shifted to step by step, settled; `soaking` is between.

Traffic moves, and each time more of it, only while so many of the counted nodes as the plan's gate
asks for report the release ready (rules 1 and 2 of `machine`). A node that does not passes its
requests on to one that does.
"""

from vctl_plans import barrier, waves
from vctl_plans.backward import by_waves, go_back
from vctl_plans.capacity import crowded
from vctl_plans.decision import (
    Decision,
    State,
    acknowledged,
    clear,
    count,
    fail,
    make_room,
    move,
    named,
    patience_s,
    pause,
    ready,
    said_of,
    stay,
    too_many_gone,
)
from vctl_plans.events import Observed
from vctl_plans.gate import Tally
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.rollout import NAMED, Promotion, listed
from vctl_plans.route import Mode, settled
from vctl_plans.steps import moves, nth, present, take
from vctl_plans.units import duration_text


def prepare(state: State, event: Observed, now_s: float) -> Decision:
    """Move traffic once the gate is met; fail on a refusal or the deadline."""
    rollout, plan = state.rollout, state.plan
    if rollout.moves_base and event.others:
        others = listed(event.others)
        return fail(state, f"the base would change for {others} too, which began meanwhile")
    tally = _prepared(state, event)
    if tally.is_beyond(plan):
        node, why = tally.refused[0]
        rest = f" (and {len(tally.refused) - 1} more)" if len(tally.refused) > 1 else ""
        return fail(state, f"release {rollout.to_release} was refused by {node}{rest}: {why}")
    lost = too_many_gone(state, event, now_s)
    if lost:
        return lost
    busy = crowded(tally.done, event.reports, plan.kv_used)
    if tally.is_met(plan) and not busy:
        why = f"release {rollout.to_release} is {_word(state)} on {count(tally)}"
        return _begin(state, why)
    return make_room(state, event) or _unprepared(state, event, tally, busy=busy, now_s=now_s)


def _unprepared(
    state: State, event: Observed, tally: Tally, *, busy: str, now_s: float
) -> Decision:
    """Wait for nodes that are not there yet, or whose caches are full; fail at the deadline."""
    plan, number = state.plan, state.rollout.to_release
    if now_s < plan.prepare_s:
        return stay(state, until_s=plan.prepare_s)
    limit = duration_text(plan.prepare_s)
    if tally.is_met(plan):
        return fail(state, f"no traffic moved to release {number} within {limit}: {busy}")
    late, why = named(tally.missing), said_of(state, event, number, tally.missing)
    return fail(
        state,
        f"release {number} is not {_word(state)} within {limit} on {late}{why}",
        unconfirmed=tally.missing[:NAMED],
    )


def _prepared(state: State, event: Observed) -> Tally:
    """Return which of the nodes that count hold what they can before anything moves."""
    if state.rollout.is_by_waves:
        return waves.staged(state, event, state.rollout.to_release)
    return ready(state, event)


def _word(state: State) -> str:
    is_staged = state.rollout.is_by_waves or state.route.mode is Mode.DIRECT
    return "staged" if is_staged else "ready"


def _begin(state: State, why: str) -> Decision:
    """Take the first step; where there is nothing to split traffic with, the last one at once.

    A rollback has no steps.
    """
    if state.rollout.back_to:
        return by_waves(state, why) if state.rollout.is_by_waves else go_back(state, why)
    last, number = len(state.plan.steps) - 1, state.rollout.to_release
    if state.rollout.groups:
        return take_step(state, 0, f"{why}: the groups' traffic moves to it")
    if last == 0:
        return take_step(state, 0, f"{why}: traffic moves to it")
    if state.route.stable == number:
        return take_step(state, last, f"{why}: it serves already, so there are no steps")
    if not state.route.stable:
        return take_step(
            state,
            last,
            f"{why}: all traffic moves to it in one step, since nothing served before",
        )
    return take_step(state, 0, f"{why}: {moves(state, 0)}")


def take_step(state: State, index: int, sentence: str) -> Decision:
    """Take the step *index*: at once, by waves, or behind a barrier."""
    if state.rollout.is_by_waves:
        return waves.begin(state, index, sentence)
    if barrier.is_needed(state, index):
        return barrier.fence(state, sentence, index=index)
    return take(state, index, sentence)


def shift(state: State, event: Observed, now_s: float) -> Decision:
    """Soak, go on or settle, once every node acts on the route; else wait for a person."""
    if state.rollout.is_by_waves:
        return _shift_by_waves(state, event, now_s)
    if barrier.is_needed(state, state.rollout.step):
        return barrier.advance(state, event, now_s)
    if state.rollout.from_release:
        lost = too_many_gone(state, event, now_s) or _went_back(state, event, now_s)
        if lost:
            return lost
    tally = acknowledged(state, event)
    limit_s = patience_s(state, event, tally)
    if not tally.is_complete and now_s < limit_s:
        return stay(state, until_s=limit_s)
    if not tally.is_complete and state.rollout.from_release:
        return pause(
            state,
            f"after {duration_text(limit_s)} these nodes do not report the route:"
            f" {named(tally.missing)}",
            tally.missing,
            now_s=now_s,
        )
    return _arrived(state, event, tally, now_s)


def _went_back(state: State, event: Observed, now_s: float) -> Decision | None:
    """Wait for a person where nodes went back by themselves, as they do in direct mode."""
    refused = ready(state, event).refused
    if not refused or state.route.mode is not Mode.DIRECT:
        return None
    nodes, why = tuple(node for node, _ in refused), refused[0][1]
    number = state.rollout.to_release
    sentence = f"{named(nodes)} went back from release {number} without being told: {why}"
    return pause(state, sentence, nodes, now_s=now_s)


def _shift_by_waves(state: State, event: Observed, now_s: float) -> Decision:
    """Soak, go on or settle, once so many nodes hold the base as the step's weight asks for."""
    turn = waves.turn(state, event, now_s, weight=present(state).weight)
    if turn:
        return turn
    if waves.is_whole(state.rollout) and not state.rollout.is_at_once:
        held, number = count(ready(state, event)), state.rollout.to_release
        return _settle(state, f"{held} hold {waves.what(state.rollout, number)}")
    return _arrived(state, event, acknowledged(state, event), now_s)


def _arrived(state: State, event: Observed, tally: Tally, now_s: float) -> Decision:
    """Soak, or go on where there is no soak: all nodes act on the step's route."""
    plan, here = state.plan, present(state)
    share = f"{here.weight:g} % " if len(plan.steps) > 1 else ""
    share = "their groups " if state.rollout.groups else share
    sentence = f"{count(tally)} route {share}to release {state.rollout.to_release}"
    if tally.missing:  # nothing served before: they serve nothing yet, and no older release
        sentence += f", without {named(tally.missing)}"
    if here.soak_s > 0 or here.manual:
        wait = f"soaking {duration_text(here.soak_s)}" if here.soak_s else "no soak"
        sentence += f": {wait}"
        return move(state, P.SOAKING, sentence, soak_s=here.soak_s)
    return go_on(state, event, sentence, now_s=now_s, until_s=plan.prepare_s)


def go_on(state: State, event: Observed, why: str, *, now_s: float, until_s: float) -> Decision:
    """Take the next step, or settle after the last.

    While the gate is not met any more, as after engines started again, no more traffic moves to the
    release; from phase age *until_s* on a person is waited for.
    """
    rollout, last = state.rollout, len(state.plan.steps) - 1
    if rollout.step >= last:
        if rollout.is_by_waves and not rollout.is_at_once:
            return waves.rest(state, event, why, now_s=now_s, until_s=until_s)
        return _settle(state, why)
    tally = ready(state, event)
    if rollout.is_by_waves or tally.is_met(state.plan):
        index = last if rollout.promoted is Promotion.FULL else rollout.step + 1
        return take_step(state, index, f"{why}: {moves(state, index)}")
    if now_s < until_s and not tally.is_beyond(state.plan):
        return stay(state, until_s=until_s)
    late = tally.missing + tuple(node for node, _ in tally.refused)
    cause = "".join(f": {reason}" for _, reason in tally.refused[:1])
    return pause(
        state,
        f"release {rollout.to_release} is not ready any more on {named(late)}{cause}:"
        f" {nth(state, rollout.step + 1)} is not taken",
        late,
        now_s=now_s,
    )


def _settle(state: State, why: str) -> Decision:
    """Make the candidate stable; what served before stays loaded, up to the plan's `retain`.

    A release of groups stays theirs: the default is not touched. Where nodes changed what they
    hold, nothing else can stay loaded.
    """
    route, number, retain = state.route, state.rollout.to_release, state.plan.retain
    if state.rollout.retain is not None:
        retain = min(retain, state.rollout.retain)
    if state.rollout.wave_size:
        retain = 0
    if state.rollout.groups:
        sentence = f"{why}: release {number} stays with its groups"
        return move(state, P.SETTLING, sentence, unload=(), promoted=Promotion.NONE)
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

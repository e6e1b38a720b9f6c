"""By waves: nodes change what they hold a few at a time, and traffic follows them.

What changes is a node's base, or, where an engine has place for one adapter only and the plan
allows downtime, the release in that place. "The base" below stands for either.

The order that keeps requests safe, and that no change may break:

1. never more than `Rollout.wave_size` nodes of the roster are without the base that they are to
   hold, those that vanished, or that an operator has drained, included;
2. the weight never exceeds the share of nodes that hold the base, counted without the few that may
   be missing, and without those that are drained, which take no requests: so either release has as
   many nodes as its traffic needs;
3. the next nodes change only once every node acts on the route that left them less traffic.

The last few nodes change when no traffic is left for the base that they hold. A rollback of what
has converged takes the same way with the weight from 0 to 100 and no soaks; before that, some
nodes still hold the base that it goes back to, traffic returns to them at once, and all others
follow together, since they get none.
"""

import math
from typing import Any

import msgspec

from vctl_plans.base import grows, is_in_wave, side, target, whole_wave
from vctl_plans.decision import (
    Decision,
    State,
    acknowledged,
    awaited,
    count,
    fail,
    move,
    named,
    patience_s,
    pause,
    stay,
    stayed,
    told,
    too_many_gone,
)
from vctl_plans.events import Observed
from vctl_plans.gate import STAGED, Tally, readiness
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.rollout import Promotion, Rollout
from vctl_plans.route import Route, shifted
from vctl_plans.share import FULL_WEIGHT, share
from vctl_plans.steps import begun
from vctl_plans.units import duration_text


def is_whole(rollout: Rollout) -> bool:
    """Whether every node is to hold the target's base by now."""
    return rollout.wave == whole_wave(rollout)


def has_way_back(rollout: Rollout, route: Route, number: int) -> bool:
    """Whether some node still holds the base of release *number*, and traffic can return at once.

    As long as the wave is not whole, for it always leaves one out; or where all nodes change at
    once, as long as no traffic moved: it has nowhere else to be.
    """
    return route.stable == number and (rollout.wave < FULL_WEIGHT or not route.candidate)


def what(rollout: Rollout, number: int) -> str:
    """Return what nodes change to, in words."""
    return f"release {number}" if rollout.exchanges else f"the base of release {number}"


def staged(state: State, event: Observed, number: int) -> Tally:
    """Return which of the nodes that count have release *number* verified on their disk."""
    tally = readiness(
        stayed(state, event), event.reports, rollout=state.rollout, number=number, enough=STAGED
    )
    return awaited(state, event, tally)


def begin(state: State, index: int, sentence: str) -> Decision:
    """Begin the step *index*: nodes change first, the route follows."""
    size, held = state.rollout.wave_size, "release" if state.rollout.exchanges else "base"
    said = f"{sentence}, as nodes change their {held} {by_waves_of(size)}"
    changes: dict[str, Any] = begun(index)
    return move(state, P.SHIFTING, said, **changes)


def by_waves_of(size: int) -> str:
    """Return how many nodes change at a time, in words."""
    return f"by waves of {size} {'node' if size == 1 else 'nodes'}"


def rest(state: State, event: Observed, why: str, *, now_s: float, until_s: float) -> Decision:
    """Have the last nodes change: no traffic is left for what they hold.

    They too count as missing meanwhile; while others are, from phase age *until_s* on a person is
    waited for. So it is while some gateway does not say that it acts on the route: one that was
    started again since may have forgotten it, and send requests to what they hold.
    """
    heard = acknowledged(state, event)
    if not heard.is_complete:
        if now_s < until_s:
            return stay(state, until_s=until_s)
        why = f"these nodes do not report the route: {named(heard.missing)}"
        return pause(state, why, heard.missing, now_s=now_s)
    rollout, absent = state.rollout, _unready(state, event)
    left = {node for node in state.roster if side(rollout, node) != target(rollout)}
    if len({*absent, *left}) > rollout.wave_size:
        if now_s < until_s:
            return stay(state, until_s=until_s)
        return _no_more(state, event, absent, now_s=now_s)
    phase = rollout.phase if rollout.phase is P.ROLLING_BACK else P.SHIFTING
    return move(
        state,
        phase,
        f"{why}: the last nodes change to {what(rollout, target(rollout))}",
        wave=whole_wave(state.rollout),
        promoted=Promotion.NONE,
    )


def turn(state: State, event: Observed, now_s: float, *, weight: float) -> Decision | None:
    """Take the next turn towards *weight* percent on the target; None once it is there.

    After the last nodes were told to change, it is there when all of them have.
    """
    rollout, plan = state.rollout, state.plan
    lost = too_many_gone(state, event, now_s) or _unheard(state, event, now_s)
    if lost:
        return lost
    held = _held(state, event)
    if held.missing or held.is_beyond(plan):
        return _late(state, held, now_s)
    if is_whole(rollout) and not rollout.is_at_once:
        return None
    carry = sum(node not in event.drained for node in held.done)
    can = _reachable(state, weight, carry)
    if can > _weight(state):
        return _shift(state, can, carry)
    if _weight(state) >= weight:
        return None
    return _next(state, event, now_s, needed=_needed(state, weight) - carry)


def _unheard(state: State, event: Observed, now_s: float) -> Decision | None:
    """Wait until every node acts on the route; from the deadline on a person is waited for."""
    tally = acknowledged(state, event)
    limit_s = patience_s(state, event, tally)
    if tally.is_complete:
        return None
    if now_s < limit_s:
        return stay(state, until_s=limit_s)
    why = f"after {duration_text(limit_s)} these nodes do not report the route:"
    return pause(state, f"{why} {named(tally.missing)}", tally.missing, now_s=now_s)


def _held(state: State, event: Observed) -> Tally:
    """Return who of those that are to hold the target's base is ready for it."""
    rollout, number = state.rollout, target(state.rollout)
    members = [node for node in stayed(state, event) if side(rollout, node) == number]
    tally = readiness(members, event.reports, rollout=rollout, number=number)
    return awaited(state, event, tally)


def _late(state: State, tally: Tally, now_s: float) -> Decision:
    """Wait for the nodes that change; no longer where they refuse, or at the deadline."""
    rollout, limit_s, number = state.rollout, state.plan.prepare_s, target(state.rollout)
    if now_s < limit_s and not tally.is_beyond(state.plan):
        return stay(state, until_s=limit_s)
    late = tally.missing + tuple(node for node, _ in tally.refused)
    cause = "".join(f": {reason}" for _, reason in tally.refused[:1])
    if rollout.is_at_once and not rollout.has_moved and rollout.back_to in {0, rollout.to_release}:
        why = f"release {number} is not ready on {named(late)}{cause}: they return to what served"
        return fail(state, why)
    held = "it" if rollout.exchanges else "its base"
    why = f"release {number} is not ready on {named(late)}, which change to {held}{cause}"
    return pause(state, why, late, now_s=now_s)


def _capacity(state: State) -> int:
    """Return how many nodes carry all of the traffic: all but those that may be missing."""
    return max(1, len(state.roster) - state.rollout.wave_size)


def _needed(state: State, weight: float) -> int:
    """Return how many nodes must hold the target's base before it may get *weight* percent."""
    return math.ceil(weight * _capacity(state) / FULL_WEIGHT)


def _reachable(state: State, weight: float, ready: int) -> float:
    """Return the weight up to *weight* that so many ready nodes can carry."""
    enough = ready >= _needed(state, weight)
    return weight if enough else FULL_WEIGHT * ready / _capacity(state)


def _weight(state: State) -> float:
    """Return the target's weight in the route as it is."""
    route, number = state.route, target(state.rollout)
    if route.stable == number:
        return FULL_WEIGHT
    return route.weight if route.candidate == number else 0.0


def _shift(state: State, weight: float, ready: int) -> Decision:
    rollout, number = state.rollout, target(state.rollout)
    route = shifted(state.route, number, weight)
    return move(
        state,
        rollout.phase,
        f"{ready} of {len(state.roster)} nodes hold {what(rollout, number)}:"
        f" {weight:.4g} % of traffic moves to it",
        route=msgspec.structs.replace(route, consistency=state.plan.consistency),
        has_moved=True,
    )


def _next(state: State, event: Observed, now_s: float, *, needed: int) -> Decision:
    """Have the next nodes change, as many as may be missing beside those that are missing now."""
    rollout, limit_s = state.rollout, state.plan.prepare_s
    absent = _unready(state, event)
    room = min(rollout.wave_size - len(absent), needed)
    if room > 0:
        nodes, wave = next_wave(rollout, state.roster, room=room)
        number = target(rollout)
        verb = "changes" if len(nodes) == 1 else "change"
        why = f"{named(nodes)} {verb} to {what(rollout, number)}"
        why += ": nothing serves meanwhile, as the plan allows" if rollout.is_at_once else ""
        return move(state, rollout.phase, why, wave=wave)
    if now_s < limit_s:
        return stay(state, until_s=limit_s)
    return _no_more(state, event, absent, now_s=now_s)


def _no_more(state: State, event: Observed, absent: tuple[str, ...], *, now_s: float) -> Decision:
    verb = "is" if len(absent) == 1 else "are"
    held = "release" if state.rollout.exchanges else "base"
    why = f"no more nodes can change their {held}: {named(told(absent, event))} {verb} not ready"
    return pause(state, why, absent, now_s=now_s)


def next_wave(
    rollout: Rollout, roster: tuple[str, ...], *, room: int
) -> tuple[tuple[str, ...], float]:
    """Return the next nodes to change, at most *room*, and the wave that lets them and no others.

    In the order of their shares, and backwards on the way back, so that who changed last is the
    first to return.
    """
    shares = sorted((share(rollout.id, node), node) for node in roster)
    if grows(rollout):
        left = [(at, node) for at, node in shares if not is_in_wave(rollout, node)]
        chosen, others = left[:room], left[room:]
        wave = others[0][0] if others else FULL_WEIGHT
    else:
        left = [(at, node) for at, node in reversed(shares) if is_in_wave(rollout, node)]
        chosen, others = left[:room], left[room:]
        wave = chosen[-1][0] if others and chosen else 0.0
    return tuple(sorted(node for _, node in chosen)), wave


def _unready(state: State, event: Observed) -> tuple[str, ...]:
    """Return the nodes of the roster that serve nothing of what they are to hold.

    Where all nodes change at once, as the plan allows, it counts for nothing that one is drained.
    """
    rollout, found = state.rollout, set(state.roster)
    drained = frozenset[str]() if rollout.is_at_once else event.drained
    for number in {side(rollout, node) for node in state.roster}:
        members = [n for n in stayed(state, event) if side(rollout, n) == number]
        done = readiness(members, event.reports, rollout=rollout, number=number).done
        found -= {*done} - drained
    return tuple(sorted(found))


def leave(state: State, event: Observed, now_s: float) -> Decision | None:
    """Have all nodes change at once to what has all traffic; None when they have, or are too late.

    Only once every node acts on that route: until then some gateway may still send requests to
    what they hold.
    """
    rollout, plan = state.rollout, state.plan
    tally = acknowledged(state, event)
    limit_s = patience_s(state, event, tally)
    if rollout.unload or (not tally.is_complete and now_s >= limit_s):
        return None
    if not tally.is_complete:
        return stay(state, until_s=limit_s)
    if not is_whole(rollout):
        number = target(rollout)
        others = f"all others change to {what(rollout, number)}"
        why = f"{count(tally)} report the route: {others}"
        return move(state, rollout.phase, why, wave=whole_wave(rollout))
    held = _held(state, event)
    if held.is_complete or now_s >= plan.prepare_s or held.is_beyond(plan):
        return None
    return stay(state, until_s=plan.prepare_s)

"""A decision on a rollout, and the turns that more than one phase takes.

A `Decision` is the next state with a sentence; what moves a phase stands in `machine.TABLE`.
"""

from typing import Any

import msgspec

from vctl_plans.events import Observed
from vctl_plans.gate import Tally, absence, acknowledgement, readiness, residents
from vctl_plans.phase import NodePhase
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.plan import Plan
from vctl_plans.rollout import NAMED, Rollout, advanced, listed, wanted
from vctl_plans.route import Hold, Route, held

NOBODY = "an empty roster"
"""Stands for the nodes where there are none, so that nothing passes for confirmed by nobody."""


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


def move(
    state: State, phase: P, sentence: str, *, route: Route | None = None, **changes: Any
) -> Decision:
    """Return the decision that changes the phase and, with *route*, the traffic too.

    A barrier ends with it: only `hold` leaves one.
    """
    rollout = advanced(state.rollout, phase, sentence, **changes)
    after = msgspec.structs.replace(state, rollout=rollout, route=held(route or state.route, None))
    return Decision(after, sentence)


def hold(state: State, sentence: str, barrier: Hold, **changes: Any) -> Decision:
    """Return the decision that puts the barrier before the present step's traffic.

    Every other decision ends it, so that no request waits for a rollout that does something else.
    """
    decision = move(state, P.SHIFTING, sentence, **changes)
    route = msgspec.structs.replace(state.route, hold=barrier, consistency=state.plan.consistency)
    return Decision(msgspec.structs.replace(decision.state, route=route), sentence)


def stay(state: State, *, until_s: float | None) -> Decision:
    """Return the decision to wait, and to look again at phase age *until_s*."""
    return Decision(state, wake_s=until_s)


def count(tally: Tally) -> str:
    """Return how many of the roster have done it, in words."""
    return f"{len(tally.done)} of {tally.size} nodes"


def stayed(state: State, event: Observed) -> tuple[str, ...]:
    """Return the roster without the nodes that have left: who a gate counts."""
    left = left_out(state, event)
    return tuple(node for node in state.roster if node not in left)


def excused(state: State, event: Observed) -> tuple[str, ...]:
    """Return the drained nodes that nobody waits for: as many as the plan lets be unready.

    One at least, and never all. They take no requests, so traffic may move before they can.
    """
    size = len(state.roster)
    drained = [node for node in state.roster if node in event.drained]
    return tuple(drained[: min(max(1, state.plan.max_unready.of(size)), size - 1)])


def left_out(state: State, event: Observed) -> tuple[str, ...]:
    """Return the nodes that a gate does not count: those that vanished, or are drained and away.

    A drained node whose agent is there is waited for where requests could be lost: its gateway has
    to act on the route like any other.
    """
    away = [node for node in excused(state, event) if node not in event.reports]
    return tuple(node for node in state.roster if node in event.gone or node in away)


def counted(state: State, event: Observed) -> tuple[str, ...]:
    """Return whose word a route waits for: the roster's, and that of nodes that joined.

    For a rollout that counts nobody, nobody speaks.
    """
    if not state.roster:
        return ()
    number = state.rollout.back_to or state.rollout.to_release
    joined = [node for node in event.reports if node not in state.roster]
    ready = readiness(joined, event.reports, rollout=state.rollout, number=number).done
    return (*stayed(state, event), *sorted(ready))


def ready(state: State, event: Observed, number: int = 0) -> Tally:
    """Return which of the nodes that count hold a release ready; 0: the one that is brought.

    As long as only drained nodes do, nobody does: no request that is sent to it would find one.
    """
    rollout = state.rollout
    nodes = stayed(state, event)
    tally = readiness(nodes, event.reports, rollout=rollout, number=number or rollout.to_release)
    if not set(tally.done) - event.drained:
        tally = Tally((), (*tally.done, *tally.missing), tally.refused)
    return awaited(state, event, tally)


def awaited(state: State, event: Observed, tally: Tally) -> Tally:
    """Return the tally without those drained nodes that nobody waits for."""
    idle = excused(state, event)
    return Tally(
        tally.done,
        tuple(node for node in tally.missing if node not in idle),
        tuple(each for each in tally.refused if each[0] not in idle),
    )


def gone(state: State, event: Observed) -> tuple[str, ...]:
    """Return the nodes of the roster that have vanished, and nobody had drained them."""
    idle = excused(state, event)
    return tuple(node for node in state.roster if node in event.gone and node not in idle)


def too_many_gone(state: State, event: Observed, now_s: float) -> Decision | None:
    """Wait for a person when more nodes have vanished than the plan allows, or all of them."""
    lost = gone(state, event)
    is_over = state.plan.max_absent.is_over(len(lost), len(state.roster))
    if not lost or not (is_over or len(lost) == len(state.roster)):
        return None
    why = f"{len(lost)} of {len(state.roster)} nodes have vanished"
    why += f", and {state.plan.max_absent} may" if is_over else ""
    return pause(state, f"{why}: {named(lost)}", lost, now_s=now_s)


def acknowledged(state: State, event: Observed) -> Tally:
    """Return which of the nodes that count act on the route as it is."""
    return acknowledgement(
        counted(state, event),
        event.reports,
        service=state.rollout.service,
        revision=state.route_revision,
    )


def patience_s(state: State, event: Observed, tally: Tally) -> float:
    """Return until when the nodes that are missing in *tally* are waited for.

    Twice as long where all of them are away and so many may vanish: by then they count as gone,
    and a node that vanishes while traffic moves does not stop it.
    """
    away = [node for node in tally.missing if node not in event.reports]
    lost = len(away) + len(gone(state, event))
    is_allowed = not state.plan.max_absent.is_over(lost, len(state.roster))
    is_all = len(away) == len(tally.missing) and lost < len(state.roster)
    return state.plan.converge_s * (2 if is_all and is_allowed else 1)


def pause(
    state: State, why: str, nodes: tuple[str, ...], *, now_s: float, **changes: Any
) -> Decision:
    """Wait for a person; *nodes* are those that are in the way.

    What has passed of a soak is kept: it is neither begun anew nor skipped afterwards.
    """
    return move(
        state,
        P.PAUSED,
        why,
        resume_phase=state.rollout.phase.value,
        unconfirmed=nodes[:NAMED],
        soaked_s=soaked(state.rollout, now_s),
        **changes,
    )


def soaked(rollout: Rollout, now_s: float) -> float:
    """Return how much of its step's soak has passed, *now_s* into the present phase."""
    return rollout.soaked_s + (now_s if rollout.phase is P.SOAKING else 0.0)


def named(nodes: tuple[str, ...]) -> str:
    """Return the nodes' names; never nothing."""
    return listed(nodes) or NOBODY


def said_of(state: State, event: Observed, number: int, nodes: tuple[str, ...]) -> str:
    """Return the first reason that any of *nodes* gives of a release, to end a sentence with."""
    reports = (event.reports[node] for node in nodes if node in event.reports)
    found = (report.release(state.rollout.service, number) for report in reports)
    return next((f": {release.reason}" for release in found if release and release.reason), "")


def fail(state: State, why: str, **changes: Any) -> Decision:
    """End a rollout that moved nothing; nodes may unload what it made them load."""
    return move(state, P.FAILED, f"{why}; no traffic moved", unload=dropped(state), **changes)


def dropped(state: State) -> tuple[int, ...]:
    """Return what nodes may unload once a rollout that moved nothing is given up.

    What an earlier rollout left to be unloaded is handed on, else it would stay for ever.
    """
    rollout = state.rollout
    brought = {rollout.to_release, rollout.back_to, *rollout.unload} - {0}
    return tuple(sorted(brought - wanted(state.route, None)))


def clear(state: State, event: Observed, now_s: float, *, end: P, word: str) -> Decision:
    """Wait for the route, name what may be unloaded, wait until it is, and end.

    A node that never reports the route does not keep the rollout open, which would keep every
    later one from starting: at the deadline it is named as unconfirmed, and nothing is unloaded.
    """
    rollout = state.rollout
    if not rollout.unload:
        tally = acknowledged(state, event)
        limit_s = patience_s(state, event, tally)
        if not tally.is_complete and now_s < limit_s:
            return stay(state, until_s=limit_s)
        if not tally.is_complete:
            return _end(state, event, tally, end=end, word=word)
        surplus = _surplus(state, event)
        if not surplus:
            return _end(state, event, tally, end=end, word=word)
        numbers = ", ".join(str(n) for n in surplus)
        releases = "releases" if len(surplus) > 1 else "release"
        sentence = f"{count(tally)} report the route: {releases} {numbers} may be unloaded"
        return move(state, rollout.phase, sentence, unload=surplus)
    left = absence(
        counted(state, event),
        event.reports,
        service=rollout.service,
        numbers=frozenset(rollout.unload),
    )
    limit_s = state.plan.drain_s + state.plan.converge_s
    if left.is_complete or now_s >= limit_s:
        return _end(state, event, left, end=end, word=word)
    return stay(state, until_s=limit_s)


def make_room(state: State, event: Observed) -> Decision | None:
    """Name what may be unloaded while a release is made ready: it may need the place.

    Some node holds it, and nothing wants it: one that was away when it should have been unloaded,
    or a rollout gave way to another. Only once every counted node acts on the route.
    """
    rollout = state.rollout
    left = _held(state, event) - wanted(state.route, rollout) - set(rollout.unload)
    if not left or not acknowledged(state, event).is_complete:
        return None
    numbers = listed(tuple(str(n) for n in sorted(left)))
    word, verb = ("releases", "are") if len(left) > 1 else ("release", "is")
    sentence = f"{word} {numbers}, which {verb} wanted no more, may be unloaded"
    return move(state, rollout.phase, sentence, unload=tuple(sorted({*rollout.unload, *left})))


def _surplus(state: State, event: Observed) -> tuple[int, ...]:
    """Return the releases that some node may hold and that nothing wants."""
    keep = wanted(state.route, None)
    brought = {state.rollout.to_release} if state.rollout.back_to else set()
    return tuple(sorted((_held(state, event) | brought) - keep))


def _held(state: State, event: Observed) -> set[int]:
    """Return the releases that some node of the roster may hold."""
    return {
        number
        for node in state.roster
        if node in event.reports
        for number in residents(event.reports[node], state.rollout.service)
    }


def _end(state: State, event: Observed, tally: Tally, *, end: P, word: str) -> Decision:
    left = left_out(state, event)
    missing = (*tally.missing, *left, *_unready(state, event, tally, end=end))
    missing = missing or (() if tally.size else (NOBODY,))
    whole = tally.size + len(left)
    done = tuple(node for node in tally.done if node not in missing)
    sentence = (
        f"{word} ({len(done)}/{whole}) on {_where(state, end)}"
        f"{'; unconfirmed: ' + listed(told(missing, event)) if missing else ''}"
    )
    return move(state, end, sentence, confirmed=len(done), unconfirmed=missing[:NAMED])


def told(nodes: tuple[str, ...], event: Observed) -> tuple[str, ...]:
    """Return the nodes' names, and of which an operator has drained them."""
    return tuple(f"{node} (drained)" if node in event.drained else node for node in nodes)


def _unready(state: State, event: Observed, tally: Tally, *, end: P) -> tuple[str, ...]:
    """Return who is done with what was left, and does not hold the target: a gate let it be so."""
    rollout = state.rollout
    number = rollout.to_release if end is P.CONVERGED else rollout.back_to
    held_by = {node: event.reports[node].release(rollout.service, number) for node in tally.done}
    return tuple(n for n, r in held_by.items() if r is None or r.phase is not NodePhase.READY)


def _where(state: State, end: P) -> str:
    """Return what serves now, in words."""
    release = f"release {state.route.stable}"
    if end is P.CONVERGED and state.rollout.groups:
        return f"release {state.rollout.to_release} for its groups, {release} for all others"
    return release

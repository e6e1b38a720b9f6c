"""What must always hold (DESIGN section 9), as far as it can be told from state and history.

Each function returns the violations that it finds, each a sentence that begins with the
invariant's number, and nothing when all is well. They know nothing of how decisions are made: they
are the second opinion on the machine, in the simulator and in the fault tests.

Change none of them to make a test pass, unless DESIGN section 9 changed.
"""

from collections.abc import Iterable

from vctl_plans.phase import NodePhase
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.release import Release, release_digest
from vctl_plans.rollout import NAMED, Cause, Entry, Rollout
from vctl_plans.route import Route, override_of
from vctl_plans.share import FULL_WEIGHT
from vctl_plans.traffic import given, moved
from vctl_plans.written import Seen, Written

__all__ = ["Seen", "Written", "check", "history", "releases"]


def check(before: Written, after: Written, seen: Seen | None = None) -> list[str]:
    """Return all that one write broke.

    A route that an operator writes beside a rollout that has ended is judged by itself: the rollout
    says how things were when it ended.

    Args:
        before: As it was read and compared.
        after: As it was written.
        seen: What the writer looked at.
    """
    looked = seen or Seen()
    if _is_beside(before, after):
        return [
            *_route_holds(after.route),
            *_unload_is_free(after),
            *_revoked_only_grows(before.route, after.route),
            *given(before, after),
        ]
    return [
        *_route_holds(after.route),
        *_unload_is_free(after),
        *_end_is_told(after),
        *_unconfirmed_are_named(after, looked),
        *_guardrail_was_watching(before, after),
        *_revoked_only_grows(before.route, after.route),
        *_decision_follows(before, after),
        *moved(before, after, looked),
    ]


def _is_beside(before: Written, after: Written) -> bool:
    """Whether only what groups get was written, and the last rollout had ended."""
    then, was, now = before.rollout, before.route, after.route
    if then is None or then != after.rollout or was is None or now is None:
        return False
    return then.phase.is_terminal and was.overrides != now.overrides


def _route_holds(route: Route | None) -> list[str]:
    """I5, I6: a route serves something, splits it sensibly, and nothing of it is revoked."""
    if route is None:
        return []
    revoked = set(route.revoked) & (route.serving | set(route.instant))
    return [
        *(["I5: a route that was written serves nothing"] if not route.stable else []),
        *([f"I6: the route keeps revoked {sorted(revoked)}"] if revoked else []),
        *(
            [f"I5: weight {route.weight} with candidate {route.candidate}"]
            if bool(route.candidate) != (0 < route.weight <= FULL_WEIGHT)
            else []
        ),
        *(["I5: the candidate is the stable release"] if _is_doubled(route) else []),
        *(
            ["I2: groups have two overrides"]
            if len({o.group for o in route.overrides}) < len(route.overrides)
            else []
        ),
        *(
            ["I5: the stable release is listed as retained"]
            if route.stable in route.instant
            else []
        ),
    ]


def _is_doubled(route: Route) -> bool:
    return bool(route.candidate) and route.candidate == route.stable


def _revoked_only_grows(before: Route | None, after: Route | None) -> list[str]:
    """I6: no write forgets that a release was revoked."""
    lost = set(before.revoked if before else ()) - set(after.revoked if after else ())
    return [f"I6: {sorted(lost)} is revoked no more"] if lost else []


def _unload_is_free(after: Written) -> list[str]:
    """I4: the unload list never names what the route serves or keeps loaded."""
    rollout, route = after.rollout, after.route
    if rollout is None or route is None:
        return []
    needed = set(rollout.unload) & (route.serving | set(route.instant))
    return [f"I4: {sorted(needed)} may be unloaded and is routed or retained"] if needed else []


_FIXED = (
    "service",
    "plan",
    "strategy",
    "from_release",
    "to_release",
    "roster",
    "roster_size",
    "steps",
    "groups",
    "from_place",
    "watches",
    "wave_size",
)


def _decision_follows(before: Written, after: Written) -> list[str]:
    """I8, I10: decisions are numbered without a hole, and what has ended stays ended."""
    then, now = before.rollout, after.rollout
    if now is None:
        return ["I10: the rollout's key was deleted"] if then else []
    if then is None or then.id != now.id:
        return _begins(before, now)
    if then.phase.is_terminal and (then, before.route) != (now, after.route):
        return [f"I8: rollout {now.id} had {then.phase} and moved to {now.phase}"]
    if then == now:
        return ["I10: the route changed without a decision"] if before.route != after.route else []
    changed = [name for name in _FIXED if getattr(then, name) != getattr(now, name)]
    if now.from_override not in {0, then.from_override}:  # 0: it may be unloaded by now
        changed.append("from_override")
    return [
        *([f"I10: decision {now.seq} follows {then.seq}"] if now.seq != then.seq + 1 else []),
        *([f"I10: {changed} of rollout {now.id} changed"] if changed else []),
        *(["I10: a decision without a sentence"] if not now.sentence else []),
        *(["I8: traffic that moved is said not to have"] if then.has_moved > now.has_moved else []),
    ]


def _begins(before: Written, now: Rollout) -> list[str]:
    then, was = before.rollout, before.route or Route(service="")
    is_of_groups = bool(now.groups) and now.strategy != "rollback"
    theirs = override_of(was, now.groups) if is_of_groups else 0
    is_free = then is None or then.phase.is_terminal or then.phase is P.PREPARING
    return [
        *([f"I10: rollout {now.id} begins with decision {now.seq}"] if now.seq else []),
        *(
            [f"I2: the groups had {theirs}, and {now.from_override} is noted"]
            if now.from_override != theirs
            else []
        ),
        *(
            [f"I8: {now.id} replaced {then.id}, which is {then.phase}"]
            if then and not is_free
            else []
        ),
    ]


def _end_is_told(after: Written) -> list[str]:
    """I8: an end is what it says: where traffic is, and who did not confirm it."""
    rollout, route = after.rollout, after.route or Route(service="")
    if rollout is None:
        return []
    match rollout.phase:
        case P.CONVERGED:
            return _ended_on(rollout, route, rollout.to_release)
        case P.ROLLED_BACK:
            return _ended_on(rollout, route, rollout.back_to)
        case P.FAILED | P.SUPERSEDED if rollout.has_moved or route.candidate:
            return [f"I8: {rollout.phase} though traffic moved"]
        case P.PAUSED if not rollout.resume_phase or not rollout.sentence:
            return ["I8: paused without a reason, or without a way on"]
        case _:
            return []


def _unconfirmed_are_named(after: Written, seen: Seen) -> list[str]:
    """I8: who vanished, is away, or does not hold the release that serves at the end is named."""
    rollout = after.rollout
    if rollout is None or rollout.phase not in {P.CONVERGED, P.ROLLED_BACK} or not seen.roster:
        return []
    number = rollout.to_release if rollout.phase is P.CONVERGED else rollout.back_to
    lines = {
        node: seen.reports[node].release(rollout.service, number) if node in seen.reports else None
        for node in seen.roster
    }
    lacking = {n for n, line in lines.items() if not line or line.phase is not NodePhase.READY}
    silent = sorted(lacking - set(rollout.unconfirmed))
    is_cut = len(rollout.unconfirmed) >= NAMED
    return [f"I8: {silent} are not named as unconfirmed"] if silent and not is_cut else []


def _guardrail_was_watching(before: Written, after: Written) -> list[str]:
    """I8, I10: only guardrails that a plan has send a rollout back, and only a step under watch."""
    then, now = before.rollout, after.rollout
    if then is None or now is None or then.id != now.id:
        return []
    if now.cause is not Cause.GUARDRAIL or then.cause is Cause.GUARDRAIL:
        return []
    is_told = now.watches and then.is_soaking and now.back_to == now.from_release
    return [] if is_told else ["I10: a guardrail sent back what it did not watch"]


def _ended_on(rollout: Rollout, route: Route, number: int) -> list[str]:
    is_silent = rollout.confirmed < max(1, rollout.roster_size) and not rollout.unconfirmed
    return [
        *(
            [f"I8: {rollout.phase} on {number}, and the route serves {sorted(route.serving)}"]
            if not _is_on(rollout, route, number)
            else []
        ),
        *(["I8: nodes that did not confirm are not named"] if is_silent else []),
    ]


def _is_on(rollout: Rollout, route: Route, number: int) -> bool:
    if rollout.groups and rollout.phase is P.CONVERGED:
        return override_of(route, rollout.groups) == number
    return route.stable == number and not route.candidate


def history(entries: Iterable[Entry], *, rollout: Rollout) -> list[str]:
    """Return what is wrong with a rollout's history: holes, or another end than its own (I10)."""
    listed = sorted(entries, key=lambda entry: entry.seq)
    numbers = [entry.seq for entry in listed]
    wanted = list(range(rollout.seq + 1))
    last = listed[-1].sentence if listed else ""
    return [
        *([f"I10: history of {rollout.id} holds {numbers}"] if numbers != wanted else []),
        *([f"I10: history of {rollout.id} ends otherwise"] if last != rollout.sentence else []),
    ]


def releases(made: Iterable[Release]) -> list[str]:
    """Return what is wrong with a service's releases: a digest, or a counter used twice (I2)."""
    ordered = sorted(made, key=lambda release: release.number)
    roots: dict[tuple[str, int], str] = {}
    wrong = [
        f"I2: release {release.number} is not what its digest says"
        for release in ordered
        if release.digest != release_digest(release)
    ]
    for release in ordered:
        for name, counter in release.vector.items():
            root = release.components[name].root
            if roots.setdefault((name.value, counter), root) != root:
                wrong.append(f"I2: {name}={counter} names two roots")
    return wrong

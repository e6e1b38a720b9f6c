"""What must always hold of traffic (DESIGN section 9, I2 to I6): how one write may move it.

See `invariants`, which this belongs to: each function returns the violations that it finds.
"""

import msgspec

from vctl_plans.phase import RolloutPhase as P
from vctl_plans.rollout import Promotion
from vctl_plans.route import Consistency, Route, Stage, has_same_traffic, override_of
from vctl_plans.share import FULL_WEIGHT
from vctl_plans.traffic_by_waves import moved_by_waves
from vctl_plans.written import Seen, Written


def moved(before: Written, after: Written, seen: Seen) -> list[str]:
    """Return what one write broke of the invariants of traffic."""
    return [
        *_revoked_was_left(before, after),
        *_overrides_follow(before, after),
        *_ready_before_served(before, after, seen),
        *_acknowledged_before_unload(before, after, seen),
        *_acknowledged_before_the_next(before, after, seen),
        *_weight_only_grows(before, after),
        *_grows_only_when_ready(before, after, seen),
        *_steps_follow(before, after),
        *_strict_is_held(before, after, seen),
        *_barrier_is_in_order(before, after, seen),
        *_hold_is_short(after),
        *moved_by_waves(before, after, seen),
    ]


def given(before: Written, after: Written) -> list[str]:
    """Return what one write broke that gives groups a release while no rollout runs.

    I2, I5: they get what serves or is retained, ahead of all others, and nobody else's traffic
    moves.
    """
    was, now = before.route, after.route
    if was is None or now is None or not now.overrides:
        return ["I2: groups lost what they had, without a rollout"]
    first, *rest = now.overrides
    kept = [override for override in was.overrides if override.group != first.group]
    is_all = now == msgspec.structs.replace(was, overrides=now.overrides)
    is_loaded = first.release in was.serving | set(was.instant)
    return [
        *([] if is_all else ["I2: more than overrides changed without a rollout"]),
        *([] if rest == kept else ["I2: other groups' releases changed, or their order"]),
        *([] if is_loaded else [f"I5: groups get release {first.release}, which is not loaded"]),
    ]


def _revoked_was_left(before: Written, after: Written) -> list[str]:
    """I6: a rollback revokes what it leaves, and no release that traffic was not on or going to."""
    rollout, route = after.rollout, after.route
    if rollout is None or route is None:
        return []
    was = before.route or Route(service="")
    left = set(was.default)
    if rollout.groups:  # what others have of their own is not left, nor what these have again
        left |= {override_of(was, rollout.groups)} - {rollout.from_override}
    brought = set() if rollout.strategy == "rollback" else {rollout.to_release}
    added = set(route.revoked) - set(was.revoked)
    passed = added - left - brought
    return [f"I6: {sorted(passed)} is revoked, and was not left"] if passed else []


def _acknowledged_before_unload(before: Written, after: Written, seen: Seen) -> list[str]:
    """I4: what traffic left may be unloaded only once every counted node reported the route."""
    then, now = before.rollout, after.rollout
    if then is None or now is None or then.id != now.id or not now.has_moved:
        return []
    if not set(now.unload) - set(then.unload):
        return []
    tally = seen.knows_route(before, now)
    named = f"I4: {list(now.unload)} may be unloaded before {list(tally.missing)} know the route"
    return [] if tally.is_complete else [named]


def _acknowledged_before_the_next(before: Written, after: Written, seen: Seen) -> list[str]:
    """I3: a step is over once every counted node reported its route; a first release may sooner."""
    then, now = before.rollout, after.rollout
    if then is None or now is None or then.id != now.id or then.phase is not P.SHIFTING:
        return []
    if now.phase not in {P.SHIFTING, P.SOAKING, P.SETTLING} or not now.from_release:
        return []
    tally = seen.knows_route(before, then)
    late = f"I3: {now.phase} though {list(tally.missing)} do not report the route"
    return [] if tally.is_complete else [late]


def _ready_before_served(before: Written, after: Written, seen: Seen) -> list[str]:
    """I5: traffic moves to what served, was retained, or is ready on every counted node.

    What a rollout's groups had before is retained while it runs, until it is to be unloaded.
    """
    if after.route is None or after.rollout is None:
        return []
    known = before.route.serving | set(before.route.instant) if before.route else frozenset[int]()
    then = before.rollout
    if then and then.id == after.rollout.id and not then.phase.is_terminal:
        known |= {then.from_override} - set(then.unload)
    return [
        f"I5: traffic moves to release {number}, which is not ready everywhere"
        for number in after.route.serving - known
        if not after.rollout.is_by_waves  # see `traffic_by_waves`
        if not seen.holds_ready(after.rollout, number)
    ]


def _overrides_follow(before: Written, after: Written) -> list[str]:
    """I2, I3: groups get what their rollout brings, have what they had again, and no other moves.

    What was revoked is taken from everybody.
    """
    then, rollout, now = before.rollout, after.rollout, after.route
    if rollout is None or now is None:
        return []
    was = before.route or Route(service="")
    others = tuple(o for o in now.overrides if o.group != rollout.groups)
    kept = tuple(
        o for o in was.overrides if o.group != rollout.groups and o.release not in now.revoked
    )
    had, have = override_of(was, rollout.groups), override_of(now, rollout.groups)
    own = then if then and then.id == rollout.id else rollout
    allowed = {had, 0, own.from_override} if rollout.back_to else {had, rollout.to_release}
    before_it = {own.from_override} - {0, *now.revoked, *own.unload}
    is_lost = bool(rollout.back_to) and not have and had != have and bool(before_it)
    is_again = have not in {had, 0} and own.has_moved and not rollout.back_to
    return [
        *(["I2: other groups' releases changed, or their order"] if others != kept else []),
        *([f"I2: the groups get {have}, and had {had}"] if have not in allowed else []),
        *([f"I2: the groups lost {before_it}, which they had before"] if is_lost else []),
        *(["I3: the groups' step was taken twice"] if is_again else []),
    ]


def _is_going_on(before: Written, after: Written) -> bool:
    """Whether the write is a decision of the rollout that ran before it, and not one to go back."""
    then, now = before.rollout, after.rollout
    if then is None or now is None or then.id != now.id:
        return False
    return not now.back_to


def _weight_only_grows(before: Written, after: Written) -> list[str]:
    """I3: who has moved moves back only by rollback or abort, and who has not is not passed over.

    A candidate loses no weight; it becomes stable, and is not simply dropped, once it had all.
    """
    was, now = before.route, after.route
    if not _is_going_on(before, after) or was is None or now is None or not was.candidate:
        return []
    if now.candidate == was.candidate:
        is_less = now.weight < was.weight
        return [f"I3: weight {was.weight:g} shrank to {now.weight:g}"] if is_less else []
    is_taken_over = now.stable == was.candidate and was.weight == FULL_WEIGHT
    wrong = f"I3: candidate {was.candidate} left its weight of {was.weight:g}"
    return [] if is_taken_over else [wrong]


def _grows_only_when_ready(before: Written, after: Written, seen: Seen) -> list[str]:
    """I5: more traffic moves to a candidate only while it is ready on every counted node."""
    was, now, rollout = before.route, after.route, after.rollout
    if was is None or now is None or rollout is None or was.candidate != now.candidate:
        return []
    if now.weight <= was.weight or not now.candidate or rollout.is_by_waves:
        return []
    late = f"I5: more traffic moves to release {now.candidate}, which is not ready everywhere"
    return [] if seen.holds_ready(rollout, now.candidate) else [late]


def _steps_follow(before: Written, after: Written) -> list[str]:
    """I3: steps come one after the other, each with a route of more weight, and none twice.

    The last one comes at once where an operator said so, and where there was nothing to split.
    """
    then, now = before.rollout, after.rollout
    if then is None or now is None or not _is_going_on(before, after):
        return []
    if now.step == then.step:
        grew = before.route and after.route and after.route.weight > before.route.weight
        is_behind = bool(before.route and before.route.hold)  # a barrier: this is the switch
        # By waves, more traffic moves within a step with each wave.
        is_again = bool(grew) and then.has_moved and not is_behind and not now.is_by_waves
        return [f"I3: step {now.step + 1} was taken twice"] if is_again else []
    is_full = then.promoted is Promotion.FULL or not then.has_moved
    is_whole = before.route is None or before.route.stable in {0, now.to_release}
    follows = now.step == then.step + 1 and then.has_moved
    jumps = now.step == now.steps - 1 and is_full and (then.has_moved or is_whole)
    return [
        *([] if follows or jumps else [f"I3: step {now.step + 1} follows step {then.step + 1}"]),
        *(
            [f"I3: step {now.step + 1} was taken in {then.phase}, and led to {now.phase}"]
            if now.phase is not P.SHIFTING or then.phase not in {P.PREPARING, P.SHIFTING, P.SOAKING}
            else []
        ),
        *([f"I3: step {now.step + 1} of {now.steps}"] if not 0 <= now.step < now.steps else []),
        *([f"I3: the promotion of step {then.step + 1} outlived it"] if now.promoted else []),
        *(
            ["I3: a manual step went on without a promotion"]
            if then.awaits_promote and not then.promoted
            else []
        ),
    ]


def _strict_is_held(before: Written, after: Written, seen: Seen) -> list[str]:
    """I3: a strict change is made only while every gateway of the roster holds its requests."""
    was, now, rollout = before.route, after.route, after.rollout
    if was is None or now is None or rollout is None or not _is_going_on(before, after):
        return []
    asked = {now.consistency, seen.plan.consistency if seen.plan else now.consistency}
    if Consistency.STRICT not in asked or not was.stable or _is_same_split(was, now):
        return []
    is_held = was.hold is not None and was.hold.stage is Stage.HOLD
    is_held = is_held and seen.all_know_route(before, rollout.service)
    return [] if is_held else ["I3: a strict switch while some gateway does not hold its requests"]


def _barrier_is_in_order(before: Written, after: Written, seen: Seen) -> list[str]:
    """I3: requests are held once every gateway is fenced, and no traffic moves meanwhile."""
    was, now, rollout = before.route, after.route, after.rollout
    if now is None or now.hold is None or rollout is None or (was and was.hold == now.hold):
        return []
    is_fenced = was is not None and was.hold is not None and was.hold.stage is Stage.FENCED
    is_early = now.hold.stage is Stage.HOLD and not (
        is_fenced and seen.all_know_route(before, rollout.service)
    )
    return [
        *(["I3: requests are held before every gateway is fenced"] if is_early else []),
        *(
            ["I3: traffic moves by the very write of a barrier"]
            if was is None or not has_same_traffic(was, now)
            else []
        ),
    ]


def _is_same_split(was: Route, now: Route) -> bool:
    """Whether traffic stays where it is: also when a candidate that has all of it is stable."""
    takes_over = was.weight == FULL_WEIGHT and now.stable == was.candidate and not now.candidate
    return has_same_traffic(was, now) or (takes_over and was.overrides == now.overrides)


def _hold_is_short(after: Written) -> list[str]:
    """I8: only a barrier of a rollout that shifts holds requests."""
    if after.route is None or after.route.hold is None:
        return []
    shifts = after.rollout is not None and after.rollout.phase is P.SHIFTING
    return [] if shifts else ["I8: requests are held, and nothing shifts"]

"""What must always hold (DESIGN section 9), as far as it can be told from state and history.

Each function returns the violations that it finds, each a sentence that begins with the
invariant's number, and nothing when all is well. They know nothing of how decisions are made: they
are the second opinion on the machine, in the simulator and in the fault tests.

Change none of them to make a test pass, unless DESIGN section 9 changed.
"""

from collections.abc import Iterable, Mapping

import msgspec

from vctl_plans.gate import Tally, acknowledgement, readiness
from vctl_plans.node import NodeReport
from vctl_plans.phase import NodePhase
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.plan import Plan
from vctl_plans.release import Release, release_digest
from vctl_plans.rollout import NAMED, Cause, Entry, Promotion, Rollout
from vctl_plans.route import Consistency, Route, Stage, has_same_traffic, override_of
from vctl_plans.share import FULL_WEIGHT


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """A service's rollout and route as one write left them."""

    rollout: Rollout | None = None
    route: Route | None = None
    route_revision: int = 0


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What a conductor rested its write on; an operator's write rests on no report."""

    roster: tuple[str, ...] = ()
    reports: Mapping[str, NodeReport] = {}
    gone: frozenset[str] = frozenset()
    plan: Plan | None = None  # whose gate is asked for; None: all nodes

    @property
    def counted(self) -> tuple[str, ...]:
        """The roster's nodes that have not vanished."""
        return tuple(node for node in self.roster if node not in self.gone)

    @property
    def everyone(self) -> tuple[str, ...]:
        """The roster, those of it that have vanished too, and whoever else is present."""
        return (*self.roster, *(node for node in self.reports if node not in self.roster))

    def knows_route(self, before: "Written", rollout: Rollout) -> Tally:
        """Return who of them acted on the route as it was, and of the nodes that joined since."""
        number = rollout.back_to or rollout.to_release
        joined = [node for node in self.reports if node not in self.roster]
        ready = readiness(joined, self.reports, rollout=rollout, number=number).done
        nodes = (*self.counted, *(ready if self.roster else ()))
        return acknowledgement(
            nodes, self.reports, service=rollout.service, revision=before.route_revision
        )

    def all_know_route(self, before: "Written", service: str) -> bool:
        """Whether every gateway that may be anywhere acted on the route as it was."""
        tally = acknowledgement(
            self.everyone, self.reports, service=service, revision=before.route_revision
        )
        return tally.is_complete

    def holds_ready(self, rollout: Rollout, number: int) -> bool:
        """Whether so many of them hold the release ready as the plan asks for."""
        tally = readiness(self.counted, self.reports, rollout=rollout, number=number)
        if self.plan is None:
            return tally.is_complete
        ready, refused = self.plan.ready, len(tally.refused)
        willing = len(self.counted) - refused
        least = ready.count if ready.percent is None else willing * ready.percent / FULL_WEIGHT
        is_enough = len(tally.done) >= max(1, least or 0)
        return is_enough and refused <= self.plan.max_failed


def check(before: Written, after: Written, seen: Seen | None = None) -> list[str]:
    """Return all that one write broke.

    Args:
        before: As it was read and compared.
        after: As it was written.
        seen: What the writer looked at.
    """
    looked = seen or Seen()
    return [
        *_route_holds(after.route),
        *_unload_is_free(after),
        *_end_is_told(after),
        *_unconfirmed_are_named(after, looked),
        *_guardrail_was_watching(before, after),
        *_revoked_only_grows(before.route, after.route),
        *_revoked_was_left(before, after),
        *_overrides_follow(before, after),
        *_decision_follows(before, after),
        *_ready_before_served(before, after, looked),
        *_acknowledged_before_unload(before, after, looked),
        *_acknowledged_before_the_next(before, after, looked),
        *_weight_only_grows(before, after),
        *_grows_only_when_ready(before, after, looked),
        *_steps_follow(before, after),
        *_strict_is_held(before, after, looked),
        *_barrier_is_in_order(before, after, looked),
        *_hold_is_short(after),
    ]


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


def _unload_is_free(after: Written) -> list[str]:
    """I4: the unload list never names what the route serves or keeps loaded."""
    rollout, route = after.rollout, after.route
    if rollout is None or route is None:
        return []
    needed = set(rollout.unload) & (route.serving | set(route.instant))
    return [f"I4: {sorted(needed)} may be unloaded and is routed or retained"] if needed else []


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
    if now.weight <= was.weight or not now.candidate:
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
        is_again = bool(grew) and then.has_moved and not is_behind
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

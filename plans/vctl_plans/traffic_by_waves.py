"""What must always hold of traffic and nodes while their base changes (DESIGN section 9, I5).

See `invariants`, which this belongs to: each function returns the violations that it finds.
"""

from vctl_plans.base import side
from vctl_plans.gate import readiness
from vctl_plans.rollout import Rollout
from vctl_plans.share import FULL_WEIGHT
from vctl_plans.written import Seen, Written


def moved_by_waves(before: Written, after: Written, seen: Seen) -> list[str]:
    """Return what one write broke of the invariants of a base that changes."""
    return [
        *_few_change_their_base(before, after, seen),
        *_traffic_follows_the_base(before, after, seen),
        *_some_node_holds_what_serves(before, after, seen),
    ]


def _few_change_their_base(before: Written, after: Written, seen: Seen) -> list[str]:
    """I5: no more nodes than may be missing change their base, or are missing.

    More only where they get no traffic; and only once every node acts on the route, whose traffic
    is what the others can carry. Groups that are held to a release of their own do not count where
    nodes exchange one adapter for another: theirs has a place beside those (`base.is_apart`).
    """
    then, now = before.rollout, after.rollout
    if then is None or now is None or then.id != now.id or not now.is_by_waves:
        return []
    if then.wave == now.wave or not seen.roster or after.route is None:
        return []
    sides = {node: (side(then, node), side(now, node)) for node in seen.roster}
    change = {node for node, (was, to) in sides.items() if was != to}
    missing = {n for n, (was, _) in sides.items() if not _is_ready(n, was, seen, then)}
    moved = after.route.default if now.exchanges else after.route.serving
    is_free = moved == {now.back_to}
    tally = seen.knows_route(before, then)
    return [
        *(
            [f"I5: {sorted(change | missing)} are without a base, and {now.wave_size} may be"]
            if len(change | missing) > now.wave_size and not is_free
            else []
        ),
        *(
            [f"I5: nodes change though {list(tally.missing)} do not report the route"]
            if not tally.is_complete
            else []
        ),
    ]


def _is_ready(node: str, number: int, seen: Seen, rollout: Rollout) -> bool:
    if node in seen.gone or node in seen.drained:
        return False
    return bool(readiness((node,), seen.reports, rollout=rollout, number=number).done)


def _traffic_follows_the_base(before: Written, after: Written, seen: Seen) -> list[str]:
    """I5: the weight of a release never exceeds the share of the nodes that hold its base."""
    was, now, rollout = before.route, after.route, after.rollout
    if was is None or now is None or rollout is None or not rollout.is_by_waves:
        return []
    if not now.candidate or (was.candidate, was.weight) == (now.candidate, now.weight):
        return []
    held = sum(_is_ready(node, now.candidate, seen, rollout) for node in seen.roster)
    most = FULL_WEIGHT * held / max(1, len(seen.roster) - rollout.wave_size)
    over = f"I5: {now.weight:g} % on release {now.candidate}, whose base {held} nodes hold"
    return [over] if now.weight > most + 1e-9 else []


def _some_node_holds_what_serves(before: Written, after: Written, seen: Seen) -> list[str]:
    """I5: by waves, no write puts traffic on a release that no node is to hold, or takes its last.

    An operator's write rests on no report, so it is held to who is to hold what.
    """
    then, now, route = before.rollout, after.rollout, after.route
    if then is None or now is None or route is None or not now.is_by_waves:
        return []
    if then.id != now.id or (then.wave == now.wave and before.route == route):
        return []
    if now.is_at_once:  # the plan allows that nothing serves while all nodes change
        return [] if now.exchanges else ["I5: all nodes change their base at once"]
    shares = {route.candidate: route.weight, route.stable: FULL_WEIGHT - route.weight}
    held = {side(then, node) for node in seen.roster} & {side(now, node) for node in seen.roster}
    idle = [n for n, weight in shares.items() if weight > 0 and seen.roster and n not in held]
    return [f"I5: release {n} gets traffic, and no node holds its base" for n in idle]

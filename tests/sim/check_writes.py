"""Checks of what is written: `vctl_plans.invariants`, and what only a whole world can tell.

What a decision counted is counted once more, on records, reports and engines themselves.
"""

from collections.abc import Iterator

import msgspec

from tests.builders import SERVICE
from tests.sim.conducting import Grounds
from tests.sim.facts import Wrote
from tests.sim.memory import RATES, Memory
from tests.sim.world import KEYS, World
from tests.sim.writing import Writing, writing_of
from vctl_plans import invariants
from vctl_plans.base import is_apart
from vctl_plans.fuse import Fuse
from vctl_plans.node import NodeReport, ReleaseReport
from vctl_plans.phase import NodePhase, RolloutPhase
from vctl_plans.plan import Plan
from vctl_plans.rollout import Cause, Progress, Rollout, Roster, elapsed_s
from vctl_plans.route import has_same_traffic
from vctl_plans.store.port import Put
from vctl_plans.written import Seen


def writes_hold(memory: Memory, fact: Wrote) -> Iterator[str]:
    """I3 to I6, I8, I10: what `invariants` says of each write, and of the history."""
    writing = writing_of(fact, memory.written)
    if writing is None:
        return
    world = memory.world
    for entry in writing.entries:
        memory.phases[entry.phase] = memory.phases.get(entry.phase, 0) + 1
        memory.history.setdefault(entry.rollout, []).append(entry)
        memory.reasons |= {entry.reason, entry.rollout}
    world.read()
    now = writing.after.rollout
    assert now
    world.note(f"{now.id} {now.phase}: {now.sentence}")
    yield from _fenced(world, fact)
    seen = None
    if fact.grounds:
        plan, grounds = _plan(world, now), fact.grounds
        seen = Seen(
            roster=_roster(world, now),
            reports=grounds.nodes.present(),
            gone=grounds.gone,
            plan=plan,
            drained=grounds.drained,
        )
        yield from _counted_again(grounds, writing, seen, plan)
        yield from _really_held(world, writing, seen)
    yield from invariants.check(writing.before, writing.after, seen)
    yield from invariants.history(memory.history[now.id], rollout=now)
    if writing.has_release:
        yield from invariants.releases(world.service.releases.values())
    yield from _soaked(memory, writing)
    yield from _revoked_what_it_left(writing)
    yield from _told(writing)
    yield from _judged_rightly(world, writing)
    _remember(memory, writing, fact)
    memory.written = writing.after


def fuse_holds(memory: Memory, fact: Wrote) -> Iterator[str]:
    """Never are more than a tenth of the nodes, and never the last, told to leave what serves."""
    for each in fact.txn.operations:
        if isinstance(each, Put) and each.key == KEYS.fuse(SERVICE):
            fuse = msgspec.json.decode(each.value, type=Fuse)
            memory.world.note(f"fuse: {', '.join(fuse.nodes)}")
            if len(fuse.nodes) > max(1, len(memory.world.nodes) // 10):
                yield f"fuse: {fuse.nodes} of {len(memory.world.nodes)} nodes may be quarantined"
            if fuse.nodes and len(memory.world.nodes) == 1:
                yield "fuse: the last node may be quarantined"


def _fenced(world: World, fact: Wrote) -> Iterator[str]:
    """I7: only the write of who is in office takes effect."""
    if fact.grounds is None:
        return
    found, grounds = world.etcd.cluster.get(KEYS.conductor), fact.grounds
    is_in_office = found and found.value == grounds.candidate.encode()
    if not found or not is_in_office or found.create_revision != grounds.fence:
        yield f"I7: {grounds.candidate} wrote, and is not in office"


def _plan(world: World, rollout: Rollout) -> Plan:
    found = world.etcd.cluster.get(KEYS.plan(rollout.plan))
    assert found
    return msgspec.json.decode(found.value, type=Plan)


def _roster(world: World, rollout: Rollout) -> tuple[str, ...]:
    found = world.etcd.cluster.get(KEYS.roster(rollout.roster))
    assert found
    return msgspec.json.decode(found.value, type=Roster).nodes


def _holders(world: World, rollout: Rollout, number: int) -> frozenset[str]:
    """Return the nodes of the roster whose word is that they hold the release, ready."""
    found = {}
    for name in _roster(world, rollout):
        entry = world.etcd.cluster.get(KEYS.report(name))
        if entry:
            found[name] = msgspec.json.decode(entry.value, type=NodeReport).release(SERVICE, number)
    return frozenset(n for n, told in found.items() if told and told.phase is NodePhase.READY)


def _counted_again(grounds: Grounds, writing: Writing, seen: Seen, plan: Plan) -> Iterator[str]:
    """I4, I5: count once more, on the records and reports themselves, what the decision counted."""
    now = writing.after.rollout
    assert now
    there = {
        name: grounds.nodes.reports[name]
        for name in seen.counted
        if name in grounds.nodes.records
        and name in grounds.nodes.reports
        and grounds.nodes.records[name].boot_id == grounds.nodes.reports[name].boot_id
    }
    is_counted = not writing.is_retained and not now.is_by_waves  # those have their own checks
    for number in sorted(writing.new_serving if is_counted else ()):
        lines = {name: _line(report, number, now) for name, report in there.items()}
        refused = [name for name, line in lines.items() if line and line.is_permanent]
        is_ready = {n for n, line in lines.items() if line and line.phase is NodePhase.READY}
        ready = [n for n in sorted(is_ready) if there[n].gateway_ok]
        refused = [name for name in refused if name not in seen.idle]
        spared = [name for name in seen.counted if name in seen.idle and name not in ready]
        needed = max(1, plan.ready.of(len(seen.counted) - len(spared)) - len(refused))
        if len(ready) < needed or len(refused) > plan.max_failed:
            yield f"I5: traffic moves to release {number}, which only {ready} report ready"
    if writing.new_unload:
        revision = writing.before.route_revision
        known = {n for n, r in there.items() if r.gateway_ok and _route_of(r) >= revision}
        if set(seen.counted) - known:
            yield f"I4: to be unloaded, and {set(seen.counted) - known} do not report the route"


def _line(report: NodeReport, number: int, rollout: Rollout) -> ReleaseReport | None:
    line = report.release(SERVICE, number)
    return line if line and line.attempt == (rollout.request or rollout.id) else None


def _route_of(report: NodeReport) -> int:
    return report.routes.get(SERVICE, 0)


def _really_held(world: World, writing: Writing, seen: Seen) -> Iterator[str]:
    """I5: a node that said ready really holds it, unless its engine was restarted since."""
    rollout = writing.after.rollout
    assert rollout
    if writing.is_retained:
        return
    for number in sorted(writing.new_serving):
        release = world.service.releases[number]
        for name in seen.counted:
            report, engine = seen.reports.get(name), world.nodes[name].engine
            line = _line(report, number, rollout) if report else None
            is_said = line is not None and line.phase is NodePhase.READY
            if report and is_said and engine.is_up and engine.incarnation == report.incarnation:
                held = engine.adapters.get(release.engine_name)
                if release.adapter and (held is None or not held.is_probed):
                    yield f"I5: traffic moves to release {number}, which {name} does not hold"


LANDS_S = 0.01
"""A soak begins for its conductor when it writes that, and here when the write has landed."""


def _soaked(memory: Memory, writing: Writing) -> Iterator[str]:
    """I3: whatever conductors and operators do, no step goes on before its soak is over."""
    world = memory.world
    before, after = writing.before.rollout, writing.after.rollout
    assert after
    is_same = before is not None and before.id == after.id
    if before and is_same and before.phase is RolloutPhase.SOAKING:
        memory.soaked_s += world.kernel.now - memory.soaking_since
        is_over = after.phase in {RolloutPhase.SHIFTING, RolloutPhase.SETTLING}
        is_over |= after.awaits_promote
        if is_over and not before.promoted and memory.soaked_s * RATES < before.soak_s - LANDS_S:
            yield f"I3: step {before.step + 1} soaked {memory.soaked_s:g} of {before.soak_s:g}"
        is_manual = _plan(world, before).steps[before.step].manual
        is_left = after.phase in {RolloutPhase.SHIFTING, RolloutPhase.SETTLING}
        if is_manual and is_left and not before.promoted:
            yield f"I3: nobody promoted step {before.step + 1}"
        if after.phase is RolloutPhase.SOAKING and after.soaked_s < before.soaked_s:
            yield "I3: a soak was begun anew"
        known_s = before.soaked_s + (
            elapsed_s(progress(world), before) if writing.by_conductor else 0
        )
        if after.phase is RolloutPhase.PAUSED and after.soaked_s < known_s - 1e-6:
            yield f"I3: a pause kept {after.soaked_s} of {known_s}"
    if after.phase is RolloutPhase.SOAKING:
        memory.soaking_since = world.kernel.now
        if before is None or before.phase is RolloutPhase.SHIFTING:
            memory.soaked_s = 0.0


def _told(writing: Writing) -> Iterator[str]:
    """I10: each write of a route has an entry in the history, also an operator's own."""
    if writing.before.route != writing.after.route and not writing.entries:
        yield "I10: a route was written, and nothing tells why"


def _revoked_what_it_left(writing: Writing) -> Iterator[str]:
    """I6: a rollback that an operator asked revokes each release that it takes traffic from."""
    rollout, route, was = writing.after.rollout, writing.after.route, writing.before.route
    if not (rollout and route and was) or route == was:
        return
    fresh = set(route.revoked) - set(was.revoked)
    if fresh and rollout.cause in {Cause.ABORTED, Cause.OVERRIDE}:
        yield f"I6: {sorted(fresh)} is revoked, and nobody asked for a rollback"
    if rollout.cause is not Cause.ASKED:
        return
    kept = was.serving - route.serving - set(route.revoked) - {rollout.back_to}
    if kept and rollout.phase is RolloutPhase.ROLLING_BACK:
        yield f"I6: a rollback left {sorted(kept)}, and did not revoke it"


def _judged_rightly(world: World, writing: Writing) -> Iterator[str]:
    """I6: guardrails take traffic back only from a release that did fail."""
    then, now = writing.before.rollout, writing.after.rollout
    was = then.cause if then else None
    if now is None or now.cause is not Cause.GUARDRAIL or was is Cause.GUARDRAIL:
        return
    world.count_move("Breached", RolloutPhase.SOAKING)
    failed_probes = world.have_erred and "probes: failed" in now.sentence
    if now.to_release not in world.ever_bad and not failed_probes:
        yield f"I6: a guardrail took traffic from release {now.to_release}, which is sound"


def progress(world: World) -> Progress | None:
    """Return how far the store says that the present phase is."""
    found = world.etcd.cluster.get(KEYS.progress(SERVICE))
    return msgspec.json.decode(found.value, type=Progress) if found else None


def _remember_places(memory: Memory, rollout: Rollout) -> None:
    """Note since when a node may unload a release whose place another one has there."""
    world, apart = memory.world, memory.apart_at
    numbers = {rollout.from_release, rollout.to_release, rollout.back_to} - {0}
    for name in world.nodes:
        for number in numbers:
            if not is_apart(world.service, number, name):
                _called_back(memory, (name, number))
            elif (name, number) not in apart:
                apart[name, number] = (world.kernel.now, rollout.drain_s)
    for key in [key for key in apart if key[1] not in numbers]:
        _called_back(memory, key)


def _called_back(memory: Memory, key: tuple[str, int]) -> None:
    """Note that a node is to hold a release again: an unload that has begun may still end."""
    times = memory.apart_at.pop(key, None)
    if times:
        memory.was_apart[key] = (*times, memory.world.kernel.now)


def _remember_listed(memory: Memory, was: Rollout | None, rollout: Rollout) -> None:
    """Note since when each release may be unloaded, and since when no more."""
    now = memory.world.kernel.now
    before = set(was.unload) if was else set()
    for number in rollout.unload:
        times = memory.listed_at.setdefault(number, [])
        if number not in before or not times:
            times.append((now, rollout.drain_s))
    for number in before - set(rollout.unload):
        memory.unlisted_at[number] = now


def _remember(memory: Memory, writing: Writing, fact: Wrote) -> None:
    world = memory.world
    rollout, route, before = writing.after.rollout, writing.after.route, writing.before.route
    assert rollout
    _remember_listed(memory, writing.before.rollout, rollout)
    _remember_places(memory, rollout)
    if route is None or route == before:
        return
    is_forward = before and before.hold and not route.hold and not rollout.back_to
    if before and is_forward and not has_same_traffic(before, route):
        memory.strict.add(writing.after.route_revision)
    for number in writing.new_serving | set(route.instant):
        if number not in memory.holders or number in writing.new_serving:
            memory.holders[number] = _holders(world, rollout, number)
    gone = set(memory.holders) - route.serving - set(route.instant)
    for number in gone:
        del memory.holders[number]
    for number in set(route.revoked) - set(before.revoked if before else ()):
        memory.revoked_at[number] = writing.after.route_revision
    _, ranks = memory.ranks.get(writing.before.route_revision, (0, {}))
    ranks = dict(ranks)
    memory.era += bool(rollout.back_to)
    for number in sorted(writing.brought):
        ranks[number] = max(ranks.values(), default=0) + 1
    memory.ranks[writing.after.route_revision] = (memory.era, ranks)

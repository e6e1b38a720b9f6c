"""Checks of requests, gateways and engines: who got what, from where, and what was under them."""

import math
from collections.abc import Iterator
from typing import Any

import msgspec

from tests.sim.engine import BASE
from tests.sim.facts import (
    Acked,
    Answered,
    Asks,
    HandedOver,
    Loads,
    LostContact,
    Removes,
    Takes,
    Unloads,
)
from tests.sim.memory import RATES, Last, Memory
from tests.sim.world import KEYS
from vctl_plans.base import is_apart
from vctl_plans.groups import Group, Groups
from vctl_plans.inspection import DrainPhase, drain_id
from vctl_plans.node import NodeReport
from vctl_plans.route import Consistency
from vctl_plans.share import FULL_WEIGHT


def handed_over_to_the_ready(memory: Memory, fact: HandedOver) -> Iterator[str]:
    """I2, I5, I6: the engine gets a request only for what it holds, and nothing revoked."""
    world, gateway = memory.world, fact.gateway
    release = world.service.releases.get(fact.release)
    if release is None:  # of before a backup was restored
        return
    if fact.target.model != (release.engine_name or BASE):
        yield f"I2: {gateway.name} asks for {fact.target.model} to serve release {fact.release}"
    revoked_at = memory.revoked_at.get(fact.release)
    if revoked_at is not None and fact.at.revision >= revoked_at:
        yield f"I6: {gateway.name} serves release {fact.release}, revoked at {revoked_at}"
    if fact.at.revision < memory.acked.get(gateway.name, 0):
        yield f"I6: {gateway.name} acts on route {fact.at.revision}, and had a newer one"
    if fact.at.revision < memory.switched:
        yield f"I3: {gateway.name} decides by {fact.at.revision}, and all had switched"
    if fact.at.revision in memory.strict:
        memory.switched = max(memory.switched, fact.at.revision)
    root = release.adapter.root if release.adapter else ""
    parts = (fact.target.weights_root, root)
    if memory.salts.setdefault(fact.target.salt, parts) != parts:
        yield f"I2: releases {fact.release} and another share the cache salt {fact.target.salt}"
    engine = world.nodes[gateway.name].engine
    held = engine.adapters.get(fact.target.model) if engine.is_up else None
    # A gateway that cannot hear that its engine was restarted goes on with what it heard last.
    is_known = world.nodes[gateway.name].is_deaf and fact.target.model in engine.proven
    if held and not held.is_probed and not is_known:
        yield f"I5: {gateway.name} hands a request to release {fact.release}, not probed yet"
    disk = world.nodes[gateway.name].disk
    if release.for_application and fact.release not in disk.handed:
        yield f"I5: {gateway.name} serves release {fact.release} without its prompt"


def drained_takes_nothing(memory: Memory, fact: HandedOver) -> Iterator[str]:
    """A node that says it is drained gets no request, for as long as an operator wants that.

    A report that a restored backup brought back is no word of now: the drain may have ended since.
    """
    cluster, name = memory.world.etcd.cluster, fact.gateway.name
    said, asked = cluster.get(KEYS.report(name)), cluster.get(KEYS.request(drain_id(name)))
    if said is None or asked is None or said.mod_revision <= memory.world.restored_at:
        return
    report = msgspec.json.decode(said.value, type=NodeReport)
    if report.drain and report.drain.phase is DrainPhase.DRAINED:
        yield f"drain: {name} is drained, and gets a request for release {fact.release}"


def groups_get_theirs(memory: Memory, fact: HandedOver) -> Iterator[str]:
    """I2: who is in a group gets its release, and nobody else does."""
    route, session, serving = fact.at.route, fact.session, fact.at.route.default
    if fact.asked:
        return
    for override in route.overrides:
        found = memory.world.etcd.cluster.get(KEYS.groups(override.group))
        if found is None:
            return  # of before a backup was restored
        groups = msgspec.json.decode(found.value, type=Groups).groups
        if any(_is_surely_in(group, session) for group in groups):
            if fact.release != override.release:
                yield f"I2: {session.name} is in {groups[0].name}, and gets release {fact.release}"
            return
        if any(group.percent < FULL_WEIGHT for group in groups):
            serving |= {override.release}
    if fact.release not in serving:
        yield f"I2: {session.name} is in no group, and gets release {fact.release} of one"


def _is_surely_in(group: Group, session: Any) -> bool:
    is_named = not group.users or session.user in group.users
    is_theirs = not group.tenant or session.tenant == group.tenant
    return is_named and is_theirs and not group.header and group.percent >= FULL_WEIGHT


def answered_as_chosen(memory: Memory, fact: Answered) -> Iterator[str]:
    """I2, I3: the bytes are those of the release that was chosen, and sessions go only forward."""
    world, name = memory.world, fact.session.name
    release = world.service.releases.get(fact.release)
    if release is None:
        return
    disk, adapter = world.nodes[fact.gateway.name].disk, release.adapter
    if fact.path != (disk.path(adapter.root) if adapter else BASE):
        yield f"I2: release {fact.release} was answered from {fact.path}"
    revision = fact.at.revision
    era, ranks = memory.ranks.get(revision, (-1, {}))
    if fact.asked not in {0, fact.release}:
        yield f"I2: release {fact.asked} was asked for, and {fact.release} answered"
    if fact.asked or era < 0:
        return
    if fact.at.route.consistency is Consistency.EVENTUAL:
        memory.answered.pop(name, None)
        return
    before = memory.answered.get(name)
    is_later = before is not None and before.era == era and before.revision <= revision
    if (
        before
        and is_later
        and before.rank > ranks.get(fact.release, 0)
        and (before.release != fact.release)
    ):
        yield f"I3: {name} had release {before.release}, and gets {fact.release} again"
    if before is None or before.revision <= revision:
        rank = ranks.get(fact.release, 0)
        memory.answered[name] = Last(revision, era, fact.release, rank)


def acked_for_good(memory: Memory, fact: Acked) -> Iterator[str]:
    """I6: a gateway that said that it acts on a route acts on no older one, whatever happens."""
    acked, name = memory.acked, fact.gateway.name
    if fact.revision < acked.get(name, 0):
        yield f"I6: {name} had said route {acked[name]}, and says {fact.revision}"
    acked[name] = max(fact.revision, acked.get(name, 0))


def serves_without_the_store(_memory: Memory, fact: LostContact) -> Iterator[str]:
    """I9: with the store away, a gateway decides by what it knew."""
    acted = fact.gateway.live.acted
    if (acted.known, acted.agent) != (fact.before.known, fact.before.agent):
        yield f"I9: {fact.gateway.name} lost the store, and what it knew with it"


# -- engines -------------------------------------------------------------------------------------


def only_verified_bytes(_memory: Memory, fact: Loads) -> Iterator[str]:
    """I1: an engine gets only what lies verified on its node's disk."""
    disk = fact.node.disk
    if fact.path not in {disk.path(root) for root in disk.staged}:
        yield f"I1: {fact.node.name} loads {fact.path}, which was not verified"


def places_are_enough(_memory: Memory, fact: Asks | Loads) -> Iterator[str]:
    """I4: an engine is never asked for more than it has places for: it would drop what serves."""
    engine = fact.node.engine
    if fact.name not in engine.adapters and len(engine.adapters) >= engine.places:
        held = sorted(engine.adapters)
        yield f"I4: {fact.node.name} loads {fact.name}, and its {engine.places} places hold {held}"


def drained_before_unloaded(memory: Memory, fact: Unloads) -> Iterator[str]:
    """I4: only what may be is unloaded, and not under a request before the drain deadline.

    What nobody knows any more, since a backup was restored, goes under no request at all.
    """
    world = memory.world
    numbers = [r.number for r in world.service.releases.values() if r.engine_name == fact.name]
    if numbers:
        yield from _drained(memory, fact, numbers, asked_at=fact.asked_at)
    elif not world.was_restored:
        yield f"I4: {fact.node.name} unloads {fact.name}, which no release names"
    elif fact.requests:
        yield f"I4: {fact.node.name} unloads {fact.name} under {fact.requests} requests"


def drained_before_taken(memory: Memory, fact: Takes) -> Iterator[str]:
    """I4: nor is a prompt taken under a request that is answered with it."""
    if fact.number in memory.world.service.releases:
        yield from _drained(memory, fact, [fact.number], asked_at=memory.world.kernel.now)


def removed_when_nothing_reads_it(memory: Memory, fact: Removes) -> Iterator[str]:
    """I4: no directory goes that a run of the engine was given, or that the application has."""
    disk, engine = fact.node.disk, fact.node.engine
    path = disk.path(fact.root)
    if engine.is_up and path in engine.given:
        yield f"I4: {fact.node.name} removes {path}, which this run of its engine was given"
    releases = memory.world.service.releases
    for number in disk.handed & releases.keys():
        if fact.root in {made.root for made in releases[number].for_application.values()}:
            yield f"I4: {fact.node.name} removes {path}, and the application has {number}"


def _apart(memory: Memory, node: str, number: int, asked_at: float) -> tuple[float, float] | None:
    """Return since when a node may unload a release for another one's place, if it may.

    Or was asked to before it was called back: what an engine was asked for is not taken back.
    """
    now = memory.apart_at.get((node, number))
    if now:
        return now
    world = memory.world
    if world.was_restored and is_apart(world.service, number, node):
        return (0.0, 0.0)  # as the backup has it, which nobody has written since
    since, drain_s, until = memory.was_apart.get((node, number), (0.0, 0.0, -math.inf))
    return (since, drain_s) if asked_at <= until else None


def _drained(
    memory: Memory, fact: Unloads | Takes, numbers: list[int], *, asked_at: float
) -> Iterator[str]:
    world, node, requests = memory.world, fact.node, fact.requests
    times_apart = {n: times for n in numbers if (times := _apart(memory, node.name, n, asked_at))}
    apart = list(times_apart)
    listed = [times for n in numbers for times in memory.listed_at.get(n, ())]
    listed += times_apart.values()
    if not listed:
        yield f"I4: {node.name} unloads {numbers}, which nothing has listed"
    now = world.kernel.now
    if requests and not any((now - at) * RATES >= drain_s for at, drain_s in listed):
        yield f"I4: {node.name} unloads {numbers} under {requests} requests"
    route = world.service.route
    needed = set(numbers) & (route.serving | set(route.instant) if route else set())
    held_here = {n for n in needed if node.name in memory.holders.get(n, ())} - set(apart)
    # What an engine was asked for is not taken back when the release is called back meanwhile.
    asked = {n for n in held_here if asked_at <= memory.unlisted_at.get(n, -math.inf)}
    if held_here - asked:
        yield f"I4: {node.name} unloads {sorted(held_here)}, which is routed or retained"

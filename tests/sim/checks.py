"""What must always hold (DESIGN section 9), checked on every fact that an event leaves behind.

`vctl_plans.invariants` judges writes. The rest can be told only of a whole world: what really was
in an engine, what a gateway had said before, which conductor was in office. None of it uses the
code that decided. To add a check, write a function and list it in `CHECKS`.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from tests.builders import SERVICE
from tests.sim.check_serving import (
    acked_for_good,
    answered_as_chosen,
    drained_before_taken,
    drained_before_unloaded,
    drained_takes_nothing,
    groups_get_theirs,
    handed_over_to_the_ready,
    only_verified_bytes,
    places_are_enough,
    removed_when_nothing_reads_it,
    serves_without_the_store,
)
from tests.sim.check_writes import fuse_holds, progress, writes_hold
from tests.sim.facts import (
    Acked,
    Answered,
    Asks,
    Fact,
    HandedOver,
    Loads,
    LostContact,
    Removes,
    Takes,
    Unloads,
    Wrote,
)
from tests.sim.memory import Memory
from tests.sim.world import KEYS, Broken, World
from vctl_plans.rollout import Entry, elapsed_s
from vctl_plans.written import Written


class Checks:
    """Judges facts."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.memory = Memory(world)
        self.begin()

    def begin(self) -> None:
        """Take the store as it is for what was so before; as after a backup was accepted."""
        world, old = self.world, self.memory
        self.memory = memory = Memory(world)
        memory.phases, memory.reasons = old.phases, old.reasons
        service = world.service
        memory.written = Written(
            rollout=service.rollout, route=service.route, route_revision=service.route_revision
        )
        rollout = service.rollout
        for number in rollout.unload if rollout else ():
            memory.listed_at[number] = [(world.kernel.now, rollout.drain_s if rollout else 0.0)]
        if rollout:
            memory.soaked_s = rollout.soaked_s + elapsed_s(progress(world), rollout)
        memory.soaking_since = world.kernel.now
        if service.route:
            route = service.route
            memory.revoked_at = dict.fromkeys(route.revoked, service.route_revision)
            ranks = {n: rank for rank, n in enumerate(route.good)} | {route.stable: 100}
            memory.ranks[service.route_revision] = (0, ranks | {route.candidate: 101})
        for key, entry in world.etcd.cluster._entries.items():
            if key.startswith(KEYS.history(SERVICE)) and not key.endswith("/end"):
                read = msgspec.json.decode(entry.value, type=Entry)
                memory.history.setdefault(read.rollout, []).append(read)

    def judge(self) -> None:
        """Judge what one event left.

        Raises:
            Broken: Something does not hold.
        """
        facts = self.world.facts
        if not facts:
            return
        for fact in facts:
            for check in CHECKS[type(fact)]:
                for wrong in check(self.memory, fact):
                    raise Broken(wrong)
        facts.clear()


Check = Callable[[Memory, Any], Iterator[str]]

CHECKS: dict[type[Fact], list[Check]] = {
    Wrote: [fuse_holds, writes_hold],
    HandedOver: [handed_over_to_the_ready, groups_get_theirs, drained_takes_nothing],
    Answered: [answered_as_chosen],
    Acked: [acked_for_good],
    LostContact: [serves_without_the_store],
    Asks: [places_are_enough],
    Loads: [only_verified_bytes, places_are_enough],
    Unloads: [drained_before_unloaded],
    Takes: [drained_before_taken],
    Removes: [removed_when_nothing_reads_it],
}
"""What is asked of each kind of fact."""

"""Simulated nodes: each with an agent that sees late, an engine, a gateway, and a mood.

The agent judges by `node_machine.assess`, as the real one does; everything that the real one reads
anew (its engine, its gateway, its last reading of the store) is a field here.
"""

from random import Random

import msgspec

from tests.builders import SERVICE
from tests.sim.world import Broken, World
from vctl_plans.node import NodeReport, ReleaseReport
from vctl_plans.node_machine import Action, Facts, Failure, Verdict, assess
from vctl_plans.phase import NodePhase
from vctl_plans.rollout import wanted
from vctl_plans.snapshot import Service


class Mood(msgspec.Struct):
    """How a node behaves while faults are on."""

    works: float = 0.8  # how likely a try does something
    refuses: float = 0.0  # how likely a load is refused for good
    is_deaf: bool = False  # its gateway gets no routes


class Node:
    """One node."""

    def __init__(self, world: World, name: str, mood: Mood) -> None:
        self.world, self.name, self.mood = world, name, mood
        self.is_alive = True
        self.boots = 0
        self.view = Service(name=SERVICE)  # the agent's
        self.route_revision = 0  # the gateway's
        self.staged: set[int] = set()
        self.loaded: set[int] = set()
        self.probed: set[int] = set()
        self.offered: set[int] = set()
        self.in_flight: dict[int, int] = {}
        self.draining: dict[int, float] = {}
        self.failures: dict[int, tuple[str, Failure]] = {}
        self.boot()

    @property
    def boot_id(self) -> str:
        """This run of the agent."""
        return f"{self.name}-{self.boots}"

    def boot(self) -> None:
        """Start the agent; engine, gateway and disk are as they were."""
        self.is_alive = True
        self.boots += 1
        self.failures, self.draining = {}, {}
        self.world.boots[self.name] = self.boot_id

    def vanish(self) -> None:
        """Kill the agent; its record goes with its lease, its last report stays."""
        self.is_alive = False
        self.world.boots.pop(self.name, None)

    def restart_engine(self) -> None:
        """Have the engine forget everything."""
        self.loaded, self.probed, self.in_flight = set(), set(), {}

    def look(self, random: Random, *, is_late: bool) -> None:
        """See the store as it is, or as it was a little ago; never older than seen before."""
        views = [
            s for s in self.world.past[-4:] if s.rollout_revision >= self.view.rollout_revision
        ]
        self.view = random.choice(views) if is_late and views else self.world.service

    def hear_route(self) -> None:
        """Have the gateway get the newest route; requests in flight are for what it serves."""
        if self.mood.is_deaf:
            return
        self.route_revision = self.world.service.route_revision
        serving = self.world.route.serving
        self.in_flight = {n: c for n, c in self.in_flight.items() if n not in serving and c}
        self.in_flight |= dict.fromkeys(serving & self.offered, 1)

    def answer(self) -> None:
        """Have what is in flight end, but for what the gateway still gets requests for."""
        self.in_flight = {
            n: c for n, c in self.in_flight.items() if n in self.world.route.serving and c
        }

    def work(self, random: Random) -> None:
        """Judge every release, and do what comes first for each."""
        verdicts = {n: assess(self._facts(n)) for n in self._of_interest()}
        for number, verdict in verdicts.items():
            if random.random() < self.mood.works:
                self._do(number, verdict.action, random)
        self.offered = {
            n for n in self._of_interest() if assess(self._facts(n)).phase is NodePhase.READY
        }

    def _of_interest(self) -> list[int]:
        needed = wanted(self.view.route, self.view.rollout)
        listed = self.view.rollout.unload if self.view.rollout else ()
        return sorted(needed | set(listed) | self.loaded)

    def _facts(self, number: int) -> Facts:
        rollout = self.view.rollout
        needed = wanted(self.view.route, rollout)
        may_unload = bool(rollout and number in rollout.unload) and number not in needed
        if may_unload:
            self.draining.setdefault(number, self.world.now)
        else:
            self.draining.pop(number, None)
        seen, failure = self.failures.get(number, ("", None))
        return Facts(
            is_wanted=number in needed,
            may_unload=may_unload,
            is_staged=number in self.staged,
            is_resident=number in self.loaded,
            is_probed=number in self.probed,
            is_offered=number in self.offered,
            in_flight=self.in_flight.get(number, 0),
            draining_s=self.world.now - self.draining.get(number, self.world.now),
            drain_limit_s=rollout.drain_s if rollout else 0.0,
            failure=failure if rollout and seen == rollout.attempt else None,
        )

    def _do(self, number: int, action: Action, random: Random) -> None:
        if action is Action.STAGE:
            self.staged.add(number)
        elif action is Action.LOAD and random.random() < self.mood.refuses:
            self._fail(number, NodePhase.FAILED, "refused by the engine")
        elif action is Action.LOAD:
            self.loaded.add(number)
        elif action is Action.PROBE and random.random() < self.mood.refuses:
            self._fail(number, NodePhase.QUARANTINED, "failed its probe")
        elif action is Action.PROBE:
            self.probed.add(number)
        elif action is Action.UNLOAD:
            self._unload(number)

    def _fail(self, number: int, phase: NodePhase, reason: str) -> None:
        rollout = self.view.rollout
        failure = Failure(phase, reason, is_permanent=True)
        self.failures[number] = (rollout.attempt if rollout else "", failure)

    def _unload(self, number: int) -> None:
        """Unload, unless that breaks what must hold: a counted node never drops what is served."""
        world = self.world
        needed = world.route.serving | set(world.route.instant)
        is_counted = world.rollout and self.name in world.rosters[world.rollout.roster]
        if is_counted and number in needed:
            raise Broken(f"I4: {self.name} unloads {number}, which is routed or retained")
        self.loaded.discard(number)
        self.probed.discard(number)

    def publish(self) -> None:
        """Put the report of what is so now."""
        rollout = self.view.rollout
        seen = rollout.attempt if rollout else ""
        lines = [(n, assess(self._facts(n))) for n in self._of_interest()]
        self.world.reports[self.name] = NodeReport(
            node=self.name,
            boot_id=self.boot_id,
            incarnation="i",
            releases=tuple(
                _line(n, v, seen) for n, v in lines if v.phase is not NodePhase.UNLOADED
            ),
            routes={SERVICE: self.route_revision},
            gateway_ok=True,
        )


def _line(number: int, verdict: Verdict, seen: str) -> ReleaseReport:
    return ReleaseReport(
        service=SERVICE,
        number=number,
        digest="",
        phase=verdict.phase,
        attempt=seen,
        reason=verdict.reason,
        is_permanent=verdict.is_permanent,
    )

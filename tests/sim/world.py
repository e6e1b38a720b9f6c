"""The simulated store: one service's keys, compare-and-set, invariants after every write."""

from random import Random
from typing import TypeVar

import msgspec

from tests.builders import SERVICE
from vctl_plans import invariants
from vctl_plans.codec import decode, encode
from vctl_plans.decision import State
from vctl_plans.invariants import Seen, Written
from vctl_plans.node import NodeReport
from vctl_plans.operate import Begin, Continue
from vctl_plans.phase import RolloutPhase
from vctl_plans.plan import Plan
from vctl_plans.release import Release
from vctl_plans.rollout import Entry, Progress, Rollout, elapsed_s
from vctl_plans.route import Route
from vctl_plans.snapshot import Service

T = TypeVar("T", bound=msgspec.Struct)


class Broken(AssertionError):  # noqa: N818  it says what is broken
    """An invariant does not hold."""


class World:
    """What etcd holds, and the time that passes."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.now = 0.0
        self.revision = 1
        self.service = Service(name=SERVICE)
        self.past = [self.service]  # readings that somebody may still act on
        self.plans: dict[str, Plan] = {}
        self.rosters: dict[str, tuple[str, ...]] = {}
        self.reports: dict[str, NodeReport] = {}  # as published; of dead nodes as well
        self.boots: dict[str, str] = {}  # node -> boot id, of nodes that are present
        self.history: dict[str, list[Entry]] = {}
        self.progress: Progress | None = None
        self.fence = 0
        self.soaked_s = 0.0  # that the present step has soaked, told by the one clock that is true
        self.soaking_since = 0.0
        self.log: list[str] = []

    @property
    def rollout(self) -> Rollout | None:
        """The rollout as it stands."""
        return self.service.rollout

    @property
    def route(self) -> Route:
        """The route as it stands."""
        return self.service.current_route

    def note(self, line: str) -> None:
        """Keep a line to print on failure."""
        self.log.append(f"{self.now:7.1f} {line}")

    def present(self) -> dict[str, NodeReport]:
        """Return the reports that count."""
        return {n: r for n, r in self.reports.items() if self.boots.get(n) == r.boot_id}

    def state(self, service: Service) -> State:
        """Return what a conductor decides on."""
        assert service.rollout is not None
        return State(
            plan=self.plans[service.rollout.plan],
            rollout=service.rollout,
            route=service.current_route,
            route_revision=service.route_revision,
            roster=self.rosters[service.rollout.roster],
        )

    def commit(
        self,
        read: Service,
        decision: Begin | Continue,
        *,
        fence: int | None = None,
        seen: Seen | None = None,
    ) -> bool:
        """Write a decision if nothing that it rests on has changed; check what must hold."""
        now = self.service
        is_as_read = (read.rollout_revision, read.route_revision) == (
            now.rollout_revision,
            now.route_revision,
        )
        if not is_as_read or (fence is not None and fence != self.fence):
            self.note(f"conflict: {decision.rollout.sentence}")
            return False
        self.note(f"{decision.rollout.id} {decision.rollout.phase}: {decision.rollout.sentence}")
        self._write(decision, seen)
        return True

    def _write(self, decision: Begin | Continue, seen: Seen | None) -> None:
        before = self.service
        self.revision += 1
        changes: dict[str, object] = {
            "rollout": _stored(decision.rollout, Rollout),
            "rollout_revision": self.revision,
        }
        if decision.route:
            changes |= {
                "route": _stored(decision.route, Route),
                "route_revision": self.revision,
            }
        if isinstance(decision, Begin):
            changes |= self._begin(decision)
        self.service = msgspec.structs.replace(before, **changes)
        self.past.append(self.service)
        self._remember(decision.rollout)
        self._check(before, seen)
        self._check_soak(before.rollout, self.service.rollout)

    def _begin(self, begin: Begin) -> dict[str, object]:
        self.plans[begin.plan.digest] = begin.plan
        self.rosters[begin.roster.digest] = begin.roster.nodes
        if begin.rollout.id in self.history:
            raise Broken(f"rollout {begin.rollout.id} began twice")
        if not begin.release:
            return {}
        if begin.release.number in self.service.releases:
            raise Broken(f"release {begin.release.number} was written twice")
        return {"releases": self.service.releases | {begin.release.number: begin.release}}

    def _remember(self, rollout: Rollout) -> None:
        entry = Entry(
            rollout=rollout.id, seq=rollout.seq, phase=rollout.phase, sentence=rollout.sentence
        )
        self.history.setdefault(rollout.id, []).append(entry)

    def _check(self, before: Service, seen: Seen | None) -> None:
        assert self.rollout is not None
        wrong = [
            *invariants.check(_written(before), _written(self.service), seen),
            *invariants.history(self.history[self.rollout.id], rollout=self.rollout),
            *invariants.releases(self.service.releases.values()),
        ]
        if wrong:
            raise Broken("; ".join(wrong))

    def _check_soak(self, before: Rollout | None, after: Rollout | None) -> None:
        """I3: whatever conductors and operators do, no step goes on before its soak is over."""
        if before and after and before.phase is RolloutPhase.SOAKING and before.id == after.id:
            self.soaked_s += self.now - self.soaking_since
            step = self.plans[before.plan].steps[before.step]
            wanted_s = step.soak_s
            is_over = after.phase in {RolloutPhase.SHIFTING, RolloutPhase.SETTLING}
            if is_over and step.manual and not before.promoted:
                raise Broken(f"I3: nobody promoted step {before.step + 1}")
            is_over |= after.awaits_promote
            if is_over and not before.promoted and self.soaked_s < wanted_s - 1e-6:
                raise Broken(f"I3: step {before.step + 1} soaked {self.soaked_s} of {wanted_s}")
            known_s = before.soaked_s + elapsed_s(self.progress, before)
            if after.phase is RolloutPhase.PAUSED and after.soaked_s < known_s - 1e-6:
                raise Broken(f"I3: a pause kept {after.soaked_s} of {known_s}")
            if after.phase is RolloutPhase.SOAKING and after.soaked_s < before.soaked_s:
                raise Broken("I3: a soak was begun anew")
        if after and after.phase is RolloutPhase.SOAKING:
            self.soaking_since = self.now
            if before is None or before.phase is RolloutPhase.SHIFTING:
                self.soaked_s = 0.0

    def add_release(self, release: Release) -> None:
        """Write a release that no rollout brings yet."""
        self.service = msgspec.structs.replace(
            self.service, releases=self.service.releases | {release.number: release}
        )


def _written(service: Service) -> Written:
    return Written(
        rollout=service.rollout, route=service.route, route_revision=service.route_revision
    )


def _stored(value: msgspec.Struct, kind: type[T]) -> T:
    """Return the value as whoever reads it next gets it."""
    return decode(encode(value), kind)

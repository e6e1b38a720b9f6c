"""A rollout told from outside: nodes that obey, an operator, a conductor; what was said, in order.

Every decision is stored as etcd would store it and read again before the next one, so a story also
shows that nothing lives in memory alone. With `dies_at`, the conductor dies at its decision of that
number, once before it is written and once after, and another goes on from what is stored.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from tests.builders import NODES, SERVICE, a_plan, an_adapter_wish
from vctl_plans import basing, invariants, operate, reverting, steering
from vctl_plans.base import Surroundings, base_root, base_wanted, has_place, is_apart
from vctl_plans.capability import EngineFacts
from vctl_plans.capacity import adapters, room
from vctl_plans.codec import decode, encode
from vctl_plans.decision import Decision, State
from vctl_plans.events import (
    AbortAsked,
    Event,
    Observed,
    PauseAsked,
    PromoteAsked,
    ResumeAsked,
    Steer,
    TakenOver,
)
from vctl_plans.groups import Group, Groups
from vctl_plans.invariants import Seen
from vctl_plans.machine import step
from vctl_plans.node import NodeRecord, NodeReport, ReleaseReport
from vctl_plans.operate import AlreadyDone, Attach, Begin, Continue, Request
from vctl_plans.phase import Component, NodePhase, RolloutPhase
from vctl_plans.plan import Plan, PlanStep
from vctl_plans.release import Actor, Artifact
from vctl_plans.rollout import Entry, Rollout, wanted
from vctl_plans.route import Route, override_of
from vctl_plans.snapshot import Service
from vctl_plans.verdict import Outcome, Verdict
from vctl_plans.watching import Watching

Wish = Mapping[Component, Artifact] | int

GROUPS = Groups(groups=(Group(name="acme", tenant="acme"),))
STAFF = Groups(groups=(Group(name="staff", users=("ann", "bo")),))


def a_group_plan(groups: Groups = GROUPS, *, soak_s: float = 60.0, **more: Any) -> Plan:
    """Return a user-group plan with short deadlines."""
    steps = (PlanStep(soak_s=soak_s),)
    return a_plan(strategy="user-group", steps=steps, groups=groups.digest, **more)


PASSED = Verdict(Outcome.PASSED, "error ratio 1.0")
FAILED = Verdict(Outcome.FAILED, "error ratio 9.0")
UNSURE = Verdict(Outcome.INCONCLUSIVE, "3 requests are fewer than 200")


class Story:
    """One service on nodes a, b and c, or others.

    Nodes hold one base at a time, as engines do.
    """

    def __init__(
        self, *, dies_at: int = -1, nodes: tuple[str, ...] = NODES, places: int = 0
    ) -> None:
        self.service = Service(name=SERVICE)
        self.places = places  # for adapters in each engine; 0: they do not tell, and hold any
        if places:
            self._tell_places(nodes)
        self.bases = dict.fromkeys(nodes, "")  # root of the base that each node holds
        self.plans: dict[str, Plan] = {}
        self.rosters: dict[str, tuple[str, ...]] = {}
        self.said: list[str] = []
        self.history: list[Entry] = []
        self.nodes = list(nodes)
        self.refuses: dict[str, str] = {}  # node -> why it refuses whatever is new
        self.deaf: set[str] = set()  # their gateways get no route
        self.slow: set[str] = set()  # they load nothing
        self.clinging: set[str] = set()  # they unload nothing
        self.drained: set[str] = set()  # by an operator
        self.gone: set[str] = set()  # they have vanished for good
        self.quarantined: dict[str, str] = {}  # node -> why it may serve nothing that is new
        self.watching: Watching | None = None  # what the conductor makes of the step's traffic
        self._holds: dict[str, set[int]] = {node: set() for node in nodes}
        self._routes: dict[str, int] = {}
        self._revision = 1
        self._requests = 0
        self._decisions = 0
        self._dies_at = dies_at

    # -- what was stored -----------------------------------------------------------------------

    @property
    def rollout(self) -> Rollout:
        """The rollout as it is stored."""
        assert self.service.rollout is not None
        return self.service.rollout

    @property
    def phase(self) -> RolloutPhase:
        """Where it is."""
        return self.rollout.phase

    @property
    def route(self) -> Route:
        """The route as it is stored."""
        return self.service.current_route

    # -- operators -----------------------------------------------------------------------------

    def request(self) -> Request:
        """Return another request of the operator's."""
        self._requests += 1
        return Request(id=f"q{self._requests}", by=Actor(user="ann"))

    def start(
        self,
        wish: Wish,
        *,
        plan: Plan | None = None,
        supersede: bool = False,
        groups: Groups | None = None,
    ) -> Begin | Attach | AlreadyDone:
        """`vctl rollout start`."""
        decision = operate.start(
            self.service,
            plan or a_plan(),
            wish=wish,
            roster=tuple(self.nodes),
            request=self.request(),
            supersede=supersede,
            groups=groups,
        )
        if isinstance(decision, Begin):
            self._write(decision)
        return decision

    def back(self, to: int = 0, *, allow_downtime: bool = False) -> Begin | Continue | Attach:
        """`vctl rollback --now`."""
        decision = reverting.rollback_now(
            self.service,
            to=to,
            roster=tuple(self.nodes),
            request=self.request(),
            allow_downtime=allow_downtime,
        )
        if isinstance(decision, Begin | Continue):
            self._write(decision)
        return decision

    def end_override(self, groups: Groups = GROUPS) -> Begin | Attach:
        """`vctl route override rm`."""
        decision = reverting.end_override(
            self.service, groups.digest, roster=tuple(self.nodes), request=self.request()
        )
        if isinstance(decision, Begin):
            self._write(decision)
        return decision

    def abort(self) -> None:
        """`vctl rollout abort`."""
        self._steer(AbortAsked(by=Actor(user="ann")))

    def resume(self) -> None:
        """`vctl rollout resume`."""
        self._steer(ResumeAsked(by=Actor(user="ann")))

    def pause(self, elapsed_s: float = 0.0) -> None:
        """`vctl rollout pause`, when the phase has lasted *elapsed_s*."""
        self._steer(PauseAsked(by=Actor(user="ann")), elapsed_s)

    def promote(self, *, is_full: bool = False) -> None:
        """`vctl rollout promote`."""
        self._steer(PromoteAsked(by=Actor(user="ann"), is_full=is_full))

    def retry(self) -> Begin | Attach:
        """`vctl rollout retry`."""
        decision = steering.retry(
            self.service,
            self.plans[self.rollout.plan],
            roster=tuple(self.nodes),
            request=self.request(),
        )
        if isinstance(decision, Begin):
            self._write(decision)
        return decision

    def _steer(self, event: Steer, elapsed_s: float = 0.0) -> None:
        decision = steering.steer(self.service, event, elapsed_s=elapsed_s)
        if isinstance(decision, Continue):
            self._write(decision)

    # -- the conductor -------------------------------------------------------------------------

    def observe(self, now_s: float = 0.0, *, event: Event | None = None) -> Decision:
        """Have the conductor take one look, and write what it decides."""
        reports = self.reports()
        drained = frozenset(self.drained)
        seen = Observed(reports, self._gone(), self.watching, drained=drained)
        decision = step(self.state(), event or seen, now_s)
        if decision.rollout == self.rollout:
            return decision
        if self._decisions == self._dies_at:
            self._dies_at = -1  # it had decided, and wrote nothing
            return self.observe(now_s, event=event)
        self._decisions += 1
        route = decision.state.route
        turn = Continue(
            before=self.rollout,
            rollout=decision.rollout,
            route=route if route != self.route else None,
        )
        state = self.state()
        looked = Seen(
            roster=state.roster,
            reports=reports,
            gone=self._gone(),
            plan=state.plan,
            drained=drained,
        )
        self._write(turn, looked)
        if self._decisions - 1 == self._dies_at:
            step(self.state(), TakenOver(1), 0.0)
        return decision

    def run(self) -> RolloutPhase:
        """Let all nodes do their part until nothing more is decided; return the phase."""
        for _ in range(40):
            self.obey()
            if self.rollout.phase.is_terminal or not self.observe().sentence:
                return self.phase
        raise AssertionError("\n".join(self.said))

    def wait(self) -> RolloutPhase:
        """Let the time pass that the conductor waits for at most; return the phase."""
        self.obey()
        waits = self.observe()
        assert waits.wake_s is not None, "it waits for nothing"
        self.observe(waits.wake_s)
        return self.phase

    def serve(self, *numbers: int) -> "Story":
        """Roll releases out, one after the other; nothing of it is told."""
        for number in numbers:
            self.start(an_adapter_wish(number))
            assert self.run() is RolloutPhase.CONVERGED
        self.said.clear()
        return self

    def give(self, number: int, groups: Groups = GROUPS) -> "Story":
        """Give groups a release of their own; nothing of it is told."""
        self.start(an_adapter_wish(number), plan=a_group_plan(groups, soak_s=0), groups=groups)
        assert self.run() is RolloutPhase.CONVERGED
        self.said.clear()
        return self

    def theirs(self, groups: Groups = GROUPS) -> int:
        """Return the release that the groups have of their own, or 0."""
        return override_of(self.route, groups.digest)

    def state(self) -> State:
        """Return what the next decision stands on."""
        return State(
            plan=self.plans[self.rollout.plan],
            rollout=self.rollout,
            route=self.route,
            route_revision=self.service.route_revision,
            roster=self.rosters[self.rollout.roster],
        )

    def _write(self, decision: Begin | Continue, seen: Seen | None = None) -> None:
        before = self.service
        self._revision += 1
        if isinstance(decision, Begin):
            self._begin(decision)
        rollout = decode(encode(decision.rollout), Rollout)
        changes: dict[str, object] = {"rollout": rollout, "rollout_revision": self._revision}
        if decision.route:
            route = decode(encode(decision.route), Route)
            changes |= {"route": route, "route_revision": self._revision}
        base = decision.base if isinstance(decision, Begin) else None
        self.service = msgspec.structs.replace(self.service, **changes)
        if isinstance(decision, Continue):
            base = basing.released(self.service, decision.before, rollout)
        if base:
            around = msgspec.structs.replace(self.service.around, base=base)
            self.service = msgspec.structs.replace(self.service, around=around)
        self.said.append(f"{rollout.phase}: {rollout.sentence}")
        self.history.append(
            Entry(
                rollout=rollout.id, seq=rollout.seq, phase=rollout.phase, sentence=rollout.sentence
            )
        )
        broken = invariants.check(_written(before), _written(self.service), seen)
        assert not broken, "\n".join([*self.said, *broken])

    def _begin(self, begin: Begin) -> None:
        self.plans[begin.plan.digest] = begin.plan
        self.rosters[begin.roster.digest] = begin.roster.nodes
        self.history.clear()
        if begin.release:
            releases = self.service.releases | {begin.release.number: begin.release}
            self.service = msgspec.structs.replace(self.service, releases=releases)

    # -- nodes ---------------------------------------------------------------------------------

    def obey(self) -> None:
        """Have each node load what is wanted, unload what may go, and hear of the route."""
        needed = wanted(self.service.route, self.service.rollout)
        for node in self.nodes:
            holds = self._holds.setdefault(node, set())
            if node not in self.clinging:
                holds -= set(self.rollout.unload) - needed
                holds -= {n for n in set(holds) if is_apart(self.service, n, node)}
            if node not in self.refuses and node not in self.slow:
                self._change_base(node)
                self._load(holds, {n for n in needed if has_place(self.service, n, node)})
            if node not in self.deaf:
                self._routes[node] = self.service.route_revision

    def _load(self, holds: set[int], needed: set[int]) -> None:
        """Have an engine hold what it has places for; what is retained comes last."""
        serving = needed - set(self.route.instant)
        for number in [*sorted(serving), *sorted(needed - serving)]:
            if not self.places or len(adapters(self.service, holds | {number})) <= self.places:
                holds.add(number)

    def _tell_places(self, nodes: tuple[str, ...]) -> None:
        facts = EngineFacts(kind="torch", base="base", max_adapters=self.places)
        records = [NodeRecord(node=node, boot_id=f"boot-{node}", facts=facts) for node in nodes]
        around = Surroundings(room=room(records, ()))
        self.service = msgspec.structs.replace(self.service, around=around)

    def vanish(self, *nodes: str) -> None:
        """Have nodes be away for so long that they count as gone."""
        self.nodes = [node for node in self.nodes if node not in nodes]
        self.gone.update(nodes)

    def join(self, node: str) -> None:
        """Have a node come, or come back."""
        self.nodes.append(node)
        self.gone.discard(node)

    def judge(self, *verdicts: Verdict) -> None:
        """Plant what the guardrails found in the step's windows, the newest last."""
        self.watching = Watching(verdicts=verdicts)

    def _gone(self) -> frozenset[str]:
        return frozenset(self.gone & set(self.state().roster))

    def _change_base(self, node: str) -> None:
        """Swap the node's base where another one is wanted: what it held is gone."""
        wanted_base = base_wanted(self.service, node)
        root = base_root(wanted_base) if wanted_base else self.bases.setdefault(node, "")
        if self.bases.get(node, "") != root:
            self.bases[node] = root
            self._holds[node].clear()

    def drop(self, node: str, number: int) -> None:
        """Have a node's engine hold a release no more."""
        self._holds.setdefault(node, set()).discard(number)

    def reports(self) -> dict[str, NodeReport]:
        """Return what the nodes that are present say."""
        return {node: self._report(node) for node in self.nodes}

    def _report(self, node: str) -> NodeReport:
        needed = wanted(self.service.route, self.service.rollout)
        holds = self._holds.setdefault(node, set())
        lines = [self._held(node, number) for number in sorted(holds)]
        if node in self.refuses:
            reason = self.refuses[node]
            lines += [self._line(n, NodePhase.FAILED, reason) for n in sorted(needed - holds)]
        elif node not in self.slow:
            lines += [self._line(n, NodePhase.STAGED) for n in sorted(needed - holds)]
        return NodeReport(
            node=node,
            boot_id=f"boot-{node}",
            releases=tuple(lines),
            routes={SERVICE: self._routes.get(node, 0)},
            gateway_ok=True,
        )

    def _held(self, node: str, number: int) -> ReleaseReport:
        if node in self.quarantined and number == self.rollout.to_release:
            return self._line(number, NodePhase.QUARANTINED, self.quarantined[node])
        return self._line(number, NodePhase.READY)

    def _line(self, number: int, phase: NodePhase, reason: str = "") -> ReleaseReport:
        return ReleaseReport(
            service=SERVICE,
            number=number,
            digest="",
            phase=phase,
            attempt=self.rollout.attempt,
            reason=reason,
            is_permanent=bool(reason),
        )

    def holds(self) -> list[list[int]]:
        """Return what each node holds."""
        return [sorted(self._holds[node]) for node in self.nodes]


def _written(service: Service) -> invariants.Written:
    return invariants.Written(
        rollout=service.rollout, route=service.route, route_revision=service.route_revision
    )

"""Those who write: conductors that read late or die before they write, and operators."""

from collections.abc import Callable
from random import Random

import msgspec

from tests.builders import SERVICE, a_plan, an_adapter_wish
from tests.sim.world import World
from vctl_plans import operate, reverting, steering
from vctl_plans.errors import PlanError, TransitionError
from vctl_plans.events import (
    AbortAsked,
    Event,
    Observed,
    PauseAsked,
    PromoteAsked,
    ResumeAsked,
    TakenOver,
)
from vctl_plans.invariants import Seen
from vctl_plans.machine import step
from vctl_plans.node import NodeReport
from vctl_plans.operate import AlreadyDone, Attach, Begin, Continue, Request
from vctl_plans.phase import RolloutPhase
from vctl_plans.plan import Plan, PlanStep
from vctl_plans.rollout import Progress, Rollout, elapsed_s
from vctl_plans.snapshot import Service

Written = Begin | Continue | Attach | AlreadyDone
Act = Callable[[Service, Request], Written]


class Clock(msgspec.Struct):
    """When a phase began, on one conductor's clock."""

    rollout: str
    seq: int
    began: float
    takeovers: int


class Conductor:
    """One term of office, as `vctl_agent.conductor` goes about it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.fence = world.fence
        self.service = world.service
        self.reports: dict[str, NodeReport] = {}
        self.clock: Clock | None = None
        self.pending: tuple[Service, Continue, Seen] | None = None
        self.wake_at: float | None = None

    def read_services(self) -> None:
        """Catch up with the service's keys."""
        self.service = self.world.service

    def read_reports(self) -> None:
        """Catch up with the nodes' reports."""
        self.reports = self.world.present()

    def decide(self) -> None:
        """Take a decision, without writing it yet."""
        rollout = self.service.rollout
        self.wake_at = None
        if self.pending or rollout is None or rollout.phase.is_terminal:
            return
        clock = self._phase_clock(rollout)
        now_s = self.world.now - clock.began
        state = self.world.state(self.service)
        events: tuple[Event, ...] = (TakenOver(clock.takeovers), Observed(self.reports))
        for event in events:
            decision = step(state, event, now_s)
            if decision.rollout != rollout:
                route = decision.state.route
                turn = Continue(
                    before=rollout,
                    rollout=decision.rollout,
                    route=route if route != self.service.current_route else None,
                )
                self.pending = (self.service, turn, Seen(roster=state.roster, reports=self.reports))
                return
        self._checkpoint(clock, now_s)
        if decision.wake_s is not None:
            self.wake_at = clock.began + decision.wake_s

    def write(self) -> None:
        """Write what was decided; whoever changed something meanwhile has won."""
        if self.pending is None:
            return
        read, turn, seen = self.pending
        self.pending = None
        self.world.commit(read, turn, fence=self.fence, seen=seen)

    def _phase_clock(self, rollout: Rollout) -> Clock:
        held = self.clock
        if held and (held.rollout, held.seq) == (rollout.id, rollout.seq):
            return held
        elapsed_s, takeovers = 0.0, 0
        if held is None or held.rollout != rollout.id:
            elapsed_s, takeovers = self._recorded(rollout)
        self.clock = Clock(rollout.id, rollout.seq, self.world.now - elapsed_s, takeovers)
        return self.clock

    def _recorded(self, rollout: Rollout) -> tuple[float, int]:
        found = self.world.progress
        if found and (found.rollout, found.seq) == (rollout.id, rollout.seq):
            return found.elapsed_s, found.takeovers + 1
        return 0.0, 0

    def _checkpoint(self, clock: Clock, now_s: float) -> None:
        if self.fence == self.world.fence:
            self.world.progress = Progress(
                rollout=clock.rollout,
                seq=clock.seq,
                elapsed_s=now_s,
                takeovers=clock.takeovers,
            )


class Operator:
    """Presses at random; reads, decides, and writes a little later."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.asked = 0
        self.pending: tuple[Request, Act] | None = None
        self.read: Service | None = None

    def press(self, random: Random) -> None:
        """Begin a command: it has read, and not written yet."""
        self.asked += 1
        make = random.choice(self._choices())
        self.begin(make(random))

    def _choices(self) -> list[Callable[[Random], Act]]:
        """Return what an operator may think of now; mostly what makes sense."""
        rollout = self.world.rollout
        always = [self._start, self._back, self._to, self._plan_back]
        if rollout is None or rollout.phase.is_terminal:
            return [*always, *[self._start] * 3, lambda _: self.retry]
        if rollout.phase is RolloutPhase.PAUSED:
            on = promote if rollout.awaits_promote else resume
            return [*always, lambda _: abort, lambda _: promote, *[lambda _: on] * 3]
        unload = [self._to_unloaded] * 4 if rollout.unload else []
        steer = [abort, resume, self.pause, self.pause, promote, promote, promote_in_full]
        if rollout.phase is RolloutPhase.SOAKING:
            steer += [self.pause] * 5
        return [*always, *unload, *(lambda _, act=act: act for act in steer)]

    def _to_unloaded(self, random: Random) -> Act:
        rollout = self.world.rollout
        return self.back_to(random.choice(rollout.unload) if rollout and rollout.unload else 0)

    def begin(self, act: Act) -> None:
        """Read for one command."""
        self.pending = (Request(id=f"q{self.asked}"), act)
        self.read = self.world.service

    def finish(self, random: Random, *, loses_reply: bool = False) -> Written | None:
        """Decide on the reading and write; after a conflict or a lost reply on a new one."""
        if self.pending is None or self.read is None:
            return None
        if random.random() < 0.5:
            self.read = self.world.service
        request, act = self.pending
        self.pending = None
        decision: Written | None = None
        for _ in range(3):
            try:
                decision = act(self.read, request)
            except (TransitionError, PlanError) as refusal:
                self.world.note(f"{request.id} refused: {refusal.message}")
                return None
            if isinstance(decision, Attach | AlreadyDone):
                self.world.note(f"{request.id} follows {decision.rollout.id}")
                return decision
            is_written = self.world.commit(self.read, decision)
            self.read = self.world.service
            if is_written and loses_reply:
                self.pending = (request, act)  # it reads again later, and finds its own request
                return None
            if is_written:
                return decision
        return decision

    def _start(self, random: Random) -> Act:
        number = random.randint(1, 6)
        plan = a_plan(
            strategy="weighted",
            steps=some_steps(random),
            retain=random.choice([0, 1, 1, 2]),
            prepare_s=60,
        )
        wish: object = an_adapter_wish(number)
        if random.random() < 0.3:
            wish = random.randint(1, 1 + len(self.world.service.releases))
        return lambda service, request: operate.start(
            service,
            plan,
            wish=wish,  # type: ignore[arg-type]
            roster=tuple(sorted(self.world.boots)),
            request=request,
            supersede=bool(number % 2),
        )

    def _back(self, _random: Random) -> Act:
        return self.back_to(0)

    def _to(self, random: Random) -> Act:
        return self.back_to(random.randint(1, 1 + len(self.world.service.releases)))

    def back_to(self, to: int) -> Act:
        """Return `rollback --now`."""
        return lambda service, request: reverting.rollback_now(
            service, to=to, roster=tuple(sorted(self.world.boots)), request=request
        )

    def pause(self, service: Service, request: Request) -> Written:
        """`vctl rollout pause`: what has passed of a soak is what was last checkpointed."""
        rollout = service.rollout
        passed_s = elapsed_s(self.world.progress, rollout) if rollout else 0.0
        return steering.steer(service, PauseAsked(reason=request.id), elapsed_s=passed_s)

    def retry(self, service: Service, request: Request) -> Written:
        """`vctl rollout retry`."""
        plan = self.world.plans[service.rollout.plan] if service.rollout else a_plan()
        roster = tuple(sorted(self.world.boots))
        return steering.retry(service, plan, roster=roster, request=request)

    def _plan_back(self, random: Random) -> Act:
        to = random.choice([0, 0, 1, 2])
        plan = Plan(service=SERVICE, strategy="rollback", to=to, prepare_s=60, converge_s=20)
        return lambda service, request: operate.start(
            service, plan, wish=to, roster=tuple(sorted(self.world.boots)), request=request
        )


def some_steps(random: Random) -> tuple[PlanStep, ...]:
    """Return the steps of a plan: one for a full switch, or several, some of them manual."""
    weights = random.choice([(100,), (50, 100), (10, 50, 100), (10, 25, 50, 100)])
    return tuple(
        PlanStep(
            weight=weight,
            soak_s=random.choice([0, 0, 10, 30]),
            manual=random.random() < 0.1,
        )
        for weight in weights
    )


def promote(service: Service, request: Request) -> Written:
    """`vctl rollout promote`."""
    return steering.steer(service, PromoteAsked(reason=request.id))


def promote_in_full(service: Service, request: Request) -> Written:
    """`vctl rollout promote --full`."""
    return steering.steer(service, PromoteAsked(reason=request.id, is_full=True))


def abort(service: Service, request: Request) -> Written:
    """`vctl rollout abort`."""
    return steering.steer(service, AbortAsked(reason=request.id))


def resume(service: Service, request: Request) -> Written:
    """`vctl rollout resume`."""
    return steering.steer(service, ResumeAsked(reason=request.id))

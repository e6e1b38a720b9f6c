"""The rollout: a plan being carried out. One small key a service, replaced and never deleted."""

from enum import StrEnum

import msgspec

from vctl_plans.codec import Value, digest
from vctl_plans.phase import RolloutPhase
from vctl_plans.plan import Strategy
from vctl_plans.release import Actor
from vctl_plans.route import Mode, Route
from vctl_plans.seen import Seen
from vctl_plans.verdict import Figure, Verdict


class Cause(StrEnum):
    """Why a rollout goes back."""

    NONE = ""
    ASKED = "asked"  # a rollback was what the operator wanted
    ABORTED = "aborted"
    OVERRIDE = "override"  # an operator ended what groups had of their own
    GUARDRAIL = "guardrail"  # a guardrail was breached


class Promotion(StrEnum):
    """What an operator allowed a rollout to go on to, before the soak of its step is over."""

    NONE = ""
    STEP = "step"  # to the next step, or to settle after the last one
    FULL = "full"  # to the last step at once


class Rollout(Value, frozen=True, kw_only=True):
    """Where a plan is. Everything that decides what comes next is here or in the route.

    `seq` counts decisions: each raises it by one and is written in the same transaction, so
    `history/{service}/{id}/{seq}` has no holes.
    """

    id: str
    service: str
    plan: str  # digest
    strategy: Strategy
    phase: RolloutPhase
    from_release: int  # 0: nothing was served before
    to_release: int
    roster: str  # digest
    roster_size: int
    seq: int = 0
    step: int = 0  # index in the plan's steps; the one whose weight the route has once it moved
    steps: int = 1  # how many the plan has
    soak_s: float = 0.0  # how long the step soaks; 0 until its soak begins
    soaked_s: float = 0.0  # of that, what had passed before the present phase began
    promoted: Promotion = Promotion.NONE
    awaits_promote: bool = False  # paused for no other reason than that its step is manual
    back_to: int = 0  # the release that a rollback returns to; 0 until it goes back
    probes: str = ""  # digest of the golden prompts that `to_release` must pass on each node
    groups: str = ""  # digest of the groups whose override it sets, or ends
    from_override: int = 0  # the release that these groups had of their own before; 0: none
    from_place: int = 0  # where that override stood among the others
    wave_size: int = 0  # nodes that may be without what they are to hold at once; 0: all hold both
    wave: float = 0.0  # nodes whose share is below hold the base of `to_release`: see `base`
    exchanges: bool = False  # nodes hold one of both adapters at a time, on one base
    retain: int | None = None  # the most releases that have a place to stay; None: as planned
    asks_kv: bool = False  # its gate asks how much of their KV caches nodes have in use
    free_memory: float | None = None  # the share that a load must leave free; None: the default
    watches: bool = False  # whether gateways are to report what they count, for guardrails
    drain_s: float = 30.0  # how long an unload waits for requests in flight; the plan's
    unload: tuple[int, ...] = ()  # releases that nodes may unload, and no others
    has_moved: bool = False  # whether a route write of this rollout is in force
    resume_phase: str = ""  # of a paused rollout: the phase that it goes on from
    cause: Cause = Cause.NONE
    sentence: str = ""  # the last decision
    confirmed: int = 0  # nodes that reported the end, once it ended
    unconfirmed: tuple[str, ...] = ()  # at most `NAMED` of those that did not, by name
    request: str = ""  # id of the operator's request, to find one's own write again
    by: Actor = Actor()
    reason: str = ""

    @property
    def attempt(self) -> str:
        """The operator's last request in the rollout: what a node's word on a release carries.

        A start's is the rollout's own id; a rollback that is asked within it brings a new one.
        """
        return self.request or self.id

    @property
    def moves_base(self) -> bool:
        """Whether the nodes' base weights change with it."""
        return self.wave_size > 0 and not self.exchanges

    @property
    def is_by_waves(self) -> bool:
        """Whether nodes change by waves; where nothing served before, all change at once."""
        return self.wave_size > 0 and self.from_release > 0

    @property
    def is_at_once(self) -> bool:
        """Whether the wave is all nodes: nothing serves while they change, as the plan allows."""
        return self.is_by_waves and self.wave_size >= self.roster_size

    @property
    def is_soaking(self) -> bool:
        """Whether its step is under watch: it soaks, or waits for a person while it does."""
        return RolloutPhase.SOAKING in {self.phase, self.resume_phase}

    @property
    def is_going_back(self) -> bool:
        """Whether it rolls back, or waits for a person while it does."""
        return RolloutPhase.ROLLING_BACK in {self.phase, self.resume_phase}


class Roster(Value, frozen=True, kw_only=True):
    """The nodes that a rollout counts, frozen when it starts; immutable, read once."""

    nodes: tuple[str, ...]  # sorted

    @property
    def digest(self) -> str:
        """The name of the roster."""
        return digest(self, context="roster")


class Progress(Value, frozen=True, kw_only=True):
    """How long the present phase has lasted: elapsed time, since no clock is compared."""

    rollout: str
    seq: int  # of the decision that began the phase
    elapsed_s: float
    takeovers: int = 0  # conductors that went on with this phase
    verdicts: tuple[Verdict, ...] = ()  # the last of the guardrails in this step
    figures: tuple[Figure, ...] = ()  # what each of them found last; for people only


def elapsed_s(progress: Progress | None, rollout: Rollout) -> float:
    """Return how long the rollout's phase has lasted at least, by the last checkpoint of it."""
    is_of_phase = progress and (progress.rollout, progress.seq) == (rollout.id, rollout.seq)
    return progress.elapsed_s if progress and is_of_phase else 0.0


def judged(progress: Progress | None, rollout: Rollout) -> str:
    """Return what the guardrails said last in the rollout's present phase; empty: nothing yet."""
    is_of_phase = progress and (progress.rollout, progress.seq) == (rollout.id, rollout.seq)
    said = progress.verdicts[-1:] if progress and is_of_phase else ()
    return f"{said[0].outcome}: {said[0].sentence}" if said else ""


def figures(progress: Progress | None, rollout: Rollout) -> tuple[Figure, ...]:
    """Return what each guardrail found last in the rollout's present phase."""
    is_of_phase = progress and (progress.rollout, progress.seq) == (rollout.id, rollout.seq)
    return progress.figures if progress and is_of_phase else ()


class Entry(Value, frozen=True, kw_only=True):
    """One decision in a rollout's history."""

    rollout: str
    seq: int
    phase: RolloutPhase
    sentence: str
    by: Actor = Actor()
    reason: str = ""
    at: str = ""  # the writer's own clock, UTC: for people, and no decision rests on it
    seen: Seen | None = None  # likewise


DEFAULT_TENANT = "default"
"""Whose a service is that no tenant was given."""


class ServiceSpec(Value, frozen=True, kw_only=True):
    """A public model name."""

    service: str
    tenant: str = DEFAULT_TENANT  # whose API keys reach it, where gateways ask for keys
    mode: Mode = Mode.GATEWAY
    retired: Route | None = None  # the last route, once the service was let go: see `ejecting`
    by: Actor = Actor()


def wanted(route: Route | None, rollout: Rollout | None) -> frozenset[int]:
    """Return the releases that every node of the fleet should hold ready."""
    numbers = set(route.serving) | set(route.instant) if route else set()
    if rollout and not rollout.phase.is_terminal:
        numbers.add(rollout.back_to if rollout.is_going_back else rollout.to_release)
        if rollout.from_override not in rollout.unload:
            numbers.add(rollout.from_override)
    return frozenset(numbers - {0})


NAMED = 20
"""Nodes that a sentence or a value names; the rest are counted."""


def listed(nodes: tuple[str, ...]) -> str:
    """Return the first names, and how many more."""
    shown = ", ".join(nodes[:NAMED])
    more = len(nodes) - NAMED
    return f"{shown} and {more} more" if more > 0 else shown


def advanced(rollout: Rollout, phase: RolloutPhase, sentence: str, **changes: object) -> Rollout:
    """Return the rollout after one more decision."""
    return msgspec.structs.replace(
        rollout, phase=phase, sentence=sentence, seq=rollout.seq + 1, **changes
    )

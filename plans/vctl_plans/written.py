"""What a second opinion looks at: a write, as it was before and after, and what it rested on.

See `invariants`, which this belongs to.
"""

from collections.abc import Mapping

import msgspec

from vctl_plans.gate import Tally, acknowledgement, readiness
from vctl_plans.node import NodeReport
from vctl_plans.plan import Plan
from vctl_plans.rollout import Rollout
from vctl_plans.route import Route
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
    drained: frozenset[str] = frozenset()

    @property
    def idle(self) -> tuple[str, ...]:
        """The drained nodes that nobody need wait for: one, or what the plan says; never all."""
        drained = [node for node in self.roster if node in self.drained]
        least = self.plan.max_unready.of(len(self.roster)) if self.plan else 1
        return tuple(drained[: min(max(1, least), len(self.roster) - 1)])

    @property
    def counted(self) -> tuple[str, ...]:
        """The roster's nodes that have neither vanished, nor are drained and away."""
        away = [node for node in self.idle if node not in self.reports]
        return tuple(node for node in self.roster if node not in self.gone and node not in away)

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
        """Whether so many of them hold the release ready as the plan asks for, not all drained."""
        every = readiness(self.counted, self.reports, rollout=rollout, number=number)
        asked = tuple(n for n in self.counted if n in every.done or n not in self.idle)
        tally = readiness(asked, self.reports, rollout=rollout, number=number)
        if not set(tally.done) - self.drained:
            return False
        if self.plan is None:
            return tally.is_complete
        ready, refused = self.plan.ready, len(tally.refused)
        willing = len(asked) - refused
        least = ready.count if ready.percent is None else willing * ready.percent / FULL_WEIGHT
        is_enough = len(tally.done) >= max(1, least or 0)
        return is_enough and refused <= self.plan.max_failed

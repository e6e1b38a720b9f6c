"""Who of a roster has done what: the counts behind every gate. An empty roster passes none."""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from vctl_plans.node import NodeReport
from vctl_plans.phase import NodePhase
from vctl_plans.plan import Plan
from vctl_plans.rollout import Rollout


class Tally(msgspec.Struct, frozen=True):
    """How a roster stands to one question."""

    done: tuple[str, ...]
    missing: tuple[str, ...]  # not yet, or not present
    refused: tuple[tuple[str, str], ...] = ()  # node, reason: those for whom trying again is vain

    @property
    def is_complete(self) -> bool:
        """Whether all of a roster that is not empty have done it."""
        return bool(self.done) and not self.missing and not self.refused

    def is_met(self, plan: Plan) -> bool:
        """Whether so many have done it as *plan* asks for, and no more have refused than it allows.

        A percentage is of those that do not refuse; a count is a count. Nobody is never enough.
        """
        return not self.is_beyond(plan) and len(self.done) >= self._needed(plan)

    def is_beyond(self, plan: Plan) -> bool:
        """Whether more have refused than *plan* allows, or than leave enough to do it."""
        left = self.size - len(self.refused)
        is_vain = bool(self.refused) and left < self._needed(plan)
        return len(self.refused) > plan.max_failed or is_vain

    def _needed(self, plan: Plan) -> int:
        return max(1, plan.ready.of(self.size - len(self.refused)))

    @property
    def size(self) -> int:
        """The roster's size."""
        return len(self.done) + len(self.missing) + len(self.refused)


READY = frozenset({NodePhase.READY})
STAGED = frozenset({NodePhase.STAGED, NodePhase.READY})
"""On disk and verified: all that a node can have of a release whose base it does not hold."""


def readiness(
    roster: Iterable[str],
    reports: Mapping[str, NodeReport],
    *,
    rollout: Rollout,
    number: int,
    enough: frozenset[NodePhase] = READY,
) -> Tally:
    """Return which nodes hold release *number* ready: loaded, verified and probed.

    Only what a node said after it had seen *rollout* counts. Else this could happen: (1) a rollout
    of the release fails, with the release on its unload list; (2) a node that holds it ready begins
    to unload it; (3) a new rollout of the same release starts; (4) the node's last report still
    says ready; (5) traffic moves to a node that is unloading. The same within one rollout, when a
    rollback returns to a release that it had begun to unload: hence `Rollout.attempt`.
    """
    done, missing, refused = [], [], []
    for node in roster:
        report = reports.get(node)
        release = report.release(rollout.service, number) if report else None
        if release and release.attempt != rollout.attempt:
            release = None
        if release and release.phase in enough and report and report.gateway_ok:
            done.append(node)
        elif release and release.is_permanent:
            refused.append((node, release.reason))
        else:
            missing.append(node)
    return Tally(tuple(done), tuple(missing), tuple(refused))


def acknowledgement(
    roster: Iterable[str], reports: Mapping[str, NodeReport], *, service: str, revision: int
) -> Tally:
    """Return which nodes' gateways act on route *revision* or a later one."""
    return _split(
        roster,
        lambda report: report.gateway_ok and report.routes.get(service, 0) >= revision,
        reports,
    )


def absence(
    roster: Iterable[str],
    reports: Mapping[str, NodeReport],
    *,
    service: str,
    numbers: frozenset[int],
) -> Tally:
    """Return which nodes hold none of *numbers* in their engine."""
    return _split(roster, lambda report: not residents(report, service) & numbers, reports)


def residents(report: NodeReport, service: str) -> frozenset[int]:
    """Return the releases of *service* that the node's engine may hold."""
    return frozenset(
        r.number for r in report.releases if r.service == service and r.phase.is_resident
    )


def _split(
    roster: Iterable[str], holds: Callable[[NodeReport], bool], reports: Mapping[str, NodeReport]
) -> Tally:
    done: list[str] = []
    missing: list[str] = []
    for node in roster:
        (done if node in reports and holds(reports[node]) else missing).append(node)
    return Tally(tuple(done), tuple(missing))

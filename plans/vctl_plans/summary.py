"""The fleet in one small value, so that `status` need not read ten thousand reports.

The conductor writes it, at most once a second and only when it changed. It is made of the same
lines as `status`, and stays small however large the fleet: nodes are counted by phase, and only the
worst are named. Each service's part says which rollout and route it was made on, so that a reader
who has those keys can tell that the counts are older than the last decision.
"""

from collections import Counter
from collections.abc import Iterable

import msgspec

from vctl_plans.codec import Value
from vctl_plans.held import Held
from vctl_plans.phase import NodePhase
from vctl_plans.rollout import NAMED
from vctl_plans.snapshot import Fleet, Service
from vctl_plans.status import (
    HANDING_OVER,
    IDLE,
    NO_ENGINE,
    STARTING,
    WORST_FIRST,
    NodeStatus,
    needs,
    node_status,
    service_phase,
    service_status,
)

REASON_CHARS = 200
SENTENCE_CHARS = 500
PROBLEMS = 10

_NAMED_IN_ALL = 1000
"""Nodes that one summary names, of all services: with their reasons about 300 KB."""

ORDER: tuple[str, ...] = (
    NodePhase.QUARANTINED,
    NodePhase.FAILED,
    NO_ENGINE,
    NodePhase.ABSENT,  # also the node's own
    STARTING,
    *[phase for phase in WORST_FIRST[3:] if phase is not NodePhase.READY],
    HANDING_OVER,
)
"""What a node may be in, worst first; what is well is not in it."""

_WELL = {NodePhase.READY.value, IDLE}


class WorstNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node that is named, since it is not as it should be."""

    node: str
    phase: str
    reason: str = ""


class ServiceSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One service; what its own keys say too, and what is counted over all nodes."""

    service: str
    release: int = 0
    candidate: int = 0
    weight: float = 0.0
    phase: str = ""
    step: int = 0
    steps: int = 0
    rollout: str = ""
    rollout_revision: int = 0  # mod_revision of the rollout that the counts were made on
    route_revision: int = 0
    sentence: str = ""  # its beginning
    target: int = 0  # the release that `ready` counts
    ready: int = 0
    acting: int = 0  # nodes whose gateway acts on `route_revision`
    phases: dict[str, int] = {}  # nodes by phase, those that are gone included
    worst: tuple[WorstNode, ...] = ()  # worst first; at most `NAMED`
    unnamed: int = 0  # nodes that would be named too
    glass: dict[str, int] = {}  # node -> release by break-glass; at most `NAMED` nodes
    pins: dict[int, Held] = {}


class Summary(Value, frozen=True, kw_only=True):
    """The whole fleet."""

    present: int = 0  # nodes that live
    known: int = 0  # nodes that live, or whose last word is kept
    services: tuple[ServiceSummary, ...] = ()
    problems: tuple[str, ...] = ()  # values that could not be read; the first `PROBLEMS`

    def of(self, service: str) -> ServiceSummary | None:
        """Return what is said of one service."""
        return next((each for each in self.services if each.service == service), None)


def summary(fleet: Fleet) -> Summary:
    """Return the summary of *fleet*; services by name."""
    needed = needs(fleet)
    names = sorted(set(fleet.records) | set(fleet.reports))
    nodes = [node_status(node, fleet, needed) for node in names]
    named = max(1, min(NAMED, _NAMED_IN_ALL // max(1, len(fleet.services))))
    return Summary(
        present=len(fleet.records),
        known=len(nodes),
        services=tuple(
            _service(fleet.services[name], fleet, nodes, named) for name in sorted(fleet.services)
        ),
        problems=fleet.problems[:PROBLEMS],
    )


def _service(
    service: Service, fleet: Fleet, nodes: Iterable[NodeStatus], named: int
) -> ServiceSummary:
    line = service_status(service, fleet)
    said = [(node.node, *service_phase(node, service.name, fleet)) for node in nodes]
    bad = [each for each in said if each[1] not in _WELL]
    bad.sort(key=lambda each: (ORDER.index(each[1]), each[0]))
    return ServiceSummary(
        service=service.name,
        release=line.release,
        candidate=line.candidate,
        weight=line.weight,
        phase=line.phase,
        step=line.step,
        steps=line.steps,
        rollout=line.rollout,
        rollout_revision=service.rollout_revision,
        route_revision=service.route_revision,
        sentence=line.sentence[:SENTENCE_CHARS],
        target=line.target,
        ready=line.ready,
        acting=line.acting,
        phases=dict(sorted(Counter(phase for _, phase, _ in said).items())),
        worst=tuple(
            WorstNode(node=node, phase=phase, reason=reason[:REASON_CHARS])
            for node, phase, reason in bad[:named]
        ),
        unnamed=max(0, len(bad) - named),
        glass=dict(list(line.glass.items())[:NAMED]),
        pins=line.pins,
    )


def worst_first(phase: str) -> int:
    """Return where a node's phase stands when the worst come first."""
    return ORDER.index(phase) if phase in ORDER else len(ORDER)


def is_older(found: ServiceSummary | None, service: Service) -> bool:
    """Whether the summary was made before the service's last decision, or knows nothing of it."""
    if found is None:
        return True
    before_rollout = found.rollout_revision < service.rollout_revision
    return before_rollout or found.route_revision < service.route_revision

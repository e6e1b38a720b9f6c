"""What `status` and the tail of a rollout show, made of one reading of the fleet.

Rule: nothing is shown as present that only a dead node's last word says. Such a node is *absent*,
and its last word stands beside that as its reason.
"""

from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from vctl_plans.base import base_root, has_place, target
from vctl_plans.held import Held, overrides_of, sessions_of
from vctl_plans.inspection import SCRUB
from vctl_plans.node import NodeReport, ReleaseReport
from vctl_plans.phase import NodePhase
from vctl_plans.rollout import DEFAULT_TENANT, wanted
from vctl_plans.route import Mode
from vctl_plans.snapshot import Fleet, Service, way_back


class ServiceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One service in a line."""

    service: str
    release: int  # that serves; 0: none
    vector: str  # of the release that serves, as in adapter=3
    candidate: int  # 0: nothing moves
    weight: float  # percent of traffic on the candidate
    overrides: tuple[int, ...]  # releases that groups have of their own
    target: int  # the release whose readiness is counted: what a rollout brings, else what serves
    ready: int  # nodes that hold the target ready
    nodes: int  # that count: those present
    phase: str  # of the last rollout; empty: there was none
    step: int  # of the last rollout, from 1; 0: its traffic has not moved
    steps: int  # that it has in all
    rollout: str
    route_revision: int
    acting: int  # nodes whose gateway acts on that route revision
    revoked: tuple[int, ...]
    sentence: str  # the last decision
    tenant: str = DEFAULT_TENANT
    glass: dict[str, int] = {}  # node -> the release that root has it served by there: break-glass
    pins: dict[int, Held] = {}  # release -> sessions on it, while something moves
    based: int | None = None  # nodes that hold the base which a rollout brings; None: none does
    mode: Mode = Mode.GATEWAY
    notes: tuple[str, ...] = ()  # what must be known of it beside its figures


class ReleaseStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One release on one node."""

    service: str
    release: int
    phase: str
    reason: str = ""
    is_wanted: bool = False
    probe: str = ""  # what was measured when the node probed it
    fails_probe: bool = False  # also where it serves on, because too many nodes would not


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One node in a line."""

    node: str
    is_present: bool
    phase: str  # see `node_status`
    engine: str
    routes: dict[str, int]  # service -> the route revision that its gateway acts on
    reason: str
    releases: tuple[ReleaseStatus, ...]
    overrides: dict[str, int] = {}  # service -> the release that root has it served by here
    pins: dict[str, dict[int, int]] = {}  # service -> release -> sessions, when it last reported
    incarnation: str = ""  # of its engine; empty: it does not answer, or nobody is there to say
    cache_epoch: int = 0  # likewise: see `NodeReport`


class StatusView(msgspec.Struct, frozen=True, kw_only=True):
    """The whole fleet."""

    fleet: str
    services: tuple[ServiceStatus, ...]
    nodes: tuple[NodeStatus, ...]
    problems: tuple[str, ...] = ()  # values in the store that could not be read
    is_live: bool = True  # False: the store is away, this is the last that was known


T = TypeVar("T")

ABSENT = "absent"
STARTING = "starting"  # present, and has not reported yet
NO_ENGINE = "no engine"
HANDING_OVER = "handing over"  # ready, once the gateway confirms that it may serve it
UNCONFIRMED = "its gateway has not confirmed it"
IDLE = "idle"  # nothing is wanted of it

WORST_FIRST = (
    NodePhase.QUARANTINED,
    NodePhase.FAILED,
    NodePhase.ABSENT,
    NodePhase.UNLOADED,
    NodePhase.FETCHING,
    NodePhase.VERIFYING,
    NodePhase.STAGED,
    NodePhase.LOADING,
    NodePhase.PROBING,
    NodePhase.DRAINING,
    NodePhase.READY,
)


def status(fleet: Fleet, *, name: str) -> StatusView:
    """Return the view of *fleet*, which is called *name*; services and nodes by name."""
    nodes, needed = sorted(set(fleet.records) | set(fleet.reports)), needs(fleet)
    return StatusView(
        fleet=name,
        services=tuple(service_status(fleet.services[s], fleet) for s in sorted(fleet.services)),
        nodes=tuple(node_status(node, fleet, needed) for node in nodes),
        problems=fleet.problems,
    )


def service_status(service: Service, fleet: Fleet) -> ServiceStatus:
    """Return one service's line."""
    route, rollout, present = service.current_route, service.rollout, fleet.present()
    number = target_release(service)
    ready = [n for n, report in present.items() if _is_ready(report, service.name, number)]
    acting = [
        node
        for node, report in present.items()
        if service.route_revision and report.routes.get(service.name, 0) >= service.route_revision
    ]
    return ServiceStatus(
        service=service.name,
        release=route.stable,
        vector=service.stable.vector_text if service.stable else "",
        candidate=route.candidate,
        weight=route.weight,
        overrides=tuple(sorted({override.release for override in route.overrides})),
        target=number,
        ready=len(ready),
        nodes=len(fleet.records),
        phase=rollout.phase if rollout else "",
        step=rollout.step + 1 if rollout and rollout.has_moved else 0,
        steps=rollout.steps if rollout else 0,
        rollout=rollout.id if rollout else "",
        route_revision=service.route_revision,
        acting=len(acting),
        revoked=route.revoked,
        sentence=rollout.sentence if rollout else "",
        tenant=service.tenant,
        glass=overrides_of(service.name, present),
        pins=sessions_of(service, present),
        based=_based(service, present),
        mode=route.mode,
        notes=notes(service),
    )


def notes(service: Service) -> tuple[str, ...]:
    """Return what must be known of a service beside its figures."""
    stable, ejected = service.stable, service.ejected
    back = way_back(service.name, ejected)
    said = (
        (service.is_direct, "direct mode: clients call the engines themselves"),
        (stable is not None and bool(stable.unverified), stable.unverified if stable else ""),
        (ejected > 0, f"let go: engines were left with release {ejected}; to come back: {back}"),
    )
    return tuple(sentence for is_so, sentence in said if is_so)


def _based(service: Service, present: Mapping[str, NodeReport]) -> int | None:
    """Return how many nodes hold the base that all are to hold in the end."""
    if not service.is_running or not service.rollout or not service.rollout.moves_base:
        return None
    root = base_root(service.releases.get(target(service.rollout)))
    return sum(bool(report.incarnation) and report.base == root for report in present.values())


def _is_ready(report: NodeReport, service: str, number: int) -> bool:
    release = report.release(service, number)
    return bool(release and release.phase is NodePhase.READY and report.gateway_ok)


def target_release(service: Service) -> int:
    """Return the release whose readiness matters now: a rollout's, else the one that serves."""
    rollout = service.rollout
    if rollout and not rollout.phase.is_terminal:
        return rollout.back_to or rollout.to_release
    return service.current_route.stable


Needs = Mapping[str, frozenset[int]]
"""The releases of each service that every node should hold."""


def needs(fleet: Fleet) -> Needs:
    """Return what is wanted of every node; made once where many nodes are looked at."""
    return {name: wanted(s.route, s.rollout) for name, s in fleet.services.items()}


def node_status(node: str, fleet: Fleet, needed: Needs | None = None) -> NodeStatus:
    """Return one node's line.

    Its phase is the worst of the releases that are wanted of it, unless there is no agent or no
    engine to hold any.
    """
    record, report = fleet.records.get(node), fleet.reports.get(node)
    asked = _asked_of(node, fleet, needs(fleet) if needed is None else needed)
    lines = () if report is None else _releases(report, asked)
    worst = _worst(line for line in lines if line.is_wanted)
    is_word = record is not None and report is not None and report.boot_id == record.boot_id
    reason = worst.reason if worst else ""
    if record is None:
        last = f"last said: {worst.phase}" if worst else ""
        phase, reason = ABSENT, f"{last}: {reason}" if last and reason else last or reason
    elif report is None or not is_word:
        phase, reason, lines = STARTING, "", ()
    elif not report.incarnation:
        phase = NO_ENGINE
    else:
        phase = worst.phase if worst else IDLE
        if phase == NodePhase.READY and not report.gateway_ok:
            phase, reason = HANDING_OVER, reason or UNCONFIRMED
        reason = _drain(report) or reason or _failure(lines) or _rot(report)
    return NodeStatus(
        node=node,
        is_present=record is not None,
        phase=phase,
        engine=record.engine if record else "",
        routes=_of(fleet, report.routes) if report else {},
        reason=reason,
        releases=lines,
        overrides=_of(fleet, report.overrides) if report and record else {},
        pins=_of(fleet, report.pins) if report and record else {},
        incarnation=report.incarnation if report and is_word else "",
        cache_epoch=report.cache_epoch if report and is_word else 0,
    )


def _of(fleet: Fleet, told: Mapping[str, T]) -> dict[str, T]:
    """Return what is told of the services that are looked at."""
    return {service: said for service, said in told.items() if service in fleet.services}


def _asked_of(node: str, fleet: Fleet, needed: Needs) -> Needs:
    """Return what one node should hold: nothing that has no place on it while nodes change."""
    moving = [s for s in fleet.services.values() if s.rollout and s.rollout.wave_size]
    if not moving:
        return needed
    own = {s.name: frozenset(n for n in needed[s.name] if has_place(s, n, node)) for s in moving}
    return {**needed, **own}


def _releases(report: NodeReport, needed: Needs) -> tuple[ReleaseStatus, ...]:
    """Return what the node says of each release, and *absent* for the wanted ones it leaves out."""
    held: dict[str, dict[int, ReleaseReport]] = {}
    for said in report.releases:
        held.setdefault(said.service, {})[said.number] = said
    return tuple(
        _release(service, number, held.get(service, {}).get(number), numbers)
        for service, numbers in needed.items()
        for number in sorted(numbers.union(held.get(service, {})))
    )


def _release(
    service: str, number: int, said: ReleaseReport | None, needed: frozenset[int]
) -> ReleaseStatus:
    return ReleaseStatus(
        service=service,
        release=number,
        phase=said.phase if said else NodePhase.ABSENT,
        reason=_reason(said) if said else "",
        is_wanted=number in needed,
        probe=said.probe if said else "",
        fails_probe=said.fails_probe if said else False,
    )


def _reason(said: ReleaseReport) -> str:
    return said.reason or (f"{said.fetched_percent} % are here" if said.fetched_percent else "")


def service_phase(node: NodeStatus, service: str, fleet: Fleet) -> tuple[str, str]:
    """Return the phase of a node as far as one service is concerned, and the reason.

    Args:
        node: The node's line, of all services.
        service: The service.
        fleet: What the line was made of.
    """
    if not node.is_present or node.phase in {STARTING, NO_ENGINE}:
        return node.phase, node.reason
    worst = _worst(r for r in node.releases if r.is_wanted and r.service == service)
    if worst is None:
        return IDLE, ""
    if worst.phase == NodePhase.READY and not fleet.reports[node.node].gateway_ok:
        return HANDING_OVER, worst.reason or UNCONFIRMED
    return worst.phase, worst.reason


def _worst(lines: Iterable[ReleaseStatus]) -> ReleaseStatus | None:
    """Return the worst line; of equal ones one that says why it is not as good as it seems."""
    return min(
        lines,
        key=lambda line: (WORST_FIRST.index(NodePhase(line.phase)), not line.reason),
        default=None,
    )


def _drain(report: NodeReport) -> str:
    """Return how far the node is out of service, where an operator asked for that."""
    return report.drain.sentence if report.drain else ""


def _rot(report: NodeReport) -> str:
    """Return what has rotted on the node's disk, though it serves on from what is resident."""
    found = [each for answer in report.checks if answer.request == SCRUB for each in answer.found]
    return f"on disk: {found[0].problem_text}" if found else ""


def _failure(lines: Iterable[ReleaseStatus]) -> str:
    """Return why a release that is no longer wanted failed: people look for it afterwards."""
    failed = [line for line in lines if line.reason and not line.is_wanted]
    return (
        f"release {failed[-1].release} of {failed[-1].service}: {failed[-1].reason}"
        if failed
        else ""
    )

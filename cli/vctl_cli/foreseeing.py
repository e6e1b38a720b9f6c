"""What `rollout plan` shows, made of one reading of the fleet and of the start's own decision.

The rule to keep: nothing is written, in etcd or beside the sources, and no node is asked.
"""

import msgspec

from vctl_cli.artifacts import UNKNOWN_ROOT
from vctl_cli.exitcodes import ExitCode, of_error
from vctl_plans import forecast
from vctl_plans.admission import refusal
from vctl_plans.capacity import LEAST_FREE, Demand, crowded, demand
from vctl_plans.errors import PlanError, VctlError
from vctl_plans.forecast import ComponentChange, NodeForecast
from vctl_plans.foresight import Foresight
from vctl_plans.operate import Attach, Begin
from vctl_plans.phase import Component
from vctl_plans.plan import Plan, PlanStep
from vctl_plans.release import Release
from vctl_plans.rollout import listed
from vctl_plans.snapshot import Fleet, Service
from vctl_plans.weights import AdapterFacts

NAMED_BAD = 5
"""Nodes that a note names with what is wrong there; the rest are counted."""


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that would stop it."""

    message: str
    hint: str  # what to do about it; empty: nothing useful is known
    path: str  # the field of the plan; empty: it is none's
    exit_code: int  # what `rollout start` would exit with


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Free memory of the engines that tell, as shares from 0 to 1."""

    must_be_free: float  # after a load that allocates
    least_free: float  # now
    node: str  # where that is


class PlanView(msgspec.Struct, frozen=True, kw_only=True):
    """What a rollout would change, take, and be stopped by."""

    service: str
    strategy: str
    outcome: str  # start, follow (it runs already), nothing (it has converged), or refused
    exit_code: int  # 0, or that of the first refusal
    rollout: str  # that it would follow, or that has converged already; else empty
    from_release: int  # that serves now; 0: none
    release: int  # that would serve; 0: there is none
    is_new: bool  # whether the start would make it
    vector_before: str
    vector_after: str
    components: tuple[ComponentChange, ...]
    nodes: tuple[NodeForecast, ...]
    fetch_bytes: int  # of all nodes together, at most
    fetch_bytes_a_node: int  # of the node that has most to fetch
    unknown_sizes: tuple[str, ...]  # sources whose size is not known, and is not counted
    places: Demand | None  # for adapters; None: none is needed
    memory: Memory | None  # None: no engine tells
    ready: int  # nodes that must be ready before traffic moves
    steps: tuple[PlanStep, ...]
    least_s: float  # the soaks of all steps
    prepare_s: float  # after which it fails unless so many are ready
    wave_size: int  # nodes that change at once what they hold; 0: they hold both releases
    gives_way: tuple[int, ...]  # releases kept for an instant rollback that make room for it
    retained: tuple[int, ...]  # releases that stay loaded in the end
    notes: tuple[str, ...]
    refusals: tuple[Refusal, ...]


def plan_view(
    service: Service,
    plan: Plan,
    found: Foresight,
    fleet: Fleet,
    *,
    adapter: AdapterFacts | None = None,
) -> PlanView:
    """Return the view of what a start would come to.

    Args:
        service: The service as read.
        plan: The plan.
        found: What the start was found to come to.
        fleet: All services and nodes, with their reports.
        adapter: What the adapter says of itself, where its files could be read here.
    """
    target, decision, route = found.target, found.decision, service.current_route
    begins = decision if isinstance(decision, Begin) else None
    each = forecast.nodes(fleet, target) if target else ()
    refusals = (*map(_refusal, found.refusals), *_of_nodes(found, fleet, adapter))
    steps = forecast.steps_taken(plan, route, target.number if target else 0)
    return PlanView(
        service=service.name,
        strategy=plan.strategy,
        outcome=_outcome(found, refusals),
        exit_code=refusals[0].exit_code if refusals else ExitCode.DONE,
        rollout=decision.rollout.id if decision and not begins else "",
        from_release=route.stable,
        release=target.number if target else 0,
        is_new=found.is_new,
        vector_before=service.stable.vector_text if service.stable else "",
        vector_after=target.vector_text if target else "",
        components=_components(service.stable, target),
        nodes=each,
        fetch_bytes=sum(node.fetch_bytes for node in each),
        fetch_bytes_a_node=max((node.fetch_bytes for node in each), default=0),
        unknown_sizes=forecast.unknown_sizes(target.staged.values()) if target else (),
        places=demand(service, target) if target else None,
        memory=_memory(fleet, plan),
        ready=max(1, plan.ready.of(len(each))),
        steps=steps,
        least_s=forecast.least_s(steps),
        prepare_s=plan.prepare_s,
        wave_size=begins.rollout.wave_size if begins else 0,
        gives_way=_gives_way(service, begins),
        retained=_retained(service, plan, begins),
        notes=_notes(found, plan, fleet, each),
        refusals=refusals,
    )


def _outcome(found: Foresight, refusals: tuple[Refusal, ...]) -> str:
    if refusals:
        return "refused"
    if isinstance(found.decision, Begin):
        return "start"
    return "follow" if isinstance(found.decision, Attach) else "nothing"


def _components(before: Release | None, target: Release | None) -> tuple[ComponentChange, ...]:
    made = forecast.changes(before, target) if target else ()
    return tuple(
        msgspec.structs.replace(each, after="") if each.after == UNKNOWN_ROOT else each
        for each in made
    )


def _refusal(why: VctlError) -> Refusal:
    return Refusal(
        message=why.message,
        hint=why.hint,
        path=why.path if isinstance(why, PlanError) else "",
        exit_code=of_error(why),
    )


def _of_nodes(found: Foresight, fleet: Fleet, adapter: AdapterFacts | None) -> tuple[Refusal, ...]:
    """Return what nodes would certainly refuse: the rollout would start, and fail before traffic.

    Where the start itself is refused for the same rank or base, that is said already.
    """
    if adapter is None or found.target is None or found.refusals:
        return ()
    is_own_base = Component.WEIGHTS not in found.target.components
    by_reason: dict[str, list[str]] = {}
    for node, record in sorted(fleet.records.items()):
        why = refusal(adapter, record.facts, is_own_base=is_own_base) if record.facts else ""
        if why:
            by_reason.setdefault(why, []).append(node)
    return tuple(
        Refusal(
            message=f"{listed(tuple(nodes))} would refuse release {found.target.number}: {why}",
            hint="the rollout would start, and fail before any traffic moves",
            path="release.adapter",
            exit_code=ExitCode.FAILED,
        )
        for why, nodes in by_reason.items()
    )


def _memory(fleet: Fleet, plan: Plan) -> Memory | None:
    told = {n: r.free_memory for n, r in fleet.present().items() if r.free_memory is not None}
    if not told:
        return None
    node = min(told, key=lambda each: (told[each], each))
    needed = LEAST_FREE if plan.free_memory is None else plan.free_memory
    return Memory(must_be_free=needed, least_free=told[node], node=node)


def _gives_way(service: Service, begins: Begin | None) -> tuple[int, ...]:
    """Return what a start takes off the list of what is kept for an instant rollback."""
    if begins is None or begins.route is None:
        return ()
    kept = begins.route.instant
    return tuple(n for n in service.current_route.instant if n not in kept)


def _retained(service: Service, plan: Plan, begins: Begin | None) -> tuple[int, ...]:
    """Return what stays loaded once it has converged, as `forward` settles it."""
    route = service.current_route
    if begins is None or begins.rollout.wave_size or plan.groups:
        return route.instant if plan.groups else ()
    number, limit = begins.rollout.to_release, begins.rollout.retain
    most = plan.retain if limit is None else min(plan.retain, limit)
    given = set(_gives_way(service, begins)) | set(route.revoked) | {number, 0}
    kept = tuple(n for n in (*route.instant, route.stable) if n not in given)
    return kept[-most:] if most else ()


def _notes(
    found: Foresight, plan: Plan, fleet: Fleet, each: tuple[NodeForecast, ...]
) -> tuple[str, ...]:
    """Return what whoever starts it should know, and nothing refuses."""
    notes = found.decision.notes if isinstance(found.decision, Begin) else ()
    bad = {node.node: node.problem for node in each if node.problem}
    needed = max(1, plan.ready.of(len(each)))
    if bad and len(each) - len(bad) < needed:
        named = "; ".join(f"{node} is {why}" for node, why in list(bad.items())[:NAMED_BAD])
        more = f" and {len(bad) - NAMED_BAD} more" if len(bad) > NAMED_BAD else ""
        notes += (f"{needed} of {len(each)} nodes must be ready, and now {named}{more}",)
    busy = crowded(tuple(fleet.present()), fleet.present(), plan.kv_used)
    notes += (f"traffic would wait: {busy}",) if busy else ()
    return notes

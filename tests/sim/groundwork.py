"""What a history begins with: a service on which some releases converged before it began.

Made by the real decisions and transactions, once for each kind of beginning.
"""

from functools import cache

from tests.builders import SERVICE, a_plan, a_report
from vctl_plans import operate
from vctl_plans.decision import State
from vctl_plans.events import Observed
from vctl_plans.keys import Keys
from vctl_plans.machine import step
from vctl_plans.node import NodeReport
from vctl_plans.operate import Begin, Continue, Request
from vctl_plans.phase import Component, NodePhase
from vctl_plans.release import Artifact
from vctl_plans.rollout import Rollout, Roster
from vctl_plans.snapshot import Service, read_services
from vctl_plans.store.commit import begin_txn, continue_txn
from vctl_plans.store.memory_cluster import MemoryCluster
from vctl_plans.store.port import KeyValue

FLEET = "sim"
KEYS = Keys(FLEET)


def node_names(count: int) -> tuple[str, ...]:
    """Return the names of a fleet's nodes, sorted."""
    return tuple(f"n{number:02}" for number in range(count))


def adapter_wish(number: int) -> dict[Component, Artifact]:
    """Return the wish to bring an adapter, whose name in the engine is its own too."""
    root = f"b3:{number:012x}{number:052x}"
    return {Component.ADAPTER: Artifact(root=root, source=f"file:///adapters/v{number}")}


def prompt_wish(number: int) -> dict[Component, Artifact]:
    """Return the wish to bring a prompt."""
    root = f"b3:{number:012x}{1:052x}"
    return {Component.PROMPT: Artifact(root=root, source=f"file:///prompts/v{number}")}


def read(cluster: MemoryCluster) -> Service:
    """Return the service as it stands."""
    entries = cluster.listing(KEYS.services).entries
    return read_services(KEYS, entries).services.get(SERVICE) or Service(name=SERVICE)


@cache
def beginning(nodes: int, releases: int, *, retain: int = 1) -> tuple[int, dict[str, KeyValue]]:
    """Return revision and keys of a fleet on which releases 1 to *releases* have converged."""
    cluster = MemoryCluster(lambda: 0.0)
    roster = node_names(nodes)
    for number in range(1, releases + 1):
        _serve(cluster, number, roster, retain=retain)
    return cluster.revision, dict(cluster._entries)


def _serve(cluster: MemoryCluster, number: int, roster: tuple[str, ...], *, retain: int) -> None:
    service = read(cluster)
    begin = operate.start(
        service,
        a_plan(retain=retain),
        wish=adapter_wish(number),
        roster=roster,
        request=Request(id=f"ground-{number}"),
    )
    assert isinstance(begin, Begin)
    cluster.apply(begin_txn(KEYS, service, begin))
    while True:
        service = read(cluster)
        rollout = service.rollout
        assert rollout
        if rollout.phase.is_terminal:
            return
        state = State(
            plan=begin.plan,
            rollout=rollout,
            route=service.current_route,
            route_revision=service.route_revision,
            roster=Roster(nodes=roster).nodes,
        )
        reports = {node: _sound(node, rollout, service) for node in roster}
        decision = step(state, Observed(reports), 0.0)
        route = decision.state.route
        turn = Continue(
            before=rollout,
            rollout=decision.rollout,
            route=route if route != service.current_route else None,
        )
        cluster.apply(continue_txn(KEYS, service, turn))


def _sound(node: str, rollout: Rollout, service: Service) -> NodeReport:
    held = {f"r{rollout.to_release}": NodePhase.READY}
    if not rollout.unload and service.route:
        held |= {f"r{number}": NodePhase.READY for number in service.route.instant}
    return a_report(node, rollout=rollout, route_revision=service.route_revision, **held)

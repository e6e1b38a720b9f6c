"""Small values for tests: each builder fills in what the test at hand does not care about."""

from typing import Any

import msgspec

from vctl_plans.codec import encode
from vctl_plans.decision import State
from vctl_plans.node import NodeReport, ReleaseReport
from vctl_plans.phase import Component, NodePhase, RolloutPhase
from vctl_plans.plan import Plan, PlanStep
from vctl_plans.release import Actor, Artifact, Release, compose
from vctl_plans.rollout import Rollout, Roster
from vctl_plans.route import Route
from vctl_plans.snapshot import Service

SERVICE = "support"
NODES = ("a", "b", "c")


def a_root(number: int) -> str:
    """Return a root that is another one for each number."""
    return f"b3:{number:012x}{number:052x}"


def an_adapter(number: int) -> Artifact:
    """Return an adapter with bytes of its own."""
    return Artifact(root=a_root(number), source=f"file:///adapters/v{number}")


def an_adapter_wish(number: int) -> dict[Component, Artifact]:
    """Return the wish to bring an adapter."""
    return {Component.ADAPTER: an_adapter(number)}


def a_base_wish(number: int) -> dict[Component, Artifact]:
    """Return the wish to bring base weights."""
    weights = Artifact(root=a_root(1000 + number), source=f"file:///bases/v{number}")
    return {Component.WEIGHTS: weights}


def some_releases(count: int) -> dict[int, Release]:
    """Return releases 1 to *count*, each with an adapter of its own."""
    made: dict[int, Release] = {}
    for number in range(1, count + 1):
        made[number] = compose(
            SERVICE,
            an_adapter_wish(number),
            known=made.values(),
            stable=made.get(number - 1),
            by=Actor(),
        )
    return made


def a_release(number: int) -> Release:
    """Return a release with an adapter of its own."""
    return some_releases(number)[number]


def a_plan(*, soak_s: float = 0.0, **more: Any) -> Plan:
    """Return a full-switch plan with short deadlines."""
    plain = Plan(
        service=SERVICE,
        strategy="full-switch",
        steps=(PlanStep(soak_s=soak_s),),
        prepare_s=60,
        converge_s=20,
        drain_s=5,
        retain=1,
    )
    return msgspec.structs.replace(plain, **more)


def a_weighted_plan(
    *weights: float, soak_s: float = 60.0, manual: tuple[float, ...] = (), **more: Any
) -> Plan:
    """Return a weighted plan with short deadlines; the steps of the *manual* weights wait."""
    steps = tuple(
        PlanStep(weight=w, soak_s=soak_s, manual=w in manual) for w in weights or (10, 50, 100)
    )
    return a_plan(strategy="weighted", steps=steps, **more)


def a_route(**more: Any) -> Route:
    """Return a route on which release 1 serves and is good."""
    plain = Route(service=SERVICE, stable=1, salt=SERVICE, good=(1,))
    return msgspec.structs.replace(plain, **more)


def a_rollout(phase: RolloutPhase = RolloutPhase.PREPARING, **more: Any) -> Rollout:
    """Return a rollout from release 1 to release 2."""
    plain = Rollout(
        id="r2",
        service=SERVICE,
        plan=a_plan().digest,
        strategy="full-switch",
        phase=phase,
        from_release=1,
        to_release=2,
        roster=Roster(nodes=NODES).digest,
        roster_size=len(NODES),
        request="r2",
    )
    return msgspec.structs.replace(plain, **more)


def a_state(
    phase: RolloutPhase = RolloutPhase.PREPARING, *, route: Route | None = None, **more: Any
) -> State:
    """Return what a decision on a rollout from release 1 to 2 stands on."""
    return State(
        plan=a_plan(),
        rollout=a_rollout(phase, **more),
        route=route or a_route(),
        route_revision=7,
        roster=NODES,
    )


def a_service(
    *,
    releases: int = 2,
    route: Route | None = None,
    rollout: Rollout | None = None,
    revision: int = 7,
) -> Service:
    """Return a reading of a service."""
    return Service(
        name=SERVICE,
        releases=some_releases(releases),
        rollout=rollout,
        rollout_revision=revision if rollout else 0,
        rollout_bytes=encode(rollout) if rollout else b"",
        route=route,
        route_revision=revision if route else 0,
        route_bytes=encode(route) if route else b"",
    )


def a_report(
    node: str = "a",
    *,
    rollout: Rollout | None = None,
    route_revision: int = 7,
    **phases: NodePhase,
) -> NodeReport:
    """Return a node's report.

    Args:
        node: Who reports.
        rollout: The rollout that the node has seen.
        route_revision: The route that its gateway acts on.
        phases: Of releases, as in ``r2=NodePhase.READY``.
    """
    seen = rollout.attempt if rollout else ""
    return NodeReport(
        node=node,
        boot_id=f"boot-{node}",
        incarnation="engine-1",
        cache_epoch=7,
        releases=tuple(
            ReleaseReport(
                service=SERVICE, number=int(name[1:]), digest="", phase=phase, attempt=seen
            )
            for name, phase in phases.items()
        ),
        routes={SERVICE: route_revision},
        gateway_ok=True,
    )

"""What direct mode refuses, and what a node does for it."""

import msgspec
import pytest

from tests.builders import (
    NODES,
    SERVICE,
    a_base_wish,
    a_plan,
    a_report,
    a_rollout,
    a_route,
    a_service,
    a_weighted_plan,
    an_adapter,
)
from vctl_plans import direct, operate, reverting
from vctl_plans.base import Surroundings
from vctl_plans.decision import State
from vctl_plans.errors import PlanError
from vctl_plans.events import Observed
from vctl_plans.machine import step
from vctl_plans.node_machine import Action, Failure, Verdict
from vctl_plans.operate import Begin, Request
from vctl_plans.phase import Component, NodePhase, RolloutPhase
from vctl_plans.plan import Plan, Watch
from vctl_plans.release import Artifact, adopted
from vctl_plans.rollout import ServiceSpec
from vctl_plans.route import Consistency, Mode, Route, returned, settled, shifted
from vctl_plans.snapshot import Service

SPEC = ServiceSpec(service=SERVICE, mode=Mode.DIRECT)


def a_direct_service(**around: object) -> Service:
    return msgspec.structs.replace(
        a_service(route=a_route(mode=Mode.DIRECT)),
        spec=SPEC,
        spec_revision=1,
        around=Surroundings(**around),  # type: ignore[arg-type]
    )


def begin(
    plan: Plan, wish: dict[Component, Artifact] | int = 2, service: Service | None = None
) -> object:
    return operate.start(
        service or a_direct_service(), plan, wish=wish, roster=NODES, request=Request(id="q")
    )


@pytest.mark.parametrize(
    ("plan", "path"),
    [
        (a_weighted_plan(), "strategy"),
        (a_plan(strategy="user-group", groups="b3:1"), "strategy"),
        (a_plan(watch=Watch()), "guardrails"),
        (a_plan(consistency=Consistency.STRICT), "consistency"),
    ],
)
def test_what_needs_a_gateway_is_refused(plan: Plan, path: str) -> None:
    """With the field, and why."""
    with pytest.raises(PlanError, match="call the engines themselves") as refused:
        begin(plan)
    assert path == refused.value.path


def test_full_switch_and_rollback_are_not() -> None:
    """The two that one name for all can do."""
    assert isinstance(begin(a_plan()), Begin)
    assert isinstance(begin(Plan(service=SERVICE, strategy="rollback"), 2), Begin)


@pytest.mark.parametrize(
    ("wish", "path"),
    [
        (a_base_wish(2), "release.weights"),
        ({Component.PROMPT: an_adapter(7)}, "release.prompt"),
        ({Component.ADAPTER: adopted("by-hand", "/models/x")}, "release"),
    ],
)
def test_only_a_verified_adapter_can_be_switched(
    wish: dict[Component, Artifact], path: str
) -> None:
    """Nothing tells an application which release answered, and nothing can be put back."""
    with pytest.raises(PlanError) as refused:
        begin(a_plan(), wish)
    assert path == refused.value.path


def test_release_without_an_adapter_has_no_name_to_take() -> None:
    """The base model's own name is not the service's."""
    service = msgspec.structs.replace(a_direct_service(), route=None, route_revision=0, releases={})
    with pytest.raises(PlanError, match=r"release\.prompt"):
        begin(a_plan(), {Component.PROMPT: an_adapter(7)}, service)


def test_engine_that_cannot_replace_is_named_with_what_would_change_that() -> None:
    """Before anything is written."""
    service = a_direct_service(named_once=("a (start its engine with --flag)", "b"))
    with pytest.raises(PlanError, match=r"runs on a \(start its engine with --flag\), b"):
        begin(a_plan(), 2, service)


def test_engines_of_a_service_behind_gateways_need_not_replace() -> None:
    """Nothing of this concerns it."""
    service = msgspec.structs.replace(
        a_service(route=a_route()), around=Surroundings(named_once=("a",))
    )
    assert isinstance(begin(a_weighted_plan(), 2, service), Begin)


def test_mode_of_a_service_is_in_every_route_that_is_made_of_it() -> None:
    """A gateway that reads nothing but the route knows that it serves nothing of it."""
    first = Service(name=SERVICE, spec=SPEC).current_route
    assert first == Route(service=SERVICE, salt=SERVICE, mode=Mode.DIRECT)
    later = returned(settled(shifted(shifted(first, 1, 100), 2, 100), 2, retained=(1,)), 1,
                     revoke=(2,))  # fmt: skip
    assert Mode.DIRECT is later.mode


@pytest.mark.parametrize(
    ("route", "active", "fallback"),
    [
        (Route(service=SERVICE), 0, 0),
        (a_route(), 1, 0),
        (a_route(candidate=2, weight=100), 2, 1),
        (a_route(candidate=2, weight=50), 1, 0),
    ],
)
def test_engine_holds_what_gets_all_traffic(route: Route, active: int, fallback: int) -> None:
    """A part of it cannot be told."""
    assert (active, fallback) == (direct.active(route), direct.fallback(route))


FAILED = Failure(NodePhase.QUARANTINED, "probe", is_permanent=True)
BUSY = Failure(NodePhase.FAILED, "busy", is_permanent=False, retry_in_s=3.0)
BASE = direct.Facts(is_wanted=True, is_active=True, is_staged=True, is_held=True, is_probed=True)


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, Verdict(NodePhase.READY)),
        ({"is_probed": False}, Verdict(NodePhase.PROBING, Action.PROBE)),
        ({"is_held": False}, Verdict(NodePhase.LOADING, Action.REPLACE)),
        ({"is_held": False, "is_staged": False}, Verdict(NodePhase.FETCHING, Action.STAGE)),
        ({"is_staged": False}, Verdict(NodePhase.READY)),
        ({"is_active": False}, Verdict(NodePhase.READY)),
        (
            {"is_active": False, "is_coming": True},
            Verdict(NodePhase.READY, reason=direct.STAGED),
        ),
        ({"is_active": False, "is_staged": False}, Verdict(NodePhase.FETCHING, Action.STAGE)),
        ({"failure": FAILED}, Verdict(NodePhase.QUARANTINED, Action.NONE, "probe", True)),
        ({"failure": BUSY}, Verdict(NodePhase.FAILED, Action.NONE, "busy", False, 3.0)),
        ({"suspect": "half"}, Verdict(NodePhase.QUARANTINED, reason="half")),
        (
            {"suspect": "half", "is_active": False, "is_held": False},
            Verdict(NodePhase.QUARANTINED, reason="half"),
        ),
        (
            {"suspect": "half", "is_active": False, "is_held": False, "is_wanted": False},
            Verdict(NodePhase.UNLOADED),
        ),
        (
            {"is_wanted": False, "is_active": False},
            Verdict(NodePhase.DRAINING, reason="another release takes its name"),
        ),
        (
            {"is_wanted": False, "is_active": False, "is_held": False},
            Verdict(NodePhase.UNLOADED),
        ),
        (
            {"is_wanted": False, "is_active": False, "is_held": False, "failure": FAILED},
            Verdict(NodePhase.FAILED, reason="probe"),
        ),
    ],
)
def test_next_thing_to_do_follows_from_the_facts(
    changes: dict[str, object], verdict: Verdict
) -> None:
    """One row a situation."""
    assert verdict == direct.assess(msgspec.structs.replace(BASE, **changes))


def test_node_that_went_back_is_named_with_its_reason() -> None:
    """A switch that not all nodes made waits for a person, who reads why: at once."""
    rollout = a_rollout(RolloutPhase.SHIFTING, has_moved=True)
    state = State(
        plan=a_plan(),
        rollout=rollout,
        route=a_route(mode=Mode.DIRECT, candidate=2, weight=100),
        route_revision=7,
        roster=NODES,
    )
    good = {node: a_report(node, rollout=rollout, r2=NodePhase.READY) for node in ("a", "b")}
    bad = a_report("c", rollout=rollout, route_revision=0, r2=NodePhase.QUARANTINED)
    line = msgspec.structs.replace(bad.releases[0], reason="as the base", is_permanent=True)
    reports = good | {"c": msgspec.structs.replace(bad, releases=(line,))}

    decision = step(state, Observed(reports), 1.0)

    assert (RolloutPhase.PAUSED, ("c",)) == (decision.rollout.phase, decision.rollout.unconfirmed)
    assert decision.sentence == "c went back from release 2 without being told: as the base"
    behind_gateways = msgspec.structs.replace(state, route=a_route(candidate=2, weight=100))
    assert RolloutPhase.SHIFTING is step(behind_gateways, Observed(reports), 1.0).rollout.phase


def test_start_says_that_candidates_are_staged() -> None:
    """Ready is another word for it, that would promise too much."""
    rollout = a_rollout()
    state = State(a_plan(), rollout, a_route(mode=Mode.DIRECT), 7, NODES)
    reports = {n: a_report(n, rollout=rollout, r2=NodePhase.READY) for n in NODES}
    decision = step(state, Observed(reports), 1.0)
    assert decision.sentence == "release 2 is staged on 3 of 3 nodes: traffic moves to it"


def test_rollback_now_moves_the_route_at_once() -> None:
    """What served before lies on every node: it is instant as far as a disk is."""
    service = msgspec.structs.replace(
        a_direct_service(), route=a_route(stable=2, instant=(1,), good=(1, 2), mode=Mode.DIRECT)
    )
    begun = reverting.rollback_now(service, to=0, roster=NODES, request=Request(id="q"))
    assert isinstance(begun, Begin)
    assert begun.route is not None
    assert (1, (2,)) == (begun.route.stable, begun.route.revoked)

"""A dry run decides as the start does: the same decision, or the same refusal and all others."""

import pytest

from tests.builders import (
    NODES,
    a_plan,
    a_rollout,
    a_route,
    a_service,
    a_weighted_plan,
    an_adapter_wish,
)
from vctl_plans import operate
from vctl_plans.errors import VctlError
from vctl_plans.foresight import foresee
from vctl_plans.operate import Begin, Request
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.plan import Plan
from vctl_plans.route import Route
from vctl_plans.snapshot import Service
from vctl_plans.units import Quota

ASKED = Request(id="new")


def start(service: Service, plan: Plan, wish: object, *, supersede: bool = False) -> object:
    return operate.start(
        service, plan, wish=wish, roster=NODES, request=ASKED, supersede=supersede  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.mark.parametrize("wish", [an_adapter_wish(9), 2], ids=["new", "by number"])
def test_decision_is_the_one_that_the_start_takes(wish: object):
    service, plan = a_service(route=a_route()), a_plan()
    found = foresee(service, plan, wish=wish, roster=NODES, request=ASKED)  # type: ignore[arg-type]
    assert start(service, plan, wish) == found.decision
    assert isinstance(found.decision, Begin)
    assert found.target
    assert (not isinstance(wish, int)) is found.is_new
    assert () == found.refusals


REFUSED: list[tuple[Route, P | None, Plan, object, bool]] = [
    (a_route(), P.SOAKING, a_plan(), 2, False),
    (a_route(), P.SOAKING, a_plan(), 2, True),
    (a_route(revoked=(2,)), None, a_plan(), 2, False),
    (a_route(), None, a_plan(), 9, False),
    (a_route(), None, a_plan(ready=Quota(count=7)), 2, False),
    (a_route(stable=0, good=()), None, a_weighted_plan(groups="b3:g"), 2, False),
    (a_route(good=()), None, a_plan(strategy="rollback"), 0, False),
]


@pytest.mark.parametrize(("route", "phase", "plan", "wish", "supersede"), REFUSED)
def test_first_refusal_is_the_one_that_the_start_gives(
    route: Route, phase: P | None, plan: Plan, wish: object, supersede: bool
):
    rollout = a_rollout(phase, plan="another", to_release=1) if phase else None
    service = a_service(route=route, rollout=rollout)
    with pytest.raises(VctlError) as refusal:
        start(service, plan, wish, supersede=supersede)
    found = foresee(
        service, plan, wish=wish, roster=NODES, request=ASKED, supersede=supersede  # type: ignore[arg-type]
    )  # fmt: skip
    assert found.decision is None
    first = found.refusals[0]
    assert (type(refusal.value), refusal.value.message) == (type(first), first.message)


def test_all_refusals_are_found_each_once():
    service = a_service(route=a_route(revoked=(2,)), rollout=a_rollout(P.SOAKING, plan="another"))
    plan = a_plan(ready=Quota(count=7))
    found = foresee(service, plan, wish=2, roster=NODES, request=ASKED)
    said = [each.message for each in found.refusals]
    assert 3 == len(said) == len(set(said))
    for part, message in zip(("is revoked", "is soaking", "7 nodes are to be"), said, strict=True):
        assert part in message

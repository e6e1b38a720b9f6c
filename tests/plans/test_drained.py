"""Nodes that an operator took out of service: who waits for them, and where they are named."""

from typing import Any

import msgspec
import pytest

from tests.builders import a_base_wish, a_plan, an_adapter_wish
from tests.plans.story import Story
from tests.plans.test_peers import READY, fleet, report, service
from vctl_plans.inspection import Drained, DrainPhase
from vctl_plans.peers import Peers, listed, standing
from vctl_plans.phase import NodePhase
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.units import Quota

TEN = [f"n{number}" for number in range(10)]


def ten(**more: Any) -> Story:
    """Return ten nodes that serve release 1 and prepare release 2."""
    story = Story()
    story.nodes = list(TEN)
    story.serve(1).start(an_adapter_wish(2), plan=a_plan(**more))
    return story


def test_a_drained_node_that_does_its_part_counts_as_any_other():
    story = ten()
    story.drained = {"n3"}
    assert story.run() is P.CONVERGED
    assert story.rollout.sentence == "converged (10/10) on release 2"


def test_a_drained_node_that_is_slow_is_not_waited_for_and_is_named():
    story = ten()
    story.drained, story.slow = {"n3"}, {"n3"}
    assert story.run() is P.CONVERGED
    assert "unconfirmed: n3 (drained)" in story.rollout.sentence
    assert story.rollout.unconfirmed == ("n3",)


def test_a_drained_node_whose_agent_is_off_has_not_vanished():
    story = ten(max_absent=Quota(count=0))
    story.drained, story.gone = {"n3"}, {"n3"}
    assert story.run() is P.CONVERGED
    assert "unconfirmed: n3 (drained)" in story.rollout.sentence


def test_more_are_not_excused_than_the_plan_lets_be_unready():
    story = ten()
    story.drained = story.slow = {"n3", "n4"}
    assert story.run() is P.PREPARING
    more = ten(max_unready=Quota(count=2))
    more.drained = more.slow = {"n3", "n4"}
    assert more.run() is P.CONVERGED
    assert more.rollout.unconfirmed == ("n3", "n4")


def test_a_drained_node_alone_is_never_enough():
    """It takes no requests, so whoever was sent to the release would find nobody."""
    story = ten(ready=Quota(count=1))
    story.drained, story.slow = {"n3"}, set(TEN) - {"n3"}
    assert story.run() is P.PREPARING
    story.slow.discard("n4")
    assert story.run() is not P.PREPARING


def by_waves(*, of: int) -> Story:
    """Return four nodes that serve release 1 and are to change their base; `a` does so first."""
    story = Story(nodes=("a", "b", "c", "d"))
    story.serve(1).start(a_base_wish(2), plan=a_plan(max_unavailable=Quota(count=of)))
    return story


@pytest.mark.parametrize("drained", ["a", "b"])
def test_a_drained_node_is_one_of_those_that_may_be_missing_in_a_wave(drained: str):
    """Else traffic would follow it to a base on which nobody takes requests, or leave too few."""
    story = by_waves(of=1)
    story.drained = {drained}
    story.run()
    story.observe(story.state().plan.prepare_s)
    assert P.PAUSED is story.phase
    assert f"no more nodes can change their base: {drained} (drained)" in story.rollout.sentence
    assert (1, 0) == (story.route.stable, story.route.candidate)

    story.drained = set()
    story.resume()
    assert P.CONVERGED is story.run()


def test_traffic_follows_the_nodes_that_take_requests():
    story = by_waves(of=2)
    story.drained = {"a"}
    for _ in range(20):
        story.obey()
        story.observe()
        if story.route.candidate:
            break
    assert {"a", "d"} <= {n for n, base in story.bases.items() if base}
    assert "1 of 4 nodes hold the base of release 2: 50 %" in story.said[-1]


@pytest.mark.parametrize("trouble", ["slow", "refuses"])
def test_a_rollback_does_not_wait_for_a_drained_node_either(trouble: str):
    """That its engine is broken may be why it was drained."""
    story = Story()
    story.nodes = list(TEN)
    story.serve(1, 2)
    for node in TEN:
        story.drop(node, 1)
    story.service = msgspec.structs.replace(
        story.service, route=msgspec.structs.replace(story.route, instant=())
    )
    story.drained = {"n3"}
    if trouble == "slow":
        story.slow.add("n3")
    else:
        story.refuses["n3"] = "its engine is broken"
    story.back(1)
    assert P.ROLLED_BACK is story.run()
    assert 1 == story.route.stable
    assert "unconfirmed: n3 (drained)" in story.rollout.sentence


@pytest.mark.parametrize("drained", ["a", "b"])
def test_nor_do_others_that_change_by_waves(drained: str):
    story = by_waves(of=2)
    story.drained, story.slow = {drained}, {drained}
    assert P.CONVERGED is story.run()
    assert f"unconfirmed: {drained} (drained)" in story.rollout.sentence


def test_the_last_node_is_never_excused():
    story = Story(nodes=("n1",))
    story.serve(1).start(an_adapter_wish(2), plan=a_plan(max_unready=Quota(percent=100.0)))
    story.drained = story.slow = {"n1"}
    assert story.run() is P.PREPARING


@pytest.mark.parametrize("phase", DrainPhase)
def test_a_node_that_is_to_be_drained_is_no_peer_and_others_are_named_at_once(phase: DrainPhase):
    drained = msgspec.structs.replace(
        report("a", r1=READY), drain=Drained(request="drain-a", phase=phase)
    )
    found = listed(
        service(),
        standing(fleet(drained, report("b", r1=READY))),
        Peers(service=service().name),
    )
    digest = service().releases[1].digest
    assert [peer.node for peer in found.of(1, digest)] == ["b"]


def test_who_is_drained_leaves_the_peers_though_nobody_else_is_ready():
    """Else two that are drained at once would each count on the other."""
    asked = Drained(request="drain-x", phase=DrainPhase.WAITING)
    both = [msgspec.structs.replace(report(node, r1=READY), drain=asked) for node in ("a", "b")]
    third = report("c", r1=NodePhase.LOADING)
    before = listed(
        service(),
        standing(fleet(report("a", r1=READY), report("b", r1=READY), third)),
        Peers(service=service().name),
    )
    digest = service().releases[1].digest
    assert [peer.node for peer in before.of(1, digest)] == ["a", "b"]
    after = listed(service(), standing(fleet(*both, third)), before)
    assert after.of(1, digest) == ()

"""Strict changes: all gateways are fenced, then hold their requests, then switch together."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.builders import (
    NODES,
    a_plan,
    a_report,
    a_route,
    a_state,
    a_weighted_plan,
    an_adapter_wish,
)
from tests.plans.story import GROUPS, Story, a_group_plan
from vctl_plans import invariants
from vctl_plans.decision import NOBODY
from vctl_plans.errors import TransitionError
from vctl_plans.events import Observed, TakenOver
from vctl_plans.machine import step
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.rollout import advanced
from vctl_plans.route import Consistency, Hold, Stage

STRICT: dict[str, Any] = {"consistency": Consistency.STRICT}

PREPARED = "preparing: release 2 is prepared on 3 nodes"
FENCED = (
    "shifting: release 2 is ready on 3 of 3 nodes: traffic moves to it;"
    " first all gateways are fenced"
)
HELD = "shifting: 3 of 3 nodes are fenced: they hold new requests"
SWITCHED = "shifting: 3 of 3 nodes hold new requests: they switch now"
SETTLED = "settling: 3 of 3 nodes route to release 2: release 2 is stable"
CONVERGED = "converged: converged (3/3) on release 2"
FENCED_AGAIN = "shifting: 3 of 3 nodes report the route; first all gateways are fenced"


def begun(story: Story, **more: Any) -> None:
    """Start from release 1 to 2, to be switched by all at once."""
    story.serve(1).start(an_adapter_wish(2), plan=a_plan(**STRICT, **more))


def by_itself(story: Story) -> None:
    """Let it go through."""
    begun(story)
    story.run()


def weighted(story: Story) -> None:
    """Switch each step behind a barrier of its own."""
    plan = a_weighted_plan(50, 100, soak_s=0, **STRICT)
    story.serve(1).start(an_adapter_wish(2), plan=plan)
    story.run()


def of_groups(story: Story) -> None:
    """Switch what groups get behind a barrier."""
    plan = a_group_plan(soak_s=0, **STRICT)
    story.serve(1).start(an_adapter_wish(2), plan=plan, groups=GROUPS)
    story.run()


def first_release(story: Story) -> None:
    """Bring the first release: there is nothing to switch from."""
    story.start(an_adapter_wish(1), plan=a_plan(**STRICT))
    story.run()


def deaf_to_the_fence(story: Story) -> None:
    """Have one gateway not hear of the fence until a person saw it."""
    begun(story)
    story.obey()
    story.observe()
    story.deaf.add("c")
    story.wait()
    story.deaf.clear()
    story.resume()
    story.run()


def deaf_to_the_hold(story: Story) -> None:
    """Have one gateway not hear of the hold until a person saw it."""
    begun(story)
    story.obey()
    story.observe()
    story.obey()
    story.observe()
    story.deaf.add("c")
    story.wait()
    story.deaf.clear()
    story.resume()
    story.run()


def deaf_to_the_undoing(story: Story) -> None:
    """Have one gateway act on the barrier still when it is to begin anew."""
    deaf_until_paused(story)
    story.resume()
    story.wait()
    story.deaf.clear()
    story.resume()
    story.run()


def deaf_until_paused(story: Story) -> None:
    """Have one gateway not hear of the fence."""
    begun(story)
    story.obey()
    story.observe()
    story.deaf.add("c")
    story.wait()


def vanished(story: Story) -> None:
    """Have one node vanish under the hold; nobody knows what it answers."""
    begun(story, max_absent=msgspec.structs.replace(a_plan().max_absent, percent=50.0))
    story.obey()
    story.observe()
    story.obey()
    story.observe()
    story.vanish("c")
    story.wait()
    story.join("c")
    story.resume()
    story.run()


UNDONE = "paused: the strict switch is undone, no traffic moved: after"

TOLD: dict[Callable[[Story], None], list[str]] = {
    by_itself: [PREPARED, FENCED, HELD, SWITCHED, SETTLED, CONVERGED],
    weighted: [
        PREPARED,
        (
            "shifting: release 2 is ready on 3 of 3 nodes: step 1 of 2, 50 % of traffic moves to"
            " release 2; first all gateways are fenced"
        ),
        HELD,
        SWITCHED,
        (
            "shifting: 3 of 3 nodes route 50 % to release 2: step 2 of 2, 100 % of traffic moves"
            " to release 2; first all gateways are fenced"
        ),
        HELD,
        SWITCHED,
        "settling: 3 of 3 nodes route 100 % to release 2: release 2 is stable",
        CONVERGED,
    ],
    of_groups: [
        PREPARED,
        (
            "shifting: release 2 is ready on 3 of 3 nodes: the groups' traffic moves to it;"
            " first all gateways are fenced"
        ),
        HELD,
        SWITCHED,
        (
            "settling: 3 of 3 nodes route their groups to release 2: release 2 stays with its"
            " groups"
        ),
        "converged: converged (3/3) on release 2 for its groups, release 1 for all others",
    ],
    first_release: [
        "preparing: release 1 is prepared on 3 nodes",
        "shifting: release 1 is ready on 3 of 3 nodes: traffic moves to it",
        "settling: 3 of 3 nodes route to release 1: release 1 is stable",
        "converged: converged (3/3) on release 1",
    ],
    deaf_to_the_fence: [
        PREPARED,
        FENCED,
        f"{UNDONE} 20s these nodes do not report the route: c",
        "shifting: resumed: shifting",
        FENCED_AGAIN,
        HELD, SWITCHED, SETTLED, CONVERGED,
    ],
    deaf_to_the_hold: [
        PREPARED,
        FENCED,
        HELD,
        f"{UNDONE} 5s these nodes do not hold their requests: c",
        "shifting: resumed: shifting",
        FENCED_AGAIN,
        HELD, SWITCHED, SETTLED, CONVERGED,
    ],
    deaf_to_the_undoing: [
        PREPARED,
        FENCED,
        f"{UNDONE} 20s these nodes do not report the route: c",
        "shifting: resumed: shifting",
        f"{UNDONE} 20s these nodes do not report the route: c",
        "shifting: resumed: shifting",
        FENCED_AGAIN,
        HELD, SWITCHED, SETTLED, CONVERGED,
    ],
    vanished: [
        PREPARED,
        FENCED,
        HELD,
        f"{UNDONE} 5s these nodes do not hold their requests: c",
        "shifting: resumed: shifting",
        FENCED_AGAIN,
        HELD, SWITCHED, SETTLED, CONVERGED,
    ],
}  # fmt: skip

scenarios = pytest.mark.parametrize("scenario", TOLD, ids=lambda s: s.__name__)


@scenarios
def test_scenario_is_told_in_sentences(scenario: Callable[[Story], None]) -> None:
    """The history of each says what was decided and why, and has no hole."""
    story = Story()
    scenario(story)

    assert TOLD[scenario] == story.said
    assert [] == invariants.history(story.history, rollout=story.rollout)
    assert story.route.hold is None


@scenarios
@pytest.mark.parametrize("decision", range(12))
def test_scenario_ends_alike_when_its_conductor_dies(
    scenario: Callable[[Story], None], decision: int
) -> None:
    """Cut before and after the decision's write, the next conductor comes to the same end."""
    whole, cut = Story(), Story(dies_at=decision)
    scenario(whole)
    scenario(cut)

    assert whole.said == cut.said
    assert (whole.route, whole.rollout) == (cut.route, cut.rollout)


def full_switch(story: Story) -> None:
    """Start a switch of all."""
    story.start(an_adapter_wish(2), plan=a_plan(**STRICT))


def second_step(story: Story) -> None:
    """Start by weight, and come to the soak of the first step; the second is next."""
    story.start(an_adapter_wish(2), plan=a_weighted_plan(50, 100, soak_s=1, **STRICT))
    story.run()
    story.observe(1)


def groups(story: Story) -> None:
    """Start for groups."""
    story.start(an_adapter_wish(2), plan=a_group_plan(**STRICT), groups=GROUPS)


def at(start: Callable[[Story], None], stage: Stage) -> Story:
    """Return a strict rollout at a stage of its barrier."""
    story = Story().serve(1)
    start(story)
    for _ in range(3):
        if story.route.hold is None or story.route.hold.stage is not stage:
            story.obey()
            story.observe()
    assert story.route.hold
    assert story.route.hold.stage is stage
    return story


KINDS = pytest.mark.parametrize(
    "start", [full_switch, second_step, groups], ids=lambda s: s.__name__
)
STAGES = pytest.mark.parametrize("stage", list(Stage))


def stage_of(story: Story) -> Stage | None:
    """Return how far the barrier is, if there is one."""
    return story.route.hold.stage if story.route.hold else None


def traffic(story: Story) -> tuple[object, ...]:
    """Return who gets what."""
    route = story.route
    return route.stable, route.candidate, route.weight, route.overrides


@KINDS
@STAGES
def test_deadline_of_each_stage_undoes_it(start: Callable[[Story], None], stage: Stage) -> None:
    """Requests are let go, traffic is where it was, and who is in the way is named."""
    story = at(start, stage)
    before = traffic(story)
    story.deaf.update("bc")
    story.obey()
    limit_s = 5 if stage is Stage.HOLD else 20
    assert limit_s == story.observe(limit_s - 0.1).wake_s
    story.observe(limit_s)

    assert (P.PAUSED, None, before) == (story.phase, story.route.hold, traffic(story))
    assert ("b", "c") == story.rollout.unconfirmed


@KINDS
@STAGES
def test_undone_switch_tries_again(start: Callable[[Story], None], stage: Stage) -> None:
    """From the fence on, and comes through once all hear."""
    story = at(start, stage)
    story.pause()
    assert stage_of(story) is None
    story.resume()
    story.obey()
    story.observe()
    assert Stage.FENCED == stage_of(story)
    before = traffic(story)
    for _ in range(2):
        story.obey()
        story.observe()

    assert (P.SHIFTING, None) == (story.phase, stage_of(story))
    assert before != traffic(story)


@KINDS
@STAGES
@pytest.mark.parametrize("act", ["abort", "back", "pause"])
def test_word_of_an_operator_ends_the_hold(
    start: Callable[[Story], None], stage: Stage, act: str
) -> None:
    """With the very write: no request waits for a rollout that does something else."""
    story = at(start, stage)
    getattr(story, act)()

    assert story.route.hold is None
    if act != "pause":
        assert (1, 0, 0.0, ()) == traffic(story)
        assert story.run().is_terminal
        assert ((2,) if act == "back" else ()) == story.route.revoked


@KINDS
@STAGES
def test_too_many_conductors_end_the_hold(start: Callable[[Story], None], stage: Stage) -> None:
    """As every other decision does."""
    story = at(start, stage)
    story.observe(event=TakenOver(10))

    assert (P.PAUSED, None) == (story.phase, story.route.hold)


@KINDS
@STAGES
@pytest.mark.parametrize("is_fault", [False, True])
def test_traffic_does_not_move_to_what_is_not_ready_any_more(
    start: Callable[[Story], None], stage: Stage, is_fault: bool
) -> None:
    """It was when the barrier began; requests are not held for what nobody can load."""
    story = at(start, stage)
    before = traffic(story)
    if is_fault:
        story.quarantined["b"] = "failed probe"
    else:
        story.slow.add("b")
        story.drop("b", 2)
    story.obey()
    story.observe(1)
    assert (P.PAUSED if is_fault else P.SHIFTING) is story.phase
    if not is_fault:
        story.observe(5 if stage is Stage.HOLD else 20)

    assert (P.PAUSED, None, before) == (story.phase, story.route.hold, traffic(story))
    assert "these nodes do not hold release 2 ready: b" in story.rollout.sentence


def test_switch_that_is_resumed_asks_again_who_is_ready() -> None:
    """A week-end may have passed."""
    story = at(full_switch, Stage.HOLD)
    story.pause()
    story.slow.add("b")
    story.drop("b", 2)
    story.resume()
    story.run()

    assert (P.SHIFTING, None, 0) == (story.phase, story.route.hold, story.route.candidate)


@STAGES
def test_promotion_is_no_word_for_a_barrier(stage: Stage) -> None:
    """Nothing soaks."""
    with pytest.raises(TransitionError, match="is shifting"):
        at(full_switch, stage).promote()


def test_promotion_of_a_soak_goes_behind_the_barrier() -> None:
    """A person's word makes it sooner, not less strict."""
    story = Story().serve(1)
    story.start(an_adapter_wish(2), plan=a_weighted_plan(10, 50, 100, **STRICT))
    story.run()
    story.promote(is_full=True)
    story.observe()

    assert (2, 10.0) == (story.rollout.step, story.route.weight)
    assert story.route.hold
    assert story.run() is P.SOAKING
    assert 100.0 == story.route.weight


def test_rollback_at_once_waits_for_no_gateway() -> None:
    """Though the plan is strict and one hears nothing."""
    story = Story().serve(1)
    story.start(an_adapter_wish(2), plan=a_plan(soak_s=60, **STRICT))
    story.run()
    story.deaf.add("b")
    story.back()

    assert (1, 0, 0.0, ()) == traffic(story)
    assert story.route.hold is None


@STAGES
def test_node_that_vanished_never_counts_as_holding(stage: Stage) -> None:
    """However many may vanish: it may answer by the old route."""
    story = at(full_switch, stage)
    story.vanish("c")
    story.obey()
    assert story.observe(1).sentence == ""
    story.observe(20)

    assert (P.PAUSED, ("c",)) == (story.phase, story.rollout.unconfirmed)


@STAGES
def test_node_that_joined_is_held_too(stage: Stage) -> None:
    """Though it holds nothing of the release yet: its gateway answers by the old route."""
    story = at(full_switch, stage)
    story.slow.add("d")
    story.deaf.add("d")
    story.join("d")
    story.obey()
    assert story.observe(1).sentence == ""
    story.observe(20)

    assert (P.PAUSED, ("d",)) == (story.phase, story.rollout.unconfirmed)


@pytest.mark.parametrize("hold", [None, *Stage])
def test_nobody_never_holds(hold: Stage | None) -> None:
    """An empty roster switches nothing."""
    barrier = Hold(stage=hold, fence_s=5, limit_s=10) if hold else None
    state = a_state(P.SHIFTING, route=a_route(hold=barrier))
    state = msgspec.structs.replace(state, roster=(), plan=a_plan(**STRICT))

    assert step(state, Observed({}), 0.0).sentence == ""
    assert NOBODY in step(state, Observed({}), 20.0).sentence


def test_soak_begins_with_the_switch() -> None:
    """The barrier takes nothing of it, and has no time of an earlier one."""
    story = Story().serve(1)
    story.start(an_adapter_wish(2), plan=a_weighted_plan(50, 100, soak_s=60, **STRICT))
    story.run()
    story.observe(60)
    assert (P.SHIFTING, 0.0) == (story.phase, story.rollout.soaked_s)
    assert story.run() is P.SOAKING

    assert 60 == story.observe(59).wake_s


# -- the second opinion ----------------------------------------------------------------------------


def _opinion(route: dict[str, object], *, stage: Stage | None, deaf: str = "") -> list[str]:
    """Return what is told of a write that changes the route of a strict rollout at *stage*."""
    barrier = Hold(stage=stage, fence_s=5, limit_s=10) if stage else None
    state = a_state(P.SHIFTING, route=a_route(hold=barrier))
    reports = {n: a_report(n, route_revision=6 if n in deaf else 7) for n in (*NODES, "d")}
    seen = invariants.Seen(roster=NODES, reports=reports, plan=a_plan(**STRICT))
    before = invariants.Written(rollout=state.rollout, route=state.route, route_revision=7)
    after = invariants.Written(
        rollout=advanced(state.rollout, P.SHIFTING, "for a test"),
        route=msgspec.structs.replace(state.route, **route),
        route_revision=8,
    )
    return invariants.check(before, after, seen)


HOLD = Hold(stage=Stage.HOLD, fence_s=5, limit_s=10)
MOVED = {"candidate": 2, "weight": 100.0, "hold": None}


@pytest.mark.parametrize(
    ("route", "stage", "deaf", "told"),
    [
        ({"hold": HOLD}, None, "", "I3: requests are held before every gateway is fenced"),
        ({"hold": HOLD}, Stage.FENCED, "b", "I3: requests are held before every gateway is fenced"),
        ({"hold": HOLD}, Stage.FENCED, "d", "I3: requests are held before every gateway is fenced"),
        (
            {**MOVED, "hold": HOLD},
            Stage.FENCED,
            "",
            "I3: traffic moves by the very write of a barrier",
        ),
        (
            MOVED,
            Stage.FENCED,
            "",
            "I3: a strict switch while some gateway does not hold its requests",
        ),
        (
            MOVED,
            Stage.HOLD,
            "d",
            "I3: a strict switch while some gateway does not hold its requests",
        ),
    ],
)
def test_barrier_out_of_order_is_told(
    route: dict[str, object], stage: Stage | None, deaf: str, told: str
) -> None:
    """Also where the route does not say that the plan is strict."""
    assert told in _opinion(route, stage=stage, deaf=deaf)


def test_barrier_in_order_is_not_told() -> None:
    """Held once all are fenced."""
    assert [] == _opinion({"hold": HOLD}, stage=Stage.FENCED)

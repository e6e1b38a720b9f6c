"""Weighted rollouts, step by step, as the history tells them; and what operators do meanwhile."""

from collections.abc import Callable

import msgspec
import pytest

from tests.builders import NODES, SERVICE, a_plan, a_weighted_plan, an_adapter_wish
from tests.plans.story import Story
from vctl_plans import invariants
from vctl_plans.errors import PlanError, TransitionError
from vctl_plans.events import TakenOver
from vctl_plans.operate import Attach, Begin
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.plan import PlanStep
from vctl_plans.rollout import Promotion

PREPARED = "preparing: release 2 is prepared on 3 nodes"
FIRST = (
    "shifting: release 2 is ready on 3 of 3 nodes: step 1 of 3, 10 % of traffic moves to release 2"
)
SOAK_10 = "soaking: 3 of 3 nodes route 10 % to release 2: soaking 1m"
SECOND = "shifting: soaked 1m: step 2 of 3, 50 % of traffic moves to release 2"
SOAK_50 = "soaking: 3 of 3 nodes route 50 % to release 2: soaking 1m"
THIRD = "shifting: soaked 1m: step 3 of 3, 100 % of traffic moves to release 2"
SOAK_100 = "soaking: 3 of 3 nodes route 100 % to release 2: soaking 1m"
SETTLED = "settling: soaked 1m: release 2 is stable"
CONVERGED = "converged: converged (3/3) on release 2"
BACK = [
    "rolling_back: 3 of 3 nodes report the route: release 2 may be unloaded",
    "rolled_back: rolled back (3/3) on release 1",
]


def begun(story: Story, **more: object) -> None:
    """Start from release 1 to 2 by 10, 50 and 100, and come to the first soak."""
    story.serve(1).start(an_adapter_wish(2), plan=a_weighted_plan(**more))  # type: ignore[arg-type]
    assert story.run() is (P.SOAKING)


def soaked(story: Story) -> None:
    """Let the present step's soak pass, and come to the next one or to the end."""
    story.wait()
    story.run()


def by_themselves(story: Story) -> None:
    """Let the steps follow each other."""
    begun(story)
    soaked(story)
    soaked(story)
    soaked(story)


def without_soaks(story: Story) -> None:
    """Take each step as soon as every node acts on the one before."""
    story.serve(1).start(an_adapter_wish(2), plan=a_weighted_plan(soak_s=0))
    story.run()


def manual(story: Story) -> None:
    """Have the first step wait for a person."""
    begun(story, manual=(10,))
    soaked(story)
    story.promote()
    story.run()
    soaked(story)
    soaked(story)


def manual_switch(story: Story) -> None:
    """Move all traffic at once, and have a person say when it counts as done."""
    plan = a_plan(steps=(PlanStep(manual=True),))
    story.serve(1).start(an_adapter_wish(2), plan=plan)
    story.run()
    story.promote()
    story.run()


def promoted_early(story: Story) -> None:
    """Skip the rest of one soak, and only of that one."""
    begun(story)
    story.observe(20)
    story.promote()
    story.run()
    soaked(story)
    soaked(story)


def promoted_in_full(story: Story) -> None:
    """Go to the last step at once."""
    begun(story)
    story.promote(is_full=True)
    story.run()
    soaked(story)


def paused_in_a_soak(story: Story) -> None:
    """Stop 45 s into a soak of a minute, and go on: 15 s are left."""
    begun(story)
    story.observe(45)
    story.pause(45)
    story.resume()
    assert story.observe(14).wake_s == 15
    story.observe(15)
    story.run()
    soaked(story)
    soaked(story)


def paused_before_it_moves(story: Story) -> None:
    """Stop while it prepares; nodes get ready meanwhile."""
    story.serve(1).start(an_adapter_wish(2), plan=a_weighted_plan(100, soak_s=0))
    story.pause()
    story.obey()
    story.resume()
    story.run()


def node_lost_between_steps(story: Story) -> None:
    """Have one node hold the release no more when the next step is due, until a person saw it."""
    begun(story)
    story.slow.add("b")
    story.drop("b", 2)
    assert story.observe(60).wake_s == 120  # the soak is over; as long again as for preparing
    story.observe(120)
    story.slow.clear()
    story.resume()
    story.run()
    soaked(story)
    soaked(story)


def first_release(story: Story) -> None:
    """Bring the first release: there is nothing to split traffic with."""
    story.start(an_adapter_wish(1), plan=a_weighted_plan())
    story.run()
    soaked(story)


def what_serves_already(story: Story) -> None:
    """Confirm the release that serves."""
    story.serve(1).start(an_adapter_wish(1), plan=a_weighted_plan(soak_s=0))
    story.run()


def deaf_node_at_the_second_step(story: Story) -> None:
    """Have one gateway not hear of the second step until a person saw it."""
    begun(story)
    story.deaf.add("c")
    story.wait()
    story.wait()
    story.deaf.clear()
    story.resume()
    story.run()
    story.abort()
    story.run()


def aborted_at_fifty(story: Story) -> None:
    """Give it up at half of the traffic, and try it again."""
    begun(story)
    soaked(story)
    story.abort()
    story.run()
    story.retry()
    story.run()


def rolled_back_at_fifty(story: Story) -> None:
    """Revoke it at half of the traffic."""
    begun(story)
    soaked(story)
    story.back()
    story.run()


TOLD: dict[Callable[[Story], None], list[str]] = {
    by_themselves: [
        PREPARED, FIRST, SOAK_10, SECOND, SOAK_50, THIRD, SOAK_100, SETTLED, CONVERGED,
    ],
    without_soaks: [
        PREPARED,
        FIRST,
        (
            "shifting: 3 of 3 nodes route 10 % to release 2: step 2 of 3, 50 % of traffic moves"
            " to release 2"
        ),
        (
            "shifting: 3 of 3 nodes route 50 % to release 2: step 3 of 3, 100 % of traffic moves"
            " to release 2"
        ),
        "settling: 3 of 3 nodes route 100 % to release 2: release 2 is stable",
        CONVERGED,
    ],
    manual: [
        PREPARED,
        FIRST,
        SOAK_10,
        "paused: soaked 1m: step 1 of 3 waits for vctl rollout promote",
        "soaking: promoted by an operator: step 2 of 3 is next",
        "shifting: promoted: step 2 of 3, 50 % of traffic moves to release 2",
        SOAK_50, THIRD, SOAK_100, SETTLED, CONVERGED,
    ],
    manual_switch: [
        PREPARED,
        "shifting: release 2 is ready on 3 of 3 nodes: traffic moves to it",
        "soaking: 3 of 3 nodes route to release 2: no soak",
        "paused: no soak: step 1 of 1 waits for vctl rollout promote",
        "soaking: promoted by an operator: it settles",
        "settling: promoted: release 2 is stable",
        CONVERGED,
    ],
    promoted_early: [
        PREPARED,
        FIRST,
        SOAK_10,
        "soaking: promoted by an operator: step 2 of 3 is next",
        "shifting: promoted: step 2 of 3, 50 % of traffic moves to release 2",
        SOAK_50, THIRD, SOAK_100, SETTLED, CONVERGED,
    ],
    promoted_in_full: [
        PREPARED,
        FIRST,
        SOAK_10,
        "soaking: promoted by an operator: step 3 of 3 is next",
        "shifting: promoted: step 3 of 3, 100 % of traffic moves to release 2",
        SOAK_100, SETTLED, CONVERGED,
    ],
    paused_in_a_soak: [
        PREPARED,
        FIRST,
        SOAK_10,
        "paused: paused by an operator while soaking, 45s of 1m",
        "soaking: resumed: soaking, 15s left",
        SECOND, SOAK_50, THIRD, SOAK_100, SETTLED, CONVERGED,
    ],
    paused_before_it_moves: [
        PREPARED,
        "paused: paused by an operator while preparing",
        "preparing: resumed: preparing",
        "shifting: release 2 is ready on 3 of 3 nodes: traffic moves to it",
        "settling: 3 of 3 nodes route to release 2: release 2 is stable",
        CONVERGED,
    ],
    node_lost_between_steps: [
        PREPARED,
        FIRST,
        SOAK_10,
        "paused: release 2 is not ready any more on b: step 2 of 3 is not taken",
        "soaking: resumed: soaking, 0s left",
        SECOND, SOAK_50, THIRD, SOAK_100, SETTLED, CONVERGED,
    ],
    first_release: [
        "preparing: release 1 is prepared on 3 nodes",
        (
            "shifting: release 1 is ready on 3 of 3 nodes: all traffic moves to it in one step,"
            " since nothing served before"
        ),
        "soaking: 3 of 3 nodes route 100 % to release 1: soaking 1m",
        "settling: soaked 1m: release 1 is stable",
        "converged: converged (3/3) on release 1",
    ],
    what_serves_already: [
        "preparing: release 1 is prepared on 3 nodes",
        (
            "shifting: release 1 is ready on 3 of 3 nodes: it serves already, so there are no"
            " steps"
        ),
        "settling: 3 of 3 nodes route 100 % to release 1: release 1 is stable",
        "converged: converged (3/3) on release 1",
    ],
    deaf_node_at_the_second_step: [
        PREPARED,
        FIRST,
        SOAK_10,
        SECOND,
        "paused: after 20s these nodes do not report the route: c",
        "shifting: resumed: shifting",
        SOAK_50,
        "rolling_back: aborted by an operator: traffic returns to release 1",
        *BACK,
    ],
    aborted_at_fifty: [
        PREPARED,
        FIRST,
        SOAK_10,
        SECOND,
        SOAK_50,
        "rolling_back: aborted by an operator: traffic returns to release 1",
        *BACK,
        PREPARED,
        FIRST,
        SOAK_10,
    ],
    rolled_back_at_fifty: [
        PREPARED,
        FIRST,
        SOAK_10,
        SECOND,
        SOAK_50,
        (
            "rolling_back: rollback to release 1 asked: traffic returns to release 1;"
            " release 2 is revoked"
        ),
        *BACK,
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


def at(step: int, phase: P) -> Story:
    """Return a rollout by 10, 50 and 100 that is in *phase* of a step, the first being 0."""
    story = Story().serve(1)
    manual = (10, 50, 100) if phase is P.PAUSED else ()
    story.start(an_adapter_wish(2), plan=a_weighted_plan(manual=manual))
    while (story.rollout.step, story.phase) != (step, phase):
        if story.rollout.awaits_promote:
            story.promote()
        story.obey()
        story.observe(60.0 if story.phase is P.SOAKING else 0.0)
    return story


STEPS = pytest.mark.parametrize("step", [0, 1, 2])
MOVING = pytest.mark.parametrize("phase", [P.SHIFTING, P.SOAKING, P.PAUSED])


@STEPS
@MOVING
def test_abort_in_each_step_returns_all_traffic(step: int, phase: P) -> None:
    """With the very write, and nothing is revoked."""
    story = at(step, phase)
    assert (10, 50, 100)[step] == story.route.weight
    story.abort()

    assert (1, 0, 0.0, ()) == _split(story)
    assert story.run() is P.ROLLED_BACK
    assert (Promotion.NONE, False) == (story.rollout.promoted, story.rollout.awaits_promote)


@STEPS
@MOVING
def test_rollback_in_each_step_returns_all_traffic_and_revokes(step: int, phase: P) -> None:
    """With the very write."""
    story = at(step, phase)
    story.back()

    assert (1, 0, 0.0, (2,)) == _split(story)
    assert story.run() is P.ROLLED_BACK


def _split(story: Story) -> tuple[int, int, float, tuple[int, ...]]:
    route = story.route
    return route.stable, route.candidate, route.weight, route.revoked


def test_takeover_neither_restarts_nor_skips_a_soak() -> None:
    """Conductors come and go, pauses too: a minute is a minute."""
    story = at(0, P.SOAKING)
    story.observe(50, event=TakenOver(10))
    assert (P.PAUSED, 50.0) == (story.phase, story.rollout.soaked_s)
    story.resume()
    story.pause(4)
    story.resume()

    assert story.observe(5.9).wake_s == pytest.approx(6)
    assert story.phase is P.SOAKING
    story.observe(6)
    assert (P.SHIFTING, 1) == (story.phase, story.rollout.step)


def test_deadlines_are_each_steps_own() -> None:
    """The second step has as long to be acknowledged as the first."""
    story = at(1, P.SHIFTING)
    story.deaf.update(NODES)

    assert 20 == story.observe(19.9).wake_s
    assert story.observe(20).rollout.phase is P.PAUSED


def test_step_promoted_twice_is_promoted_once() -> None:
    """The second press finds the first."""
    story = at(0, P.SOAKING)
    story.promote()
    before = story.rollout
    story.promote()
    assert before == story.rollout

    story.promote(is_full=True)  # more than was asked before
    assert Promotion.FULL is story.rollout.promoted


def test_pause_takes_a_promotion_back() -> None:
    """The last word counts; after the resume the rest of the soak is waited for."""
    story = at(0, P.SOAKING)
    story.promote()
    story.pause()
    story.resume()
    story.observe(59)

    assert (P.SOAKING, 0) == (story.phase, story.rollout.step)


@pytest.mark.parametrize("back", [Story.abort, Story.back])
def test_way_back_takes_a_promotion_back(back: Callable[[Story], None]) -> None:
    """Nothing of it is left for whoever reads the rollout."""
    story = at(0, P.SOAKING)
    story.promote()
    back(story)

    assert Promotion.NONE is story.rollout.promoted


def test_promotion_of_a_paused_soak_goes_on() -> None:
    """One word instead of two."""
    story = at(0, P.SOAKING)
    story.pause(10)
    story.promote()
    story.observe()

    assert (P.SHIFTING, 1) == (story.phase, story.rollout.step)


def test_resume_of_a_step_that_waits_for_a_promotion_names_it() -> None:
    """What a person has to look at is not gone past by a word that only means to go on."""
    with pytest.raises(TransitionError, match="waits for vctl rollout promote") as refused:
        at(0, P.PAUSED).resume()

    assert "allowed now: rollout promote, rollout abort, rollback --now" == refused.value.hint


def test_promotion_of_what_is_paused_elsewhere_is_refused() -> None:
    """Nodes that do not report the route are no soak that could be skipped."""
    story = at(0, P.SHIFTING)
    story.pause()

    with pytest.raises(TransitionError, match="is paused while shifting"):
        story.promote()


@pytest.mark.parametrize("act", [Story.pause, Story.promote])
def test_what_goes_back_is_neither_paused_nor_promoted(act: Callable[[Story], None]) -> None:
    """A way back is never held up."""
    story = at(1, P.SOAKING)
    story.back()

    with pytest.raises(TransitionError, match="is rolling_back"):
        act(story)


# -- retry -----------------------------------------------------------------------------------------


def test_retry_begins_the_same_plan_anew() -> None:
    """From its first step, with another id and the nodes of now."""
    story = at(1, P.SOAKING)
    before = story.rollout
    story.abort()
    story.run()
    story.nodes.append("d")
    again = story.retry()

    assert isinstance(again, Begin)
    assert (before.plan, before.to_release, 0, 4, False) == (
        again.rollout.plan,
        again.rollout.to_release,
        again.rollout.step,
        again.rollout.roster_size,
        again.rollout.has_moved,
    )
    assert again.rollout.id != before.id


def test_retry_after_a_failure_converges() -> None:
    """Once the reason is gone."""
    story = Story().serve(1)
    story.refuses["b"] = "root mismatch"
    story.start(an_adapter_wish(2), plan=a_plan())
    assert story.run() is P.FAILED
    story.refuses.clear()
    story.retry()

    assert story.run() is P.CONVERGED


def test_retry_of_what_was_revoked_is_refused() -> None:
    """A rollback said that it must not serve again."""
    story = at(1, P.SOAKING)
    story.back()
    story.run()

    with pytest.raises(TransitionError, match="release 2 of support is revoked"):
        story.retry()


def test_retry_of_what_runs_or_converged_is_refused() -> None:
    """By name."""
    story = at(0, P.SOAKING)
    with pytest.raises(TransitionError, match="is soaking"):
        story.retry()
    with pytest.raises(TransitionError, match="is converged"):
        Story().serve(1).retry()


def test_retry_without_nodes_is_refused() -> None:
    """An empty roster passes no gate."""
    story = at(0, P.SOAKING)
    story.abort()
    story.run()
    story.nodes = []

    with pytest.raises(PlanError, match="no node is present"):
        story.retry()


def test_retry_whose_reply_was_lost_is_found() -> None:
    """By its request's id."""
    story = at(0, P.SOAKING)
    story.abort()
    story.run()
    again = story.retry()
    story._requests -= 1

    assert Attach(again.rollout) == story.retry()


# -- the second opinion ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("route", "rollout", "told"),
    [
        ({"weight": 5.0}, {}, "I3: weight 50 shrank to 5"),
        ({"candidate": 0, "weight": 0.0}, {}, "I3: candidate 2 left its weight of 50"),
        ({"stable": 2, "candidate": 0, "weight": 0.0}, {}, "I3: candidate 2 left its weight of 50"),
        ({"weight": 100.0}, {}, "I3: step 2 was taken twice"),
        ({}, {"step": 0}, "I3: step 1 follows step 2"),
        (
            {},
            {"step": 2, "phase": P.SOAKING},
            "I3: step 3 was taken in soaking, and led to soaking",
        ),
        ({"weight": 100.0}, {"step": 3}, "I3: step 4 follows step 2"),
        (
            {"weight": 100.0},
            {"step": 2, "phase": P.SHIFTING},
            "I5: more traffic moves to release 2, which is not ready everywhere",
        ),
    ],
)
def test_step_out_of_order_is_told(
    route: dict[str, object], rollout: dict[str, object], told: str
) -> None:
    """Each by its invariant's number."""
    story = at(1, P.SOAKING)
    before = invariants.Written(rollout=story.rollout, route=story.route, route_revision=9)
    changed = {"seq": story.rollout.seq + 1} | rollout
    after = invariants.Written(
        rollout=msgspec.structs.replace(story.rollout, **changed),
        route=msgspec.structs.replace(story.route, **route),
        route_revision=10,
    )

    assert told in invariants.check(before, after)
    assert SERVICE == story.rollout.service

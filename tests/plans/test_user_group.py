"""Groups with a release of their own: how they get it, keep it, and lose it again."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.builders import SERVICE, a_plan, a_weighted_plan, an_adapter_wish
from tests.plans.story import FAILED, GROUPS, PASSED, STAFF, Story, a_group_plan
from vctl_plans import invariants
from vctl_plans.errors import PlanError, TransitionError
from vctl_plans.events import TakenOver
from vctl_plans.operate import AlreadyDone, Attach, Begin
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.plan import Plan, Watch
from vctl_plans.rollout import Cause
from vctl_plans.route import Override, overridden

PREPARED = "preparing: release 2 is prepared on 3 nodes"
SHIFTED = "shifting: release 2 is ready on 3 of 3 nodes: the groups' traffic moves to it"
SOAKED = "soaking: 3 of 3 nodes route their groups to release 2: soaking 1m"
SETTLED = "settling: soaked 1m: release 2 stays with its groups"
CONVERGED = "converged: converged (3/3) on release 2 for its groups, release 1 for all others"
GOES = "rolling_back: 3 of 3 nodes report the route: release 2 may be unloaded"
WENT = "rolled_back: rolled back (3/3) on release 1"


def begun(story: Story, number: int = 2, **more: Any) -> None:
    """Bring the groups a release of their own, and come to its soak."""
    story.start(an_adapter_wish(number), plan=a_group_plan(**more), groups=GROUPS)
    story.run()


def by_itself(story: Story) -> None:
    """Give groups their release."""
    begun(story.serve(1))
    story.wait()
    story.run()


def moved_default(story: Story) -> None:
    """Move the default twice; the groups keep what they have."""
    story.serve(1).give(2)
    story.start(an_adapter_wish(3), plan=a_weighted_plan(50, 100, soak_s=0))
    story.run()
    story.start(an_adapter_wish(4))
    story.run()


def newer_release(story: Story) -> None:
    """Give the same groups a newer release; the older one is unloaded."""
    begun(story.serve(1).give(2), 3)
    story.wait()
    story.run()


def aborted(story: Story) -> None:
    """Give it up while it soaks, and try again."""
    begun(story.serve(1))
    story.abort()
    story.run()
    story.retry()
    story.run()


def rolled_back(story: Story) -> None:
    """Go back while it soaks."""
    begun(story.serve(1))
    story.back()
    story.run()


def rolled_back_to_an_older_one(story: Story) -> None:
    """Go back to what the groups had of their own."""
    begun(story.serve(1).give(2), 3)
    story.back()
    story.run()


def rolled_back_afterwards(story: Story) -> None:
    """Go back once it has converged: they have nothing of their own any more."""
    story.serve(1).give(2).back()
    story.run()


def ended(story: Story) -> None:
    """End it without a word against the release."""
    story.serve(1).give(2).end_override()
    story.run()


def breached(story: Story) -> None:
    """Have a guardrail send the groups back."""
    begun(story.serve(1), watch=Watch())
    story.judge(FAILED)
    story.run()


def given_to_all(story: Story) -> None:
    """Have the release that groups tried out become everybody's."""
    story.serve(1).give(2).start(2, plan=a_plan())
    story.run()


TOLD: dict[Callable[[Story], None], list[str]] = {
    by_itself: [PREPARED, SHIFTED, SOAKED, SETTLED, CONVERGED],
    moved_default: [
        "preparing: release 3 is prepared on 3 nodes",
        (
            "shifting: release 3 is ready on 3 of 3 nodes: step 1 of 2, 50 % of traffic moves to"
            " release 3"
        ),
        (
            "shifting: 3 of 3 nodes route 50 % to release 3: step 2 of 2, 100 % of traffic moves"
            " to release 3"
        ),
        "settling: 3 of 3 nodes route 100 % to release 3: release 3 is stable",
        "converged: converged (3/3) on release 3",
        "preparing: release 4 is prepared on 3 nodes",
        "shifting: release 4 is ready on 3 of 3 nodes: traffic moves to it",
        "settling: 3 of 3 nodes route to release 4: release 4 is stable",
        "settling: 3 of 3 nodes report the route: release 1 may be unloaded",
        "converged: converged (3/3) on release 4",
    ],
    newer_release: [
        "preparing: release 3 is prepared on 3 nodes",
        "shifting: release 3 is ready on 3 of 3 nodes: the groups' traffic moves to it",
        "soaking: 3 of 3 nodes route their groups to release 3: soaking 1m",
        "settling: soaked 1m: release 3 stays with its groups",
        "settling: 3 of 3 nodes report the route: release 2 may be unloaded",
        "converged: converged (3/3) on release 3 for its groups, release 1 for all others",
    ],
    aborted: [
        PREPARED, SHIFTED, SOAKED,
        "rolling_back: aborted by an operator: traffic returns to release 1",
        GOES, WENT,
        PREPARED, SHIFTED, SOAKED,
    ],
    rolled_back: [
        PREPARED, SHIFTED, SOAKED,
        (
            "rolling_back: rollback to release 1 asked: traffic returns to release 1;"
            " release 2 is revoked"
        ),
        GOES, WENT,
    ],
    rolled_back_to_an_older_one: [
        "preparing: release 3 is prepared on 3 nodes",
        "shifting: release 3 is ready on 3 of 3 nodes: the groups' traffic moves to it",
        "soaking: 3 of 3 nodes route their groups to release 3: soaking 1m",
        (
            "rolling_back: rollback to release 1 asked: traffic returns to release 1, the groups'"
            " to release 2; release 3 is revoked"
        ),
        "rolling_back: 3 of 3 nodes report the route: release 3 may be unloaded",
        "rolled_back: rolled back (3/3) on release 1",
    ],
    rolled_back_afterwards: [
        (
            "rolling_back: rollback to release 1 asked: traffic returns to release 1;"
            " release 2 is revoked"
        ),
        GOES, WENT,
    ],
    ended: [
        "rolling_back: the override is ended by an operator: traffic returns to release 1",
        GOES, WENT,
    ],
    breached: [
        PREPARED, SHIFTED, SOAKED,
        (
            "rolling_back: guardrail breached: error ratio 9.0: traffic returns to release 1;"
            " release 2 is revoked"
        ),
        GOES, WENT,
    ],
    given_to_all: [
        PREPARED,
        "shifting: release 2 is ready on 3 of 3 nodes: traffic moves to it",
        "settling: 3 of 3 nodes route to release 2: release 2 is stable",
        CONVERGED.replace(" for its groups, release 1 for all others", ""),
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
@pytest.mark.parametrize("decision", range(14))
def test_scenario_ends_alike_when_its_conductor_dies(
    scenario: Callable[[Story], None], decision: int
) -> None:
    """Cut before and after the decision's write, the next conductor comes to the same end."""
    whole, cut = Story(), Story(dies_at=decision)
    scenario(whole)
    scenario(cut)

    assert whole.said == cut.said
    assert (whole.route, whole.rollout) == (cut.route, cut.rollout)


def at(phase: P, *, older: int = 0) -> Story:
    """Return a rollout for groups in *phase*; 3 is brought, and 2 they had if it is *older*."""
    story = Story().serve(1)
    if older:
        story.give(2)
    story.start(an_adapter_wish(3), plan=a_group_plan(watch=Watch()), groups=GROUPS)
    story.judge(PASSED)
    for _ in range(4):
        if story.phase is not phase:
            story.obey()
            story.observe(60.0 if story.phase is P.SOAKING else 0.0)
    assert story.phase is phase
    return story


BEFORE_THE_END = pytest.mark.parametrize("phase", [P.PREPARING, P.SHIFTING, P.SOAKING, P.SETTLING])
OLDER = pytest.mark.parametrize("older", [0, 2])


@OLDER
@BEFORE_THE_END
def test_rollback_in_each_phase_returns_what_the_groups_had(phase: P, older: int) -> None:
    """With the very write; only what they were brought is revoked."""
    story = at(phase, older=older)
    brought = story.rollout.to_release
    story.back()

    assert (1, older, (brought,)) == (story.route.stable, story.theirs(), story.route.revoked)
    assert story.run() is P.ROLLED_BACK
    assert (older, ()) == (story.theirs(), story.rollout.unconfirmed)


@OLDER
@pytest.mark.parametrize("phase", [P.PREPARING, P.SHIFTING, P.SOAKING])
def test_abort_in_each_phase_returns_what_the_groups_had(phase: P, older: int) -> None:
    """And revokes nothing."""
    story = at(phase, older=older)
    story.abort()

    assert (1, older, ()) == (story.route.stable, story.theirs(), story.route.revoked)
    assert story.run() is (P.FAILED if phase is P.PREPARING else P.ROLLED_BACK)
    assert older == story.theirs()


@OLDER
def test_breach_returns_what_the_groups_had(older: int) -> None:
    """As a rollback does."""
    story = at(P.SOAKING, older=older)
    brought = story.rollout.to_release
    story.judge(FAILED)

    assert story.run() is P.ROLLED_BACK
    assert (older, (brought,), Cause.GUARDRAIL) == (
        story.theirs(),
        story.route.revoked,
        story.rollout.cause,
    )


def test_rollback_does_not_return_groups_to_what_may_be_unloaded() -> None:
    """Once what they had is on the unload list, they get what all others do; that is loaded."""
    story = at(P.SETTLING, older=2)
    story.observe()
    assert (2,) == story.rollout.unload
    story.back()

    assert (1, 0, (3,)) == (story.route.stable, story.theirs(), story.route.revoked)
    assert story.run() is P.ROLLED_BACK


def test_abort_does_not_return_groups_to_what_may_be_unloaded() -> None:
    """Paused while it settles, by too many conductors."""
    story = at(P.SETTLING, older=2)
    story.observe()
    story.observe(event=TakenOver(10))
    story.abort()

    assert (1, 0, ()) == (story.route.stable, story.theirs(), story.route.revoked)
    assert story.run() is P.ROLLED_BACK


def test_way_further_back_does_not_revoke_what_groups_had() -> None:
    """They left it for what was brought, and have it again."""
    story = Story().serve(1, 2)
    story.give(3)
    begun(story, 4)
    story.back()
    story.back(1)

    assert (1, 3, (2, 4)) == (story.route.stable, story.theirs(), story.route.revoked)
    assert story.run() is P.ROLLED_BACK


def test_what_groups_had_stays_loaded_until_the_rollout_settles() -> None:
    """Else going back would take as long as loading it."""
    story = at(P.SOAKING, older=2)
    assert [[1, 2, 3]] * 3 == story.holds()
    story.observe(60)
    story.run()

    assert (P.CONVERGED, [[1, 3]] * 3) == (story.phase, story.holds())


def test_groups_return_to_their_place_among_others() -> None:
    """Who is in two groups gets what he got before: the order of overrides is restored."""
    story = Story().serve(1)
    story.give(2).give(3, STAFF)
    before = story.route.overrides
    begun(story, 4)
    assert GROUPS.digest == story.route.overrides[0].group
    story.abort()

    assert before == story.route.overrides


def test_other_groups_are_left_alone() -> None:
    """By start, rollback and end."""
    story = Story().serve(1)
    story.give(2, STAFF)
    begun(story, 3)
    story.back()
    story.run()
    assert (0, 2) == (story.theirs(), story.theirs(STAFF))

    story.give(4)
    story.end_override()
    story.run()
    assert (0, 2) == (story.theirs(), story.theirs(STAFF))


def test_end_of_an_override_revokes_nothing_and_unloads() -> None:
    """The release may be brought again."""
    story = Story().serve(1)
    story.give(2).end_override()
    story.run()

    assert ((), 0, [[1]] * 3) == (story.route.revoked, story.theirs(), story.holds())
    story.start(2, plan=a_group_plan(), groups=GROUPS)
    assert story.run() is P.SOAKING


def test_end_of_an_override_is_decided_once() -> None:
    """Its request is found again; a second one finds nothing to end."""
    story = Story().serve(1)
    first = story.give(2).end_override()
    assert isinstance(first, Begin)
    story._requests -= 1
    assert Attach(first.rollout) == story.end_override()

    story.run()
    with pytest.raises(TransitionError, match="have a release of their own under"):
        story.end_override()


def test_end_of_an_override_waits_for_what_runs() -> None:
    """And says how to end that."""
    story = at(P.SOAKING)

    with pytest.raises(TransitionError, match="is soaking"):
        story.end_override()


def test_rollback_while_an_override_is_ended_goes_back_from_what_all_get() -> None:
    """Whoever presses it in an incident must not be told that all is back, with nothing moved."""
    story = Story().serve(1, 2)
    story.give(3).end_override()
    story.back()

    assert (1, (2,)) == (story.route.stable, story.route.revoked)
    assert story.run() is P.ROLLED_BACK


def test_release_of_groups_alone_is_never_unloaded_and_never_last_good() -> None:
    """Whatever becomes of the default."""
    story = Story().serve(1)
    story.give(2)
    for number in (3, 4, 5):
        story.start(an_adapter_wish(number))
        story.run()

    assert [[2, 4, 5]] * 3 == story.holds()
    assert ((1, 3, 4, 5), 4) == (story.route.good, story.route.last_good())
    story.back()
    story.run()
    assert (4, 2) == (story.route.stable, story.theirs())


def test_revoked_release_is_taken_from_groups_too() -> None:
    """It was given to all, and went wrong there."""
    story = Story().serve(1)
    story.give(2).start(2, plan=a_plan())
    story.run()
    story.back()

    assert (1, 0, (2,)) == (story.route.stable, story.theirs(), story.route.revoked)
    assert story.run() is P.ROLLED_BACK


def test_default_that_is_given_up_stays_with_its_groups() -> None:
    """An abort revokes nothing."""
    story = Story().serve(1)
    story.give(2).start(2, plan=a_weighted_plan())
    story.run()
    story.abort()

    assert story.run() is P.ROLLED_BACK
    assert (2, [[1, 2]] * 3) == (story.theirs(), story.holds())


def test_groups_can_be_held_where_all_are() -> None:
    """So that the default can move on without them; going back moves and revokes nothing."""
    story = Story().serve(1, 2)
    story.start(2, plan=a_group_plan(), groups=GROUPS)
    story.run()
    story.back()

    assert (2, 0, ()) == (story.route.stable, story.theirs(), story.route.revoked)
    assert story.run() is P.ROLLED_BACK

    story.start(2, plan=a_group_plan(soak_s=0), groups=GROUPS)
    assert story.run() is P.CONVERGED
    story.back()
    assert (2, 0, ()) == (story.route.stable, story.theirs(), story.route.revoked)


def test_groups_of_a_service_that_serves_nothing_are_refused() -> None:
    """All others would get nothing."""
    with pytest.raises(PlanError, match="serves nothing yet") as refused:
        Story().start(an_adapter_wish(1), plan=a_group_plan(), groups=GROUPS)

    assert "strategy" == refused.value.path


def test_same_wish_is_followed_and_then_done() -> None:
    """Typed again by its bytes, or by its number."""
    story = at(P.SOAKING)
    wish, plan = an_adapter_wish(3), a_group_plan(watch=Watch())
    assert isinstance(story.start(wish, plan=plan, groups=GROUPS), Attach)
    story.observe(60)
    story.run()

    again = story.start(wish, plan=plan, groups=GROUPS)
    assert isinstance(again, AlreadyDone)
    assert isinstance(story.start(2, plan=plan, groups=GROUPS), AlreadyDone)
    assert [1, 2] == sorted(story.service.releases)


def test_same_wish_after_the_default_moved_reuses_the_release() -> None:
    """What groups have already is not made again under another number."""
    story = Story().serve(1)
    story.give(2).start(an_adapter_wish(3))
    story.run()
    again = story.start(an_adapter_wish(2), plan=a_group_plan(soak_s=0), groups=GROUPS)

    assert isinstance(again, Begin)
    assert (2, None) == (again.rollout.to_release, again.release)
    assert story.run() is P.CONVERGED


def test_wish_of_other_groups_is_another() -> None:
    """The same release for other people is no rollout that has converged."""
    story = Story().serve(1)
    story.give(2)
    begin = story.start(2, plan=a_group_plan(STAFF, soak_s=0), groups=STAFF)

    assert isinstance(begin, Begin)
    assert story.run() is P.CONVERGED
    assert (2, 2) == (story.theirs(), story.theirs(STAFF))


def test_planned_rollback_after_groups_asks_what_is_meant() -> None:
    """The last good one is the default's, and what came last was for groups."""
    story = Story().serve(1, 2)
    story.give(3)

    with pytest.raises(TransitionError, match="was for groups"):
        story.start(0, plan=Plan(service=SERVICE, strategy="rollback"))


def test_retry_brings_the_groups_their_release_again() -> None:
    """With what they have by then as what they go back to."""
    story = at(P.SOAKING, older=2)
    story.abort()
    story.run()
    story.retry()
    story.run()
    assert (3, 2) == (story.theirs(), story.rollout.from_override)
    story.back()

    assert 2 == story.theirs()


def test_override_that_is_new_comes_first() -> None:
    """It is the latest word on whom it names."""
    story = Story().serve(1)
    story.give(2).give(3, STAFF)

    assert (
        Override(group=STAFF.digest, release=3),
        Override(group=GROUPS.digest, release=2),
    ) == story.route.overrides
    assert story.route == overridden(story.route, STAFF.digest, 3)

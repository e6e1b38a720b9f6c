"""What an operator's command comes to, on any state of the service."""

import msgspec
import pytest

from tests.builders import NODES, SERVICE, a_plan, a_root, a_route, a_service, an_adapter_wish
from tests.plans.story import Story
from vctl_plans import operate, reverting, steering
from vctl_plans.errors import PlanError, TransitionError, VctlError
from vctl_plans.events import AbortAsked, ResumeAsked, TakenOver
from vctl_plans.operate import AlreadyDone, Attach, Begin, Continue, Request
from vctl_plans.phase import Component
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.plan import Plan
from vctl_plans.release import Actor
from vctl_plans.rollout import Cause
from vctl_plans.snapshot import Service

BACK = Plan(service=SERVICE, strategy="rollback")


def is_the_same(one: Attach | object, story: Story) -> bool:
    """Whether a decision is to follow the story's rollout."""
    return isinstance(one, Attach | AlreadyDone) and one.rollout == story.rollout


# -- start ---------------------------------------------------------------------------------------


def test_start_makes_a_new_service_its_first_release() -> None:
    """Release, plan, roster and rollout are there to be written at once."""
    begun = Story().start(an_adapter_wish(1))

    assert isinstance(begun, Begin)
    assert begun.release is not None
    assert (1, P.PREPARING, 0, 1) == (
        begun.release.number,
        begun.rollout.phase,
        begun.rollout.from_release,
        begun.rollout.to_release,
    )
    assert NODES == begun.roster.nodes
    assert {"adapter": a_root(1)} == begun.plan.target
    assert (None, None) == (begun.replaced, begun.route)


def test_start_of_an_existing_number_makes_no_release() -> None:
    """A release made beforehand is rolled out as it is."""
    begun = operate.start(
        a_service(releases=2, route=a_route()),
        a_plan(),
        wish=2,
        roster=NODES,
        request=Request(id="q"),
    )

    assert isinstance(begun, Begin)
    assert (None, 2) == (begun.release, begun.rollout.to_release)


def test_same_wish_attaches_to_the_rollout_that_runs() -> None:
    """The identical plan started again follows the first."""
    story = Story().serve(1)
    story.start(an_adapter_wish(2))

    assert is_the_same(story.start(an_adapter_wish(2)), story)


def test_same_wish_that_has_converged_is_done() -> None:
    """Starting it again changes nothing."""
    story = Story().serve(1, 2)

    assert isinstance(story.start(an_adapter_wish(2)), AlreadyDone)


def test_same_wish_that_failed_is_tried_again() -> None:
    """What did not converge is not done, though its plan is the same."""
    story = Story().serve(1)
    story.slow.add("a")
    story.start(1, plan=a_plan(retain=0))
    story.service = msgspec.structs.replace(
        story.service, rollout=msgspec.structs.replace(story.rollout, phase=P.FAILED)
    )

    assert isinstance(story.start(1, plan=a_plan(retain=0)), Begin)


def test_same_wish_with_unconfirmed_nodes_is_tried_again() -> None:
    """Starting it again asks the nodes that are present now."""
    story = Story()
    story.deaf.add("c")
    story.start(an_adapter_wish(1))
    story.run()
    story.wait()
    story.wait()
    story.deaf.clear()

    assert isinstance(story.start(an_adapter_wish(1)), Begin)
    assert story.run() is P.CONVERGED
    assert () == story.rollout.unconfirmed


def test_second_rollout_is_refused_while_one_runs() -> None:
    """The refusal says how to follow the one that runs and how to end it."""
    story = Story().serve(1)
    story.start(an_adapter_wish(2))

    with pytest.raises(TransitionError, match="rollout q2 of support is preparing") as refused:
        story.start(an_adapter_wish(3))

    assert "--supersede" in refused.value.hint


def test_supersede_is_refused_once_traffic_moves() -> None:
    """Only a rollout that prepares can be replaced."""
    story = Story().serve(1)
    story.start(an_adapter_wish(2))
    story.obey()
    story.observe()

    with pytest.raises(TransitionError, match="--supersede is not allowed"):
        story.start(an_adapter_wish(3), supersede=True)


def test_superseded_rollout_is_archived_as_ended() -> None:
    """What is archived says so, and who did it."""
    story = Story().serve(1)
    story.start(an_adapter_wish(2))
    begun = story.start(an_adapter_wish(3), supersede=True)

    assert isinstance(begun, Begin)
    assert begun.replaced is not None
    assert (P.SUPERSEDED, (2,)) == (begun.replaced.phase, begun.replaced.unload)
    assert (2,) == begun.rollout.unload


def test_revoked_release_is_refused() -> None:
    """Until an operator lifts it; the hint says what to do."""
    story = Story().serve(1, 2)
    story.back()
    story.run()

    with pytest.raises(TransitionError, match="release 2 of support is revoked"):
        story.start(2)


def test_unknown_release_names_what_exists() -> None:
    """The path is the field's."""
    with pytest.raises(PlanError, match="release 9 of support does not exist; known: 1, 2") as bad:
        Story().serve(1, 2).start(9)

    assert bad.value.path == "release"


def test_empty_roster_is_refused() -> None:
    """A rollout counts at least one node."""
    story = Story()
    story.nodes = []

    with pytest.raises(PlanError, match="no node is present"):
        story.start(an_adapter_wish(1))


def test_request_whose_reply_was_lost_is_found() -> None:
    """Decided again under the same id it begins nothing, also when it has ended meanwhile."""
    story = Story().serve(1)
    request = Request(id="mine")
    begun = operate.start(
        story.service, a_plan(), wish=an_adapter_wish(2), roster=NODES, request=request
    )
    assert isinstance(begun, Begin)
    failed = msgspec.structs.replace(begun.rollout, phase=P.FAILED)
    later = msgspec.structs.replace(story.service, rollout=failed)
    again = operate.start(later, a_plan(), wish=an_adapter_wish(2), roster=NODES, request=request)

    assert Attach(failed) == again


@pytest.mark.parametrize("what", ["rollout", "route"])
def test_nothing_is_written_over_what_cannot_be_read(what: str) -> None:
    """A route that a newer vctl wrote may revoke what would be served."""
    service = msgspec.structs.replace(
        Story().serve(1, 2).service, **{what: None, f"{what}_revision": 9}
    )
    request = Request(id="q")

    with pytest.raises(VctlError, match=f"the {what} of support cannot be read"):
        operate.start(service, a_plan(), wish=2, roster=NODES, request=request)
    with pytest.raises(VctlError, match=f"the {what} of support cannot be read"):
        reverting.rollback_now(service, to=0, roster=NODES, request=request)
    with pytest.raises(VctlError, match=f"the {what} of support cannot be read"):
        steering.steer(service, AbortAsked())


# -- rollback by plan ----------------------------------------------------------------------------


def test_planned_rollback_started_again_follows_the_first() -> None:
    """Asked again it goes no further back, neither while it runs nor after it ended."""
    story = Story().serve(1, 2, 3)
    story.start(0, plan=BACK)
    assert is_the_same(story.start(0, plan=BACK), story)
    story.obey()
    story.observe()
    assert is_the_same(story.start(0, plan=BACK), story)
    story.run()

    assert isinstance(story.start(0, plan=BACK), AlreadyDone)
    assert 2 == story.route.stable


def test_planned_rollback_with_nowhere_to_go_is_refused() -> None:
    """The first release has none before it."""
    with pytest.raises(TransitionError, match="no earlier good release"):
        Story().serve(1).start(0, plan=BACK)


# -- rollback --now ------------------------------------------------------------------------------


def test_rollback_moves_route_and_phase_in_one_decision() -> None:
    """What is written at once is both."""
    begun = Story().serve(1, 2).back()

    assert isinstance(begun, Begin)
    assert begun.route is not None
    assert (1, (2,)) == (begun.route.stable, begun.route.revoked)
    assert (P.ROLLING_BACK, 0) == (begun.rollout.phase, begun.rollout.seq)


def test_rollback_pressed_twice_follows_the_first() -> None:
    """By one person or two, while it runs and after it has ended."""
    story = Story().serve(1, 2, 3)
    story.back()
    assert is_the_same(story.back(), story)
    story.run()

    assert is_the_same(story.back(), story)
    assert is_the_same(story.back(2), story)
    assert 2 == story.route.stable


def test_rollback_goes_further_back_only_by_number() -> None:
    """`--to 1` after a rollback to 2 leaves 2 as well."""
    story = Story().serve(1, 2, 3)
    story.back()
    story.run()
    story.back(1)

    assert story.run() is P.ROLLED_BACK
    assert (1, (2, 3)) == (story.route.stable, story.route.revoked)


def test_rollback_whose_reply_was_lost_is_found_by_its_id() -> None:
    """Also when it names a target that it would not choose any more."""
    service = Story().serve(1, 2).service
    request = Request(id="mine", by=Actor(user="ann"))
    first = reverting.rollback_now(service, to=0, roster=NODES, request=request)
    assert isinstance(first, Begin)
    written = msgspec.structs.replace(service, rollout=first.rollout, route=first.route)

    assert Attach(first.rollout) == reverting.rollback_now(
        written, to=0, roster=NODES, request=request
    )


def test_rollback_of_a_paused_rollback_goes_on_to_the_same_release() -> None:
    """It does not go one further back because the first press came to a stop."""
    story = Story().serve(1, 2, 3)
    story.slow.add("a")
    story.back(1)
    story.wait()
    assert story.phase is P.PAUSED
    decision = story.back()

    assert isinstance(decision, Continue)
    assert (P.ROLLING_BACK, 1) == (story.phase, story.rollout.back_to)


def test_rollback_while_one_by_plan_prepares_goes_where_that_goes() -> None:
    """Not back to the release that is being left, which would revoke the good one."""
    story = Story().serve(1, 2, 3)
    story.start(0, plan=BACK)
    story.back()

    assert (2, (3,)) == (story.route.stable, story.route.revoked)


def test_rollback_while_an_abort_goes_back_revokes_what_it_left() -> None:
    """Two people act on the same trouble: traffic goes where the abort sent it."""
    story = Story().serve(1, 2)
    story.start(an_adapter_wish(3))
    story.obey()
    story.observe()
    story.abort()
    story.back()

    assert (2, (3,)) == (story.route.stable, story.route.revoked)
    assert (P.ROLLED_BACK, Cause.ASKED) == (story.run(), story.rollout.cause)


def test_rollback_after_an_abort_has_ended_keeps_the_release_that_it_brought_back() -> None:
    """It is not one further back, and the good release is not revoked; by number it is."""
    story = Story().serve(1, 2)
    story.start(an_adapter_wish(3))
    story.obey()
    story.observe()
    story.abort()
    assert (P.ROLLED_BACK, Cause.ABORTED) == (story.run(), story.rollout.cause)

    assert is_the_same(story.back(), story)
    assert is_the_same(story.back(2), story)
    assert (2, ()) == (story.route.stable, story.route.revoked)
    story.back(1)
    assert (P.ROLLED_BACK, 1) == (story.run(), story.route.stable)


def test_rollback_after_a_guardrail_went_back_keeps_the_release_that_it_brought_back() -> None:
    """Whoever is called by the alert presses, and finds it done."""
    story = Story().serve(1, 2)
    story.start(an_adapter_wish(3))
    story.obey()
    story.observe()
    story.abort()
    story.run()
    ended = msgspec.structs.replace(story.rollout, cause=Cause.GUARDRAIL)
    service = msgspec.structs.replace(story.service, rollout=ended)
    request = Request(id="pressed", by=Actor(user="ann"))

    assert Attach(ended) == reverting.rollback_now(service, to=0, roster=NODES, request=request)


def test_rollback_to_a_release_that_is_gone_names_what_exists() -> None:
    """Nothing is written."""
    with pytest.raises(PlanError, match="release 9 of support does not exist"):
        Story().serve(1, 2).back(9)


def test_rollback_to_a_revoked_release_is_refused() -> None:
    """Also by number."""
    story = Story().serve(1, 2)
    story.back()
    story.run()

    with pytest.raises(TransitionError, match="revoked"):
        story.back(2)


@pytest.mark.parametrize("service", [Service(name=SERVICE), Story().serve(1).service])
def test_rollback_with_nothing_to_return_to_is_refused(service: Service) -> None:
    """No release serves, or none served before."""
    with pytest.raises(TransitionError, match=r"nothing to roll back|no earlier good release"):
        reverting.rollback_now(service, to=0, roster=NODES, request=Request(id="q"))


def test_rollback_after_going_back_by_number_returns_to_what_served_last() -> None:
    """Not to the release in between that was passed over."""
    story = Story().serve(1, 2, 3)
    story.back(1)
    story.run()
    story.serve(4)
    story.back()

    assert 1 == story.route.stable


# -- steer ---------------------------------------------------------------------------------------


def test_resume_goes_on_where_it_stopped() -> None:
    """A pause keeps the phase that it stopped."""
    story = Story().serve(1)
    story.start(an_adapter_wish(2))
    story.observe(event=TakenOver(10))
    story.resume()

    assert (P.PREPARING, "") == (story.phase, story.rollout.resume_phase)


@pytest.mark.parametrize("event", [AbortAsked(), ResumeAsked()])
def test_steering_what_does_not_run_names_the_last(event: AbortAsked | ResumeAsked) -> None:
    """The refusal says how the last rollout ended."""
    with pytest.raises(TransitionError, match="no rollout of support runs: q1, the last, is conv"):
        steering.steer(Story().serve(1).service, event)


def test_release_of_a_wish_keeps_the_other_components() -> None:
    """What a wish leaves out is the stable release's, with its counter."""
    story = Story().serve(1)
    prompt = {Component.PROMPT: next(iter(an_adapter_wish(7).values()))}
    begun = story.start(prompt)

    assert isinstance(begun, Begin)
    assert begun.release is not None
    assert {Component.ADAPTER: 1, Component.PROMPT: 1} == begun.release.vector
    assert a_root(1) == begun.release.components[Component.ADAPTER].root

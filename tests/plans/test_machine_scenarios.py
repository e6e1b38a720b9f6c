"""Rollouts from beginning to end, as the history tells them."""

from collections.abc import Callable

import pytest

from tests.builders import SERVICE, a_plan, an_adapter_wish
from tests.plans.story import Story
from vctl_plans import invariants
from vctl_plans.errors import TransitionError
from vctl_plans.events import TakenOver
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.plan import Plan
from vctl_plans.rollout import Cause

PREPARED = "preparing: release 2 is prepared on 3 nodes"
SHIFTED = "shifting: release 2 is ready on 3 of 3 nodes: traffic moves to it"
SETTLED = "settling: 3 of 3 nodes route to release 2: release 2 is stable"
CONVERGED = "converged: converged (3/3) on release 2"


def first_release(story: Story) -> None:
    """Bring the first release."""
    story.start(an_adapter_wish(1))
    story.run()


def second_release(story: Story) -> None:
    """Bring the second release."""
    story.serve(1).start(an_adapter_wish(2))
    story.run()


def soak(story: Story) -> None:
    """Bring the second release with a soak."""
    story.serve(1).start(an_adapter_wish(2), plan=a_plan(soak_s=300))
    story.run()
    story.wait()
    story.run()


def refusal(story: Story) -> None:
    """Have one node refuse the second release."""
    story.serve(1).refuses["b"] = "root mismatch"
    story.start(an_adapter_wish(2))
    story.run()


def prepare_deadline(story: Story) -> None:
    """Have one node never get ready."""
    story.serve(1).slow.add("c")
    story.start(an_adapter_wish(2))
    story.wait()


def converge_deadline(story: Story) -> None:
    """Have one node's gateway hear of the route only after the rollout was resumed."""
    story.serve(1).deaf.add("c")
    story.start(an_adapter_wish(2))
    story.run()
    story.wait()
    story.deaf.clear()
    story.resume()
    story.run()


def first_release_with_a_deaf_node(story: Story) -> None:
    """Bring the first release to a fleet of which one gateway never hears of it."""
    story.deaf.add("c")
    story.start(an_adapter_wish(1))
    story.run()
    story.wait()
    story.wait()


def rollback_after_the_end(story: Story) -> None:
    """Go back from a release that converged."""
    story.serve(1, 2).back()
    story.run()


def rollback_to_what_is_not_loaded(story: Story) -> None:
    """Go back further than what is retained."""
    story.serve(1, 2, 3).back(1)
    story.run()


def rollback_to_what_cannot_be_loaded(story: Story) -> None:
    """Go back to a release that one node loads only after a person looked at it."""
    story.serve(1, 2, 3).slow.add("a")
    story.back(1)
    story.wait()
    story.slow.clear()
    story.resume()
    story.run()


def rollback_with_a_deaf_node(story: Story) -> None:
    """Go back while one node's gateway hears nothing."""
    story.serve(1, 2).deaf.add("c")
    story.back()
    story.wait()


def rollback_with_nobody_there(story: Story) -> None:
    """Go back while no agent is present; gateways may well be."""
    story.serve(1, 2).nodes = []
    story.back()
    story.wait()


def planned_rollback(story: Story) -> None:
    """Go back by a plan like any other."""
    story.serve(1, 2).start(0, plan=Plan(service=SERVICE, strategy="rollback"))
    story.run()


def abort(story: Story) -> None:
    """Give a rollout up whose traffic has moved."""
    story.serve(1).start(an_adapter_wish(2))
    story.obey()
    story.observe()
    story.abort()
    story.run()


def supersede(story: Story) -> None:
    """Put another plan in the place of one that prepares."""
    story.serve(1).start(an_adapter_wish(2))
    story.start(an_adapter_wish(3), supersede=True)
    story.run()


def takeovers(story: Story) -> None:
    """Have conductors die in one phase, until a person looks at it."""
    story.serve(1).start(an_adapter_wish(2))
    story.observe(event=TakenOver(10))
    story.resume()
    story.run()


def drain_deadline(story: Story) -> None:
    """Have one node not unload what it should."""
    story.serve(1, 2).clinging.add("b")
    story.start(an_adapter_wish(3))
    story.run()
    story.wait()


TOLD: dict[Callable[[Story], None], list[str]] = {
    first_release: [
        "preparing: release 1 is prepared on 3 nodes",
        "shifting: release 1 is ready on 3 of 3 nodes: traffic moves to it",
        "settling: 3 of 3 nodes route to release 1: release 1 is stable",
        "converged: converged (3/3) on release 1",
    ],
    second_release: [PREPARED, SHIFTED, SETTLED, CONVERGED],
    soak: [
        PREPARED,
        SHIFTED,
        "soaking: 3 of 3 nodes route to release 2: soaking 5m",
        "settling: soaked 5m: release 2 is stable",
        CONVERGED,
    ],
    refusal: [
        PREPARED,
        "failed: release 2 was refused by b: root mismatch; no traffic moved",
    ],
    prepare_deadline: [
        PREPARED,
        "failed: release 2 is not ready within 1m on c; no traffic moved",
    ],
    converge_deadline: [
        PREPARED,
        SHIFTED,
        "paused: after 20s these nodes do not report the route: c",
        "shifting: resumed: shifting",
        SETTLED,
        CONVERGED,
    ],
    first_release_with_a_deaf_node: [
        "preparing: release 1 is prepared on 3 nodes",
        "shifting: release 1 is ready on 3 of 3 nodes: traffic moves to it",
        "settling: 2 of 3 nodes route to release 1, without c: release 1 is stable",
        "converged: converged (2/3) on release 1; unconfirmed: c",
    ],
    rollback_after_the_end: [
        (
            "rolling_back: rollback to release 1 asked: traffic returns to release 1;"
            " release 2 is revoked"
        ),
        "rolling_back: 3 of 3 nodes report the route: release 2 may be unloaded",
        "rolled_back: rolled back (3/3) on release 1",
    ],
    rollback_to_what_is_not_loaded: [
        "rolling_back: rollback to release 1 asked: it is loaded first; 3 serves on",
        (
            "rolling_back: release 1 is ready on 3 of 3 nodes: traffic returns to release 1;"
            " release 3 is revoked"
        ),
        "rolling_back: 3 of 3 nodes report the route: release 3 may be unloaded",
        "rolled_back: rolled back (3/3) on release 1",
    ],
    rollback_to_what_cannot_be_loaded: [
        "rolling_back: rollback to release 1 asked: it is loaded first; 3 serves on",
        "paused: release 1 cannot be made ready on a",
        "rolling_back: resumed: rolling_back",
        (
            "rolling_back: release 1 is ready on 3 of 3 nodes: traffic returns to release 1;"
            " release 3 is revoked"
        ),
        "rolling_back: 3 of 3 nodes report the route: release 3 may be unloaded",
        "rolled_back: rolled back (3/3) on release 1",
    ],
    rollback_with_a_deaf_node: [
        (
            "rolling_back: rollback to release 1 asked: traffic returns to release 1;"
            " release 2 is revoked"
        ),
        "rolled_back: rolled back (2/3) on release 1; unconfirmed: c",
    ],
    rollback_with_nobody_there: [
        (
            "rolling_back: rollback to release 1 asked: traffic returns to release 1;"
            " release 2 is revoked"
        ),
        "rolled_back: rolled back (0/0) on release 1; unconfirmed: an empty roster",
    ],
    planned_rollback: [
        "preparing: release 1 is prepared on 3 nodes",
        (
            "rolling_back: release 1 is ready on 3 of 3 nodes: traffic returns to release 1;"
            " release 2 is revoked"
        ),
        "rolling_back: 3 of 3 nodes report the route: release 2 may be unloaded",
        "rolled_back: rolled back (3/3) on release 1",
    ],
    abort: [
        PREPARED,
        SHIFTED,
        "rolling_back: aborted by an operator: traffic returns to release 1",
        "rolling_back: 3 of 3 nodes report the route: release 2 may be unloaded",
        "rolled_back: rolled back (3/3) on release 1",
    ],
    supersede: [
        PREPARED,
        "preparing: release 3 is prepared on 3 nodes",
        "shifting: release 3 is ready on 3 of 3 nodes: traffic moves to it",
        "settling: 3 of 3 nodes route to release 3: release 3 is stable",
        "converged: converged (3/3) on release 3",
    ],
    takeovers: [
        PREPARED,
        "paused: 10 conductors took over in one phase: see what stops them, then resume",
        "preparing: resumed: preparing",
        SHIFTED,
        SETTLED,
        CONVERGED,
    ],
    drain_deadline: [
        "preparing: release 3 is prepared on 3 nodes",
        "shifting: release 3 is ready on 3 of 3 nodes: traffic moves to it",
        "settling: 3 of 3 nodes route to release 3: release 3 is stable",
        "settling: 3 of 3 nodes report the route: release 1 may be unloaded",
        "converged: converged (2/3) on release 3; unconfirmed: b",
    ],
}

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


def test_failed_rollout_leaves_nothing_behind() -> None:
    """Traffic never moved, and what the rollout loaded is unloaded."""
    story = Story()
    refusal(story)
    story.obey()

    assert [[1], [1], [1]] == story.holds()
    assert (1, frozenset({1})) == (story.route.stable, story.route.serving)


@pytest.mark.parametrize(
    ("retain", "held"), [(0, [4]), (1, [3, 4]), (2, [2, 3, 4]), (8, [1, 2, 3, 4])]
)
def test_retained_releases_stay_loaded(retain: int, held: list[int]) -> None:
    """The plan's `retain` of earlier releases stay, certified as instant; older ones go."""
    story = Story()
    for number in (1, 2, 3, 4):
        story.start(an_adapter_wish(number), plan=a_plan(retain=retain))
        assert story.run() is P.CONVERGED

    assert [held] * 3 == story.holds()
    assert tuple(held[:-1]) == story.route.instant


def _until(phase: P) -> Story:
    """Return a rollout from release 2 to 3 that is in *phase*."""
    story = Story().serve(1, 2)
    story.start(an_adapter_wish(3), plan=a_plan(soak_s=60))
    if phase is P.PAUSED:
        story.observe(event=TakenOver(10))
    while story.phase is not phase:
        story.obey()
        story.observe(60.0 if story.phase is P.SOAKING else 0.0)
    story.said.clear()
    return story


RUNNING = [P.PREPARING, P.SHIFTING, P.SOAKING, P.SETTLING, P.PAUSED]


@pytest.mark.parametrize("phase", RUNNING)
def test_rollback_in_a_phase_returns_to_what_served_before(phase: P) -> None:
    """Traffic is back with the very write, and what the rollout brought is revoked."""
    story = _until(phase)
    story.back()

    assert (2, 0, (3,)) == (story.route.stable, story.route.candidate, story.route.revoked)
    assert story.run() is P.ROLLED_BACK
    assert all(3 not in held for held in story.holds())


@pytest.mark.parametrize("phase", [P.PREPARING, P.SHIFTING, P.SOAKING, P.PAUSED])
def test_abort_in_a_phase_returns_without_revoking(phase: P) -> None:
    """Traffic that had moved goes back; none moved is a failed rollout."""
    story = _until(phase)
    has_moved = story.rollout.has_moved
    story.abort()
    story.run()

    assert (P.ROLLED_BACK if has_moved else P.FAILED) is story.phase
    assert (2, (), Cause.ABORTED) == (
        story.route.stable,
        story.route.revoked,
        story.rollout.cause,
    )


@pytest.mark.parametrize("phase", [P.SETTLING])
def test_abort_of_what_is_stable_is_refused(phase: P) -> None:
    """Once the release is stable only a rollback returns."""
    story = _until(phase)

    with pytest.raises(TransitionError, match="rollout abort is not allowed"):
        story.abort()


def test_abort_of_the_first_release_says_that_there_is_no_way_back() -> None:
    """There is nothing that traffic could return to."""
    story = Story()
    story.start(an_adapter_wish(1))
    story.obey()
    story.observe()

    with pytest.raises(TransitionError, match="there is none to return to"):
        story.abort()


def test_superseded_release_is_unloaded_by_its_successor() -> None:
    """Also when that one fails: it hands on what may be unloaded."""
    story = Story().serve(1)
    story.start(an_adapter_wish(2))
    story.obey()
    story.start(an_adapter_wish(3), supersede=True)
    story.refuses["a"] = "no"
    assert story.run() is P.FAILED
    story.obey()

    assert [[1], [1], [1]] == story.holds()


def test_rollout_can_follow_one_whose_node_is_gone_for_good() -> None:
    """A node that never comes back keeps neither this rollout open nor the next from starting."""
    story = Story().serve(1)
    story.deaf.add("c")
    story.start(an_adapter_wish(2))
    story.run()
    story.wait()
    assert story.phase is P.PAUSED
    story.abort()
    story.wait()
    story.nodes.remove("c")
    story.start(an_adapter_wish(3))

    assert story.run() is P.CONVERGED


def test_rollout_of_what_serves_confirms_it_and_moves_nothing() -> None:
    """The same bytes again, on nodes that are present now; the route does not change."""
    story = Story().serve(1)
    before = story.route
    story.start(an_adapter_wish(1), plan=a_plan(prepare_s=61))
    story.run()

    assert before == story.route
    assert story.phase is P.CONVERGED


def test_rollback_while_what_serves_is_confirmed_leaves_it() -> None:
    """Pressed then, it means the release before: not the one that is prepared again."""
    story = Story().serve(1, 2)
    story.start(2, plan=a_plan(prepare_s=61))
    story.back()

    assert (1, (2,)) == (story.route.stable, story.route.revoked)

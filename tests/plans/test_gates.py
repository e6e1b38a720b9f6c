"""Gates by percentage and count, nodes that refuse, vanish, join; and what is said of them."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.builders import SERVICE, a_plan, a_state, a_weighted_plan, an_adapter_wish
from tests.plans.story import Story
from vctl_plans import invariants
from vctl_plans.decision import NOBODY
from vctl_plans.errors import PlanError
from vctl_plans.events import Observed
from vctl_plans.gate import Tally
from vctl_plans.machine import step
from vctl_plans.node import ReleaseReport
from vctl_plans.operate import Begin
from vctl_plans.phase import NodePhase
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.units import Quota, quota

TEN = [f"n{number}" for number in range(10)]


def of(text: str | int) -> Quota:
    """Return a quota."""
    return quota(text, path="")


def ten(**more: Any) -> Story:
    """Return ten nodes that serve release 1 and prepare release 2, by default all at once."""
    story = Story()
    story.nodes = list(TEN)
    story.serve(1).start(an_adapter_wish(2), plan=a_plan(**more))
    return story


# -- how many are ready ----------------------------------------------------------------------------


def tally(done: int, missing: int, refused: int = 0) -> Tally:
    """Return a count."""
    names = [f"n{number}" for number in range(done + missing + refused)]
    return Tally(
        tuple(names[:done]),
        tuple(names[done : done + missing]),
        tuple((name, "bad root") for name in names[done + missing :]),
    )


@pytest.mark.parametrize(
    ("ready", "max_failed", "counts", "is_met", "is_beyond"),
    [
        ("100%", 0, (3, 0), True, False),
        ("100%", 0, (2, 1), False, False),
        ("100%", 0, (2, 0, 1), False, True),
        ("100%", 1, (2, 0, 1), True, False),
        ("100%", 1, (1, 1, 1), False, False),
        ("100%", 1, (1, 0, 2), False, True),
        ("98%", 0, (98, 2), True, False),
        ("98%", 0, (97, 3), False, False),
        ("98%", 1, (97, 2, 1), False, False),  # of the 99 that do not refuse
        ("98%", 1, (98, 1, 1), True, False),
        ("98%", 0, (1, 0), True, False),
        ("50%", 0, (1, 2), False, False),
        (2, 0, (2, 1), True, False),
        (3, 1, (2, 1, 1), False, False),  # a count is a count, whoever refuses
        (3, 1, (3, 0, 1), True, False),
        (3, 1, (2, 0, 1), False, True),  # and what cannot come about is not waited for
        (0, 0, (0, 3), False, False),
        ("0%", 0, (1, 2), True, False),
        ("100%", 3, (0, 0, 3), False, True),
        ("100%", 0, (0, 0), False, False),
    ],
)
def test_gate_counts(
    ready: str | int, max_failed: int, counts: tuple[int, ...], is_met: bool, is_beyond: bool
) -> None:
    """A percentage is rounded up; nobody is never enough."""
    plan = a_plan(ready=of(ready), max_failed=max_failed)
    found = tally(*counts)

    assert (is_met, is_beyond) == (found.is_met(plan), found.is_beyond(plan))


def enough_are_ready(story: Story) -> None:
    """Have one of ten nodes lag behind; nine were asked for."""
    story.slow.add("n9")
    story.start(an_adapter_wish(2), plan=a_plan(ready=of("90%")))
    story.run()


def too_few_are_ready(story: Story) -> None:
    """Have two of ten nodes lag behind."""
    story.slow.update(("n8", "n9"))
    story.start(an_adapter_wish(2), plan=a_plan(ready=of(9)))
    story.wait()


def one_may_refuse(story: Story) -> None:
    """Have one node refuse, and the plan allow it; it is named at the end."""
    story.refuses["n3"] = "root mismatch"
    story.start(an_adapter_wish(2), plan=a_plan(max_failed=1))
    story.run()


def one_too_many_refuses(story: Story) -> None:
    """Have two nodes refuse where one may."""
    story.refuses |= {"n3": "root mismatch", "n4": "no room"}
    story.start(an_adapter_wish(2), plan=a_plan(max_failed=1))
    story.run()


def all_refuse(story: Story) -> None:
    """Have everybody refuse, and the plan allow even that: nobody is left to serve it."""
    story.refuses |= dict.fromkeys(TEN, "root mismatch")
    story.start(an_adapter_wish(2), plan=a_plan(max_failed=10))
    story.run()


def one_vanishes_while_it_prepares(story: Story) -> None:
    """Have one of ten nodes vanish: so many may."""
    story.start(an_adapter_wish(2))
    story.vanish("n9")
    story.run()


def two_vanish_while_it_prepares(story: Story) -> None:
    """Have more nodes vanish than may, until a person has brought one back."""
    story.start(an_adapter_wish(2))
    story.vanish("n8", "n9")
    story.run()
    story.join("n8")
    story.resume()
    story.run()


def two_vanish_while_it_shifts(story: Story) -> None:
    """Have them vanish as traffic moves."""
    story.start(an_adapter_wish(2))
    story.obey()
    story.observe()
    story.vanish("n8", "n9")
    story.run()
    story.abort()
    story.run()


def two_vanish_while_it_soaks(story: Story) -> None:
    """Have them vanish with half of the traffic moved."""
    story.start(an_adapter_wish(2), plan=a_weighted_plan(50, 100))
    story.run()
    story.vanish("n8", "n9")
    story.run()


def all_vanish(story: Story) -> None:
    """Have everybody vanish, and the plan allow even that."""
    story.start(an_adapter_wish(2), plan=a_plan(max_absent=of("100%"), soak_s=60))
    story.run()
    story.vanish(*TEN)
    story.run()


def all_vanish_as_it_settles(story: Story) -> None:
    """Have everybody vanish when nothing is left to be decided but the end: all are named."""
    story.start(an_adapter_wish(2))
    for _ in range(2):
        story.obey()
        story.observe()
    story.vanish(*TEN)
    story.wait()


def one_joins(story: Story) -> None:
    """Have a node come while it prepares: it counts once it is ready."""
    story.start(an_adapter_wish(2), plan=a_plan(soak_s=60))
    story.join("m1")
    story.run()
    story.observe(60)
    story.run()


def one_joins_deaf(story: Story) -> None:
    """Have a node come whose gateway hears of no route; it was ready in time to be waited for."""
    story.start(an_adapter_wish(2))
    story.obey()
    story.observe()
    story.join("m1")
    story.deaf.add("m1")
    story.obey()
    story.wait()


def one_joins_slowly(story: Story) -> None:
    """Have a node come that is never ready: nobody waits for it."""
    story.slow.add("m1")
    story.start(an_adapter_wish(2))
    story.join("m1")
    story.run()


def quarantined_in_a_soak(story: Story) -> None:
    """Have a node find fault with the release while half of the traffic is on it."""
    story.start(an_adapter_wish(2), plan=a_weighted_plan(50, 100))
    story.run()
    story.quarantined["n2"] = "coherence probe failed"
    story.observe(60)


def quarantined_and_allowed(story: Story) -> None:
    """Have a plan allow it; the node is named at the end."""
    story.start(an_adapter_wish(2), plan=a_weighted_plan(50, 100, max_failed=1))
    story.run()
    story.quarantined["n2"] = "coherence probe failed"
    story.observe(60)
    story.run()
    story.observe(60)
    story.run()


def back_to_what_one_cannot_load(story: Story) -> None:
    """Go back further than what is loaded, with one node slow and one gone."""
    story.serve(2, 3).slow.add("n1")
    story.back(1)
    story.vanish("n2")
    story.wait()


PREPARED = "preparing: release 2 is prepared on 10 nodes"
SHIFTED = "shifting: release 2 is ready on 10 of 10 nodes: traffic moves to it"
HALF = (
    "shifting: release 2 is ready on 10 of 10 nodes: step 1 of 2, 50 % of traffic moves to"
    " release 2"
)
SOAKS = "soaking: 10 of 10 nodes route 50 % to release 2: soaking 1m"
SETTLED = "settling: 10 of 10 nodes route to release 2: release 2 is stable"
NAMES = "n0, n1, n2, n3, n4, n5, n6, n7, n8, n9"

TOLD: dict[Callable[[Story], None], list[str]] = {
    enough_are_ready: [
        PREPARED,
        "shifting: release 2 is ready on 9 of 10 nodes: traffic moves to it",
        SETTLED,
        "converged: converged (9/10) on release 2; unconfirmed: n9",
    ],
    too_few_are_ready: [
        PREPARED,
        "failed: release 2 is not ready within 1m on n8, n9; no traffic moved",
    ],
    one_may_refuse: [
        PREPARED,
        "shifting: release 2 is ready on 9 of 10 nodes: traffic moves to it",
        SETTLED,
        "converged: converged (9/10) on release 2; unconfirmed: n3",
    ],
    one_too_many_refuses: [
        PREPARED,
        (
            "failed: release 2 was refused by n3 (and 1 more): root mismatch;"
            " no traffic moved"
        ),
    ],
    all_refuse: [
        PREPARED,
        "failed: release 2 was refused by n0 (and 9 more): root mismatch; no traffic moved",
    ],
    one_vanishes_while_it_prepares: [
        PREPARED,
        "shifting: release 2 is ready on 9 of 9 nodes: traffic moves to it",
        "settling: 9 of 9 nodes route to release 2: release 2 is stable",
        "converged: converged (9/10) on release 2; unconfirmed: n9",
    ],
    two_vanish_while_it_prepares: [
        PREPARED,
        "paused: 2 of 10 nodes have vanished, and 10% may: n8, n9",
        "preparing: resumed: preparing",
        "shifting: release 2 is ready on 9 of 9 nodes: traffic moves to it",
        "settling: 9 of 9 nodes route to release 2: release 2 is stable",
        "converged: converged (9/10) on release 2; unconfirmed: n9",
    ],
    two_vanish_while_it_shifts: [
        PREPARED, SHIFTED,
        "paused: 2 of 10 nodes have vanished, and 10% may: n8, n9",
        "rolling_back: aborted by an operator: traffic returns to release 1",
        "rolling_back: 8 of 8 nodes report the route: release 2 may be unloaded",
        "rolled_back: rolled back (8/10) on release 1; unconfirmed: n8, n9",
    ],
    two_vanish_while_it_soaks: [
        PREPARED, HALF, SOAKS,
        "paused: 2 of 10 nodes have vanished, and 10% may: n8, n9",
    ],
    all_vanish: [
        PREPARED, SHIFTED,
        "soaking: 10 of 10 nodes route to release 2: soaking 1m",
        f"paused: 10 of 10 nodes have vanished: {NAMES}",
    ],
    all_vanish_as_it_settles: [
        PREPARED, SHIFTED, SETTLED,
        f"converged: converged (0/10) on release 2; unconfirmed: {NAMES}",
    ],
    one_joins: [
        PREPARED, SHIFTED,
        "soaking: 11 of 11 nodes route to release 2: soaking 1m",
        "settling: soaked 1m: release 2 is stable",
        "converged: converged (11/11) on release 2",
    ],
    one_joins_deaf: [
        PREPARED, SHIFTED,
        "paused: after 20s these nodes do not report the route: m1",
    ],
    one_joins_slowly: [
        PREPARED, SHIFTED, SETTLED,
        "converged: converged (10/10) on release 2",
    ],
    quarantined_in_a_soak: [
        PREPARED, HALF, SOAKS,
        (
            "paused: release 2 is not ready any more on n2: coherence probe failed:"
            " step 2 of 2 is not taken"
        ),
    ],
    quarantined_and_allowed: [
        PREPARED, HALF, SOAKS,
        "shifting: soaked 1m: step 2 of 2, 100 % of traffic moves to release 2",
        "soaking: 10 of 10 nodes route 100 % to release 2: soaking 1m",
        "settling: soaked 1m: release 2 is stable",
        "converged: converged (9/10) on release 2; unconfirmed: n2",
    ],
    back_to_what_one_cannot_load: [
        "rolling_back: rollback to release 1 asked: it is loaded first; 3 serves on",
        "paused: release 1 cannot be made ready on n1, n2",
    ],
}  # fmt: skip

scenarios = pytest.mark.parametrize("scenario", TOLD, ids=lambda s: s.__name__)


def served() -> Callable[..., Story]:
    """Return what makes ten nodes that serve release 1."""

    def make(**more: Any) -> Story:
        story = Story(**more)
        story.nodes = list(TEN)
        return story.serve(1)

    return make


@scenarios
def test_scenario_is_told_in_sentences(scenario: Callable[[Story], None]) -> None:
    """The history of each says what was decided and why, and has no hole."""
    story = served()()
    scenario(story)

    assert TOLD[scenario] == story.said
    assert [] == invariants.history(story.history, rollout=story.rollout)


@scenarios
@pytest.mark.parametrize("decision", range(2, 14))
def test_scenario_ends_alike_when_its_conductor_dies(
    scenario: Callable[[Story], None], decision: int
) -> None:
    """Cut before and after the decision's write, the next conductor comes to the same end."""
    whole, cut = served()(), served()(dies_at=decision)
    scenario(whole)
    scenario(cut)

    assert whole.said == cut.said
    assert (whole.route, whole.rollout) == (cut.route, cut.rollout)


# -- one by one ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("may", "paused"), [("10%", 2), ("25%", 3), (0, 1), (3, 4)])
def test_so_many_may_vanish_and_no_more(may: str | int, paused: int) -> None:
    """A percentage is never rounded up."""
    story = ten(max_absent=of(may))
    story.vanish(*TEN[: paused - 1])
    assert story.run() is P.CONVERGED

    story = ten(max_absent=of(may))
    story.vanish(*TEN[:paused])
    assert story.run() is P.PAUSED
    assert tuple(TEN[:paused]) == story.rollout.unconfirmed


def test_node_that_comes_back_counts_again() -> None:
    """It is waited for as all others."""
    story = ten()
    story.vanish("n9")
    story.obey()
    story.observe()
    assert story.phase is P.SHIFTING
    story.join("n9")
    story.deaf.add("n9")
    story.obey()

    assert (P.PAUSED, ("n9",)) == (story.wait(), story.rollout.unconfirmed)


def test_node_that_vanishes_as_traffic_moves_does_not_stop_it() -> None:
    """At the deadline it is away, and not yet for so long that it counts as gone."""
    story = ten()
    story.obey()
    story.observe()
    story.obey()
    story.nodes.remove("n9")
    story._routes["n9"] = 0
    assert 40 == story.observe(20).wake_s
    story.vanish("n9")

    assert story.run() is P.CONVERGED
    assert ("n9",) == story.rollout.unconfirmed


def test_nodes_that_are_away_are_not_waited_for_for_ever() -> None:
    """Nor twice as long where they are more than may vanish, or one of them is there."""
    for away, deaf, limit_s in (("n9", "", 40), ("n8 n9", "", 20), ("n9", "n8", 20)):
        story = ten()
        story.obey()
        story.observe()
        story.nodes = [node for node in TEN if node not in away.split()]
        story.deaf.update(deaf.split())
        story.obey()
        assert limit_s == story.observe(20 - 1).wake_s
        assert story.observe(limit_s).rollout.phase is P.PAUSED


def test_node_that_is_gone_does_not_end_a_first_release() -> None:
    """Nothing served before, so there is nothing that it could serve wrongly."""
    story = Story()
    story.nodes = list(TEN)
    story.start(an_adapter_wish(1))
    story.obey()
    story.observe()
    story.vanish(*TEN[5:])

    assert story.run() is P.CONVERGED
    assert tuple(TEN[5:]) == story.rollout.unconfirmed


def test_same_plan_after_an_end_with_unconfirmed_nodes_asks_again() -> None:
    """Nothing is called done over nodes that are not; those that are there now are."""
    story = ten()
    story.vanish("n9")
    story.run()
    again = story.start(an_adapter_wish(2))

    assert isinstance(again, Begin)
    assert story.run() is P.CONVERGED
    assert ((), 9) == (story.rollout.unconfirmed, story.rollout.confirmed)


@pytest.mark.parametrize("ready", ["50%", 1])
def test_gate_that_is_met_again_lets_traffic_move(ready: str | int) -> None:
    """By the plan's count, also between steps; the second opinion counts alike."""
    story = Story()
    story.nodes = list(TEN)
    plan = a_weighted_plan(50, 100, soak_s=0, ready=of(ready))
    story.serve(1).slow.update(TEN[5:])
    story.start(an_adapter_wish(2), plan=plan)

    assert story.run() is P.CONVERGED
    assert tuple(TEN[5:]) == story.rollout.unconfirmed


def test_gate_of_more_nodes_than_there_are_is_refused() -> None:
    """It could never be met."""
    with pytest.raises(PlanError, match="11 nodes are to be ready, and 10 are present"):
        ten(ready=of(11))


@pytest.mark.parametrize("phase", [P.PREPARING, P.SHIFTING, P.SOAKING, P.SETTLING, P.ROLLING_BACK])
def test_empty_roster_moves_nothing(phase: P) -> None:
    """In no phase, however long it lasts; an end says that nobody confirmed it."""
    more: dict[str, Any] = {"has_moved": phase is not P.PREPARING}
    more |= {"back_to": 1} if phase is P.ROLLING_BACK else {}
    state = a_state(phase, **more)
    state = msgspec.structs.replace(state, roster=(), plan=a_weighted_plan(50, 100))
    assert not step(state, Observed({}), 0.0).sentence
    late = step(state, Observed({}), 1000.0)

    assert late.state.route == state.route
    assert NOBODY in late.sentence


def test_unconfirmed_nodes_that_are_not_named_are_told() -> None:
    """By the second opinion."""
    story = ten()
    story.vanish("n9")
    story.run()
    silent = msgspec.structs.replace(story.rollout, unconfirmed=("n1",))
    seen = invariants.Seen(roster=tuple(TEN), reports=story.reports(), gone=frozenset({"n9"}))
    written = invariants.Written(rollout=silent, route=story.route, route_revision=9)

    assert "I8: ['n9'] are not named as unconfirmed" in invariants.check(written, written, seen)


def test_deadline_says_why_a_node_is_late() -> None:
    """The nodes have said it: nobody needs to look for it on them."""
    story = Story()
    story.serve(1).start(an_adapter_wish(2))
    late = story.reports()
    line = ReleaseReport(
        service=SERVICE,
        number=2,
        digest="",
        phase=NodePhase.FAILED,
        attempt=story.rollout.attempt,
        reason="/nope: is not there on this node",
    )
    late["b"] = msgspec.structs.replace(late["b"], releases=(line,))
    decision = step(story.state(), Observed(late), 60.0)

    assert P.FAILED is decision.rollout.phase
    assert decision.sentence.startswith("release 2 is not ready within 1m on ")
    assert ": /nope: is not there on this node; no traffic moved" in decision.sentence

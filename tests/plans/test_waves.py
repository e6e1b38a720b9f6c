"""Base weights by waves, as the history tells them; what operators do meanwhile; who is refused."""

import itertools
from collections.abc import Callable

import msgspec
import pytest

from tests.builders import (
    SERVICE,
    a_base_wish,
    a_plan,
    a_report,
    a_rollout,
    a_route,
    a_weighted_plan,
    an_adapter_wish,
    some_releases,
)
from tests.plans.story import Story
from vctl_plans import base, basing, waves
from vctl_plans.base import Base, Surroundings, base_root
from vctl_plans.errors import PlanError, TransitionError, VctlError
from vctl_plans.events import Observed
from vctl_plans.invariants import Seen, Written, check
from vctl_plans.operate import Begin
from vctl_plans.phase import NodePhase
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.rollout import Rollout, advanced
from vctl_plans.route import Consistency, Override
from vctl_plans.share import share
from vctl_plans.units import Quota

FOUR = ("a", "b", "c", "d")
ROOT = base_root(msgspec.structs.replace(some_releases(1)[1], components=a_base_wish(2)))

STAGED = "shifting: release 2 is staged on 4 of 4 nodes: "
BY_ONE = ", as nodes change their base by waves of 1 node"
FIRST = "shifting: a changes to the base of release 2"
THIRD_MOVES = "shifting: 1 of 4 nodes hold the base of release 2: 33.33 % of traffic moves to it"
SECOND = "shifting: d changes to the base of release 2"
UP_TO_TWO = [
    "preparing: release 2 is prepared on 4 nodes; its base goes to them by waves of 1 node",
    f"{STAGED}traffic moves to it{BY_ONE}",
    FIRST,
    THIRD_MOVES,
    SECOND,
    "shifting: 2 of 4 nodes hold the base of release 2: 66.67 % of traffic moves to it",
]
THIRD = "shifting: c changes to the base of release 2"
ALL_MOVES = "shifting: 3 of 4 nodes hold the base of release 2: 100 % of traffic moves to it"
LAST = "shifting: 4 of 4 nodes route to release 2: the last nodes change to the base of release 2"
END = [
    "settling: 4 of 4 nodes hold the base of release 2: release 2 is stable",
    "converged: converged (4/4) on release 2",
]
RETURN = "rolling_back: 4 of 4 nodes report the route: all others change to the base of release 1"
DROPPED = "rolling_back: 4 of 4 nodes report the route: release 2 may be unloaded"
BACK = "rolled_back: rolled back (4/4) on release 1"
RETURNED = (
    "rolling_back: rollback to release 1 asked: traffic returns to release 1; release 2 is revoked"
)
ASKED_BACK = (
    "rolling_back: rollback to release 1 asked: no node holds its base:"
    " it is loaded by waves of 1 node; 2 serves on meanwhile"
)
REVERSE = [
    "rolling_back: 1 of 4 nodes hold the base of release 1: 33.33 % of traffic moves to it",
    "rolling_back: 2 of 4 nodes hold the base of release 1: 66.67 % of traffic moves to it",
    "rolling_back: 3 of 4 nodes hold the base of release 1: 100 % of traffic moves to it",
    (
        "rolling_back: 4 of 4 nodes route 100 % to release 1:"
        " the last nodes change to the base of release 1"
    ),
    (
        "rolling_back: all nodes hold the base of release 1:"
        " traffic returns to release 1; release 2 is revoked"
    ),
    BACK,
]


def begun(story: Story) -> None:
    """Serve release 1 on the base that engines start with, and bring another base."""
    story.serve(1).start(a_base_wish(2))


def until(story: Story, said: str) -> None:
    """Let nodes and conductor go on until *said* was decided."""
    for _ in range(20):
        story.obey()
        story.observe()
        if said in story.said[-1]:
            return
    raise AssertionError("\n".join(story.said))


def switched(story: Story) -> None:
    """Move all traffic."""
    begun(story)
    story.run()


def by_steps(story: Story) -> None:
    """Move it by weights, with soaks; the base follows the weights."""
    story.serve(1).start(a_base_wish(2), plan=a_weighted_plan(50, 100))
    story.run()
    story.wait()
    story.run()
    story.wait()
    story.run()


def back_midway(story: Story) -> None:
    """Press rollback --now while half of the nodes hold the old base."""
    begun(story)
    until(story, "66.67 %")
    story.back()
    story.run()


def aborted_midway(story: Story) -> None:
    """Give it up after a third of the traffic moved."""
    begun(story)
    until(story, "33.33 %")
    story.abort()
    story.run()


def aborted_before_traffic(story: Story) -> None:
    """Give it up while the first nodes change."""
    begun(story)
    until(story, "a changes")
    story.abort()
    story.run()


def back_at_the_last(story: Story) -> None:
    """Press rollback --now when the last nodes have changed, and it has not settled."""
    begun(story)
    until(story, "the last nodes change")
    story.obey()
    story.back()
    story.run()


def back_after_the_end(story: Story) -> None:
    """Press rollback --now when it has converged: no node holds the old base."""
    switched(story)
    story.back()
    story.run()


def back_by_plan(story: Story) -> None:
    """Go back by a plan, once it has converged."""
    switched(story)
    story.start(0, plan=a_plan(strategy="rollback"))
    story.run()


def stuck(story: Story) -> None:
    """Have a node not change until a person has seen to it."""
    begun(story)
    until(story, "33.33 %")
    story.slow.add("d")
    until(story, "d changes")
    story.obey()
    limit_s = story.observe().wake_s
    assert limit_s == 60
    story.observe(limit_s)
    story.slow.clear()
    story.resume()
    story.run()


def other_lost(story: Story) -> None:
    """Have a node of the old base hold nothing when the next may change: it waits."""
    begun(story)
    until(story, "33.33 %")
    story.slow.add("b")
    story.drop("b", 1)
    assert story.observe().sentence == ""  # the route is not reported yet
    story.obey()
    limit_s = story.observe().wake_s
    assert limit_s == 60
    story.observe(limit_s)
    story.slow.clear()
    story.resume()
    story.run()


def deaf(story: Story) -> None:
    """Have a gateway not report the route that a wave has changed, until a person has seen it."""
    begun(story)
    until(story, "33.33 %")
    story.deaf.add("b")
    story.obey()
    limit_s = story.observe().wake_s
    assert limit_s == 20
    story.observe(limit_s)
    story.deaf.clear()
    story.resume()
    story.run()


def deaf_on_the_way_back(story: Story) -> None:
    """Have a gateway not report that traffic is back: the others change when the rollout ends."""
    begun(story)
    until(story, "33.33 %")
    story.deaf.add("b")
    story.back()
    story.wait()
    story.obey()


def lost_at_the_last(story: Story) -> None:
    """Have a node that carries traffic hold nothing when the last may change: they wait."""
    story.serve(1).start(a_base_wish(2), plan=a_weighted_plan(100))
    story.run()
    story.slow.add("a")
    story.drop("a", 2)
    assert story.observe(60).wake_s == 120
    story.observe(120)
    story.slow.clear()
    story.resume()
    story.run()


def first_release(story: Story) -> None:
    """Bring a base with the first release: nothing serves, so all change at once."""
    story.start(a_base_wish(1))
    story.run()


SCENARIOS: list[tuple[Callable[[Story], None], list[str]]] = [
    (switched, [*UP_TO_TWO, THIRD, ALL_MOVES, LAST, *END]),
    (
        by_steps,
        [
            UP_TO_TWO[0],
            f"{STAGED}step 1 of 2, 50 % of traffic moves to release 2{BY_ONE}",
            FIRST,
            THIRD_MOVES,
            SECOND,
            "shifting: 2 of 4 nodes hold the base of release 2: 50 % of traffic moves to it",
            "soaking: 4 of 4 nodes route 50 % to release 2: soaking 1m",
            "shifting: soaked 1m: step 2 of 2, 100 % of traffic moves to release 2" + BY_ONE,
            "shifting: 2 of 4 nodes hold the base of release 2: 66.67 % of traffic moves to it",
            THIRD,
            ALL_MOVES,
            "soaking: 4 of 4 nodes route 100 % to release 2: soaking 1m",
            "shifting: soaked 1m: the last nodes change to the base of release 2",
            *END,
        ],
    ),
    (
        back_midway,
        [
            *UP_TO_TWO,
            RETURNED,
            RETURN,
            DROPPED,
            BACK,
        ],
    ),
    (
        aborted_midway,
        [
            *UP_TO_TWO[:4],
            "rolling_back: aborted by an operator: traffic returns to release 1",
            RETURN,
            DROPPED,
            BACK,
        ],
    ),
    (
        aborted_before_traffic,
        [*UP_TO_TWO[:3], "failed: aborted by an operator; no traffic moved"],
    ),
    (
        back_at_the_last,
        [
            *UP_TO_TWO,
            THIRD,
            ALL_MOVES,
            LAST,
            ASKED_BACK,
            "rolling_back: b changes to the base of release 1",
            REVERSE[0],
            "rolling_back: c changes to the base of release 1",
            REVERSE[1],
            "rolling_back: d changes to the base of release 1",
            *REVERSE[2:5],
            DROPPED,
            BACK,
        ],
    ),
    (
        back_after_the_end,
        [
            *UP_TO_TWO,
            THIRD,
            ALL_MOVES,
            LAST,
            *END,
            ASKED_BACK,
            "rolling_back: c changes to the base of release 1",
            REVERSE[0],
            "rolling_back: b changes to the base of release 1",
            REVERSE[1],
            "rolling_back: a changes to the base of release 1",
            *REVERSE[2:],
        ],
    ),
    (
        stuck,
        [
            *UP_TO_TWO[:5],
            "paused: release 2 is not ready on d, which change to its base",
            "shifting: resumed: shifting",
            UP_TO_TWO[5],
            THIRD,
            ALL_MOVES,
            LAST,
            *END,
        ],
    ),
    (
        other_lost,
        [
            *UP_TO_TWO[:4],
            "paused: no more nodes can change their base: b is not ready",
            "shifting: resumed: shifting",
            *UP_TO_TWO[4:],
            THIRD,
            ALL_MOVES,
            LAST,
            *END,
        ],
    ),
    (
        deaf,
        [
            *UP_TO_TWO[:4],
            "paused: after 20s these nodes do not report the route: b",
            "shifting: resumed: shifting",
            *UP_TO_TWO[4:],
            THIRD,
            ALL_MOVES,
            LAST,
            *END,
        ],
    ),
    (
        deaf_on_the_way_back,
        [
            *UP_TO_TWO[:4],
            RETURNED,
            "rolled_back: rolled back (2/4) on release 1; unconfirmed: b, a",
        ],
    ),
    (
        lost_at_the_last,
        [
            UP_TO_TWO[0],
            f"{STAGED}traffic moves to it{BY_ONE}",
            *UP_TO_TWO[2:],
            THIRD,
            ALL_MOVES,
            "soaking: 4 of 4 nodes route to release 2: soaking 1m",
            "paused: no more nodes can change their base: a is not ready",
            "soaking: resumed: soaking, 0s left",
            "shifting: soaked 1m: the last nodes change to the base of release 2",
            *END,
        ],
    ),
    (
        first_release,
        [
            "preparing: release 1 is prepared on 4 nodes",
            "shifting: release 1 is ready on 4 of 4 nodes: traffic moves to it",
            "settling: 4 of 4 nodes route to release 1: release 1 is stable",
            "converged: converged (4/4) on release 1",
        ],
    ),
]


@pytest.mark.parametrize(("play", "told"), SCENARIOS, ids=[play.__name__ for play, _ in SCENARIOS])
def test_waves_say_each_turn(play: Callable[[Story], None], told: list[str]) -> None:
    """What nodes and traffic do, one decision a line; and at the end the base is unlocked."""
    story = Story(nodes=FOUR)

    play(story)

    assert told == story.said
    assert "" == story.service.around.base.lock
    assert dict.fromkeys(FOUR, base_root(story.service.stable)) == story.bases


@pytest.mark.parametrize("decision", range(20))
@pytest.mark.parametrize("play", [by_steps, back_midway, back_at_the_last, back_after_the_end])
def test_waves_go_on_from_any_decision(play: Callable[[Story], None], decision: int) -> None:
    """A conductor that dies before or after any of its decisions leaves the same story."""
    whole, cut = Story(nodes=FOUR), Story(nodes=FOUR, dies_at=decision)

    play(whole)
    play(cut)

    assert whole.said == cut.said


def test_rollback_by_plan_stages_first_and_goes_by_waves() -> None:
    """All nodes have the old base on disk before the first one changes."""
    story = Story(nodes=FOUR)

    back_by_plan(story)

    at = story.said.index(
        "preparing: release 1 is prepared on 4 nodes; its base goes to them by waves of 1 node"
    )
    assert (
        "rolling_back: release 1 is staged on 4 of 4 nodes: no node holds its base:"
        " it is loaded by waves of 1 node; 2 serves on meanwhile"
    ) == story.said[at + 1]
    assert P.ROLLED_BACK is story.phase
    assert (2,) == story.route.revoked


def test_no_more_nodes_than_allowed_are_without_a_base() -> None:
    """Of ten nodes three at a time; the invariants count at every decision of every story."""
    nodes = tuple(f"n{number}" for number in range(10))
    story = Story(nodes=nodes)
    story.serve(1).start(a_base_wish(2), plan=a_plan(max_unavailable=Quota(count=3)))
    let_in = [0]
    while not story.rollout.phase.is_terminal:
        story.obey()
        story.observe()
        let_in.append(sum(share(story.rollout.id, node) < story.rollout.wave for node in nodes))

    grew = [now - before for before, now in itertools.pairwise(let_in) if now > before]
    assert [3, 3, 1, 3] == grew  # seven carry all traffic; the last three get none


def test_route_is_as_consistent_as_the_plan() -> None:
    """Also where the rollout before it was strict: a wave is not behind a barrier."""
    story = Story(nodes=FOUR).serve(1)
    story.start(an_adapter_wish(2), plan=a_plan(consistency=Consistency.STRICT))
    story.run()

    story.start(a_base_wish(3))

    assert P.CONVERGED is story.run()
    assert Consistency.SESSION is story.route.consistency


def test_two_nodes_are_enough() -> None:
    """One serves while the other changes."""
    story = Story(nodes=("a", "b"))

    switched(story)

    assert P.CONVERGED is story.phase
    assert {"a": ROOT, "b": ROOT} == story.bases


def test_release_of_the_same_base_moves_no_base() -> None:
    """An adapter on top of the new base is a rollout like any other, and can go back at once."""
    story = Story(nodes=FOUR)
    switched(story)

    story.start(an_adapter_wish(3))

    assert 0 == story.rollout.wave_size
    assert P.CONVERGED is story.run()
    assert (2,) == story.route.instant
    assert {ROOT} == set(story.bases.values())


def test_nothing_of_the_old_base_stays_loaded() -> None:
    """What was retained before cannot be: nodes hold one base."""
    story = Story(nodes=FOUR).serve(1, 2)

    story.start(a_base_wish(3))
    story.run()

    assert () == story.route.instant
    assert [[3]] * 4 == story.holds()


def test_quarantined_node_pauses_the_wave() -> None:
    """A swap that cannot be confirmed is a refusal: the node is named with its reason."""
    story = Story(nodes=FOUR)
    begun(story)
    until(story, "a changes")
    story.refuses["a"] = "the engine did not confirm"
    story.drop("a", 1)
    story.observe()

    assert (
        "paused: release 2 is not ready on a, which change to its base: the engine did not confirm"
    ) == story.said[-1]


def test_rollback_elsewhere_is_refused_while_the_base_moves() -> None:
    """There may be a third base: only what served can be returned to."""
    story = Story(nodes=FOUR).serve(1, 2)
    story.start(a_base_wish(3))
    until(story, "33.33 %")

    with pytest.raises(TransitionError, match="only release 2 can be returned to now"):
        story.back(1)


def test_another_base_is_refused_to_a_rollout_that_changes_none() -> None:
    """It did not lock the base, and its nodes would never hold what it goes back to."""
    story = Story(nodes=FOUR)
    switched(story)
    story.start(2, plan=a_weighted_plan())  # confirms what serves: back means release 1

    with pytest.raises(TransitionError, match="release 1 of support runs on another base"):
        story.back()


def test_groups_with_a_release_of_their_own_keep_the_base() -> None:
    """It would be gone from under them."""
    story = Story(nodes=FOUR).serve(1)
    story.give(2)

    with pytest.raises(TransitionError, match="groups of support have a release of their own"):
        story.start(a_base_wish(3))


def test_abort_is_refused_once_no_node_holds_the_old_base() -> None:
    """Then only rollback --now leads back, by waves."""
    story = Story(nodes=FOUR)
    begun(story)
    until(story, "the last nodes change")

    with pytest.raises(TransitionError, match="release 1, which served before, is not loaded"):
        story.abort()


def test_base_is_locked_while_it_moves() -> None:
    """The lock names service and rollout, and goes with the rollout's end."""
    story = Story(nodes=FOUR)
    begun(story)
    held = story.service.around.base
    story.run()

    assert Base(root="", lock=f"{SERVICE}/{story.rollout.id}") == held
    assert Base(root=ROOT, lock="") == story.service.around.base


def test_base_is_unlocked_by_who_supersedes() -> None:
    """A newer plan that moves no base takes the lock away with the rollout that it replaces."""
    story = Story(nodes=FOUR)
    begun(story)

    begin = story.start(an_adapter_wish(3), supersede=True)

    assert isinstance(begin, Begin)
    assert Base() == story.service.around.base
    assert P.CONVERGED is story.run()


TAKEN = (
    "release.weights: the base of all nodes would change,"
    " and that of search, chat, which serves too, would be gone"
)
AROUND: list[tuple[str, Surroundings, str]] = [
    (
        "locked",
        Surroundings(base=Base(lock="search/q7")),
        "rollout q7 of search changes the base of all nodes: nothing else starts",
    ),
    (
        "running",
        Surroundings(running=("search",)),
        "the base of all nodes would change, and rollouts run of search",
    ),
    (
        "serving",
        Surroundings(serving=("search", "chat")),
        TAKEN,
    ),
    (
        "fixed",
        Surroundings(fixed=("a", "b")),
        "release.weights: the engine cannot change its base while it runs on a, b",
    ),
]


@pytest.mark.parametrize(
    ("around", "told"), [case[1:] for case in AROUND], ids=[case[0] for case in AROUND]
)
def test_base_plan_is_refused_by_what_is_around(around: Surroundings, told: str) -> None:
    """By name, before anything is written."""
    story = Story(nodes=FOUR).serve(1)
    story.service = msgspec.structs.replace(story.service, around=around)

    with pytest.raises(VctlError) as refusal:
        story.start(a_base_wish(2))

    assert told == str(refusal.value)


def test_other_plans_wait_for_the_base() -> None:
    """While another service's rollout moves the base nothing starts; what runs beside is no bar."""
    story = Story(nodes=FOUR).serve(1)
    locked = Surroundings(base=Base(lock="search/q7"))
    story.service = msgspec.structs.replace(story.service, around=locked)
    with pytest.raises(TransitionError, match="q7 of search changes the base"):
        story.start(an_adapter_wish(2))

    busy = Surroundings(running=("search",), serving=("search",), fixed=("a",))
    story.service = msgspec.structs.replace(story.service, around=busy)
    assert isinstance(story.start(an_adapter_wish(2)), Begin)


PLANS = [
    ({"consistency": Consistency.STRICT}, "consistency"),
    ({"strategy": "user-group", "groups": "g"}, "strategy"),
    ({"max_unavailable": Quota(count=4)}, "gate.max_unavailable"),
]


@pytest.mark.parametrize(("more", "path"), PLANS, ids=[path for _, path in PLANS])
def test_plan_that_cannot_go_by_waves_is_refused(more: dict[str, object], path: str) -> None:
    """What would put traffic where no node holds the base never starts."""
    story = Story(nodes=FOUR).serve(1)

    with pytest.raises(PlanError) as refusal:
        story.start(a_base_wish(2), plan=a_plan(**more))  # type: ignore[arg-type]

    assert path == refusal.value.path


def test_next_wave_takes_the_lowest_shares_and_returns_the_highest() -> None:
    """Who changed last is the first to return."""
    rollout = a_rollout(wave_size=1)
    order = sorted(FOUR, key=lambda node: share(rollout.id, node))

    nodes, wave = waves.next_wave(rollout, FOUR, room=2)
    assert sorted(order[:2]) == list(nodes)
    assert order[:2] == [n for n in order if share(rollout.id, n) < wave]

    whole = msgspec.structs.replace(rollout, wave=100.0, back_to=1)
    nodes, wave = waves.next_wave(whole, FOUR, room=1)
    assert (order[3],) == nodes
    assert order[:3] == [n for n in order if share(rollout.id, n) < wave]
    assert (tuple(sorted(FOUR)), 0.0) == waves.next_wave(whole, FOUR, room=4)


def test_side_of_a_node_follows_the_wave() -> None:
    """In the wave what is brought; else what served, or what is gone back to."""
    rollout = a_rollout(wave_size=1, wave=50.0)
    inside = {node for node in FOUR if share(rollout.id, node) < rollout.wave}
    going_back = msgspec.structs.replace(rollout, back_to=1)

    assert 0 < len(inside) < len(FOUR)
    for asked in (rollout, going_back):
        sides = {node: base.side(asked, node) for node in FOUR}
        assert {node: 2 if node in inside else 1 for node in FOUR} == sides


def test_released_only_by_the_end() -> None:
    """Decisions on the way leave the lock."""
    story = Story(nodes=FOUR).serve(1)
    before = a_rollout(P.SHIFTING, wave_size=1)
    on = advanced(before, P.SOAKING, "on")
    failed = advanced(before, P.FAILED, "failed")

    assert basing.released(story.service, before, on) is None
    assert Base() == basing.released(story.service, before, failed)
    assert basing.released(story.service, a_rollout(P.SHIFTING), failed) is None


# -- the second opinion ------------------------------------------------------------------------


def a_wave(wave: float, **more: object) -> Rollout:
    """Return a rollout of the base with this wave."""
    return a_rollout(P.SHIFTING, wave_size=1, has_moved=True, roster_size=4, wave=wave, **more)


def seen(rollout: Rollout, *, unready: tuple[str, ...] = (), route_revision: int = 7) -> Seen:
    """Return nodes that hold what they are to hold, but *unready* ones."""
    reports = {
        node: a_report(
            node,
            rollout=rollout,
            route_revision=route_revision,
            **({} if node in unready else {f"r{base.side(rollout, node)}": NodePhase.READY}),
        )
        for node in FOUR
    }
    return Seen(roster=FOUR, reports=reports)


def broken(before: Rollout, looked: Seen, *, weight: float = 0.0, **after: object) -> list[str]:
    """Return what a decision from *before* to *after* breaks."""
    was = a_route(candidate=2 if weight else 0, weight=weight)
    route = after.pop("route", was)
    now = msgspec.structs.replace(advanced(before, P.SHIFTING, "on"), **after)
    then = Written(rollout=before, route=was, route_revision=7)
    return check(then, Written(rollout=now, route=route, route_revision=8), looked)  # type: ignore[arg-type]


def wave_of(number: int) -> float:
    """Return the wave that lets *number* nodes in."""
    shares = sorted(share("r2", node) for node in FOUR)
    return shares[number] if number < len(shares) else 100.0


def test_invariant_tells_a_wave_that_is_too_wide() -> None:
    """Two nodes at once where one may be missing, or one while another is."""
    before = a_wave(0.0)
    order = sorted(FOUR, key=lambda node: share("r2", node))

    assert [] == broken(before, seen(before), wave=wave_of(1))
    assert [f"I5: {sorted(order[:2])} are without a base, and 1 may be"] == broken(
        before, seen(before), wave=wave_of(2)
    )
    late = seen(before, unready=(order[3],))
    wide = sorted((order[0], order[3]))
    assert [f"I5: {wide} are without a base, and 1 may be"] == broken(before, late, wave=wave_of(1))


@pytest.mark.parametrize("exchanges", [True, False])
def test_groups_of_their_own_hold_up_only_a_change_of_the_base(*, exchanges: bool) -> None:
    """Where adapters are exchanged theirs has a place beside; a base takes all adapters with it."""
    back = msgspec.structs.replace(a_wave(wave_of(2)), back_to=1, exchanges=exchanges)
    route = a_route(stable=1, overrides=(Override(group="acme", release=3),))

    wrong = broken(back, seen(back), wave=0.0, route=route)

    assert exchanges == (not [said for said in wrong if "may be" in said])


def test_invariant_tells_a_wave_before_the_route_is_known() -> None:
    """The next nodes change only once all act on the route."""
    before = a_wave(0.0)
    deaf = seen(before, route_revision=6)

    wrong = broken(before, deaf, wave=wave_of(1))

    assert f"I5: nodes change though {list(FOUR)} do not report the route" in wrong


def test_invariant_tells_more_weight_than_nodes_hold() -> None:
    """One of three nodes that must carry all traffic carries a third of it."""
    before = a_wave(wave_of(1))
    third = a_route(candidate=2, weight=100 / 3)
    half = a_route(candidate=2, weight=50.0)

    assert [] == broken(before, seen(before), route=third)
    assert ["I5: 50 % on release 2, whose base 1 nodes hold"] == broken(
        before, seen(before), route=half
    )


def test_invariant_tells_traffic_on_a_base_that_no_node_is_to_hold() -> None:
    """The last nodes never change while the old release has traffic."""
    before = a_wave(wave_of(3))

    wrong = broken(before, seen(before), weight=90.0, wave=100.0)

    assert ["I5: release 1 gets traffic, and no node holds its base"] == wrong


def test_base_plan_ends_when_another_service_began_meanwhile() -> None:
    """Both were read before either was written: whoever changes the base gives way."""
    story = Story(nodes=FOUR)
    begun(story)
    story.obey()

    story.observe(event=Observed(story.reports(), others=("search",)))

    assert (
        "failed: the base would change for search too, which began meanwhile; no traffic moved"
    ) == story.said[-1]

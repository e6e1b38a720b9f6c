"""The second opinion: each invariant tells a write that breaks it, and is silent on a sound one."""

import msgspec
import pytest

from tests.builders import NODES, a_report, a_rollout, a_route, some_releases
from vctl_plans import invariants
from vctl_plans.invariants import Seen, Written, check
from vctl_plans.phase import NodePhase
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.rollout import Entry, advanced
from vctl_plans.route import Override, Route, overridden

BEFORE = Written(rollout=a_rollout(), route=a_route(), route_revision=7)
SHIFTED = a_route(candidate=2, weight=100.0)
READY = Seen(
    roster=NODES,
    reports={n: a_report(n, rollout=a_rollout(), r2=NodePhase.READY) for n in NODES},
)


def wrote(
    route: Route | None = None, *, phase: P = P.SHIFTING, of: Written = BEFORE, **more: object
) -> Written:
    """Return what a next decision leaves."""
    assert of.rollout is not None
    after = advanced(of.rollout, phase, "for a test")
    after = msgspec.structs.replace(after, **more)
    return Written(rollout=after, route=route or of.route, route_revision=8)


def test_sound_write_breaks_nothing() -> None:
    """Traffic moves to what every counted node reported ready."""
    assert [] == check(BEFORE, wrote(SHIFTED, has_moved=True), READY)


UNSOUND: list[tuple[str, Written, str]] = [
    ("unread", wrote(a_route(stable=0)), "I5: a route that was written serves nothing"),
    ("weight", wrote(a_route(candidate=2)), "I5: weight 0.0 with candidate 2"),
    ("double", wrote(a_route(candidate=1, weight=5.0)), "I5: the candidate is the stable release"),
    ("instant", wrote(a_route(instant=(1,))), "I5: the stable release is listed as retained"),
    ("revoked", wrote(a_route(revoked=(1,))), "I6: the route keeps revoked [1]"),
    ("passed", wrote(a_route(revoked=(9,))), "I6: [9] is revoked, and was not left"),
    ("unload", wrote(unload=(1,)), "I4: [1] may be unloaded and is routed or retained"),
    ("hole", wrote(seq=5), "I10: decision 5 follows 0"),
    ("plan", wrote(plan="other"), "I10: ['plan'] of rollout r2 changed"),
    ("mute", wrote(sentence=""), "I10: a decision without a sentence"),
    ("pause", wrote(phase=P.PAUSED), "I8: paused without a reason, or without a way on"),
    ("end", wrote(phase=P.CONVERGED, confirmed=3), "I8: converged on 2, and the route serves [1]"),
    (
        "silent",
        wrote(a_route(stable=2), phase=P.CONVERGED, confirmed=2),
        "I8: nodes that did not confirm are not named",
    ),
    ("moved", wrote(phase=P.FAILED, has_moved=True), "I8: failed though traffic moved"),
    ("deleted", Written(route=a_route()), "I10: the rollout's key was deleted"),
]


@pytest.mark.parametrize(("name", "after", "told"), UNSOUND, ids=[c[0] for c in UNSOUND])
def test_unsound_write_is_told(name: str, after: Written, told: str) -> None:
    """Each by its invariant's number."""
    assert told in check(BEFORE, after, READY), name


def test_traffic_to_what_is_not_ready_is_told() -> None:
    """One node of the roster is enough; and so is a word from before the rollout."""
    after = wrote(SHIFTED, has_moved=True)
    two = Seen(roster=NODES, reports={n: READY.reports[n] for n in ("a", "b")})
    early = Seen(roster=NODES, reports={n: a_report(n, r2=NodePhase.READY) for n in NODES})

    told = ["I5: traffic moves to release 2, which is not ready everywhere"]
    assert told == check(BEFORE, after, two)
    assert told == check(BEFORE, after, early)
    assert told == check(BEFORE, after)


def test_revoked_release_that_is_forgotten_is_told() -> None:
    """No write lifts it."""
    before = Written(rollout=a_rollout(), route=a_route(revoked=(5,)), route_revision=7)

    assert ["I6: [5] is revoked no more"] == check(before, wrote(a_route()))


def test_unload_before_the_route_is_known_is_told() -> None:
    """The list is written after every counted node reported the route."""
    rollout = a_rollout(P.SETTLING, has_moved=True)
    route = a_route(stable=2, good=(1, 2))
    before = Written(rollout=rollout, route=route, route_revision=9)
    late = {n: a_report(n, route_revision=8 if n == "c" else 9) for n in NODES}
    after = wrote(of=before, phase=P.SETTLING, unload=(1,))

    assert ["I4: [1] may be unloaded before ['c'] know the route"] == check(
        before, after, Seen(roster=NODES, reports=late)
    )


def test_settling_before_the_route_is_known_is_told() -> None:
    """A candidate takes over when every counted node routes to it."""
    before = Written(rollout=a_rollout(P.SHIFTING, has_moved=True), route=SHIFTED, route_revision=9)
    after = wrote(a_route(stable=2, good=(1, 2)), of=before, phase=P.SETTLING)

    assert ["I3: settling though ['a', 'b', 'c'] do not report the route"] == check(
        before, after, READY
    )


@pytest.mark.parametrize("phase", [phase for phase in P if phase.is_terminal])
def test_ended_rollout_that_moves_is_told(phase: P) -> None:
    """Also when only its route does."""
    ended = Written(rollout=a_rollout(phase), route=a_route(), route_revision=7)
    turned = msgspec.structs.replace(ended, route=a_route(good=()))

    assert f"I8: rollout r2 had {phase} and moved to {phase}" in check(ended, turned)


def test_rollout_that_replaces_a_running_one_is_told() -> None:
    """Only what has ended, or still prepares, is replaced."""
    moving = Written(rollout=a_rollout(P.SHIFTING), route=SHIFTED, route_revision=7)
    after = msgspec.structs.replace(moving, rollout=a_rollout(id="r3", seq=1))

    assert [
        "I10: rollout r3 begins with decision 1",
        "I8: r3 replaced r2, which is shifting",
    ] == check(moving, after)


def _entries(*numbers: int) -> list[Entry]:
    return [Entry(rollout="r2", seq=n, phase=P.PREPARING, sentence=f"s{n}") for n in numbers]


def test_history_with_a_hole_is_told() -> None:
    """Or one that ends otherwise than the rollout."""
    rollout = a_rollout(seq=2, sentence="s2")

    assert [] == invariants.history(_entries(2, 0, 1), rollout=rollout)
    assert ["I10: history of r2 holds [0, 2]"] == invariants.history(
        _entries(0, 2), rollout=rollout
    )
    assert ["I10: history of r2 holds [0, 1]", "I10: history of r2 ends otherwise"] == (
        invariants.history(_entries(0, 1), rollout=rollout)
    )


def test_counter_that_is_used_twice_is_told() -> None:
    """One version of a component is one root."""
    one, two = some_releases(2).values()
    twin = msgspec.structs.replace(two, vector=one.vector, digest="b3:0")

    assert [] == invariants.releases([one, two])
    assert [
        "I2: release 2 is not what its digest says",
        "I2: adapter=1 names two roots",
    ] == invariants.releases([one, twin])


ENDED = Written(
    rollout=a_rollout(P.CONVERGED, groups="g", confirmed=3),
    route=a_route(instant=(2,), revoked=(9,), overrides=(Override(group="g", release=2),)),
    route_revision=7,
)


def held(route: Route) -> list[str]:
    """Return what a route breaks that an operator writes beside the rollout that has ended."""
    return check(ENDED, msgspec.structs.replace(ENDED, route=route, route_revision=8))


def test_groups_may_be_given_what_is_loaded_while_no_rollout_runs() -> None:
    """Also those of the last rollout, whatever that brought them."""
    assert ENDED.route is not None
    assert [] == held(overridden(ENDED.route, "g", 1))
    assert [] == held(overridden(ENDED.route, "h", 2))


BESIDE: list[tuple[str, dict[str, object], str]] = [
    (
        "more",
        {"stable": 2, "overrides": (Override(group="g", release=1),)},
        "I2: more than overrides changed without a rollout",
    ),
    ("gone", {"overrides": ()}, "I2: groups lost what they had, without a rollout"),
    (
        "others",
        {"overrides": (Override(group="h", release=1), Override(group="i", release=2))},
        "I2: other groups' releases changed, or their order",
    ),
    (
        "absent",
        {"overrides": (Override(group="g", release=3),)},
        "I5: groups get release 3, which is not loaded",
    ),
    (
        "revoked",
        {"overrides": (Override(group="g", release=9),)},
        "I6: the route keeps revoked [9]",
    ),
    ("forgets", {"revoked": ()}, "I6: [9] is revoked no more"),
]


@pytest.mark.parametrize(("name", "changes", "told"), BESIDE, ids=[c[0] for c in BESIDE])
def test_write_beside_a_rollout_may_do_no_more(
    name: str, changes: dict[str, object], told: str
) -> None:
    """Of anything else the invariant tells."""
    assert ENDED.route is not None, name
    assert told in held(msgspec.structs.replace(ENDED.route, **changes))


def test_running_rollout_is_not_written_around() -> None:
    """A route that moves without its decision is told, though only groups get another release."""
    assert BEFORE.route is not None
    moved = msgspec.structs.replace(BEFORE, route=overridden(BEFORE.route, "g", 1))
    assert "I10: the route changed without a decision" in check(BEFORE, moved)

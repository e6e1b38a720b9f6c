"""Nothing that may still be read ever goes, and of the rest the newest stay while there is room."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import SERVICE, a_rollout, a_root, a_route, a_service, some_releases
from vctl_plans.phase import Component, RolloutPhase
from vctl_plans.release import Artifact, Release
from vctl_plans.retention import PARTIAL_S, Known, Lying, Retention, Why, retain, shortage
from vctl_plans.rollout import Rollout
from vctl_plans.route import Override, Route
from vctl_plans.snapshot import Fleet, Service

MIB = 1024 * 1024
PHASES = sorted(RolloutPhase)


def known(service: Service, **more: object) -> Known:
    """Return all that is known of a node where nothing else needs anything."""
    plain = Known(
        fleet=Fleet(services={service.name: service}), listed=frozenset(), requested=frozenset()
    )
    return msgspec.structs.replace(plain, **more)


def a_disk(count: int) -> list[Lying]:
    """Return the artifacts of releases 1 to *count*; the newest is the one used last."""
    return [Lying(a_root(n), MIB, age_s=100.0 * (count - n)) for n in range(1, count + 1)]


def numbers(found: tuple[Lying, ...]) -> list[int]:
    """Return the releases that the artifacts are of."""
    return [int(each.root[-52:], 16) for each in found]


def decide(
    service: Service, count: int, *, keep: int = 0, short: int = 0, **more: Any
) -> Retention:
    return retain(a_disk(count), (), known(service, **more), keep=keep, shortage_bytes=short)


def test_the_newest_stay_and_older_ones_go():
    """The longest unused first; what serves stays however many are kept."""
    service = a_service(releases=6, route=a_route(stable=2, good=(2,)))
    decided = decide(service, 6, keep=3)

    assert [1, 3] == numbers(decided.goes)
    assert Why.ROUTED is decided.stays[a_root(2)]
    assert {Why.NEWEST} == {decided.stays[a_root(n)] for n in (4, 5, 6)}
    assert 2 * MIB == decided.freed_bytes


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"listed": frozenset({a_root(1)})}, Why.LISTED),
        ({"registered": frozenset({a_root(1)})}, Why.REGISTERED),
        ({"requested": frozenset({(SERVICE, 1)})}, Why.REQUESTED),
        ({"handed": frozenset({(SERVICE, 1)})}, Why.HANDED),
        ({"staging": frozenset({a_root(1)})}, Why.STAGING),
    ],
)
def test_what_is_in_use_stays_though_the_disk_is_full(more: dict[str, Any], why: Why):
    """Whoever uses it."""
    service = a_service(releases=3, route=a_route(stable=3, good=(3,)))
    decided = decide(service, 3, short=1000 * MIB, **more)

    assert [2] == numbers(decided.goes)
    assert why is decided.stays[a_root(1)]


@pytest.mark.parametrize(
    "route",
    [
        a_route(stable=1),
        a_route(stable=3, candidate=1, weight=10.0),
        a_route(stable=3, instant=(1,)),
        a_route(stable=3, overrides=(Override(group="g", release=1),)),
    ],
)
def test_what_a_route_names_stays(route: Route):
    """Stable, candidate, instant, or only for a group."""
    decided = decide(a_service(releases=3, route=route), 3, short=1000 * MIB)

    assert Why.ROUTED is decided.stays[a_root(1)]


@pytest.mark.parametrize(
    "changes",
    [
        {"to_release": 1},
        {"from_release": 1},
        {"back_to": 1},
        {"from_override": 1},
        {"unload": (1,)},
    ],
)
def test_what_a_running_rollout_names_stays_until_it_has_ended(changes: dict[str, Any]):
    """What it brings, comes from, may go back to, or unloads just now."""
    running = a_rollout(RolloutPhase.SETTLING, **{"from_release": 3, "to_release": 3, **changes})
    ended = msgspec.structs.replace(running, phase=RolloutPhase.CONVERGED)
    route = a_route(stable=3, good=(3,))

    while_running = decide(a_service(releases=3, route=route, rollout=running), 3)
    afterwards = decide(a_service(releases=3, route=route, rollout=ended), 3)

    assert Why.ROLLOUT is while_running.stays[a_root(1)]
    assert 1 in numbers(afterwards.goes)


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"fleet": None}, "the store does not answer"),
        ({"fleet": Fleet()}, "the store names no service"),
        ({"listed": None}, "the engine does not answer"),
        ({"requested": None}, "the gateway is away"),
        ({"requested": frozenset({(SERVICE, 9)})}, "release 9 of support is in use"),
        ({"handed": frozenset({("other", 1)})}, "release 1 of other is in use"),
    ],
)
def test_nothing_goes_while_something_is_not_known(more: dict[str, Any], problem: str):
    """However full the disk is; and it is said what is not known."""
    decided = decide(a_service(releases=3, route=a_route()), 3, short=1000 * MIB, **more)

    assert () == decided.goes
    assert {Why.UNKNOWN} == set(decided.stays.values())
    assert problem in decided.unknown


def test_nothing_goes_while_a_value_cannot_be_read():
    """It may name what lies here."""
    service = a_service(releases=3, route=a_route())
    fleet = Fleet(services={SERVICE: service}, problems=("unreadable Release at /x",))
    decided = retain(a_disk(3), (), known(service, fleet=fleet), keep=0)

    assert ((), "unreadable Release at /x") == (decided.goes, decided.unknown)


def test_last_good_stays_for_comfort_and_goes_for_room():
    """Going back fetches nothing, unless room was needed."""
    service = a_service(releases=5, route=a_route(stable=5, good=(1, 2, 5)))

    assert Why.LAST_GOOD is decide(service, 5).stays[a_root(2)]
    assert 2 in numbers(decide(service, 5, short=4 * MIB).goes)


def test_revoked_release_is_not_among_the_newest():
    """It may not serve again: an older one that may is worth more."""
    service = a_service(releases=4, route=a_route(stable=1, revoked=(4,)))
    decided = decide(service, 4, keep=2)

    assert [4] == numbers(decided.goes)


def test_release_that_is_not_here_in_whole_does_not_count():
    """Who makes ten releases and rolls none out still finds the last that served."""
    service = a_service(releases=9, route=a_route(stable=3, good=(3,)))
    decided = decide(service, 3, keep=2)

    assert {a_root(2): Why.NEWEST, a_root(3): Why.ROUTED} == decided.stays


def test_only_so_much_goes_for_room_as_is_needed():
    """The longest unused first."""
    service = a_service(releases=5, route=a_route(stable=5, good=(5,)))

    assert [1] == numbers(decide(service, 5, keep=5, short=MIB).goes)
    assert [1, 2] == numbers(decide(service, 5, keep=5, short=MIB + 1).goes)
    assert [1, 2, 3, 4] == numbers(decide(service, 5, keep=5, short=100 * MIB).goes)


def test_artifact_that_no_release_names_goes():
    """Its service was deleted, say."""
    decided = retain([Lying(a_root(77), 5, 1.0)], (), known(a_service(route=a_route())), keep=3)

    assert [77] == numbers(decided.goes)


def test_what_was_begun_is_given_up_once_nobody_has_wanted_it_for_a_while():
    """What a rollout wants is fetched on; for room what nobody wants goes at once."""
    service = a_service(releases=2, route=a_route(), rollout=a_rollout())
    begun = [
        Lying(a_root(n), MIB, age) for n, age in ((2, 9 * PARTIAL_S), (7, 1.0), (8, PARTIAL_S))
    ]

    assert [8] == numbers(retain((), begun, known(service), keep=3).given_up)
    assert [8, 7] == numbers(retain((), begun, known(service), keep=3, shortage_bytes=1).given_up)


def test_shortage_is_by_the_limit_or_by_the_disk():
    """Whichever is nearer."""
    assert 0 == shortage(100)
    assert 20 == shortage(100, limit_bytes=80)
    assert 30 == shortage(100, limit_bytes=110, needed_bytes=40, free_bytes=100)
    assert 60 == shortage(100, limit_bytes=110, needed_bytes=70, free_bytes=20)
    assert 40 == shortage(100, needed_bytes=60, free_bytes=20)


# -- properties ----------------------------------------------------------------------------------

COUNT = 8
NUMBERS = st.integers(0, COUNT)
SOME = st.frozensets(st.integers(1, COUNT), max_size=3)


@st.composite
def services(draw: st.DrawFn) -> Service:
    """Return a service whose releases share some prompts."""
    made: dict[int, Release] = {}
    for number, release in some_releases(COUNT).items():
        prompt = Artifact(root=a_root(100 + draw(st.integers(1, 3))), source="file:///p")
        components = {**release.components, Component.PROMPT: prompt}
        made[number] = msgspec.structs.replace(release, components=components)
    overrides = tuple(Override(group=f"g{n}", release=n) for n in sorted(draw(SOME)))
    route = Route(
        service=SERVICE,
        stable=draw(NUMBERS),
        candidate=draw(NUMBERS),
        instant=tuple(sorted(draw(SOME))),
        good=tuple(sorted(draw(SOME))),
        revoked=tuple(sorted(draw(SOME))),
        overrides=overrides,
    )
    rollout = a_rollout(
        draw(st.sampled_from(PHASES)),
        from_release=draw(NUMBERS),
        to_release=draw(NUMBERS),
        back_to=draw(NUMBERS),
        from_override=draw(NUMBERS),
        unload=tuple(sorted(draw(SOME))),
    )
    return Service(
        name=SERVICE,
        releases=made,
        route=draw(st.sampled_from([route, None])),
        rollout=draw(st.sampled_from([rollout, None])),
    )


@st.composite
def scenes(draw: st.DrawFn) -> tuple[list[Lying], Known]:
    """Return a disk and what is known of a node; at times something is not known."""
    service = draw(services())
    roots = sorted({made.root for r in service.releases.values() for made in r.staged.values()})
    lying = draw(st.lists(st.sampled_from([*roots, a_root(999)]), unique=True))
    disk = [Lying(root, draw(st.integers(1, 100)), draw(st.integers(0, 5)) * 1.0) for root in lying]
    some_roots = st.frozensets(st.sampled_from(roots), max_size=3)
    some_releases_ = SOME.map(lambda found: frozenset((SERVICE, n) for n in found))
    fleet = Fleet(services={SERVICE: service})
    return disk, Known(
        fleet=draw(st.sampled_from([fleet] * 9 + [None])),
        listed=draw(st.one_of(some_roots, some_roots, st.none())),
        registered=draw(some_roots),
        requested=draw(st.one_of(some_releases_, some_releases_, st.none())),
        handed=draw(some_releases_),
        staging=draw(some_roots),
    )


def referenced(found: Known) -> set[str]:
    """Return, said once more and otherwise, the roots that something may read."""
    assert found.fleet is not None
    service = found.fleet.services[SERVICE]
    named = {n for _, n in (*(found.requested or ()), *found.handed)}
    if service.route:
        route = service.route
        named |= {route.stable, route.candidate, *route.instant}
        named |= {override.release for override in route.overrides}
    rollout: Rollout | None = service.rollout
    if rollout and not rollout.phase.is_terminal:
        named |= {rollout.from_release, rollout.to_release, rollout.back_to, rollout.from_override}
        named |= set(rollout.unload)
    roots = {
        made.root
        for n in named
        if n in service.releases
        for made in service.releases[n].components.values()
    }
    return roots | set(found.listed or ()) | found.registered | found.staging


@settings(max_examples=400)
@given(scenes(), st.integers(0, 4), st.sampled_from([0, 50, 100_000]))
def test_nothing_that_is_referenced_ever_goes(scene: tuple[list[Lying], Known], keep: int, short):
    """And what is not known goes never; all on the disk is either to stay or to go."""
    disk, found = scene
    decided: Retention = retain(disk, disk, found, keep=keep, shortage_bytes=short)
    gone = {each.root for each in (*decided.goes, *decided.given_up)}

    if found.fleet is None or found.listed is None or found.requested is None:
        assert not gone
        assert decided.unknown
        return
    assert not gone & referenced(found)
    whole = {each.root for each in decided.goes}
    assert whole | set(decided.stays) == {each.root for each in disk}
    assert not whole & set(decided.stays)


@settings(max_examples=300)
@given(scenes(), st.integers(0, 4), st.integers(1, 600))
def test_comfort_goes_oldest_first_and_no_more_of_it_than_needed(
    scene: tuple[list[Lying], Known], keep: int, short: int
):
    """Either enough goes, or no comfort is left."""
    disk, found = scene
    with_room = retain(disk, (), found, keep=keep)
    decided = retain(disk, (), found, keep=keep, shortage_bytes=short)
    comfort = [e for e in disk if e.root in with_room.stays and with_room.stays[e.root].is_comfort]
    went = [e for e in comfort if e.root not in decided.stays]
    stayed = [e for e in comfort if e.root in decided.stays]

    assert decided.freed_bytes >= short or not stayed
    if went:
        youngest = min(e.age_s for e in went)
        assert all(e.age_s <= youngest for e in stayed)
        least = min(went, key=lambda e: (e.age_s, [-ord(c) for c in e.root]))
        assert decided.freed_bytes - least.size_bytes < short


@settings(max_examples=200)
@given(scenes(), st.integers(0, 4))
def test_no_more_stays_than_the_newest_and_what_is_in_use(
    scene: tuple[list[Lying], Known], keep: int
):
    """At most K releases for comfort, and the last good one."""
    disk, found = scene
    decided = retain(disk, (), found, keep=keep)
    if decided.unknown:
        return
    whys = list(decided.stays.values())
    assert whys.count(Why.NEWEST) <= 2 * keep
    assert whys.count(Why.LAST_GOOD) <= 2

"""What finds a place beside what serves, what gives way to it, and what is refused."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import (
    SERVICE,
    a_plan,
    a_release,
    a_report,
    a_rollout,
    a_route,
    a_service,
    a_weighted_plan,
    an_adapter_wish,
)
from tests.plans.story import GROUPS, Story
from vctl_plans.base import Surroundings, has_place, is_apart
from vctl_plans.capability import EngineFacts
from vctl_plans.capacity import (
    Fit,
    adapters,
    crowded,
    fit,
    no_place,
    places,
    refuse_rank,
    room,
    setting,
    too_little_memory,
)
from vctl_plans.errors import PlanError, TransitionError
from vctl_plans.node import NodeRecord
from vctl_plans.operate import Begin
from vctl_plans.phase import Component
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.route import Override, Route
from vctl_plans.snapshot import Service


def facts(**more: Any) -> EngineFacts:
    return EngineFacts(kind=more.pop("kind", "vllm"), base="base", **more)


def records(*each: EngineFacts | None) -> list[NodeRecord]:
    return [NodeRecord(node=f"n{i}", boot_id="b", facts=f) for i, f in enumerate(each)]


def a_full_service(
    route: Route, *each: EngineFacts | None, others: tuple[Service, ...] = ()
) -> Service:
    service = a_service(releases=6, route=route)
    around = Surroundings(room=room(records(*each), others))
    return msgspec.structs.replace(service, around=around)


def another(name: str, *numbers: int, retained: tuple[int, ...] = ()) -> Service:
    """Return another service, whose first release serves."""
    releases = {
        n: msgspec.structs.replace(a_release(n), service=name) for n in (*numbers, *retained)
    }
    route = Route(service=name, stable=numbers[0], instant=retained)
    return Service(name=name, releases=releases, route=route)


# -- the rule -------------------------------------------------------------------------------------


def test_what_is_retained_gives_way_oldest_first() -> None:
    service = a_full_service(a_route(stable=3, instant=(1, 2)), facts(max_adapters=3))

    assert Fit(gives_way=(1,)) == fit(service, service.releases[4], allow_downtime=False)

    narrow = a_full_service(a_route(stable=3, instant=(1, 2)), facts(max_adapters=2))
    assert (1, 2) == fit(narrow, service.releases[4], allow_downtime=False).gives_way


def test_nothing_gives_way_where_there_is_room() -> None:
    service = a_full_service(a_route(stable=2, instant=(1,)), facts(max_adapters=3))

    assert Fit() == fit(service, service.releases[3], allow_downtime=False)


@pytest.mark.parametrize("number", [1, 2])
def test_release_that_is_loaded_needs_no_other_place(number: int) -> None:
    """What serves or is retained is there already, in however few places."""
    service = a_full_service(a_route(stable=2, instant=(1,)), facts(max_adapters=1))

    assert Fit() == fit(service, service.releases[number], allow_downtime=False)


def test_least_of_all_nodes_counts_and_is_named() -> None:
    each = (facts(max_adapters=8), facts(max_adapters=1), facts(max_adapters=1))
    service = a_full_service(a_route(stable=1), *each)

    with pytest.raises(PlanError) as refused:
        fit(service, service.releases[2], allow_downtime=False)

    assert refused.value.message == (
        "release: release 2 finds no place: engines hold 1 adapter on n1, n2, and 2 would be"
        " needed: its own, beside release 1, which serves"
    )
    assert refused.value.hint == (
        "start them with --max-loras 2;"
        " or allow_downtime: true (--allow-downtime), to unload before loading"
    )


def test_other_services_count_by_what_they_serve_and_retain() -> None:
    others = (another("chat", 1, retained=(2,)), another("code", 3))
    service = a_full_service(
        a_route(stable=1), facts(max_adapters=4, max_resident=4), others=others
    )

    with pytest.raises(PlanError) as refused:
        fit(service, service.releases[2], allow_downtime=False)

    assert "engines hold 4 adapters on n0, and 5 would be needed" in refused.value.message
    assert (
        "release 1, which serves and 3 of other services, 1 of them retained"
    ) in refused.value.message
    assert refused.value.hint.startswith("start them with --max-loras 4 --max-cpu-loras 5; or")


@pytest.mark.parametrize(("limit", "retain"), [(8, 5), (4, 1), (3, 0), (2, None)])
def test_one_place_is_left_for_other_services(limit: int, retain: int | None) -> None:
    """What one retains gives way to no other: the last place would be closed to all others."""
    each = facts(max_adapters=limit)
    service = a_full_service(a_route(stable=1), each, others=(another("chat", 1),))
    if retain is None:
        with pytest.raises(PlanError):
            fit(service, service.releases[2], allow_downtime=False)
        return

    assert Fit(retain=retain) == fit(service, service.releases[2], allow_downtime=False)


def test_no_more_is_retained_than_has_a_place() -> None:
    story = Story().serve(1)
    story.start(an_adapter_wish(2))
    story.service = msgspec.structs.replace(
        story.service, rollout=msgspec.structs.replace(story.rollout, retain=0)
    )

    assert P.CONVERGED is story.run()
    assert () == story.route.instant


def test_releases_of_one_root_take_one_place() -> None:
    service = a_full_service(a_route(stable=1, instant=()), facts(max_adapters=1))
    prompt = msgspec.structs.replace(service.releases[1], number=7)

    assert Fit() == fit(service, prompt, allow_downtime=False)


def test_more_that_are_served_than_have_places_take_turns_and_it_is_said() -> None:
    """An operator who serves more models than places chose that; a rollout is one more of them."""
    others = tuple(another(name, 1) for name in ("a", "b", "c"))
    each = facts(max_adapters=2, max_resident=9)
    service = a_full_service(a_route(stable=1), each, others=others)

    found = fit(service, service.releases[2], allow_downtime=False)

    assert (False, ()) == (found.exchanges, found.gives_way)
    assert "4 adapters are served, and engines serve 2 side by side" in found.notes[0]


def test_release_that_would_be_the_first_without_a_place_beside_is_refused() -> None:
    service = a_full_service(a_route(stable=1), facts(max_adapters=1, max_resident=4))

    with pytest.raises(PlanError, match="serve side by side 1 adapter on n0, and 2 would be"):
        fit(service, service.releases[2], allow_downtime=False)

    assert fit(service, service.releases[2], allow_downtime=True).exchanges


def test_unknown_places_are_said_and_refuse_nothing() -> None:
    service = a_full_service(a_route(stable=1), facts(), None)

    found = fit(service, service.releases[2], allow_downtime=False)

    assert found.notes == ("how many adapters an engine holds is not told on n0, n1",)


def test_downtime_does_not_help_where_others_take_all_places() -> None:
    others = (another("chat", 1), another("code", 1))
    service = a_full_service(a_route(stable=1), facts(max_adapters=2), others=others)

    with pytest.raises(PlanError) as refused:
        fit(service, service.releases[2], allow_downtime=True)

    assert "allow_downtime" not in refused.value.hint


def test_downtime_is_used_only_where_nothing_else_helps() -> None:
    service = a_full_service(a_route(stable=2, instant=(1,)), facts(max_adapters=2))

    assert not fit(service, service.releases[3], allow_downtime=True).exchanges


def test_groups_keep_theirs_while_the_default_is_exchanged() -> None:
    route = a_route(stable=1, overrides=(Override(group="g", release=3),))
    service = a_full_service(route, facts(max_adapters=2))

    assert fit(service, service.releases[2], allow_downtime=True).exchanges


@pytest.mark.parametrize("allow_downtime", [False, True])
def test_what_groups_have_does_not_give_way_though_it_is_retained_too(
    *, allow_downtime: bool
) -> None:
    route = a_route(stable=2, instant=(1,), overrides=(Override(group="g", release=1),))
    service = a_full_service(route, facts(max_adapters=2))
    if not allow_downtime:
        with pytest.raises(PlanError):
            fit(service, service.releases[3], allow_downtime=False)
        return

    found = fit(service, service.releases[3], allow_downtime=True)

    assert (True, ()) == (found.exchanges, found.gives_way)


def test_candidate_of_another_service_counts() -> None:
    chat = another("chat", 1, 2)
    runs = a_rollout(from_release=1, to_release=2)
    chat = msgspec.structs.replace(chat, rollout=msgspec.structs.replace(runs, service="chat"))
    service = a_full_service(a_route(stable=1), facts(max_adapters=3), others=(chat,))

    with pytest.raises(PlanError, match="and 4 would be needed"):
        fit(service, service.releases[2], allow_downtime=False)

    turns = msgspec.structs.replace(runs, service="chat", exchanges=True, wave_size=1)
    chat = msgspec.structs.replace(chat, rollout=turns)
    service = a_full_service(a_route(stable=1), facts(max_adapters=3), others=(chat,))
    assert Fit(retain=0) == fit(service, service.releases[2], allow_downtime=False)


@given(
    limit=st.integers(1, 6),
    stable=st.integers(0, 5),
    retained=st.lists(st.integers(1, 5), max_size=3, unique=True),
    target=st.integers(1, 6),
    others=st.integers(0, 3),
    allow_downtime=st.booleans(),
)
def test_what_fits_never_needs_more_places_than_there_are(
    limit: int, stable: int, retained: list[int], target: int, others: int, *, allow_downtime: bool
) -> None:
    """And nothing that serves gives way but in an exchange that was allowed."""
    route = a_route(stable=stable, instant=tuple(n for n in retained if n != stable))
    beside = tuple(another(f"s{n}", 1) for n in range(others))
    service = a_full_service(route, facts(max_adapters=limit), others=beside)
    is_loaded = target in {stable, *route.instant}
    try:
        found = fit(service, service.releases[target], allow_downtime=allow_downtime)
    except PlanError:
        serving = others + bool(stable)
        assert serving + 1 > limit
        assert not (allow_downtime and stable and others + 1 <= limit)
        return
    kept = set(route.instant) - set(found.gives_way)
    held = adapters(service, {*kept, target, *([] if found.exchanges else [stable])})
    assert is_loaded or len(held) + others <= limit
    assert not found.exchanges or (allow_downtime and stable)
    assert set(found.gives_way) <= set(route.instant)
    assert target not in found.gives_way


# -- on a node ------------------------------------------------------------------------------------


def test_full_engine_is_told_by_its_numbers() -> None:
    assert no_place(facts(max_adapters=2), name="c", held={"a", "b"}, before=set()) == (
        "the engine holds 2 adapters and has places for 2"
    )
    assert no_place(facts(max_adapters=2), name="b", held={"a", "b"}, before=set()) == ""
    assert no_place(facts(max_adapters=3), name="c", held={"a", "b"}, before=set()) == ""
    assert no_place(facts(), name="c", held={"a", "b"}, before=set()) == ""
    assert no_place(None, name="c", held={"a"}, before=set()) == ""


def test_places_are_kept_for_what_serves() -> None:
    """After a restart of the engine, what is retained does not take the last place."""
    said = no_place(facts(max_adapters=1), name="old", held=set(), before={"serves"})

    assert said == "the engine has places for 1 adapters, holds 0, and 1 more come first"
    assert no_place(facts(max_adapters=2), name="old", held=set(), before={"serves"}) == ""
    assert no_place(facts(max_adapters=2), name="old", held={"serves"}, before={"serves"}) == ""


def test_places_are_those_that_are_held() -> None:
    assert 5 == places(facts(max_adapters=2, max_resident=5))
    assert 2 == places(facts(max_adapters=2))
    assert places(facts()) is None
    assert places(None) is None


@pytest.mark.parametrize(
    ("free", "total", "least", "said"),
    [
        (None, None, None, ""),
        (None, None, 0.2, "free memory is not known, and 20% must be left"),
        (0.5, None, None, ""),
        (0.19, None, None, "19% of memory would be left after the load, and 20% must be"),
        (0.25, 1000, None, "15% of memory would be left after the load, and 20% must be"),
        (0.25, 1000, 0.15, ""),
        (0.05, 1000, 0.1, "0% of memory would be left after the load, and 10% must be"),
    ],
)
def test_memory_counts_where_it_is_told_or_asked_for(
    free: float | None, total: int | None, least: float | None, said: str
) -> None:
    assert said == too_little_memory(free=free, total_bytes=total, size_bytes=100, least=least)


@pytest.mark.parametrize(
    ("kind", "side", "held", "said"),
    [
        ("vllm", 2, 2, "--max-loras 2"),
        ("vllm", 2, 4, "--max-loras 2 --max-cpu-loras 4"),
        ("torch", 2, 4, "--max-loras 4"),
        ("sglang", 2, 3, "--max-loras-per-batch 3 --max-loaded-loras 3"),
        ("hook", 2, 3, "places for 3 adapters"),
    ],
)
def test_setting_is_the_engines_own(kind: str, side: int, held: int, said: str) -> None:
    assert said == setting(kind, side=side, held=held)


def test_rank_above_the_engines_is_refused_with_the_setting() -> None:
    service = a_full_service(a_route(), facts(max_rank=64), facts(max_rank=16))
    adapter = msgspec.structs.replace(service.releases[2].components[Component.ADAPTER], rank=48)
    target = msgspec.structs.replace(service.releases[2], components={Component.ADAPTER: adapter})

    with pytest.raises(PlanError) as refused:
        refuse_rank(service, target)

    assert refused.value.message == (
        "release.adapter: release 2 has an adapter of rank 48, and engines take 16 at most on n1"
    )
    assert refused.value.hint == "start them with --max-lora-rank 64"


# -- as told --------------------------------------------------------------------------------------


def test_two_places_are_enough_for_rollout_after_rollout() -> None:
    """With one release retained each time: it gives way, and its place is free before the load."""
    story = Story(places=2).serve(1, 2)

    for number in (3, 4, 5):
        story.start(an_adapter_wish(number))
        assert (number - 2,) == story.rollout.unload
        assert not story.route.instant
        assert f"{number - 2}, kept for an instant rollback, gives way to it" in story.said[-1]
        assert P.CONVERGED is story.run()
        assert (number - 1,) == story.route.instant
        story.said.clear()

    story.back()
    assert P.ROLLED_BACK is story.run()
    assert 4 == story.route.stable


def test_rollback_to_what_gave_way_loads_it_first() -> None:
    """Where the rollout was given up meanwhile, its place is there again."""
    story = Story(places=2).serve(1, 2)
    story.start(an_adapter_wish(3))
    story.obey()
    story.abort()
    story.obey()
    assert story.said[-1].startswith("failed: ")

    story.back()
    assert story.said[-1].startswith("rolling_back: ")
    assert 2 == story.route.stable
    assert P.ROLLED_BACK is story.run()
    assert 1 == story.route.stable


def test_rollback_further_back_frees_the_place_it_needs() -> None:
    story = Story(places=2).serve(1, 2, 3)

    story.back(to=1)

    assert () == story.route.instant
    assert P.ROLLED_BACK is story.run()
    assert any("may be unloaded" in said for said in story.said)


def test_rollback_beside_two_that_serve_is_refused() -> None:
    story = Story(places=2).serve(1, 2)
    story.start(an_adapter_wish(3), plan=a_weighted_plan(50, 100))
    story.obey()
    story.observe()
    assert 50 == story.route.weight

    with pytest.raises(TransitionError) as refused:
        story.back(to=1)

    assert "release 1 is not loaded" in refused.value.message
    assert "vctl rollout abort" in refused.value.hint


def test_superseding_waits_for_the_place_of_what_it_replaces() -> None:
    story = Story(places=2).serve(1, 2)
    story.start(an_adapter_wish(3))
    story.obey()
    story.obey()

    story.start(an_adapter_wish(4), supersede=True)

    assert {1, 3} == set(story.rollout.unload)
    assert P.CONVERGED is story.run()


def test_what_a_node_holds_in_vain_is_unloaded_first() -> None:
    """It was away when it should have unloaded; else nothing new would ever find a place there."""
    story = Story(places=2).serve(1, 2)
    story._holds["a"] = {2, 9}
    story.service = msgspec.structs.replace(
        story.service,
        releases=story.service.releases | {9: msgspec.structs.replace(a_release(9), number=9)},
    )
    story.start(an_adapter_wish(3))
    assert P.CONVERGED is story.run()
    assert any("release 9, which is wanted no more, may be unloaded" in s for s in story.said)


# -- one place ------------------------------------------------------------------------------------


def test_one_place_is_refused_unless_downtime_is_allowed() -> None:
    story = Story(places=1).serve(1)

    with pytest.raises(PlanError, match="finds no place"):
        story.start(an_adapter_wish(2))


def test_one_place_on_many_nodes_goes_by_waves() -> None:
    """Some node always holds what serves."""
    story = Story(places=1).serve(1)

    begun = story.start(an_adapter_wish(2), plan=a_plan(allow_downtime=True))

    assert isinstance(begun, Begin)
    assert story.rollout.exchanges
    assert story.said[-1].endswith(
        "they unload what serves before they load it, by waves of 1 node"
    )
    for _ in range(40):
        story.obey()
        held = {n for node in story.nodes for n in story._holds[node]}
        assert 1 in held or story.route.weight == 100 or story.route.stable == 2
        assert all(len(story._holds[node]) <= 1 for node in story.nodes)
        if story.phase.is_terminal:
            break
        story.observe()
    assert P.CONVERGED is story.phase
    assert (2, ()) == (story.route.stable, story.route.instant)


def test_one_place_on_one_node_changes_at_once_and_says_so() -> None:
    story = Story(places=1, nodes=("a",)).serve(1)

    story.start(an_adapter_wish(2), plan=a_plan(allow_downtime=True, soak_s=60))

    assert story.said[-1].endswith("by waves of 1 node: nothing serves meanwhile")
    assert P.SOAKING is story.run()
    assert 100 == story.route.weight
    story.observe(60)
    assert P.CONVERGED is story.run()
    assert story.said == [
        (
            "preparing: release 2 is prepared on 1 nodes; they unload what serves before they load"
            " it, by waves of 1 node: nothing serves meanwhile"
        ),
        (
            "shifting: release 2 is staged on 1 of 1 nodes: traffic moves to it, as nodes change"
            " their release by waves of 1 node"
        ),
        "shifting: a changes to release 2: nothing serves meanwhile, as the plan allows",
        "shifting: 1 of 1 nodes hold release 2: 100 % of traffic moves to it",
        "soaking: 1 of 1 nodes route to release 2: soaking 1m",
        "settling: soaked 1m: release 2 is stable",
        "converged: converged (1/1) on release 2",
    ]


def test_one_place_on_one_node_returns_where_the_release_is_refused() -> None:
    story = Story(places=1, nodes=("a",)).serve(1)
    story.start(an_adapter_wish(2), plan=a_plan(allow_downtime=True))
    story.obey()
    story.observe()
    story.observe()
    story.drop("a", 1)
    story.refuses["a"] = "the engine refuses it"

    story.observe()

    assert P.FAILED is story.phase
    assert "the engine refuses it: they return to what served" in story.said[-1]
    assert 1 == story.route.stable
    story.refuses.clear()
    story.obey()
    assert [[1]] == story.holds()


@pytest.mark.parametrize("nodes", [("a",), ("a", "b", "c")])
@pytest.mark.parametrize("turns", range(14))
def test_rollback_in_every_turn_of_an_exchange(nodes: tuple[str, ...], turns: int) -> None:
    story = Story(places=1, nodes=nodes).serve(1)
    story.start(an_adapter_wish(2), plan=a_plan(allow_downtime=True, soak_s=5))
    for _ in range(turns):
        story.obey()
        if not story.phase.is_terminal:
            story.observe(9)

    story.back(allow_downtime=True)

    assert P.ROLLED_BACK is story.run()
    assert (1, (2,)) == (story.route.stable, story.route.revoked)
    assert [[1]] * len(nodes) == story.holds()


@pytest.mark.parametrize("nodes", [("a",), ("a", "b", "c")])
@pytest.mark.parametrize("turns", range(10))
def test_abort_in_every_turn_of_an_exchange(nodes: tuple[str, ...], turns: int) -> None:
    """It returns to what served, or says that only a rollback can."""
    story = Story(places=1, nodes=nodes).serve(1)
    story.start(an_adapter_wish(2), plan=a_plan(allow_downtime=True, soak_s=500))
    for _ in range(turns):
        story.obey()
        story.observe()

    if story.route.weight == 100 and len(nodes) == 1:
        with pytest.raises(TransitionError, match="not loaded any more"):
            story.abort()
        return
    story.abort()

    story.run()
    assert story.phase in {P.FAILED, P.ROLLED_BACK}
    story.obey()
    story.obey()
    assert 1 == story.route.stable
    assert [[1]] * len(nodes) == story.holds()


def test_rollback_with_one_place_must_be_allowed() -> None:
    story = Story(places=1, nodes=("a",)).serve(1)
    story.start(an_adapter_wish(2), plan=a_plan(allow_downtime=True))
    assert P.CONVERGED is story.run()

    with pytest.raises(PlanError, match="finds no place"):
        story.back()

    story.back(allow_downtime=True)
    assert P.ROLLED_BACK is story.run()
    assert [[1]] == story.holds()


def test_weights_are_refused_where_no_node_would_hold_both() -> None:
    story = Story(places=1, nodes=("a",)).serve(1)

    with pytest.raises(PlanError, match="traffic cannot be split"):
        story.start(an_adapter_wish(2), plan=a_weighted_plan(50, 100, allow_downtime=True))


def test_weights_follow_the_nodes_that_hold_the_release() -> None:
    story = Story(places=1).serve(1)

    story.start(an_adapter_wish(2), plan=a_weighted_plan(50, 100, soak_s=0, allow_downtime=True))

    assert P.CONVERGED is story.run()


@pytest.mark.parametrize(
    ("used", "said"),
    [
        (0.8, ""),
        (0.9, "90% of the KV cache is in use on a, and 80% may be"),
        (None, "how much of the KV cache is in use is not told on a"),
    ],
)
def test_full_caches_keep_traffic_where_it_is(used: float | None, said: str) -> None:
    """Where the plan asks; who does not tell is no better."""
    report = msgspec.structs.replace(a_report("a"), kv_used=used)

    assert said == crowded(("a", "b"), {"a": report}, 0.8)
    assert crowded(("a",), {"a": report}, None) == ""


def test_rollout_waits_for_caches_and_fails_at_its_deadline() -> None:
    story = Story().serve(1)
    story.start(an_adapter_wish(2), plan=a_plan(kv_used=0.5))

    assert P.FAILED is story.wait()
    assert story.said[-1].startswith(
        "failed: no traffic moved to release 2 within 1m: how much of the KV cache is in use"
    )


def test_first_release_needs_its_place_and_no_downtime() -> None:
    story = Story(places=1).serve(1)

    assert not story.rollout.exchanges


def test_groups_release_needs_a_place_of_its_own() -> None:
    story = Story(places=2).serve(1).give(2)

    with pytest.raises(PlanError, match="finds no place"):
        story.start(an_adapter_wish(3))

    assert story.theirs(GROUPS) == 2


def test_nodes_know_which_of_two_has_their_place() -> None:
    rollout = a_rollout(P.SHIFTING, wave_size=1, exchanges=True, wave=50.0)
    service = msgspec.structs.replace(a_service(route=a_route()), rollout=rollout)
    for node in ("a", "b", "c", "d"):
        here = [n for n in (1, 2) if has_place(service, n, node)]
        assert len(here) == 1
        assert is_apart(service, 3 - here[0], node)
    done = msgspec.structs.replace(rollout, phase=P.CONVERGED)
    service = msgspec.structs.replace(service, rollout=done)
    assert not is_apart(service, 1, "a")
    assert not is_apart(service, 2, "a")
    assert SERVICE == service.name

"""A rollout is followed whole, whatever its watches show first."""

from contextlib import aclosing

import msgspec

from tests.builders import NODES, SERVICE, a_rollout, a_route
from tests.cli.support import KEYS, write_decision
from vctl_cli.follow import Follow, Scene, scenes
from vctl_cli.summing import LARGE
from vctl_plans.codec import encode
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.plan import Plan
from vctl_plans.rollout import Entry, Progress, Rollout, Roster
from vctl_plans.store.memory import MemoryStore
from vctl_plans.summary import ServiceSummary, Summary
from vctl_plans.verdict import Figure, Outcome

FOLLOW = Follow(SERVICE, "r2")


async def a_store(rollout: Rollout, *sentences: str) -> MemoryStore:
    """Return a store with *rollout* and the history that *sentences* are."""
    store = MemoryStore()
    await store.put(KEYS.route(SERVICE), encode(a_route()))
    await store.put(KEYS.roster(rollout.roster), encode(Roster(nodes=NODES)))
    await store.put(KEYS.rollout(SERVICE), encode(rollout))
    for seq, sentence in enumerate(sentences):
        entry = Entry(rollout="r2", seq=seq, phase=P.PREPARING, sentence=sentence)
        await store.put(KEYS.decision(SERVICE, "r2", seq), encode(entry))
    return store


async def collected(store: MemoryStore, count: int, act=None) -> list[Scene]:
    """Return the first scenes; after each, *act* is done."""
    found: list[Scene] = []
    async with aclosing(scenes(store, KEYS, FOLLOW)) as stream:
        async for scene in stream:
            found.append(scene)
            if len(found) == count:
                break
            await act()
    return found


async def test_scene_has_the_roster_and_the_decisions():
    store = await a_store(a_rollout(), "one")
    (scene,) = await collected(store, 1)
    assert [node.node for node in scene.nodes] == list(NODES)
    assert [entry.sentence for entry in scene.entries] == ["one"]


async def test_history_that_is_ahead_is_held_back():
    store = await a_store(a_rollout(P.PREPARING), "one", "the end")
    (scene,) = await collected(store, 1)
    assert [entry.sentence for entry in scene.entries] == ["one"]


async def test_no_decision_is_skipped_however_fast_they_follow():
    store = await a_store(a_rollout(), "one")

    async def decide() -> None:
        await write_decision(store, P.SHIFTING, "two")
        await write_decision(store, P.SETTLING, "three")
        await write_decision(store, P.CONVERGED, "four")

    found = await collected(store, 2, decide)
    assert [entry.sentence for entry in found[-1].entries] == ["one", "two", "three", "four"]
    assert found[-1].rollout.phase is P.CONVERGED


async def test_rollout_that_was_replaced_is_read_from_its_archive():
    store = await a_store(a_rollout(), "one")

    async def replace() -> None:
        ours, other = a_rollout(P.SUPERSEDED, seq=1), a_rollout(id="r3")
        await store.put(KEYS.archive(SERVICE, "r2"), encode(ours))
        await store.put(KEYS.rollout(SERVICE), encode(other))

    found = await collected(store, 2, replace)
    assert (found[-1].rollout.id, found[-1].rollout.phase) == ("r2", P.SUPERSEDED)


async def test_store_that_is_away_is_seen_and_the_last_state_kept():
    store = await a_store(a_rollout(), "one")

    async def cut() -> None:
        store.disconnect()

    found = await collected(store, 2, cut)
    assert [scene.is_live for scene in found] == [True, False]
    assert msgspec.structs.replace(found[1], is_live=True) == found[0]


async def test_large_fleet_is_followed_by_its_summary():
    """Ten thousand reports would be read for nothing."""
    store = await a_store(a_rollout(), "one")
    said = ServiceSummary(service=SERVICE, phases={"ready": 9999})
    await store.put(KEYS.summary, encode(Summary(present=LARGE + 1, services=(said,))))
    (scene,) = await collected(store, 1)
    assert scene.nodes == ()
    assert scene.counted == said


async def test_scene_has_the_plan_and_what_each_guardrail_found_last():
    plan = Plan(service=SERVICE, strategy="full-switch")
    rollout = a_rollout(plan=plan.digest)
    store = await a_store(rollout, "one")
    figure = Figure("error ratio", Outcome.PASSED, "1.02", "<= 1.5")
    progress = Progress(rollout="r2", seq=0, elapsed_s=2.0, figures=(figure,))
    await store.put(KEYS.plan(plan.digest), encode(plan))
    await store.put(KEYS.progress(SERVICE), encode(progress))
    (scene,) = await collected(store, 1)
    assert (plan, (figure,)) == (scene.plan, scene.figures)

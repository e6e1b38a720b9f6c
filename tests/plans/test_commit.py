"""A decision becomes one transaction, and of any number of writers one goes through."""

import asyncio

import msgspec
import pytest

from tests.builders import NODES, SERVICE, a_base_wish, a_plan, an_adapter_wish, some_releases
from vctl_plans import operate, steering
from vctl_plans.alert import Alert, Severity, late_route, raised
from vctl_plans.base import Base
from vctl_plans.codec import decode, encode
from vctl_plans.errors import Conflict
from vctl_plans.events import AbortAsked
from vctl_plans.keys import Keys
from vctl_plans.operate import Begin, Continue, Request
from vctl_plans.peers import Peers
from vctl_plans.phase import RolloutPhase
from vctl_plans.release import Actor
from vctl_plans.rollout import Entry, Progress, Rollout, advanced
from vctl_plans.snapshot import Service, read_services, surroundings
from vctl_plans.store.commit import (
    alert_txn,
    begin_txn,
    commit_own,
    continue_txn,
    peers_txn,
    progress_txn,
    release_txn,
    sent_txn,
)
from vctl_plans.store.memory import MemoryStore
from vctl_plans.store.port import Delete, Put, Txn

KEYS = Keys("dev")


async def reading(store: MemoryStore) -> Service:
    """Return the service as it is stored."""
    fleet = read_services(KEYS, (await store.list(KEYS.services)).entries)
    return fleet.services.get(SERVICE, Service(name=SERVICE))


def a_start(service: Service, *, request: str = "r1", adapter: int = 1) -> Begin:
    """Return a start on a reading of the service."""
    begun = operate.start(
        service,
        a_plan(),
        wish=an_adapter_wish(adapter),
        roster=NODES,
        request=Request(id=request),
        supersede=True,
    )
    assert isinstance(begun, Begin)
    return begun


async def begin(store: MemoryStore) -> Service:
    """Write a start; return the service as it is then."""
    service = await reading(store)
    await store.commit(begin_txn(KEYS, service, a_start(service)))
    return await reading(store)


def a_turn(service: Service, phase: RolloutPhase = RolloutPhase.FAILED) -> Continue:
    """Return the next decision of the service's rollout."""
    assert service.rollout is not None
    return Continue(service.rollout, advanced(service.rollout, phase, "for a test"), None)


async def elect(store: MemoryStore) -> int:
    """Make the election key anew; return its create_revision."""
    await store.commit(Txn((), (Delete(KEYS.conductor),)))
    return await store.commit(Txn((), (Put(KEYS.conductor, b"c"),)))


async def test_start_writes_all_that_it_needs_at_once() -> None:
    """Spec, release, plan, roster, rollout and the first entry of the history, in one revision."""
    store = MemoryStore()
    service = await begin(store)
    assert service.rollout is not None
    keys = [
        KEYS.spec(SERVICE),
        KEYS.release(SERVICE, 1),
        KEYS.plan(service.rollout.plan),
        KEYS.roster(service.rollout.roster),
        KEYS.rollout(SERVICE),
        KEYS.decision(SERVICE, "r1", 0),
    ]
    found = [await store.get(key) for key in keys]

    assert {service.rollout_revision} == {entry.mod_revision for entry in found if entry}
    assert all(found)


async def test_one_of_two_starts_goes_through() -> None:
    """Both read the same, both write: one wins, and the other wrote nothing at all."""
    store = MemoryStore()
    service = await reading(store)
    starts = [a_start(service, request=f"r{i}", adapter=i) for i in (1, 2)]
    done = await asyncio.gather(
        *(store.commit(begin_txn(KEYS, service, start)) for start in starts),
        return_exceptions=True,
    )
    entries = (await store.list(KEYS.history(SERVICE))).entries

    assert 1 == sum(isinstance(one, Conflict) for one in done)
    assert 1 == len(entries)


async def test_conductor_and_operator_do_not_both_decide() -> None:
    """A rollback that came first fails the step that was decided before it."""
    store = MemoryStore()
    service = await begin(store)
    fence = await elect(store)
    abort = steering.steer(service, AbortAsked())
    await store.commit(continue_txn(KEYS, service, abort))

    with pytest.raises(Conflict):
        await store.commit(continue_txn(KEYS, service, a_turn(service), fence=fence))


async def test_change_of_the_route_alone_fails_a_decision() -> None:
    """Every decision compares the route as well."""
    store = MemoryStore()
    service = await begin(store)
    await store.put(KEYS.route(SERVICE), b'{"service":"support","stable":1}')

    with pytest.raises(Conflict):
        await store.commit(continue_txn(KEYS, service, a_turn(service)))


async def test_old_conductor_is_fenced() -> None:
    """Whatever it has read, its term's election key is not there any more."""
    store = MemoryStore()
    service = await begin(store)
    old = await elect(store)
    new = await elect(store)
    progress = Progress(rollout="r1", seq=0, elapsed_s=1.0)

    with pytest.raises(Conflict):
        await store.commit(continue_txn(KEYS, service, a_turn(service), fence=old))
    with pytest.raises(Conflict):
        await store.commit(progress_txn(KEYS, SERVICE, progress, fence=old))
    with pytest.raises(Conflict):
        await store.commit(peers_txn(KEYS, Peers(service=SERVICE), before=None, fence=old))
    assert await store.commit(continue_txn(KEYS, service, a_turn(service), fence=new))


@pytest.mark.parametrize("is_applied", [True, False])
async def test_lost_reply_is_settled_by_reading(is_applied: bool) -> None:
    """The decision's own entry in the history is the proof."""
    store = MemoryStore()
    service = await reading(store)
    begun = a_start(service)
    store.lose_reply(is_applied=is_applied)
    write = commit_own(store, KEYS, begin_txn(KEYS, service, begun), begun.rollout)

    if is_applied:
        revision = await write
        assert (await reading(store)).rollout_revision == revision
    else:
        with pytest.raises(Conflict):
            await write


async def test_lost_reply_is_found_when_the_rollout_has_gone_on() -> None:
    """The proof is never overwritten by later decisions."""
    store = MemoryStore()
    service = await begin(store)
    turn = a_turn(service, RolloutPhase.SHIFTING)
    txn = continue_txn(KEYS, service, turn)
    first = await store.commit(txn)
    later = await reading(store)
    await store.commit(continue_txn(KEYS, later, a_turn(later)))
    store.lose_reply(is_applied=False)

    assert first == await commit_own(store, KEYS, txn, turn.rollout)


async def test_another_writers_decision_is_not_taken_for_ones_own() -> None:
    """The entry of that number is there, and it is another."""
    store = MemoryStore()
    service = await begin(store)
    await store.commit(continue_txn(KEYS, service, steering.steer(service, AbortAsked())))
    turn = a_turn(service)
    store.lose_reply(is_applied=False)

    with pytest.raises(Conflict):
        await commit_own(store, KEYS, continue_txn(KEYS, service, turn), turn.rollout)


async def test_unknown_fields_of_the_rollout_survive() -> None:
    """A newer vctl's, when an older one writes the next decision."""
    store = MemoryStore()
    service = await begin(store)
    newer = service.rollout_bytes[:-1] + b',"pace":"slow"}'
    await store.put(KEYS.rollout(SERVICE), newer)
    service = await reading(store)
    await store.commit(continue_txn(KEYS, service, a_turn(service)))

    assert b'"pace":"slow"' in (await reading(store)).rollout_bytes


async def test_replaced_rollout_is_archived_in_the_same_write() -> None:
    """As it ended."""
    store = MemoryStore()
    service = await begin(store)
    begun = a_start(service, request="r2", adapter=2)
    revision = await store.commit(begin_txn(KEYS, service, begun))
    found = await store.get(KEYS.archive(SERVICE, "r1"))

    assert found is not None
    assert revision == found.mod_revision
    assert RolloutPhase.SUPERSEDED is decode(found.value, Rollout).phase


async def test_release_is_written_once() -> None:
    """Two that compose the same number: one is written, the other composes again."""
    store = MemoryStore()
    service = await reading(store)
    release = some_releases(1)[1]
    txn = release_txn(KEYS, service, release, by=Actor(user="ann"))
    await store.commit(txn)

    with pytest.raises(Conflict):
        await store.commit(txn)
    assert {1: release} == (await reading(store)).releases


async def test_history_entry_says_who_when_and_why() -> None:
    """What an operator did can be read afterwards."""
    store = MemoryStore()
    service = await begin(store)
    asked = AbortAsked(by=Actor(user="ann"), reason="INC-1")
    turn = steering.steer(service, asked)
    await store.commit(continue_txn(KEYS, service, turn, at="2026-01-02T12:00:00Z"))
    found = await store.get(KEYS.decision(SERVICE, "r1", 1))

    assert found is not None
    entry = decode(found.value, Entry)
    assert "2026-01-02T12:00:00Z" == entry.at
    assert ("ann", "INC-1", turn.rollout.sentence) == (entry.by.user, entry.reason, entry.sentence)
    assert found.value == encode(msgspec.structs.replace(entry))


async def alerts(store: MemoryStore) -> dict[str, int]:
    """Return the ids of the alerts that wait to be sent, with the revision of their writing."""
    entries = (await store.list(KEYS.alerts)).entries
    return {decode(entry.value, Alert).id: entry.mod_revision for entry in entries}


async def test_alert_is_written_with_the_decision_that_it_tells_of() -> None:
    """With what goes along with it, in one revision: no crash comes between them."""
    store = MemoryStore()
    service = await begin(store)
    turn = a_turn(service)
    drift = raised(turn.rollout, severity=Severity.P1, what="x", sentence="y", name="drift")
    turn = msgspec.structs.replace(turn, alerts=(drift,))
    fence = await elect(store)
    revision = await store.commit(continue_txn(KEYS, service, turn, fence=fence))

    assert {"r1-1": revision, "r1-1-drift": revision} == await alerts(store)


async def test_decision_that_loses_alerts_nobody() -> None:
    """What did not happen is not told."""
    store = MemoryStore()
    service = await begin(store)
    old = await elect(store)
    await elect(store)
    with pytest.raises(Conflict):
        await store.commit(continue_txn(KEYS, service, a_turn(service), fence=old))

    assert {} == await alerts(store)


async def test_command_of_an_operator_alerts_nobody() -> None:
    """An abort fails a rollout that prepares; who asked for it knows."""
    store = MemoryStore()
    service = await begin(store)
    turn = steering.steer(service, AbortAsked())
    await store.commit(continue_txn(KEYS, service, turn))

    assert RolloutPhase.FAILED is turn.rollout.phase
    assert {} == await alerts(store)


async def test_alert_by_itself_is_fenced_and_waits_once() -> None:
    """Its own key is the proof that it waits already."""
    store = MemoryStore()
    found = late_route(SERVICE, 7, seen_s=40, missing=("a",))
    assert found is not None
    old = await elect(store)
    fence = await elect(store)
    revision = await store.commit(alert_txn(KEYS, found, fence=fence))

    for fenced in (old, fence):
        with pytest.raises(Conflict):
            await store.commit(alert_txn(KEYS, found, fence=fenced))
    with pytest.raises(Conflict):
        await store.commit(sent_txn(KEYS, KEYS.alert(found.id), revision, fence=old))
    await store.commit(sent_txn(KEYS, KEYS.alert(found.id), revision, fence=fence))
    assert {} == await alerts(store)


async def base_reading(store: MemoryStore) -> Service:
    """Return the service with what a start looks at beside it."""
    fleet = read_services(KEYS, (await store.list(KEYS.services)).entries)
    around = surroundings(SERVICE, base=await store.get(KEYS.base), services=fleet, records=())
    service = fleet.services.get(SERVICE, Service(name=SERVICE))
    return msgspec.structs.replace(service, around=around)


def a_base_start(service: Service) -> Begin:
    """Return a start that changes the base."""
    begun = operate.start(
        service, a_plan(), wish=a_base_wish(1), roster=NODES, request=Request(id="r1")
    )
    assert isinstance(begun, Begin)
    return begun


async def test_base_is_locked_with_the_start_and_unlocked_with_the_end() -> None:
    """In the same transactions, so that no crash leaves a lock behind."""
    store = MemoryStore()
    service = await base_reading(store)
    await store.commit(begin_txn(KEYS, service, a_base_start(service)))
    locked = (await base_reading(store)).around.base

    service = await base_reading(store)
    await store.commit(continue_txn(KEYS, service, a_turn(service)))
    ended = (await base_reading(store)).around.base

    assert f"{SERVICE}/r1" == locked.lock
    assert Base() == ended


async def test_base_that_was_locked_meanwhile_fails_a_start() -> None:
    """A start rests on the base as it was read, also one that leaves it alone."""
    store = MemoryStore()
    service = await base_reading(store)
    await store.commit(Txn((), (Put(KEYS.base, encode(Base(lock="search/q1"))),)))

    with pytest.raises(Conflict):
        await store.commit(begin_txn(KEYS, service, a_start(service)))

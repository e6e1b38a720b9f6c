"""The parts of the store that need no server: ranges, limits, back-off, the guard, the feed."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.etcd.waiting import next_update
from vctl_plans.errors import RestoredBackup
from vctl_plans.store import messages
from vctl_plans.store.backoff import backoff_s
from vctl_plans.store.feed import Feed
from vctl_plans.store.guard import Fingerprint, HeaderGuard, StaleMemberError
from vctl_plans.store.limits import request_bytes
from vctl_plans.store.port import (
    Comparison,
    CreateRevisionIs,
    Delete,
    KeyValue,
    Listing,
    ModRevisionIs,
    Operation,
    Put,
    Txn,
    ValueIs,
)
from vctl_plans.store.ranges import ALL_KEYS_END, decode_key, encode_key, key_after, prefix_range

raw_keys = st.binary(min_size=1, max_size=12)
keys = raw_keys.map(decode_key)
big = st.integers(min_value=0, max_value=2**63 - 1)
comparisons = st.one_of(
    st.builds(ModRevisionIs, keys, big),
    st.builds(CreateRevisionIs, keys, big),
    st.builds(ValueIs, keys, st.binary(max_size=300)),
)
operations = st.one_of(st.builds(Put, keys, st.binary(max_size=300), big), st.builds(Delete, keys))


@given(raw_keys)
def test_any_bytes_survive_as_a_key(raw: bytes):
    assert encode_key(decode_key(raw)) == raw


@given(raw_keys, st.sampled_from([b"", b"a", b"\xff", b"\xff\xff", b"a\xff", b"ab"]))
def test_the_range_of_a_prefix_holds_exactly_its_keys(raw: bytes, prefix: bytes):
    start, end = prefix_range(decode_key(prefix))
    is_inside = raw >= start and (end == ALL_KEYS_END or raw < end)
    assert is_inside == raw.startswith(prefix)


@given(raw_keys, raw_keys)
def test_nothing_lies_between_a_key_and_the_one_after(one: bytes, other: bytes):
    assert not one < other < key_after(one)


@given(st.lists(comparisons, max_size=20), st.lists(operations, max_size=20))
def test_the_size_of_a_request_is_never_underestimated(
    compared: list[Comparison], done: list[Operation]
):
    txn = Txn(tuple(compared), tuple(done))
    assert messages.txn_request(txn).ByteSize() <= request_bytes(txn)


def test_back_off_grows_to_its_limit_and_never_overflows():
    assert 0.025 <= backoff_s(0) <= 0.05
    assert 1.0 <= backoff_s(10) <= 2.0
    assert 1.0 <= backoff_s(10_000) <= 2.0


def learned(guard: HeaderGuard, *, term: int = 5, revision: int = 100) -> Fingerprint:
    seen = Fingerprint(1, term, revision)
    guard.check_quorum(seen, before=guard.fingerprint, endpoint="a")
    return guard.fingerprint


def test_the_guard_remembers_the_furthest_that_it_saw():
    guard = HeaderGuard(3)
    learned(guard, revision=100)
    guard.check_quorum(Fingerprint(1, 5, 90), before=Fingerprint(1, 5, 80), endpoint="b")
    assert guard.fingerprint == Fingerprint(1, 5, 100)


def test_another_cluster_is_an_alarm_that_stays():
    guard = HeaderGuard(1)
    before = learned(guard)
    with pytest.raises(RestoredBackup, match="cluster id was 1 and is now 2"):
        guard.check_member(Fingerprint(2, 9, 900))
    with pytest.raises(RestoredBackup):
        guard.check_quorum(Fingerprint(1, 5, 101), before=before, endpoint="a")


def test_what_an_earlier_process_knew_counts():
    guard = HeaderGuard(1, known=Fingerprint(1, 5, 100))
    with pytest.raises(RestoredBackup):
        guard.check_member(Fingerprint(2, 5, 100))


@pytest.mark.parametrize("stale", [Fingerprint(1, 4, 100), Fingerprint(1, 5, 99)])
def test_one_stale_member_is_never_taken_for_a_restored_backup(stale: Fingerprint):
    guard = HeaderGuard(3)
    before = learned(guard)
    for _ in range(20):
        with pytest.raises(StaleMemberError):
            guard.check_quorum(stale, before=before, endpoint="b")
    guard.check_quorum(Fingerprint(1, 5, 101), before=before, endpoint="c")


def test_a_majority_that_went_back_is_a_restored_backup():
    guard = HeaderGuard(3)
    before = learned(guard)
    stale = Fingerprint(1, 2, 50)
    for endpoint in "ab":
        with pytest.raises(StaleMemberError):
            guard.check_quorum(stale, before=before, endpoint=endpoint)
    with pytest.raises(RestoredBackup, match="revision 50 after term 5, revision 100"):
        guard.check_quorum(stale, before=before, endpoint="c")


def test_a_good_answer_ends_the_suspicion():
    guard = HeaderGuard(1)
    before = learned(guard)
    for _ in range(5):
        for _ in range(2):
            with pytest.raises(StaleMemberError):
                guard.check_quorum(Fingerprint(1, 5, 99), before=before, endpoint="a")
        guard.check_quorum(Fingerprint(1, 5, 100), before=before, endpoint="a")


def test_a_member_counting_terms_alone_teaches_the_guard_nothing():
    guard = HeaderGuard(3)
    before = learned(guard)
    guard.check_member(Fingerprint(1, 50, 100))
    guard.check_quorum(Fingerprint(1, 5, 101), before=before, endpoint="b")
    with pytest.raises(StaleMemberError):
        guard.check_member(Fingerprint(1, 4, 100))


def entry(key: str, revision: int) -> KeyValue:
    return KeyValue(key, b"", revision, revision)


async def test_a_feed_merges_what_the_reader_has_not_seen():
    feed = Feed()
    updates = feed.updates()
    feed.relist(Listing(1, (entry("a", 1),)))
    feed.write(entry("b", 2))
    feed.delete("a", 3)
    feed.lose()
    update = await next_update(updates)
    assert (update.revision, set(update.entries), update.is_live) == (3, {"b"}, False)
    assert update.changed == {"a", "b"}


async def test_a_feed_says_once_that_it_is_lost_and_once_that_it_is_back():
    feed = Feed()
    updates = feed.updates()
    listing = Listing(7, (entry("a", 7),))
    feed.lose()
    first = await next_update(updates)
    assert (first.revision, first.entries, first.is_live) == (0, {}, False)
    feed.lose()
    reading = asyncio.ensure_future(next_update(updates))
    await asyncio.sleep(0.02)
    assert not reading.done()
    feed.relist(listing)
    assert (await reading).is_live


async def test_a_feed_relisted_without_difference_is_silent():
    feed = Feed()
    updates = feed.updates()
    feed.relist(Listing(7, ()))
    assert (await next_update(updates)).is_live
    feed.relist(Listing(9, ()))
    feed.write(entry("a", 10))
    assert (await next_update(updates)).changed == {"a"}


async def test_a_feed_finds_what_happened_while_it_was_lost():
    feed = Feed()
    updates = feed.updates()
    feed.relist(Listing(5, (entry("kept", 1), entry("gone", 2), entry("new value", 3))))
    await next_update(updates)
    feed.lose()
    await next_update(updates)
    feed.relist(Listing(9, (entry("kept", 1), entry("new value", 8), entry("new", 9))))
    update = await next_update(updates)
    assert update.changed == {"gone", "new value", "new"}
    assert (update.revision, update.is_live) == (9, True)

"""What a watch's reader is told: the newest state, once."""

import asyncio

from tests.etcd.waiting import next_update
from vctl_plans.store.feed import Feed
from vctl_plans.store.port import KeyValue, Listing


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

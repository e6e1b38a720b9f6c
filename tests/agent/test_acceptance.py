"""When a program takes a restored store for the right one: after another word than it knows."""

import asyncio
from pathlib import Path

import pytest

from vctl_agent import acceptance as under_test
from vctl_agent.acceptance import Acceptance
from vctl_plans.codec import encode
from vctl_plans.errors import StoreUnavailable
from vctl_plans.inspection import ACCEPT_RESTORE, AcceptRestore
from vctl_plans.keys import Keys
from vctl_plans.store.guard import Fingerprint
from vctl_plans.store.memory import MemoryStore

KEYS = Keys("dev")
KEY = KEYS.request(ACCEPT_RESTORE)


@pytest.fixture(autouse=True)
def _in_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "POLL_S", 0.01)


async def say(store: MemoryStore, word: str) -> None:
    await store.put(KEY, encode(AcceptRestore(id=word)))


async def noted(acceptance: Acceptance, store: MemoryStore, path: Path, word: str) -> None:
    """Follow *store* until *word* is on disk."""
    following = asyncio.create_task(acceptance.follow(store.peer()))
    async with asyncio.timeout(5):
        while not _holds(path, word):
            await asyncio.sleep(0.005)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


def _holds(path: Path, word: str) -> bool:
    return path.exists() and word in path.read_text()


async def waits(acceptance: Acceptance, store: MemoryStore) -> bool:
    """Return whether it goes on waiting."""
    try:
        async with asyncio.timeout(0.1):
            await acceptance.wait(store.peer)
    except TimeoutError:
        return True
    return False


async def test_only_a_word_that_is_new_counts(tmp_path: Path):
    path, store = tmp_path / "cluster.json", MemoryStore()
    acceptance = Acceptance(KEYS, path)
    assert await waits(acceptance, store)  # nobody said anything
    await say(store, "first")
    await noted(acceptance, store, path, "first")
    assert await waits(acceptance, store)  # that was of another restore
    assert await waits(Acceptance(KEYS, path), store)  # also for the next run
    await say(store, "second")
    assert not await waits(acceptance, store)
    assert await waits(Acceptance(KEYS, path), store)  # it is used up


async def test_word_of_an_older_backup_is_none_of_now(tmp_path: Path):
    """A backup may hold a word that was used up two restores ago: nobody has said so again."""
    path, store = tmp_path / "cluster.json", MemoryStore()
    await say(store, "first")
    await noted(Acceptance(KEYS, path), store, path, "first")
    await say(store, "second")
    await noted(Acceptance(KEYS, path), store, path, "second")
    await say(store, "first")  # what an older backup brings back
    assert await waits(Acceptance(KEYS, path), store)
    await say(store, "third")
    assert not await waits(Acceptance(KEYS, path), store)
    await say(store, "second")
    assert await waits(Acceptance(KEYS, path), store)  # an accepted word wipes out no earlier one


async def test_words_before_one_that_stands_are_known_by_it(tmp_path: Path):
    """A node that came after the first restore knows what was said for that."""
    path, store = tmp_path / "cluster.json", MemoryStore()
    await store.put(KEY, encode(AcceptRestore(id="second", earlier=("first",))))
    acceptance = Acceptance(KEYS, path)
    await noted(acceptance, store, path, "second")
    await say(store, "first")
    assert await waits(acceptance, store)


async def test_note_of_an_agent_before_is_read(tmp_path: Path):
    path, store = tmp_path / "cluster.json", MemoryStore()
    path.write_text('{"cluster_id":7,"raft_term":3,"revision":9,"accepted":"first"}')
    await say(store, "first")
    assert await waits(Acceptance(KEYS, path), store)


async def test_what_was_known_of_the_cluster_is_kept_until_a_restore_is_accepted(tmp_path: Path):
    path, store = tmp_path / "cluster.json", MemoryStore()
    acceptance = Acceptance(KEYS, path)
    seen = Fingerprint(cluster_id=7, raft_term=3, revision=99)
    acceptance.know(seen)
    assert Acceptance(KEYS, path).fingerprint == seen
    await say(store, "x")
    assert not await waits(acceptance, store)
    assert Acceptance(KEYS, path).fingerprint == Fingerprint()


async def test_a_store_that_is_away_is_asked_again():
    store, acceptance = MemoryStore(), Acceptance(KEYS, None)
    await say(store, "x")
    opened: list[MemoryStore] = []

    def open_store() -> MemoryStore:
        peer = store.peer()
        if not opened:
            peer.fail_next(StoreUnavailable("away"))
        opened.append(peer)
        return peer

    async with asyncio.timeout(5):
        await acceptance.wait(open_store)
    assert len(opened) == 2


async def test_a_restored_store_is_not_noted(tmp_path: Path):
    path, store = tmp_path / "cluster.json", MemoryStore()
    acceptance = Acceptance(KEYS, path)
    peer = store.peer()
    peer.mark_restored()
    await say(store, "new")
    async with asyncio.timeout(5):
        await acceptance.follow(peer)
    assert not path.exists()


def test_a_note_that_is_spoiled_is_none(tmp_path: Path):
    path = tmp_path / "cluster.json"
    path.write_text("{")
    assert Acceptance(KEYS, path).fingerprint == Fingerprint()

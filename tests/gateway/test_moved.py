"""The table of sessions while a service moves: what it holds, and that nothing makes it grow."""

import random
import tracemalloc
from collections import Counter

from vctl_agent.gateway.moved import Moved


def test_sessions_are_bounded_and_those_not_seen_for_longest_go_first():
    moved = Moved(limit=3)
    for key in "abcd":
        moved.note("s", key, 2, candidate=2)
    moved.note("s", "b", 2, candidate=2)
    moved.note("s", "e", 2, candidate=2)

    assert [key for key in "abcde" if moved.has("s", key, 2)] == ["b", "d", "e"]
    assert not moved.has("s", "b", 3)
    assert {"s": {2: 3}} == moved.held()


def test_session_that_asked_nothing_for_long_is_forgotten():
    now = 0.0
    moved = Moved(idle_s=60.0, clock=lambda: now)
    moved.note("s", "a", 2, candidate=2)
    now = 50.0
    moved.note("s", "b", 1, candidate=2)
    now = 61.0
    moved.note("s", "c", 1, candidate=2)

    assert {"s": {1: 2}} == moved.held()


def test_table_is_emptied_when_nothing_moves_or_something_else_does():
    moved = Moved()
    for service in ("a", "b", "c"):
        moved.note(service, "k", 2, candidate=2)
    moved.keep({"a": 2, "b": 0})
    assert {"a": {2: 1}} == moved.held()

    moved.note("a", "other", 3, candidate=3)
    assert ({"a": {3: 1}}, False) == (moved.held(), moved.has("a", "k", 2))


def test_a_large_service_gives_way_before_a_small_one():
    moved = Moved(limit=10)
    moved.note("small", "k", 2, candidate=2)
    for n in range(100):
        moved.note("large", f"k{n}", 2, candidate=2)

    assert {"large": {2: 9}, "small": {2: 1}} == moved.held()


def test_counts_are_those_of_the_sessions_last_answers():
    draw, moved, last = random.Random(1), Moved(), {}  # noqa: S311
    for _ in range(500):
        key, release = f"k{draw.randrange(50)}", draw.choice((1, 2))
        moved.note("s", key, release, candidate=2)
        last[key] = release

    assert {"s": dict(sorted(Counter(last.values()).items()))} == moved.held()
    assert [key for key in last if moved.has("s", key, 2)] == [k for k, r in last.items() if r == 2]


def test_what_is_kept_of_a_session_is_short_however_long_its_key_is():
    """A key is a client's own text: a body holds one of megabytes."""
    moved = Moved()
    tracemalloc.start()
    for n in range(200):
        moved.note("support", f"session:{n}:" + "x" * 50_000, 2, candidate=2)
    held_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held_bytes < 200 * 1000
    assert moved.has("support", "session:7:" + "x" * 50_000, 2)
    assert not moved.has("support", "session:7:" + "x" * 50_001, 2)

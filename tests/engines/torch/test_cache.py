from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vctl_agent.engines.torch.cache import (
    BLOCK_TOKENS,
    CacheIdentity,
    PrefixCache,
    block_keys,
)

pytestmark = pytest.mark.torch

IDENTITY = CacheIdentity("base", "support@1", "/adapters/1", "digest")
TOKENS = list(range(3 * BLOCK_TOKENS))


def test_block_keys_has_one_key_for_each_whole_block():
    for length, blocks in ((0, 0), (15, 0), (16, 1), (31, 1), (32, 2), (48, 3)):
        assert len(block_keys(IDENTITY, "", TOKENS[:length])) == blocks


@pytest.mark.parametrize("field", CacheIdentity._fields)
def test_block_keys_differ_when_a_part_of_the_identity_does(field):
    other = IDENTITY._replace(**{field: "other"})
    assert not set(block_keys(IDENTITY, "", TOKENS)) & set(block_keys(other, "", TOKENS))


def test_block_keys_differ_when_the_salt_does():
    assert not set(block_keys(IDENTITY, "", TOKENS)) & set(block_keys(IDENTITY, "x", TOKENS))


def test_block_keys_do_not_mix_up_neighbouring_parts():
    one = CacheIdentity("base", "ab", "c")
    two = CacheIdentity("base", "a", "bc")
    assert not set(block_keys(one, "", TOKENS)) & set(block_keys(two, "", TOKENS))


@given(st.integers(0, 47), st.integers(0, 257))
def test_a_changed_token_changes_its_block_and_all_after_it(at, token):
    changed = [*TOKENS]
    changed[at] = token
    same = at // BLOCK_TOKENS if changed != TOKENS else 3
    before, after = block_keys(IDENTITY, "", TOKENS), block_keys(IDENTITY, "", changed)
    assert [a == b for a, b in zip(before, after, strict=True)] == [n < same for n in range(3)]


def test_lookup_returns_the_longest_prefix():
    cache: PrefixCache[Any] = PrefixCache(8)
    cache.store([b"1", b"2", b"4"], ["one", "two", "four"])
    assert cache.lookup([b"1", b"2", b"3", b"4"]) == ["one", "two"]
    assert cache.counts()[2:] == (2, 2, 0)


def test_a_prompt_too_long_for_the_cache_keeps_its_start():
    cache: PrefixCache[Any] = PrefixCache(2)
    cache.store([b"1", b"2", b"3", b"4"], ["one", "two", "three", "four"])
    assert cache.lookup([b"1", b"2", b"3", b"4"]) == ["one", "two"]
    assert cache.counts().evictions == 2


def test_the_least_recently_used_goes_and_the_end_of_a_prompt_before_its_start():
    cache: PrefixCache[Any] = PrefixCache(4)
    cache.store([b"a1", b"a2"], [1, 2])
    cache.store([b"b1", b"b2"], [3, 4])
    cache.lookup([b"a1", b"a2"])
    cache.store([b"c1"], [5])
    assert cache.lookup([b"b1", b"b2"]) == [3]
    assert cache.lookup([b"a1", b"a2"]) == [1, 2]


@given(st.integers(1, 5), st.lists(st.lists(st.integers(0, 6), unique=True, max_size=6)))
def test_the_cache_never_outgrows_its_capacity_and_never_lies(capacity, prompts):
    cache: PrefixCache[Any] = PrefixCache(capacity)
    for prompt in prompts:
        keys = [b"%d" % n for n in prompt]
        found = cache.lookup(keys)
        assert found == prompt[: len(found)]
        cache.store(keys[len(found) :], prompt[len(found) :])
        assert cache.counts().blocks <= capacity


def test_an_emptied_cache_finds_nothing_and_is_another_one():
    cache: PrefixCache[Any] = PrefixCache(8)
    cache.store([b"1"], ["one"])
    before = cache.epoch
    cache.clear()
    assert (cache.lookup([b"1"]), cache.counts().blocks) == ([], 0)
    assert cache.epoch != before

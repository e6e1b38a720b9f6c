"""Ranges of keys, sizes of requests, and pauses: what can be checked without a server."""

from hypothesis import given
from hypothesis import strategies as st

from vctl_plans.store import messages
from vctl_plans.store.backoff import backoff_s
from vctl_plans.store.limits import request_bytes
from vctl_plans.store.port import (
    Comparison,
    CreateRevisionIs,
    Delete,
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

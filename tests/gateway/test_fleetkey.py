from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vctl_agent.gateway.fleetkey import FleetKey

OLD, NEW = b"o" * 32, b"n" * 32


def test_proof_is_of_these_parts_and_of_this_key():
    key = FleetKey([OLD])
    proof = key.sign(b"a", b"b")
    assert key.has_signed(proof, b"a", b"b")
    assert not key.has_signed(proof, b"a", b"c")
    assert not FleetKey([NEW]).has_signed(proof, b"a", b"b")


@given(st.lists(st.binary(max_size=8), max_size=4), st.lists(st.binary(max_size=8), max_size=4))
def test_no_two_lists_of_parts_have_one_proof(one: list[bytes], other: list[bytes]):
    key = FleetKey([OLD])
    assert (one == other) == key.has_signed(key.sign(*one), *other)


@pytest.mark.parametrize("proof", ["", "é", "\udce9", "0" * 64, "x" * 1000])
def test_what_is_no_proof_proves_nothing(proof: str):
    assert not FleetKey([OLD]).has_signed(proof, b"a")


def test_key_is_changed_without_a_gap():
    """Node by node: the new one behind the old, then before it, then alone."""
    steps = [[OLD], [OLD, NEW], [NEW, OLD], [NEW]]
    for earlier, later in pairwise(steps):
        for sender, receiver in ((earlier, later), (later, earlier)):
            assert FleetKey(receiver).has_signed(FleetKey(sender).sign(b"a"), b"a")

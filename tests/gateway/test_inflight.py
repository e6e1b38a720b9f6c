import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vctl_agent.gateway.inflight import Reference, References
from vctl_agent.local import InFlight


def test_reference_counts_inside_its_block_only():
    references = References(lambda: None)
    with references.hold(("a", 1)), references.hold(("a", 1)), references.hold(("a", 2)):
        assert references.listing() == (
            InFlight(service="a", number=1, count=2),
            InFlight(service="a", number=2, count=1),
        )
        assert references.total == 3
    assert references.listing() == ()
    assert references.count(("a", 1)) == 0


def test_reference_is_given_back_when_its_block_fails():
    references = References(lambda: None)
    with pytest.raises(KeyError), references.hold(("a", 1)):
        raise KeyError
    assert references.total == 0


@settings(deadline=None)
@given(st.lists(st.integers(0, 2)))
def test_edge_is_told_exactly_when_a_count_leaves_or_reaches_zero(steps: list[int]):
    edges: list[int] = []
    references = References(lambda: edges.append(references.count(("a", 1))))
    held: list[Reference] = []
    expected: list[int] = []
    for step in steps:
        if step and held:
            held.pop().__exit__(None, None, None)
            if not held:
                expected.append(0)
        else:
            reference = references.hold(("a", 1))
            reference.__enter__()
            held.append(reference)
            if len(held) == 1:
                expected.append(1)
        assert references.count(("a", 1)) == len(held)
    assert edges == expected

"""Counts and sketches: the laws of merging, differences, and the promised accuracy."""

import math

import pytest
from ddsketch import DDSketch
from hypothesis import given
from hypothesis import strategies as st

from vctl_plans.sketch import ACCURACY, FASTEST_S, SLOWEST_S, Counts, Sketch, SketchRecorder

SLACK = 1e-9
durations = st.lists(st.floats(FASTEST_S, SLOWEST_S), max_size=60)
counts = st.builds(
    lambda numbers, first: Counts.of(numbers, first=first),
    st.lists(st.integers(0, 9), max_size=8),
    st.integers(-5, 5),
)


def sketched(values_s):
    recorder = SketchRecorder()
    for value_s in values_s:
        recorder.add(value_s)
    return recorder.snapshot()


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [([], Counts()), ([0, 0], Counts()), ([0, 3, 0, 1, 0], Counts(6, (3, 0, 1)))],
)
def test_counts_have_no_zeros_at_their_ends(numbers, expected) -> None:
    """So that what is equal compares equal."""
    assert expected == Counts.of(numbers, first=5)


@given(counts, counts, counts)
def test_merge_is_commutative_and_associative_with_an_identity(a, b, c) -> None:
    """Nodes report in any order."""
    assert Counts.merge([a, b]) == Counts.merge([b, a])
    assert Counts.merge([Counts.merge([a, b]), c]) == Counts.merge([a, Counts.merge([b, c])])
    assert a == Counts.merge([a, Counts()])


@given(counts, counts)
def test_since_takes_back_what_merge_added(a, b) -> None:
    """A window is what was added."""
    assert b == Counts.merge([a, b]).since(a)


def test_since_is_none_when_a_count_went_back() -> None:
    """Also when another bin grew by more."""
    assert Counts.of([1, 9]).since(Counts.of([2, 3])) is None


@given(durations.filter(bool), st.floats(0, 1))
def test_quantile_is_within_the_accuracy_of_the_exact_one(values_s, q) -> None:
    """Of the value at rank floor(q (n - 1)), and between its bin's edges."""
    rank = math.floor(q * (len(values_s) - 1))
    exact = sorted(values_s)[rank]
    sketch = sketched(values_s)
    low, high = sketch.bounds_at(rank)

    assert abs(sketch.quantile(q) - exact) <= exact * (ACCURACY + SLACK)
    assert low * (1 - SLACK) <= exact <= high * (1 + SLACK)


@given(durations, durations)
def test_merged_sketches_say_what_the_library_says_of_all_values(one, other) -> None:
    """Ours keeps the bins, the library is the reference."""
    reference = DDSketch(ACCURACY)
    for value_s in [*one, *other]:
        reference.add(value_s)
    merged = Sketch.merge([sketched(one), sketched(other)])

    assert reference.count == merged.total
    assert sketched([*one, *other]) == merged
    for q in (0.0, 0.5, 1.0):  # ranks that are no fractions to the library: of 2 k + 1 values
        if merged.total % 2:
            assert reference.get_quantile_value(q) == pytest.approx(merged.quantile(q))


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=40))
def test_sketch_is_bounded_whatever_is_counted(values_s) -> None:
    """What is out of range shares the end bins, which have no outer edge."""
    sketch = sketched([*values_s, 0.0, 1e9])

    assert len(sketch.counts) == 756
    assert sketch.bounds_at(0)[0] == 0.0
    assert sketch.bounds_at(sketch.total - 1)[1] == math.inf


def test_rank_past_the_end_is_refused() -> None:
    """And an empty sketch has no quantile."""
    assert Sketch().quantile(0.5) is None
    with pytest.raises(IndexError):
        sketched([1.0]).value_at(1)
    with pytest.raises(IndexError):
        sketched([1.0]).value_at(-1)

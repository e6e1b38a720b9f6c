"""Statistics over a fleet: nothing is counted twice, whatever restarts and in whatever order."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vctl_plans.codec import decode, encode
from vctl_plans.sketch import Counts, Sketch
from vctl_plans.statistics import (
    LOGPROB_EDGES,
    ErrorClass,
    FinishReason,
    Origin,
    Recorder,
    Sample,
    Snapshot,
    Statistics,
    latest,
    length_bin,
    logprob_bin,
    window,
)

samples = st.builds(
    Sample,
    latency_s=st.floats(0.001, 100),
    first_token_s=st.none() | st.floats(0.001, 10),
    error=st.none() | st.sampled_from(ErrorClass),
    answer_tokens=st.none() | st.integers(0, 4096),
    finish=st.none() | st.sampled_from(FinishReason),
    logprobs=st.lists(st.floats(-20, 0), max_size=3).map(tuple),
)
histories = st.lists(samples, max_size=6)


def counted(*requests: Sample) -> Statistics:
    recorder = Recorder()
    for request in requests:
        recorder.add(request)
    return recorder.snapshot()


def answered(count: int) -> Statistics:
    return counted(*[Sample(latency_s=0.1)] * count)


def snapshot(boot: str, statistics: Statistics, *, revision: int = 7) -> Snapshot:
    return Snapshot(
        service="support",
        number=8,
        digest="b3:8",
        origin=Origin(boot, revision),
        statistics=statistics,
    )


def test_recorder_counts_each_thing_where_it_belongs() -> None:
    """A failed request has no latency: failing fast is not speed."""
    found = counted(
        Sample(latency_s=2.0, first_token_s=0.5, answer_tokens=5, finish=FinishReason.STOP),
        Sample(latency_s=0.01, error=ErrorClass.SERVER),
        Sample(latency_s=9.0, error=ErrorClass.CLIENT),
        Sample(latency_s=9.0, error=ErrorClass.BROKEN, first_token_s=0.5, logprobs=(-0.6, -0.6)),
    )

    assert (4, 2, 1) == (found.requests, found.failures, found.error_count(ErrorClass.CLIENT))
    assert (1, 2) == (found.latency.total, found.first_token.total)
    assert 2.0 == pytest.approx(found.latency.quantile(0.99), rel=0.01)
    assert Counts(3, (1,)) == found.answer_tokens
    assert Counts(7, (2,)) == found.logprobs
    assert (1, 0) == (
        found.finish_count(FinishReason.STOP),
        found.finish_count(FinishReason.LENGTH),
    )


@pytest.mark.parametrize(("tokens", "index"), [(0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (2**40, 20)])
def test_length_falls_into_bins_of_powers_of_two(tokens, index) -> None:
    """The last takes all above."""
    assert index == length_bin(tokens)


@pytest.mark.parametrize(
    ("logprob", "index"), [(0.0, 0), (-0.001, 0), (-0.0011, 1), (-12.0, 14), (-99.0, 15)]
)
def test_logprob_falls_into_bins_by_upper_edge(logprob, index) -> None:
    """One bin lies above the last edge."""
    assert index == logprob_bin(logprob)
    assert len(LOGPROB_EDGES) == 15


@given(histories, histories, histories)
def test_merge_is_a_commutative_monoid(one, two, three) -> None:
    """Equal to having counted everything at one node."""
    a, b, c = counted(*one), counted(*two), counted(*three)
    merge = Statistics.merge

    assert merge([a, b]) == merge([b, a])
    assert merge([merge([a, b]), c]) == merge([a, merge([b, c])])
    assert a == merge([a, Statistics()])
    assert counted(*one, *two, *three) == merge([a, b, c])


@given(histories, histories)
def test_since_returns_what_was_added(one, two) -> None:
    """For every field."""
    assert counted(*two) == counted(*one, *two).since(counted(*one))


@pytest.mark.parametrize(
    "field", ["errors", "latency", "first_token", "answer_tokens", "logprobs", "finish"]
)
def test_since_is_none_when_any_count_went_back(field) -> None:
    """Though the requests grew."""
    kind = Sketch if field in ("latency", "first_token") else Counts
    before = msgspec.structs.replace(answered(0), **{field: kind(2, (1,))})

    assert answered(5).since(before) is None
    assert answered(4).since(answered(5)) is None


def test_window_counts_a_restart_once() -> None:
    """The old boot's counts stay out; the new boot's count in full."""
    before = [snapshot("old", answered(100)), snapshot("other", answered(10))]
    after = [snapshot("new", answered(7)), snapshot("other", answered(15))]

    assert 12 == window(before, after).statistics.requests


def test_window_counts_each_route_revision_apart() -> None:
    """A new route begins a new count."""
    before = [snapshot("a", answered(100), revision=7)]
    after = [snapshot("a", answered(104), revision=7), snapshot("a", answered(3), revision=8)]

    assert 7 == window(before, after).statistics.requests


def test_window_refuses_counts_that_went_back_and_names_them() -> None:
    """They are no news of the same gateway."""
    before = [snapshot("a", answered(9)), snapshot("b", answered(1))]
    after = [snapshot("a", answered(8)), snapshot("b", answered(2))]
    found = window(before, after)

    assert (Origin("a", 7),) == found.refused
    assert 1 == found.statistics.requests


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5)), max_size=8), st.randoms())
def test_reading_a_snapshot_twice_or_late_changes_nothing(reads, order) -> None:
    """Idempotent, and the same in any order."""
    snapshots = [snapshot(boot, answered(count)) for boot, count in reads]
    shuffled = [*snapshots, *snapshots]
    order.shuffle(shuffled)

    assert latest(snapshots) == latest(shuffled)
    assert window([], snapshots) == window([], shuffled)


@given(histories)
def test_snapshot_survives_its_encoding(history) -> None:
    """What is reported is what was counted."""
    sent = snapshot("a", counted(*history))

    assert sent == decode(encode(sent), Snapshot)


def test_snapshot_is_small() -> None:
    """Bounded in the worst case; of a busy release's usual spread of latencies a few kB."""
    full = Sketch.of([10**6] * 756, first=-345)
    worst = Statistics(latency=full, first_token=full, logprobs=Counts.of([10**9] * 16))
    usual = counted(*(Sample(latency_s=1.01**i / 10, first_token_s=0.1) for i in range(400)))

    assert 16_000 > len(encode(snapshot("a", worst)))
    assert 2_000 > len(encode(snapshot("a", usual)))

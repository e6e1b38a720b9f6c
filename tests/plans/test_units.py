"""Durations, quotas and sizes as people write and read them."""

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vctl_plans.errors import PlanError
from vctl_plans.units import Quota, bytes_text, duration_s, duration_text, quota, utc_text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("10m", 600), ("1h30m", 5400), ("250ms", 0.25), ("1.5h", 5400), ("2d", 172800),
     (7, 7), (0, 0), (0.5, 0.5)],
)  # fmt: skip
def test_duration_is_read(text: str | float, seconds: float) -> None:
    """Text with units, or plain seconds."""
    assert seconds == duration_s(text, path="soak")


@pytest.mark.parametrize("text", ["", "30", "s", "1 h", "-5s", "5s\n", "1h30", -1, float("inf")])
def test_what_is_no_duration_is_refused(text: str | float) -> None:
    """The field is named."""
    with pytest.raises(PlanError) as wrong:
        duration_s(text, path="deadlines.drain")

    assert "deadlines.drain" == wrong.value.path


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (2.5, "2.5s"), (30, "30s"), (59.96, "1m"), (60, "1m"), (5400, "1h30m"),
     (86400, "1d"), (90061, "1d1h"), (3599.9, "1h")],
)  # fmt: skip
def test_duration_is_shown_in_two_units_at_most(seconds: float, text: str) -> None:
    """And never as 60 of a smaller one."""
    assert text == duration_text(seconds)


@given(st.integers(0, 86399))
def test_duration_survives_being_shown(seconds: int) -> None:
    """To the second below an hour, to the minute above."""
    lost = seconds - duration_s(duration_text(seconds), path="")

    assert 0 <= lost < (1 if seconds < 3600 else 60)


@pytest.mark.parametrize(
    ("text", "whole", "many"),
    [("100%", 7, 7), ("98%", 50, 49), ("98%", 51, 50), ("0%", 9, 0), ("0.5%", 100, 1), (3, 9, 3),
     ("50%", 0, 0)],
)  # fmt: skip
def test_quota_counts_rounded_up(text: str | int, whole: int, many: int) -> None:
    """98 % of 51 is 50: a gate asks for no less than was written."""
    assert many == quota(text, path="gate.ready").of(whole)


@pytest.mark.parametrize("text", ["101%", "-1%", "all", "%", -1])
def test_what_is_no_quota_is_refused(text: str | int) -> None:
    """Neither a percentage nor a count."""
    with pytest.raises(PlanError):
        quota(text, path="gate.ready")


def test_quota_is_shown_as_it_was_written() -> None:
    """A percentage with its sign, a count without."""
    assert ("98%", "3") == (str(Quota(percent=98.0)), str(Quota(count=3)))


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (2**50, "1024.0 TiB")]
)
def test_size_is_shown_in_binary_units(size: int, text: str) -> None:
    """The largest is TiB."""
    assert text == bytes_text(size)


def test_moment_is_told_in_utc_to_the_second():
    moment = datetime(2026, 1, 2, 13, 0, 0, 999, tzinfo=timezone(timedelta(hours=1)))
    assert "2026-01-02T12:00:00Z" == utc_text(moment)

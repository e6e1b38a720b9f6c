"""Progress: a bar for a person, lines for a log, nothing for little work."""

import io

import pytest

from tests.cli.support import Terminal
from vctl_cli.render.progress import MUCH_BYTES, hashing, rate_text
from vctl_cli.render.screen import Screen


def shown(err: io.StringIO, *reports: tuple[int, int], is_quiet: bool = False) -> str:
    screen = Screen(io.StringIO(), err, is_quiet=is_quiet, has_color=False)
    with hashing(screen, "v8") as report:
        for done, total in reports:
            assert report is not None
            report(done, total)
    return err.getvalue()


def test_much_work_is_told_when_it_begins():
    assert "hashing v8: 64.0 MiB\n" == shown(io.StringIO(), (0, MUCH_BYTES), (5, MUCH_BYTES))


def test_little_work_is_not_told():
    assert "" == shown(io.StringIO(), (0, MUCH_BYTES - 1), (MUCH_BYTES - 1, MUCH_BYTES - 1))
    assert "" == shown(Terminal(), (0, 1000), (1000, 1000))


def test_work_that_goes_on_is_told_with_its_rate(monkeypatch: pytest.MonkeyPatch):
    clock = iter([0.0, 0.0, 1.0, 6.0, 7.0, 8.0])
    monkeypatch.setattr("vctl_cli.render.progress.time.monotonic", lambda: next(clock))
    total = 10**10
    reports = [(share * 10**9, total) for share in (0, 1, 6, 7, 10)]
    assert shown(io.StringIO(), *reports).splitlines() == [
        "hashing v8: 9.3 GiB",
        "hashing v8: 60 % of 9.3 GiB, 1.00 GB/s, 4s left",
    ]


def test_bar_is_shown_at_once():
    told = shown(Terminal(), (0, MUCH_BYTES), (MUCH_BYTES // 2, MUCH_BYTES))
    assert "hashing v8" in told
    assert "33.6/67.1 MB" in told


def test_quiet_wants_no_progress():
    err = io.StringIO()
    with hashing(Screen(io.StringIO(), err, is_quiet=True), "v8") as report:
        assert report is None
    assert "" == err.getvalue()


def test_rate_of_nothing_is_unknown():
    assert "0 % of 1.0 KiB, 0.00 GB/s, unknown time left" == rate_text(0, 1024, 1.0)

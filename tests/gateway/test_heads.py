"""Sets of fields that are read once: each message gets its own, and what is kept is bounded."""

import pytest

from vctl_agent.gateway.wire import heads
from vctl_agent.gateway.wire.heads import MAX_KEPT, MAX_KEPT_BYTES, Heads


def raw(*fields: tuple[str, str]) -> list[bytes]:
    return [part.encode() for field in fields for part in field]


def test_same_fields_are_read_once_and_others_apart():
    kept = Heads()
    first = kept.of(raw(("Host", "h"), ("X-A", "1")))

    assert first is kept.of(raw(("Host", "h"), ("X-A", "1")))
    assert "2" == kept.of(raw(("Host", "h"), ("X-A", "2"))).fields["x-a"]
    assert "1" == first.fields["x-a"]


@pytest.mark.parametrize("split", [("ab", "c"), ("a", "bc")])
def test_fields_whose_text_runs_together_alike_are_apart(split: tuple[str, str]):
    kept = Heads()
    kept.of(raw(("a", "bc")))
    kept.of(raw(("ab", "c")))

    assert [split] == list(kept.of(raw(split)).fields.items())


def test_field_that_stands_twice_stands_twice():
    assert 2 == Heads().of(raw(("Host", "a"), ("host", "b"))).hosts


def test_what_is_kept_is_bounded_and_what_is_used_stays():
    kept = Heads()
    used = kept.of(raw(("X-Used", "1")))
    for n in range(5 * MAX_KEPT):
        kept.of(raw(("X-Other", str(n))))
        assert used is kept.of(raw(("X-Used", "1")))
        assert len(kept) <= 2 * MAX_KEPT


def test_large_set_is_not_kept(monkeypatch: pytest.MonkeyPatch):
    kept = Heads()
    large = raw(("X-Large", "x" * MAX_KEPT_BYTES))

    assert "x" * MAX_KEPT_BYTES == kept.of(large).fields["x-large"]
    assert 0 == len(kept)
    monkeypatch.setattr(heads, "MAX_KEPT_BYTES", 10_000)
    kept.of(large)
    assert 1 == len(kept)

"""The demo's judgement: a real fault would show in its counts."""

from pathlib import Path

import pytest

from tests.weights import building
from vctl_cli.commands.demo import text
from vctl_cli.demo.story import Figures, flip_a_bit
from vctl_cli.demo.tally import Answer, Said, count, is_same, judge, last_switch_s
from vctl_plans import weights
from vctl_plans.errors import RootMismatch

ONE = Said("yes", (-0.1, -0.2))
TWO = Said("no", (-0.3, -0.4))
MIXED = Said("yes", (-0.1, -0.9))  # the text of one, computed from another's cache
RIGHT = {1: (ONE,), 2: (TWO,)}


def an_answer(release: int = 1, said: Said | None = ONE, **more) -> Answer:
    given = {"node": "n1", "prompt": 0, "begun_s": 0.0, "ended_s": 0.1, "cached_tokens": 64}
    return Answer(**{**given, "release": release, "said": said, **more})


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (an_answer(1, ONE), "right"),
        (an_answer(2, TWO), "right"),
        (an_answer(1, TWO), "wrong release"),
        (an_answer(2, ONE), "wrong release"),
        (an_answer(3, Said("?", ())), "wrong release"),
        (an_answer(0, ONE), "wrong release"),
        (an_answer(1, MIXED), "stale cache"),
        (an_answer(1, Said("yes", (-0.1,))), "stale cache"),
        (an_answer(1, None, error="HTTP 503"), "error"),
    ],
)
def test_each_fault_has_its_own_verdict(answer: Answer, verdict: str):
    assert verdict == judge(answer, RIGHT)


def test_noise_of_float32_is_no_fault():
    assert is_same(ONE, Said("yes", (-0.1001, -0.2)))
    assert not is_same(ONE, Said("yes", (-0.15, -0.2)))


def test_counts_are_clean_only_if_faults_could_have_shown():
    clean = count([an_answer(), an_answer(2, TWO)], RIGHT)
    assert (
        clean.requests, clean.errors, clean.cached_tokens, clean.by_release,
    ) == (2, 0, 128, {1: 1, 2: 1})  # fmt: skip
    assert clean.is_clean
    assert not count([], RIGHT).is_clean
    assert not count([an_answer(cached_tokens=0)], RIGHT).is_clean
    stale = count([an_answer(), an_answer(1, MIXED)], RIGHT)
    assert not stale.is_clean
    assert "stale cache" in stale.examples[0]


def test_last_switch_is_the_latest_node_s_first_request_after_the_old_release():
    def at(node: str, begun_s: float, release: int) -> Answer:
        return an_answer(release, node=node, begun_s=begun_s)

    answers = [at("a", 9.9, 4), at("a", 10.1, 2), at("a", 10.2, 2),
               at("b", 10.0, 4), at("b", 10.2, 4), at("b", 10.3, 2)]  # fmt: skip
    assert last_switch_s(answers, since_s=10.0, left=4) == 10.3
    assert last_switch_s(answers[:4], since_s=10.0, left=4) is None


def test_flipped_bit_is_one_that_verification_finds(tmp_path: Path):
    adapter = building.adapter(tmp_path / "v3")
    manifest = weights.scan(adapter)
    flip_a_bit(adapter)
    with pytest.raises(RootMismatch):
        weights.verify(adapter, manifest)


def test_table_names_what_was_not_as_told():
    figures = Figures(
        nodes=4, count=count([an_answer(1, TWO)], RIGHT), rollout_ms=900.4, rollback_ms=300.0,
        rollback_command_ms=500.0, seconds=40.0, surprises=("vctl rollout ended with 0, not 1",),
    )  # fmt: skip
    assert not figures.is_clean
    shown = text(figures)
    for line in ("answers from a wrong release              ", "900 ms", "not right: n1", "not 1"):
        assert line in shown

"""What the probe finds in a few answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vctl_agent.engines.port import Answer
from vctl_agent.engines.probe import (
    FLOOR,
    coherence,
    distance,
    effect,
    noise_of,
    own_noise,
    tolerance,
)


def says(*logprobs: float, tokens: str = "abcdefgh", cached: int | None = None) -> Answer:
    return Answer(
        tokens=tuple(tokens[: len(logprobs)]),
        logprobs=logprobs,
        prompt_tokens=100,
        cached_tokens=cached,
    )


OWN = says(-0.5, -1.0)
OTHER = says(-0.2, -0.3, tokens="cd")
ROUNDED = says(-0.50001, -0.99999)
NOTHING = Answer(tokens=())
MUTE = Answer(tokens=("a", "b"))

logprobs = st.lists(st.floats(min_value=-20, max_value=0), min_size=1, max_size=8)
answers = st.builds(
    lambda pairs: Answer(
        tokens=tuple(token for token, _ in pairs), logprobs=tuple(value for _, value in pairs)
    ),
    st.lists(st.tuples(st.sampled_from("ab"), st.floats(-20, 0)), min_size=1, max_size=8),
)


def test_probe_finds_nothing_wrong_with_an_adapter_that_is_itself() -> None:
    """Rounding is no difference, and the numbers are told."""
    found = coherence(
        first=OWN, again=says(-0.50001, -1, cached=96), fresh=OWN, warm=OWN, noise=0.0
    )

    assert "" == found.problem
    assert (
        "cached and fresh answers 0.0000 apart (allowed 0.0010, own noise 0.0000),"
        " 96 of 100 prompt tokens from the cache" == found.note
    )
    assert "0.30 from the base" == effect([(OWN, OTHER)], noise=0.0).note


@pytest.mark.parametrize(
    ("first", "again", "fresh", "found"),
    [
        (OWN, OTHER, OWN, "cached answer differs"),
        (OTHER, OWN, OWN, "cached answer differs"),
        (OWN, says(-0.5, -1.1), OWN, "by 0.1000 (allowed 0.0010, own noise 0.0001)"),
        (NOTHING, OWN, OWN, "answers nothing"),
        (OWN, OWN, MUTE, "does not tell one log-probability for each token"),
    ],
)
def test_probe_names_what_is_wrong_with_the_cache(
    first: Answer, again: Answer, fresh: Answer, found: str
) -> None:
    """With the numbers."""
    assert (
        found in coherence(first=first, again=again, fresh=fresh, warm=fresh, noise=0.0001).problem
    )


def test_adapter_without_effect_is_told_by_all_that_was_asked() -> None:
    """One prompt that shows it is enough."""
    assert "matched no module" in effect([(OWN, ROUNDED), (OTHER, OTHER)], noise=0.0).problem
    assert "" == effect([(OWN, ROUNDED), (OTHER, OWN)], noise=0.0).problem


@pytest.mark.parametrize(
    ("cached", "said"),
    [(None, "does not tell whether from its cache"), (0, "could not be told whether")],
)
def test_answer_that_is_not_known_to_come_from_the_cache_is_said(
    cached: int | None, said: str
) -> None:
    """It passes, and the note does not claim more than was seen."""
    found = coherence(
        first=OWN, again=says(-0.5, -1, cached=cached), fresh=OWN, warm=OWN, noise=0.0
    )

    assert "" == found.problem
    assert said in found.note


def test_tokens_swapped_by_a_hair_are_noise_and_what_follows_is_not_compared() -> None:
    """Both were the likeliest of their place."""
    one, other = says(-0.5, -0.7, -3.0, tokens="abc"), says(-0.5, -0.7004, -0.1, tokens="axy")

    assert 0.0004 == pytest.approx(distance(one, other))


@given(answers, answers)
def test_distance_is_symmetric_and_nought_to_oneself(one: Answer, other: Answer) -> None:
    """As a distance is."""
    assert distance(one, other) == distance(other, one)
    assert 0.0 == distance(one, one)


@given(logprobs, st.lists(st.floats(min_value=-1, max_value=1), min_size=8, max_size=8))
def test_what_differs_by_no_more_than_the_noise_passes(
    values: list[float], jitter: list[float]
) -> None:
    """The answers that the noise was measured from are coherent by it."""
    fresh = says(*values)
    moved = says(*(value + step / 10 for value, step in zip(values, jitter, strict=False)))

    measured = noise_of([fresh, moved, fresh])

    assert (
        "" == coherence(first=moved, again=fresh, fresh=fresh, warm=fresh, noise=measured).problem
    )
    assert tolerance(measured) >= max(FLOOR, measured)


@given(logprobs, st.floats(min_value=0, max_value=0.5), st.data())
def test_what_differs_by_more_than_is_allowed_fails(
    values: list[float], noise: float, data: st.DataObject
) -> None:
    """Wherever it lies."""
    at = data.draw(st.integers(0, len(values) - 1))
    moved = [*values]
    moved[at] -= tolerance(noise) + 0.01

    found = coherence(
        first=says(*values),
        again=says(*moved),
        fresh=says(*values),
        warm=says(*values),
        noise=noise,
    )

    assert "cached answer differs" in found.problem


def test_salt_that_does_not_keep_apart_is_found() -> None:
    """What nobody else has asked under it cannot be in the cache."""
    known = says(-0.5, -1.0, cached=32)
    found = coherence(first=OWN, again=OWN, fresh=known, warm=OWN, noise=0.0)

    assert "32 tokens of a prompt under a new salt came from the cache" == found.problem


def test_adapter_may_be_a_little_noisier_than_the_base_and_no_more() -> None:
    """What it shows under a salt of its own counts, as far as adapters may bring it."""
    fresh, warm, far = says(-0.5, -1.0), says(-0.505, -1.0), says(-0.6, -1.0)

    assert 0.005 == pytest.approx(own_noise(0.0, fresh, warm))
    assert "" == coherence(first=warm, again=warm, fresh=fresh, warm=warm, noise=0.0).problem
    assert 0.01 == own_noise(0.0, fresh, far)
    assert 0.08 == own_noise(0.02, fresh, far)
    spoilt = coherence(first=far, again=far, fresh=fresh, warm=far, noise=0.0)
    assert "by 0.1000 (allowed 0.0200, own noise 0.0100)" in spoilt.problem

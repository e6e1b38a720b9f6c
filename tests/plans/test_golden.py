"""What a release must answer first, and what is said when it does not."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import a_rollout, a_route, some_releases
from vctl_plans.codec import decode, encode
from vctl_plans.errors import PlanError
from vctl_plans.golden import (
    MAX_BYTES,
    Golden,
    GoldenPrompt,
    check_size,
    golden_of,
    measured,
    problem,
    refuse_serving,
    similarity,
)
from vctl_plans.phase import RolloutPhase

TEXTS = st.text("ab c", max_size=12)


def test_whole_answer_is_expected_but_for_white_space_around_it() -> None:
    """A completion often begins with a blank, and a block of YAML ends with a line's end."""
    asked = GoldenPrompt(prompt="2+2=", expect="4\n")

    assert "" == problem(asked, " 4")
    assert "expected '4', got '42'" == problem(asked, "42")


def test_part_of_an_answer_is_expected_as_it_stands() -> None:
    """Case and all."""
    asked = GoldenPrompt(prompt="Capital of France?", contains="Paris")

    assert "" == problem(asked, "It is Paris.")
    assert "expected it to contain 'Paris', got 'It is paris.'" == problem(asked, "It is paris.")


def test_answer_that_resembles_too_little_is_told_with_its_number() -> None:
    """And one that passes with its own."""
    asked = GoldenPrompt(prompt="Hello", similar_to="Good morning, how can I help?")

    assert "" == problem(asked, "Good morning. How can I help?")
    assert "0.931" == measured(asked, "Good morning! How can I help?")
    assert "similarity 0." in problem(asked, "No.")
    assert "is under 0.8: expected about 'Good morning, how can I help?', got 'No.'" in problem(
        asked, "No."
    )


def test_what_is_told_of_an_answer_is_short_and_in_one_line() -> None:
    """It goes into reports and sentences."""
    said = problem(GoldenPrompt(prompt="Go", expect="x" * 500), "line\n" * 500)

    assert len(said) < 160
    assert "\n" not in said


@given(TEXTS, TEXTS)
def test_similarity_is_a_share_and_whole_for_the_same_text(one: str, other: str) -> None:
    """And no text is alike to another as much as to itself."""
    assert 0.0 <= similarity(one, other) <= 1.0
    assert 1.0 == similarity(one, one)
    assert (one == other) == (similarity(one, other) == 1.0)


@given(TEXTS, TEXTS)
def test_exact_expectation_is_the_strictest(text: str, answer: str) -> None:
    """What passes it is contained and alike."""
    if problem(GoldenPrompt(prompt="p", expect=text), answer) == "":
        assert "" == problem(GoldenPrompt(prompt="p", contains=text.strip()), answer)
        assert "" == problem(GoldenPrompt(prompt="p", similar_to=text, similarity=1.0), answer)


def test_same_prompts_are_one_value_and_others_another() -> None:
    """Their digest is their name."""
    one = Golden(prompts=(GoldenPrompt(prompt="p", expect="a"),))
    other = Golden(prompts=(GoldenPrompt(prompt="p", contains="a"),))

    assert one.digest == decode(encode(one), Golden, key="k").digest
    assert one.digest != other.digest


def test_golden_prompts_that_no_node_should_read_are_refused() -> None:
    """With the limit."""
    large = Golden(prompts=(GoldenPrompt(prompt="x" * MAX_BYTES, expect="a"),))

    with pytest.raises(PlanError, match="64 KiB"):
        check_size(large)


def test_release_is_asked_what_its_rollout_says_else_what_it_was_made_with() -> None:
    """After the rollout, and in a rollback to it, as long as the engine lives or starts anew."""
    release = msgspec.structs.replace(some_releases(2)[2], probes="own")
    brought = msgspec.structs.replace(a_rollout(RolloutPhase.PREPARING), to_release=2, probes="its")
    other = msgspec.structs.replace(brought, to_release=3)

    assert "its" == golden_of(release, brought)
    assert "own" == golden_of(release, other)
    assert "own" == golden_of(release, None)
    assert "" == golden_of(some_releases(2)[2], None)


def test_release_that_serves_is_not_asked_anything_new() -> None:
    """All nodes would be without it until it has answered."""
    release = msgspec.structs.replace(some_releases(2)[2], probes="own")
    route = a_route(stable=2)

    refuse_serving(release, route, None, "")
    refuse_serving(release, route, None, "own")
    refuse_serving(release, a_route(stable=1), None, "new")
    with pytest.raises(PlanError, match="serves already"):
        refuse_serving(release, route, None, "new")

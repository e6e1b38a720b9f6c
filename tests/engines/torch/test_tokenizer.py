import pytest
from hypothesis import given
from hypothesis import strategies as st

from vctl_agent.engines.torch.tokenizer import (
    BOS,
    EOS,
    Message,
    TextStream,
    chat_prompt,
    decode,
    encode,
    token_name,
)

pytestmark = pytest.mark.torch


def streamed(text, stops):
    ids = encode(text)[1:]
    stream = TextStream(stops)
    pieces = []
    for n, token in enumerate(ids):
        pieces.append(stream.push(token, last=n == len(ids) - 1))
        if stream.is_stopped:
            break
    return pieces, stream.is_stopped


@given(st.text())
def test_decode_undoes_encode(text):
    ids = encode(text)
    assert ids[0] == BOS
    assert decode([*ids, EOS]) == text


@given(st.text(alphabet="ab\N{EURO SIGN}", max_size=30), st.lists(st.text("ab", min_size=1)))
def test_streamed_text_ends_before_the_first_stop_string(text, stops):
    pieces, is_stopped = streamed(text, stops)
    found = [text.find(stop) for stop in stops if stop in text]
    assert is_stopped == bool(found)
    # A stop string ends a stream when its last character comes, so of two that overlap the one
    # that ends first decides.
    ends = min((text.find(s) + len(s) for s in stops if s in text), default=len(text))
    cut = min((at for s in stops if (at := text[:ends].find(s)) >= 0), default=len(text))
    assert "".join(pieces) == text[:cut]


def test_text_that_may_begin_a_stop_string_is_held_back():
    assert streamed("xSTy", ["STOP"])[0] == ["x", "", "", "STy"]


def test_a_character_comes_out_when_its_last_byte_does():
    assert streamed("\N{EURO SIGN}!", [])[0] == ["", "", "\N{EURO SIGN}", "!"]


def test_half_a_character_at_the_end_becomes_a_replacement():
    stream = TextStream()
    assert stream.push(0xE2, last=True) == "\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize(
    ("token", "name"), [(65, "A"), (200, "bytes:\\xc8"), (BOS, "<s>"), (EOS, "</s>")]
)
def test_token_name(token, name):
    assert token_name(token) == name


def test_chat_prompt_ends_where_the_answer_begins():
    turns = [Message("system", "Be brief."), Message("user", "Hi")]
    assert chat_prompt(turns) == "<|system|>\nBe brief.\n<|user|>\nHi\n<|assistant|>\n"

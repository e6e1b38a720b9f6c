import json

import pytest

from vctl_agent.engines.torch.openai import ApiError, parse_chat, parse_completion
from vctl_agent.engines.torch.tokenizer import encode

pytestmark = pytest.mark.torch


def completion(**fields):
    body = {"model": "m", "prompt": "Hi", **fields}
    return parse_completion(json.dumps(body).encode(), 64)


def chat(**fields):
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **fields}
    return parse_chat(json.dumps(body).encode(), 64)


def test_a_prompt_is_a_text_or_token_ids():
    assert completion().order.prompt == tuple(encode("Hi"))
    assert completion(prompt=[256, 72]).order.prompt == (256, 72)


def test_what_is_not_said_is_as_openai_has_it():
    call = completion(temperature=None, stop=None, stream=None)
    assert (call.order.max_tokens, call.order.sampling.temperature) == (16, 1.0)
    assert (call.order.stop, call.is_stream, call.order.cache_salt) == ((), False, "")
    assert chat().order.max_tokens == 64 - len(chat().order.prompt)


def test_unknown_fields_are_passed_over_and_neutral_ones_accepted():
    call = completion(user="ann", n=1, presence_penalty=0, store=True, logit_bias={})
    assert call.order == completion().order


def test_a_message_may_come_in_parts():
    parts = [{"type": "text", "text": "H"}, {"type": "text", "text": "i"}]
    asked = chat(messages=[{"role": "user", "content": parts}])
    assert asked.order.prompt == chat().order.prompt


def test_a_temperature_too_small_to_divide_by_is_greedy():
    assert completion(temperature=1e-9).order.sampling.temperature == 0


def test_chat_logprobs():
    assert chat().order.sampling.top_logprobs is None
    assert chat(logprobs=True).order.sampling.top_logprobs == 0
    assert chat(logprobs=True, top_logprobs=3).order.sampling.top_logprobs == 3


@pytest.mark.parametrize(
    ("parse", "fields", "param"),
    [
        (completion, {"model": ""}, "model"),
        (completion, {"model": None}, "model"),
        (completion, {"prompt": None}, "prompt"),
        (completion, {"prompt": []}, "prompt"),
        (completion, {"prompt": [258]}, "prompt"),
        (completion, {"prompt": ["a", "b"]}, "prompt"),
        (completion, {"prompt": "x" * 60}, "prompt"),
        (completion, {"max_tokens": 0}, "max_tokens"),
        (completion, {"max_tokens": "5"}, "max_tokens"),
        (completion, {"max_tokens": True}, "max_tokens"),
        (completion, {"temperature": -1}, "temperature"),
        (completion, {"top_p": 0}, "top_p"),
        (completion, {"seed": -1}, "seed"),
        (completion, {"seed": 2**63}, "seed"),
        (completion, {"logprobs": 21}, "logprobs"),
        (completion, {"cache_salt": ""}, "cache_salt"),
        (completion, {"cache_salt": 7}, "cache_salt"),
        (completion, {"stop": ["a", ""]}, "stop"),
        (completion, {"stop": ["a"] * 17}, "stop"),
        (completion, {"n": 2}, "n"),
        (completion, {"echo": True}, "echo"),
        (completion, {"stream_options": {}}, "stream_options"),
        (chat, {"messages": []}, "messages"),
        (chat, {"messages": [{"role": "robot", "content": ""}]}, "messages"),
        (chat, {"messages": [{"role": "user", "content": "x" * 60}]}, "messages"),
        (chat, {"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "messages"),
        (chat, {"logprobs": 3}, "logprobs"),
        (chat, {"top_logprobs": 3}, "top_logprobs"),
        (chat, {"tools": [{}]}, "tools"),
    ],
)
def test_a_field_that_is_refused_is_named(parse, fields, param):
    with pytest.raises(ApiError) as refused:
        parse(**fields)
    assert (refused.value.status, refused.value.param) == (400, param)


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'"x"', b"\xff"])
def test_a_body_that_is_no_object_is_refused(raw):
    with pytest.raises(ApiError, match="not a JSON object"):
        parse_completion(raw, 64)

"""Asks a model the probe's question, by OpenAI's completions with the salt that engines share."""

from typing import Any

import msgspec

from vctl_agent.engines.http import EngineHttp
from vctl_agent.engines.probe import Answer

_PROMPT = "The same question asked twice must get the same answer, cached or not. " * 2
_TOKENS = 8


class _Logprobs(msgspec.Struct):
    tokens: tuple[str, ...]
    token_logprobs: tuple[float, ...]


class _Choice(msgspec.Struct):
    logprobs: _Logprobs


class _Completion(msgspec.Struct):
    choices: tuple[_Choice]  # exactly one


async def answer(http: EngineHttp, model: str, *, salt: str = "") -> Answer:
    """Return a model's greedy answer, with a salt of its own if given."""
    body: dict[str, Any] = {
        "model": model,
        "prompt": _PROMPT,
        "max_tokens": _TOKENS,
        "temperature": 0,
        "ignore_eos": True,
        "logprobs": 1,
    }
    if salt:
        body["cache_salt"] = salt
    found = http.read(await http.ask("/v1/completions", body=body), _Completion)
    said = found.choices[0].logprobs
    return Answer(said.tokens, said.token_logprobs)

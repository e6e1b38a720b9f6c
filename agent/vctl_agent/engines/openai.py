"""Asks a model by OpenAI's two endpoints, with the extensions that vLLM, SGLang and torch share.

`cache_salt` and `ignore_eos` are theirs, not OpenAI's. An answer's log-probabilities are read where
the engine tells them, and its cached tokens as well: what is not told stays empty.
"""

from typing import Any

import msgspec

from vctl_agent.engines.http import EngineHttp
from vctl_agent.engines.port import Answer, Question


class _Entry(msgspec.Struct):
    """One token of a chat's answer."""

    token: str
    logprob: float


class _Logprobs(msgspec.Struct):
    """Of a completion: tokens and token_logprobs; of a chat: content."""

    tokens: tuple[str, ...] | None = None
    token_logprobs: tuple[float, ...] | None = None
    content: tuple[_Entry, ...] | None = None


class _Message(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    text: str = ""
    message: _Message = msgspec.field(default_factory=_Message)
    logprobs: _Logprobs | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    prompt_tokens_details: _Details | None = None


class _Completion(msgspec.Struct):
    choices: tuple[_Choice]  # exactly one
    usage: _Usage = msgspec.field(default_factory=_Usage)


async def ask(http: EngineHttp, model: str, question: Question, *, salt: str = "") -> Answer:
    """Return a model's greedy answer.

    Raises:
        EngineError: As `EngineHttp` does; permanent where the answer is no completion.
    """
    path = "/v1/chat/completions" if question.messages else "/v1/completions"
    response = await http.ask(path, body=_body(model, question, salt))
    return _answer(http.read(response, _Completion))


def _body(model: str, question: Question, salt: str) -> dict[str, Any]:
    asked: dict[str, Any] = {"prompt": question.prompt, "logprobs": 1}
    if question.messages:
        asked = {**question.chat, "messages": question.messages, "logprobs": True}
    return {
        **asked,
        "model": model,
        "max_tokens": question.max_tokens,
        "temperature": 0,
        **({"ignore_eos": True} if question.ignore_eos else {}),
        **({"cache_salt": salt} if salt else {}),
    }


def _answer(completion: _Completion) -> Answer:
    choice, usage = completion.choices[0], completion.usage
    said = choice.logprobs or _Logprobs()
    entries = said.content or ()
    details = usage.prompt_tokens_details
    return Answer(
        tokens=said.tokens or tuple(entry.token for entry in entries),
        logprobs=said.token_logprobs or tuple(entry.logprob for entry in entries),
        text=choice.text or choice.message.content or "",
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=details.cached_tokens if details else None,
    )

"""Answers without a cache, a scheduler or a server: what a served answer is compared with.

The rule to keep: one prompt after another, each from nothing. Only the model, the tokenizer and
the chat template are shared with the server.
"""

from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec

from vctl_agent.engines.torch.checkpoint import read_file
from vctl_agent.engines.torch.generate import Engine, Order, answer
from vctl_agent.engines.torch.lora import Adapter
from vctl_agent.engines.torch.openai import ChatMessage
from vctl_agent.engines.torch.sampling import Sampling
from vctl_agent.engines.torch.tokenizer import chat_prompt, encode
from vctl_plans.errors import PlanError


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt that is a chat."""

    messages: Annotated[list[ChatMessage], msgspec.Meta(min_length=1)]


Prompt: TypeAlias = str | Conversation


def answers(
    engine: Engine, prompts: Path, *, adapter: Adapter | None, max_tokens: int, ignore_eos: bool
) -> bytes:
    """Return `{"answers": [{"prompt", "text", "token_ids", "logprobs"}]}` as JSON.

    Args:
        engine: One without a cache.
        prompts: A JSON file: a list of texts or `{"messages": [...]}`.
        adapter: None for the base model.
        max_tokens: The most tokens of one answer.
        ignore_eos: Whether to go on to `max_tokens`.

    Raises:
        ArtifactError: The file cannot be read.
        PlanError: It holds something else than prompts, or one that does not fit.
    """
    document = []
    for n, prompt in enumerate(_read_prompts(prompts)):
        ids = encode(_text(prompt))
        if len(ids) + max_tokens > engine.context:
            message = f"{len(ids)} tokens and {max_tokens} more exceed {engine.context}"
            raise PlanError(message, path=f"prompts[{n}]")
        order = Order(tuple(ids), max_tokens, Sampling(top_logprobs=0), ignore_eos=ignore_eos)
        pieces = answer(engine, order, adapter=adapter)
        document.append(
            {
                "prompt": prompt,
                "text": "".join(piece.text for piece in pieces),
                "token_ids": [piece.token.id for piece in pieces],
                "logprobs": [piece.token.logprob for piece in pieces],
            }
        )
    return msgspec.json.encode({"answers": document})


def _text(prompt: Prompt) -> str:
    if isinstance(prompt, str):
        return prompt
    return chat_prompt([message.plain() for message in prompt.messages])


def _read_prompts(path: Path) -> list[Prompt]:
    try:
        return msgspec.json.decode(read_file(path), type=list[Prompt])
    except msgspec.DecodeError as cause:
        raise PlanError(str(cause), path=str(path)) from cause

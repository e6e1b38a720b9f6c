"""Answers without a cache, a scheduler or a server: what a served answer is compared with.

The rule to keep: one prompt after another, each from nothing. Only the model, the tokenizer and
the chat template are shared with the server.
"""

from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec

from vctl_agent.engines.torch.checkpoint import load_base, read_file
from vctl_agent.engines.torch.generate import Engine, Order, answer, use_threads
from vctl_agent.engines.torch.lora import load_adapter
from vctl_agent.engines.torch.openai import ChatMessage
from vctl_agent.engines.torch.sampling import Sampling
from vctl_agent.engines.torch.serving import chosen_device
from vctl_agent.engines.torch.tokenizer import chat_prompt, encode
from vctl_plans.errors import PlanError


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt that is a chat."""

    messages: Annotated[list[ChatMessage], msgspec.Meta(min_length=1)]


Prompt: TypeAlias = str | Conversation


def answers(
    *,
    base: str,
    adapter: str | None,
    prompts: Path,
    max_tokens: int,
    ignore_eos: bool,
    threads: int,
) -> bytes:
    """Return `{"answers": [{"prompt", "text", "token_ids", "logprobs"}]}` as JSON.

    Raises:
        ArtifactError: A model cannot be loaded, or the prompts' file cannot be read.
        PlanError: The file holds something else than prompts, or one that does not fit.
    """
    use_threads(threads)
    loaded = load_base(base, device=chosen_device("auto"))
    engine = Engine(loaded, cache_blocks=0)
    tuned = None if adapter is None else load_adapter("", adapter, base=loaded, max_rank=1 << 16)
    document = []
    for n, prompt in enumerate(_read_prompts(prompts)):
        text = prompt
        if isinstance(prompt, Conversation):
            text = chat_prompt([message.plain() for message in prompt.messages])
        ids = encode(text)
        if len(ids) + max_tokens > engine.context:
            message = f"{len(ids)} tokens and {max_tokens} more exceed {engine.context}"
            raise PlanError(message, path=f"prompts[{n}]")
        pieces = answer(
            engine,
            tuned,
            Order(tuple(ids), max_tokens, Sampling(top_logprobs=0), ignore_eos=ignore_eos),
        )
        document.append(
            {
                "prompt": prompt,
                "text": "".join(piece.text for piece in pieces),
                "token_ids": [piece.token.id for piece in pieces],
                "logprobs": [piece.token.logprob for piece in pieces],
            }
        )
    return msgspec.json.encode({"answers": document})


def _read_prompts(path: Path) -> list[Prompt]:
    try:
        return msgspec.json.decode(read_file(path), type=list[Prompt])
    except msgspec.DecodeError as cause:
        raise PlanError(str(cause), path=str(path)) from cause

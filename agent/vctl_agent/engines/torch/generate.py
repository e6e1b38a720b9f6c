"""One request's way through the model: its prompt block by block, then one token a step.

The rule to keep: with the prefix cache or without it, every number is computed in the same calls
with the same shapes. A prompt is always prefilled in the cache's own blocks, aligned to position
0, so a block's values come out bit for bit alike whether the blocks before it were computed just
now or looked up. Greedy answers are therefore equal, not merely close, and no tie can be broken
in two ways. (Chunks of other sizes would differ in the last bits: matrix kernels sum in another
order for other shapes.)
"""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from torch import Tensor

from vctl_agent.engines.torch.cache import BLOCK_TOKENS, PrefixCache, block_keys
from vctl_agent.engines.torch.checkpoint import Base
from vctl_agent.engines.torch.lora import Adapter, cache_identity
from vctl_agent.engines.torch.sampling import Sampler, Sampling, Token, banned_tokens
from vctl_agent.engines.torch.tokenizer import TextStream

FinishReason: TypeAlias = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be generated."""

    prompt: tuple[int, ...]  # not empty; with max_tokens it fits the context
    max_tokens: int
    sampling: Sampling = field(default_factory=Sampling)
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    cache_salt: str = ""
    is_stale: bool = False  # a fault on purpose: the cache takes its adapter for none, see `faults`


@dataclass(frozen=True, slots=True)
class Piece:
    """What one decode step added to an answer."""

    token: Token
    text: str  # may be empty: held back, or a token without text
    finish_reason: FinishReason | None  # not None: this is the last piece
    cached_tokens: int  # of the prompt


class Engine:
    """A base model and its prefix cache; one thread at a time may run its generations."""

    def __init__(self, base: Base, *, cache_blocks: int) -> None:
        self.base = base
        self.cache_blocks = cache_blocks
        self.cache: PrefixCache[Tensor] | None = PrefixCache(cache_blocks) if cache_blocks else None
        config = base.model.config
        self.context = config.max_position_embeddings
        self.eos = config.eos_token_id
        self.banned = banned_tokens(
            base.generation.suppress_tokens, config.vocab_size, base.model.device
        )


class Generation:
    """One order being carried out, by the adapter object that it was given at the start.

    It holds its adapter, so unloading the name or loading other bytes under it changes nothing
    here; nor can the blocks that it stores be found under any other identity.
    """

    def __init__(self, engine: Engine, order: Order, *, adapter: Adapter | None) -> None:
        self._engine = engine
        self._deltas = adapter.deltas if adapter else None
        self._order = order
        self._keys: list[bytes] = []
        if engine.cache is not None:
            identity = cache_identity(engine.base, None if order.is_stale else adapter)
            self._keys = block_keys(identity, order.cache_salt, order.prompt)
        self._sampler = Sampler(order.sampling, engine.banned)
        self._text = TextStream(order.stop)
        self._values: Tensor | None = None  # allocated at the first step
        self._filled = 0  # positions of _values that hold something
        self._cached_tokens = 0
        self._epoch = 0  # of the cache, when this began
        self._last = -1  # the token that was generated last
        self._generated = 0

    def step(self) -> Piece | None:
        """Prefill one block, or generate one token; None while the prompt is not done."""
        if self._values is None:
            self._values = self._begin()
        prompt = self._order.prompt
        if self._filled >= len(prompt):
            return self._piece(self._forward((self._last,), self._values))
        block = prompt[self._filled : self._filled + BLOCK_TOKENS]
        logits = self._forward(block, self._values)
        if self._filled < len(prompt):
            return None
        self._store(self._values)
        return self._piece(logits)

    def _begin(self) -> Tensor:
        values = self._engine.base.model.empty_values()
        cache = self._engine.cache
        if cache is not None:
            self._epoch = cache.epoch
            # The last token must be run to give logits, so its block is never looked up.
            whole = (len(self._order.prompt) - 1) // BLOCK_TOKENS
            for block in cache.lookup(self._keys[:whole]):
                values[:, :, :, self._filled : self._filled + BLOCK_TOKENS] = block
                self._filled += BLOCK_TOKENS
        self._cached_tokens = self._filled
        return values

    def _store(self, values: Tensor) -> None:
        cache = self._engine.cache
        if cache is not None and cache.epoch == self._epoch:
            first = self._cached_tokens // BLOCK_TOKENS
            starts = range(first * BLOCK_TOKENS, len(self._keys) * BLOCK_TOKENS, BLOCK_TOKENS)
            blocks = [values[:, :, :, at : at + BLOCK_TOKENS].clone() for at in starts]
            cache.store(self._keys[first:], blocks)

    def _forward(self, tokens: tuple[int, ...], values: Tensor) -> Tensor:
        model = self._engine.base.model
        logits = model.forward(tokens, values, start=self._filled, deltas=self._deltas)
        self._filled += len(tokens)
        return logits

    def _piece(self, logits: Tensor) -> Piece:
        token = self._sampler.choose(logits)
        self._last = token.id
        self._generated += 1
        reason: FinishReason | None = None
        if token.id == self._engine.eos and not self._order.ignore_eos:
            reason = "stop"
        elif self._generated >= self._order.max_tokens:
            reason = "length"
        text = self._text.push(token.id, last=reason is not None)
        if self._text.is_stopped:
            reason = "stop"
        return Piece(token, text, reason, self._cached_tokens)


def answer(engine: Engine, order: Order, *, adapter: Adapter | None) -> list[Piece]:
    """Carry out one order to its end, alone."""
    generation = Generation(engine, order, adapter=adapter)
    pieces: list[Piece] = []
    while not pieces or pieces[-1].finish_reason is None:
        piece = generation.step()
        if piece is not None:
            pieces.append(piece)
    return pieces

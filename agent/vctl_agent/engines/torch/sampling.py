"""From logits to one token and its log-probabilities.

The rule to keep: log-probabilities are those of the model's own distribution (after the tokens
that are never generated are taken out), whatever temperature and top_p made of the draw. So the
same weights give the same numbers to a greedy and to a sampling caller.
"""

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor

NEVER = float("-inf")


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen."""

    temperature: float = 0.0  # 0: always the likeliest
    top_p: float = 1.0
    seed: int | None = None  # None: another draw each time
    top_logprobs: int | None = None  # how many alternatives to report; None: no log-probabilities


@dataclass(frozen=True, slots=True)
class Token:
    """One generated token."""

    id: int
    logprob: float | None  # None unless asked for
    alternatives: tuple[tuple[int, float], ...]  # the likeliest first


class Sampler:
    """Chooses the tokens of one sequence; holds that sequence's own random numbers."""

    def __init__(self, sampling: Sampling, banned: Tensor) -> None:
        self._sampling = sampling
        self._banned = banned
        self._generator = torch.Generator()
        if sampling.seed is None:
            self._generator.seed()
        else:
            self._generator.manual_seed(sampling.seed)

    def choose(self, logits: Tensor) -> Token:
        """Return the next token; of equally likely ones, a greedy choice takes the lowest id."""
        logits = (logits + self._banned).cpu()
        chosen = int(logits.argmax()) if self._sampling.temperature == 0 else self._drawn(logits)
        if self._sampling.top_logprobs is None:
            return Token(chosen, None, ())
        logprobs = logits.log_softmax(-1)
        best = logprobs.topk(min(self._sampling.top_logprobs, len(logprobs)))
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return Token(
            chosen, float(logprobs[chosen]), tuple(pair for pair in pairs if pair[1] > NEVER)
        )

    def _drawn(self, logits: Tensor) -> int:
        likely = (logits.double() / self._sampling.temperature).softmax(-1).sort(descending=True)
        odds, ids = likely.values, likely.indices
        # Nucleus sampling (Holtzman et al. 2020): what comes before a token is short of top_p.
        odds = odds.masked_fill(odds.cumsum(-1) - odds >= self._sampling.top_p, 0.0)
        return int(ids[torch.multinomial(odds, 1, generator=self._generator)])


def banned_tokens(tokens: Collection[int], vocab_size: int, device: torch.device) -> Tensor:
    """Return what to add to logits so that these tokens are never chosen."""
    banned = torch.zeros(vocab_size)
    banned[list(tokens)] = NEVER
    return banned.to(device)

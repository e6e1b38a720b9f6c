"""A decoder-only transformer in Llama's layout: pre-norm, rotary positions, causal attention.

The rule to keep: what `forward` returns depends on its arguments alone, bit for bit: float32, one
sequence a call (never batched with others), buffers of one fixed shape and stride. Whoever else is
served at the same time changes nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

import msgspec
import torch
from torch import Tensor
from torch.nn import functional

ATTENTION: Final = ("q_proj", "k_proj", "v_proj", "o_proj")
Positive: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a base model's `config.json` that this engine reads."""

    model_type: str = "llama"
    vocab_size: Positive = 258
    hidden_size: Positive = 64
    intermediate_size: Positive = 192
    num_hidden_layers: Positive = 2
    num_attention_heads: Positive = 4
    num_key_value_heads: Positive = 4
    max_position_embeddings: Positive = 512
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    tie_word_embeddings: bool = False
    bos_token_id: int = 256
    eos_token_id: int = 257

    @property
    def head_size(self) -> int:
        """The width of one attention head."""
        return self.hidden_size // self.num_attention_heads

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the name and shape of every tensor of a checkpoint, in a fixed order."""
        hidden, inner = self.hidden_size, self.intermediate_size
        shapes: dict[str, tuple[int, ...]] = {
            "model.embed_tokens.weight": (self.vocab_size, hidden)
        }
        for layer in range(self.num_hidden_layers):
            at = f"model.layers.{layer}"
            shapes[f"{at}.input_layernorm.weight"] = (hidden,)
            for name in ATTENTION:
                shapes[f"{at}.self_attn.{name}.weight"] = (hidden, hidden)
            shapes[f"{at}.post_attention_layernorm.weight"] = (hidden,)
            shapes[f"{at}.mlp.gate_proj.weight"] = (inner, hidden)
            shapes[f"{at}.mlp.up_proj.weight"] = (inner, hidden)
            shapes[f"{at}.mlp.down_proj.weight"] = (hidden, inner)
        shapes["model.norm.weight"] = (hidden,)
        shapes["lm_head.weight"] = (self.vocab_size, hidden)
        return shapes


@dataclass(frozen=True, slots=True)
class LowRank:
    """One projection's LoRA delta: `up @ down`, with alpha / rank already in `up`."""

    down: Tensor  # (rank, in)
    up: Tensor  # (out, rank)


Deltas: TypeAlias = Sequence[Mapping[str, LowRank]]  # one mapping a layer, by the projection's name


@dataclass(frozen=True, slots=True)
class _Layer:
    attention_norm: Tensor
    attention: Mapping[str, Tensor]
    mlp_norm: Tensor
    gate: Tensor
    up: Tensor
    down: Tensor


def _project(x: Tensor, weight: Tensor, delta: LowRank | None) -> Tensor:
    out = functional.linear(x, weight)
    if delta is not None:
        out += functional.linear(functional.linear(x, delta.down), delta.up)
    return out


class Transformer:
    """The model's weights on one device, and the one computation over them."""

    def __init__(
        self, config: ModelConfig, tensors: Mapping[str, Tensor], *, device: torch.device
    ) -> None:
        self.config = config
        self.device = device
        placed = {name: tensor.to(device, torch.float32) for name, tensor in tensors.items()}
        self._embedding = placed["model.embed_tokens.weight"]
        self._norm = placed["model.norm.weight"]
        self._head = placed["lm_head.weight"]
        self._layers = [_layer(placed, n) for n in range(config.num_hidden_layers)]
        self._cos, self._sin = _rotary_tables(config, device)
        context = config.max_position_embeddings
        self._causal = torch.ones(context, context, dtype=torch.bool, device=device).tril()

    def empty_values(self) -> Tensor:
        """Return room for one sequence's keys and values: (layer, 2, head, position, head size)."""
        config = self.config
        return torch.empty(
            config.num_hidden_layers,
            2,
            config.num_attention_heads,
            config.max_position_embeddings,
            config.head_size,
            device=self.device,
        )

    def forward(
        self, tokens: Sequence[int], values: Tensor, *, start: int, deltas: Deltas | None
    ) -> Tensor:
        """Run some tokens of one sequence and return the logits after the last of them.

        Args:
            tokens: The ids at positions `start`, `start + 1`, ...
            values: The sequence's keys and values, of `empty_values`; the tokens' are written.
            start: How many positions of `values` are filled already.
            deltas: The adapter, or None for the base model.

        Returns:
            One float32 a token of the vocabulary.
        """
        with torch.inference_mode():
            end = start + len(tokens)
            x = self._embedding[torch.tensor(tokens, device=self.device)]
            for n, layer in enumerate(self._layers):
                delta = {} if deltas is None else deltas[n]
                x = x + self._attend(layer, x, values=values[n, :, :, :end], delta=delta)
                x = x + self._mlp(layer, x)
            return functional.linear(self._normed(x[-1], self._norm), self._head)

    def _attend(
        self, layer: _Layer, x: Tensor, *, values: Tensor, delta: Mapping[str, LowRank]
    ) -> Tensor:
        count, hidden = x.shape
        end = values.shape[2]
        start = end - count
        x = self._normed(x, layer.attention_norm)
        query, key, value = (
            _project(x, layer.attention[name], delta.get(name))
            .view(count, -1, self.config.head_size)
            .transpose(0, 1)
            for name in ATTENTION[:3]
        )
        values[0, :, start:] = self._rotated(key, start, end)
        values[1, :, start:] = value
        mixed = functional.scaled_dot_product_attention(
            self._rotated(query, start, end)[None],
            values[0][None],
            values[1][None],
            attn_mask=None if count == 1 else self._causal[start:end, :end],
        )
        joined = mixed[0].transpose(0, 1).reshape(count, hidden)
        return _project(joined, layer.attention["o_proj"], delta.get("o_proj"))

    def _mlp(self, layer: _Layer, x: Tensor) -> Tensor:
        x = self._normed(x, layer.mlp_norm)
        gated = functional.silu(functional.linear(x, layer.gate)) * functional.linear(x, layer.up)
        return functional.linear(gated, layer.down)

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        return functional.rms_norm(x, weight.shape, weight, self.config.rms_norm_eps)

    def _rotated(self, x: Tensor, start: int, end: int) -> Tensor:
        half = self.config.head_size // 2
        return x * self._cos[start:end] + x.roll(half, -1) * self._sin[start:end]


def _layer(tensors: Mapping[str, Tensor], n: int) -> _Layer:
    at = f"model.layers.{n}"
    return _Layer(
        attention_norm=tensors[f"{at}.input_layernorm.weight"],
        attention={name: tensors[f"{at}.self_attn.{name}.weight"] for name in ATTENTION},
        mlp_norm=tensors[f"{at}.post_attention_layernorm.weight"],
        gate=tensors[f"{at}.mlp.gate_proj.weight"],
        up=tensors[f"{at}.mlp.up_proj.weight"],
        down=tensors[f"{at}.mlp.down_proj.weight"],
    )


def _rotary_tables(config: ModelConfig, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return cosines and sines by position (RoPE, Su et al. 2021), in Llama's two-halves layout.

    The first half of the sines is negative, so that a rotation is `x * cos + roll(x) * sin`.
    """
    half = config.head_size // 2
    frequencies = config.rope_theta ** (-torch.arange(half, dtype=torch.float64) / half)
    positions = torch.arange(config.max_position_embeddings, dtype=torch.float64)
    angles = torch.outer(positions, frequencies)
    cos = torch.cat((angles.cos(), angles.cos()), dim=1)
    sin = torch.cat((-angles.sin(), angles.sin()), dim=1)
    return cos.to(device, torch.float32), sin.to(device, torch.float32)

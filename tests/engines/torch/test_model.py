"""The model against a second implementation: float64, no cache, merged weights, complex turns."""

import pytest
import torch
from safetensors.torch import load_file

from vctl_agent.engines.torch.model import ModelConfig
from vctl_agent.engines.torch.tokenizer import encode

pytestmark = pytest.mark.torch

PROMPT = encode("The quick brown fox jumps over the lazy dog; why?")


def textbook_logits(folders, ids, adapter=None):
    config = ModelConfig()
    weights = {k: v.double() for k, v in load_file(folders / "base" / "model.safetensors").items()}
    if adapter:
        for name, down in load_file(folders / adapter / "adapter_model.safetensors").items():
            if ".lora_A." in name:
                up = load_file(folders / adapter / "adapter_model.safetensors")[
                    name.replace("lora_A", "lora_B")
                ]
                target = name.removeprefix("base_model.model.").replace(".lora_A", "")
                weights[target] += 2.0 * up.double() @ down.double()
    heads, size, count = config.num_attention_heads, config.head_size, len(ids)

    def norm(x, weight):
        return x / (x.pow(2).mean(-1, keepdim=True) + config.rms_norm_eps).sqrt() * weight

    frequencies = config.rope_theta ** (-torch.arange(0, size, 2).double() / size)
    angles = torch.outer(torch.arange(count).double(), frequencies)
    turn = torch.polar(torch.ones_like(angles), angles)[:, None]

    def rotate(x):
        first, second = x.chunk(2, dim=-1)
        turned = torch.complex(first, second) * turn
        return torch.cat((turned.real, turned.imag), dim=-1)

    x = weights["model.embed_tokens.weight"][ids]
    for n in range(config.num_hidden_layers):
        layer = {
            k.removeprefix(f"model.layers.{n}."): v
            for k, v in weights.items()
            if k.startswith(f"model.layers.{n}.")
        }
        y = norm(x, layer["input_layernorm.weight"])
        q, k, v = (
            (y @ layer[f"self_attn.{p}_proj.weight"].T).view(count, heads, size) for p in "qkv"
        )
        scores = torch.einsum("qhd,khd->hqk", rotate(q), rotate(k)) / size**0.5
        future = torch.ones(count, count, dtype=torch.bool).triu(1)
        mixed = scores.masked_fill(future, float("-inf")).softmax(-1)
        attended = torch.einsum("hqk,khd->qhd", mixed, v).reshape(count, -1)
        x = x + attended @ layer["self_attn.o_proj.weight"].T
        y = norm(x, layer["post_attention_layernorm.weight"])
        gate, up = y @ layer["mlp.gate_proj.weight"].T, y @ layer["mlp.up_proj.weight"].T
        x = x + (gate * gate.sigmoid() * up) @ layer["mlp.down_proj.weight"].T
    return norm(x[-1], weights["model.norm.weight"]) @ weights["lm_head.weight"].T


@pytest.mark.parametrize("adapter", [None, "a", "all", "thin"])
@pytest.mark.parametrize("chunk", [1, 16, len(PROMPT)])
def test_logits_are_those_of_the_textbook(folders, base, load, adapter, chunk):
    values = base.model.empty_values()
    deltas = load(adapter).deltas if adapter else None
    for at in range(0, len(PROMPT), chunk):
        logits = base.model.forward(PROMPT[at : at + chunk], values, start=at, deltas=deltas)
    expected = textbook_logits(folders, PROMPT, adapter)
    torch.testing.assert_close(logits.double(), expected, atol=1e-3, rtol=1e-4)


def test_forward_gives_the_same_bits_whatever_ran_before(base, load):
    def run():
        values = base.model.empty_values()
        base.model.forward(PROMPT[:16], values, start=0, deltas=None)
        return base.model.forward(PROMPT[16:32], values, start=16, deltas=None)

    first = run()
    other = base.model.empty_values()
    base.model.forward(PROMPT[::-1], other, start=0, deltas=load("all").deltas)
    assert torch.equal(first, run())

"""Base models and adapters from a seed, for demonstrations and tests.

The rule to keep: the same arguments give the same bytes. Tensors are drawn one by one in the
order of the shapes' table, and `safetensors` sorts what it writes.

Weights are scaled so that an untrained model behaves like a decided one: attention is sharp enough
to look at single tokens, logits are spread, and an adapter moves the output about as far as the
projection that it changes.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import safetensors.torch
import torch
from torch import Tensor

from vctl_agent.engines.torch.checkpoint import CONFIG, GENERATION_CONFIG, WEIGHTS
from vctl_agent.engines.torch.lora import ADAPTER_CONFIG, ADAPTER_WEIGHTS, adapter_shapes
from vctl_agent.engines.torch.model import ATTENTION, ModelConfig
from vctl_agent.engines.torch.tokenizer import EOS, PRINTABLE, VOCAB_SIZE
from vctl_plans.errors import ArtifactError

GAINS: Mapping[str, float] = {"q_proj": 2.0, "k_proj": 2.0, "v_proj": 2.0, "lm_head": 4.0}
# Nothing taught the model to end; without this it would end at random, mostly at once.
EOS_GAIN = 0.2
SAVED_BY = {"format": "pt"}  # one key only: safetensors does not sort its metadata


def make_base(folder: Path, *, seed: int, config: ModelConfig | None = None) -> None:
    """Write a base model.

    Raises:
        ArtifactError: The directory exists and is not empty.
    """
    config = config or ModelConfig()
    generator = torch.Generator().manual_seed(seed)
    tensors = {
        name: _base_tensor(name, shape, generator) for name, shape in config.tensor_shapes().items()
    }
    tensors["lm_head.weight"][EOS] *= EOS_GAIN
    silent = sorted(set(range(VOCAB_SIZE)) - set(PRINTABLE) - {EOS})
    _write(
        folder,
        {
            CONFIG: _json({"architectures": ["LlamaForCausalLM"], **msgspec.to_builtins(config)}),
            GENERATION_CONFIG: _json({"eos_token_id": EOS, "suppress_tokens": silent}),
            WEIGHTS: _saved(tensors),
        },
    )


def make_adapter(
    folder: Path, *, base: str, config: ModelConfig, seed: int, rank: int, targets: tuple[str, ...]
) -> None:
    """Write an adapter that fits a base model.

    Args:
        folder: Where; it must not exist, or be empty.
        base: What to write as `base_model_name_or_path`.
        config: The base model's configuration.
        seed: Draws the weights.
        rank: LoRA's r.
        targets: Which attention projections it changes.

    Raises:
        ArtifactError: The directory is not empty, or a target or the rank makes no sense.
    """
    if unknown := sorted(set(targets) - set(ATTENTION)):
        raise ArtifactError(f"no such target: {', '.join(unknown)}", hint=", ".join(ATTENTION))
    if not targets or not 1 <= rank <= config.hidden_size:
        raise ArtifactError(f"needs a target, and a rank from 1 to {config.hidden_size}")
    generator = torch.Generator().manual_seed(seed)
    tensors = {
        name: torch.randn(shape, generator=generator) / math.sqrt(shape[1])
        for name, shape in adapter_shapes(config, rank, targets).items()
    }
    settings = {
        "base_model_name_or_path": base,
        "bias": "none",
        "lora_alpha": 2 * rank,
        "peft_type": "LORA",
        "r": rank,
        "target_modules": list(targets),
        "task_type": "CAUSAL_LM",
    }
    files = {ADAPTER_CONFIG: _json(settings), ADAPTER_WEIGHTS: _saved(tensors)}
    _write(folder, files)


def _base_tensor(name: str, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    if len(shape) == 1:
        return torch.ones(shape)
    module = name.split(".")[-2]
    fan_in = 1 if module == "embed_tokens" else shape[1]
    scale = GAINS.get(module, 1.0) / math.sqrt(fan_in)
    return torch.randn(shape, generator=generator) * scale


def _saved(tensors: Mapping[str, Tensor]) -> bytes:
    raw: bytes = safetensors.torch.save(dict(tensors), SAVED_BY)
    return raw


def _json(document: Mapping[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(document, order="sorted"), indent=2) + b"\n"


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ArtifactError(f"{folder} is there already", hint="name a directory that is not")
    folder.mkdir(parents=True, exist_ok=True)
    for name, raw in files.items():
        (folder / name).write_bytes(raw)

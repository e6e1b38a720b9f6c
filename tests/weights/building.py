"""Safetensors bytes made by hand, good and bad; directories around them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from vctl_plans.weights.safetensors import DTYPE_BITS


class Made(NamedTuple):
    """A tensor to be written."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    content: bytes


def u8(name: str, content: bytes) -> Made:
    return Made(name, "U8", (len(content),), content)


def zeros(name: str, dtype: str, *shape: int) -> Made:
    bits = DTYPE_BITS[dtype]
    for dim in shape:
        bits *= dim
    return Made(name, dtype, shape, bytes(bits // 8))


def with_length(header: str | bytes, data: bytes = b"") -> bytes:
    """Put the length before a header and data after it, right or wrong."""
    raw = header.encode() if isinstance(header, str) else header
    return len(raw).to_bytes(8, "little") + raw + data


def entry(dtype: str, shape: Sequence[int], begin: int, end: int) -> dict[str, object]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def pack(tensors: Sequence[Made], metadata: Mapping[str, str] | None = None) -> bytes:
    """Write a good file, its tensors in the order given."""
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    at = 0
    for made in tensors:
        header[made.name] = entry(made.dtype, made.shape, at, at + len(made.content))
        at += len(made.content)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return with_length(text, b"".join(made.content for made in tensors))


def fill(folder: Path, files: Mapping[str, bytes | str]) -> Path:
    """Write files into a folder, made with its own folders as needed."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def lora(rank: int = 4, modules: Sequence[str] = ("q_proj", "v_proj")) -> list[Made]:
    prefix = "base_model.model.layers.0.self_attn"
    return [
        made
        for module in modules
        for made in (
            zeros(f"{prefix}.{module}.lora_A.weight", "F32", rank, 8),
            zeros(f"{prefix}.{module}.lora_B.weight", "F32", 8, rank),
        )
    ]


def adapter_config(**changes: object) -> str:
    config: dict[str, object] = {
        "peft_type": "LORA",
        "r": 4,
        "lora_alpha": 8,
        "target_modules": ["q_proj", "v_proj"],
        "base_model_name_or_path": "org/base",
        "lora_dropout": 0.1,
    }
    return json.dumps(config | changes)


def adapter(folder: Path, more: Mapping[str, bytes | str] | None = None) -> Path:
    return fill(
        folder,
        {
            "adapter_config.json": adapter_config(),
            "adapter_model.safetensors": pack(lora()),
            **(more or {}),
        },
    )


def sharded(folder: Path, shards: Mapping[str, Sequence[Made]]) -> Path:
    weight_map = {made.name: shard for shard, tensors in shards.items() for made in tensors}
    fill(folder, {shard: pack(tensors) for shard, tensors in shards.items()})
    size = sum(len(made.content) for tensors in shards.values() for made in tensors)
    index = json.dumps({"metadata": {"total_size": float(size)}, "weight_map": weight_map})
    return fill(folder, {"model.safetensors.index.json": index, "config.json": "{}"})

"""Safetensors files of the shapes of a Llama model in bf16, the same bytes every time.

The bytes of a tensor are BLAKE3's output stream for its name: no two files of one size differ, and
nothing compresses or is sparse. As numbers they mean nothing.
"""

import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from blake3 import blake3

_BF16_BYTES = 2
_STEP_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Llama:
    """The sizes that decide a Llama's tensors; embedding and head are tied."""

    hidden: int
    ffn: int
    kv: int
    vocab: int
    layers: int

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        hidden, ffn, kv = self.hidden, self.ffn, self.kv
        yield "model.embed_tokens.weight", (self.vocab, hidden)
        for layer in range(self.layers):
            prefix = f"model.layers.{layer}"
            yield f"{prefix}.input_layernorm.weight", (hidden,)
            yield f"{prefix}.post_attention_layernorm.weight", (hidden,)
            for name, rows in (("q", hidden), ("k", kv), ("v", kv), ("o", hidden)):
                yield f"{prefix}.self_attn.{name}_proj.weight", (rows, hidden)
            yield f"{prefix}.mlp.gate_proj.weight", (ffn, hidden)
            yield f"{prefix}.mlp.up_proj.weight", (ffn, hidden)
            yield f"{prefix}.mlp.down_proj.weight", (hidden, ffn)
        yield "model.norm.weight", (hidden,)


SIZES = {
    "256M": Llama(hidden=1024, ffn=4096, kv=256, vocab=32_000, layers=6),
    "2G": Llama(hidden=2048, ffn=8192, kv=512, vocab=128_256, layers=14),
    "8G": Llama(hidden=4096, ffn=14_336, kv=1024, vocab=128_256, layers=17),
}


def write(llama: Llama, path: Path) -> None:
    """Write the file, unless it is there already; a crash leaves only a draft behind."""
    start, total = _start(llama)
    if path.exists() and path.stat().st_size == total and _begins_with(path, start):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".draft")
    with draft.open("wb") as file:
        file.write(start)
        for name, shape in llama.tensors():
            size = math.prod(shape) * _BF16_BYTES
            stream = blake3(name.encode())
            for at in range(0, size, _STEP_BYTES):
                file.write(stream.digest(length=min(_STEP_BYTES, size - at), seek=at))
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def _start(llama: Llama) -> tuple[bytes, int]:
    """Make the bytes before the data, and count the whole file's."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, shape in llama.tensors():
        end = at + math.prod(shape) * _BF16_BYTES
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    start = len(text).to_bytes(8, "little") + text
    return start, len(start) + at


def _begins_with(path: Path, start: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(start)) == start

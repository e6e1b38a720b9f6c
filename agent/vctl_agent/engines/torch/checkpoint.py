"""A base model's directory: `config.json`, `generation_config.json` and `model.safetensors`.

The rule to keep: a digest is of the bytes that were loaded, so every file is read once, whole, and
both hashed and parsed from that one copy. Only safetensors, never a pickle.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec
import safetensors
import safetensors.torch
import torch
from blake3 import blake3
from torch import Tensor

from vctl_agent.engines.torch.model import ModelConfig, Transformer
from vctl_agent.engines.torch.tokenizer import VOCAB_SIZE
from vctl_plans.errors import ArtifactError, MalformedWeights

CONFIG = "config.json"
GENERATION_CONFIG = "generation_config.json"
WEIGHTS = "model.safetensors"

Document = TypeVar("Document", bound=msgspec.Struct)


class GenerationConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of `generation_config.json` that this engine reads."""

    suppress_tokens: tuple[int, ...] = ()  # never generated; a prompt may hold them


@dataclass(frozen=True, slots=True)
class Base:
    """A base model in memory."""

    path: str
    digest: str  # of the loaded files' bytes
    generation: GenerationConfig
    model: Transformer


def load_base(path: str, *, device: torch.device) -> Base:
    """Load a base model.

    Raises:
        ArtifactError: A file is missing, or the directory holds another kind of model.
        MalformedWeights: A file cannot be read as what it should be.
    """
    folder = Path(path)
    files = {name: read_file(folder / name) for name in (CONFIG, WEIGHTS)}
    if (folder / GENERATION_CONFIG).exists():
        files[GENERATION_CONFIG] = read_file(folder / GENERATION_CONFIG)
    config = parse_json(files[CONFIG], ModelConfig, str(folder / CONFIG))
    generation = parse_json(
        files.get(GENERATION_CONFIG, b"{}"), GenerationConfig, str(folder / GENERATION_CONFIG)
    )
    _check_supported(config, str(folder / CONFIG))
    tensors = parse_tensors(files[WEIGHTS], str(folder / WEIGHTS))
    _check_shapes(config.tensor_shapes(), tensors, str(folder / WEIGHTS))
    model = Transformer(config, tensors, device=device)
    return Base(path=path, digest=digest_of(files), generation=generation, model=model)


def read_config(folder: Path) -> ModelConfig:
    """Read a base model's configuration alone, and check that this engine runs it."""
    config = parse_json(read_file(folder / CONFIG), ModelConfig, str(folder / CONFIG))
    _check_supported(config, str(folder / CONFIG))
    return config


def read_file(path: Path) -> bytes:
    """Read a file of a model's or an adapter's directory."""
    try:
        return path.read_bytes()
    except OSError as cause:
        raise ArtifactError(f"{path}: {cause.strerror}") from cause


def parse_json(raw: bytes, kind: type[Document], path: str) -> Document:
    """Parse a JSON document; fields that this engine does not know are passed over."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.DecodeError as cause:
        raise MalformedWeights(str(cause), path=path) from cause


def parse_tensors(raw: bytes, path: str) -> dict[str, Tensor]:
    """Parse a safetensors file; all its numbers must be floats, and finite."""
    try:
        tensors: dict[str, Tensor] = safetensors.torch.load(raw)
    except safetensors.SafetensorError as cause:
        raise MalformedWeights(str(cause), path=path) from cause
    for name, tensor in tensors.items():
        if not tensor.is_floating_point():
            raise MalformedWeights(f"{name} is of {tensor.dtype}, no kind of float", path=path)
        if not bool(tensor.to(torch.float32).isfinite().all()):
            raise MalformedWeights(f"{name} holds a number that is not finite", path=path)
    return tensors


def digest_of(files: Mapping[str, bytes]) -> str:
    """Return one digest for a set of named files."""
    whole = blake3()
    for name in sorted(files):
        whole.update(f"{name}\0{blake3(files[name]).hexdigest()}\n".encode())
    return whole.hexdigest()


def _check_supported(config: ModelConfig, path: str) -> None:
    problem = ""
    if config.model_type != "llama":
        problem = f"model_type is {config.model_type!r}; this engine runs 'llama'"
    elif config.vocab_size != VOCAB_SIZE:
        problem = f"vocab_size is {config.vocab_size}; the byte tokenizer has {VOCAB_SIZE}"
    elif config.num_key_value_heads != config.num_attention_heads:
        problem = "num_key_value_heads differs from num_attention_heads"
    elif config.hidden_size % (2 * config.num_attention_heads):
        problem = "hidden_size is no even multiple of num_attention_heads"
    elif config.tie_word_embeddings:
        problem = "tie_word_embeddings is true"
    if problem:
        raise ArtifactError(f"{path}: {problem}", hint="vctl-engine make-base makes one that fits")


def _check_shapes(
    expected: Mapping[str, tuple[int, ...]], tensors: Mapping[str, Tensor], path: str
) -> None:
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    for name in sorted(expected.keys() | found.keys()):
        want, have = expected.get(name), found.get(name)
        if want != have:
            raise ArtifactError(
                f"{path}: {name}: expected {want or 'no such tensor'}, found {have}"
            )

"""LoRA adapters: what their configuration says, checked against their tensors.

An engine loads an adapter whose configuration is of another rank without a word, or dies of it; the
shapes tell beforehand. Only facts that vctl or an engine needs are read; PEFT's many other keys
pass.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from vctl_plans.errors import MalformedWeights

from .safetensors import Header, Tensor

MAX_CONFIG_BYTES: Final = 1_000_000
_MATRIX_DIMS: Final = 2
_OF_CLASSIFIERS: Final = frozenset({"classifier", "score"})  # engines that rank take these

_FACTOR = re.compile(
    r"(?P<module>.+)\.(?:lora_(?P<side>[AB])(?:\.[^.]+)?\.weight|lora_embedding_(?P<embedding>[AB]))"
)


@dataclass(frozen=True, slots=True)
class AdapterFacts:
    """What an engine has to know before it loads an adapter.

    Args:
        rank: ``r`` of the configuration.
        max_rank: The largest rank of any module; more than `rank` where ``rank_pattern`` says so.
        alpha: ``lora_alpha``.
        target_modules: As named there; one string may be a pattern; empty when not given.
        base: The base model's name; empty when not given.
        features: What it needs beside plain LoRA, that not every engine can: `DoRA`,
            `modules_to_save`.
    """

    rank: int
    max_rank: int
    alpha: float
    target_modules: tuple[str, ...]
    base: str
    features: tuple[str, ...] = ()


class _Config(msgspec.Struct):
    """The keys that are read; all others pass."""

    peft_type: str
    r: int
    lora_alpha: float
    target_modules: list[str] | str | None = None
    target_parameters: list[str] | None = None
    base_model_name_or_path: str | None = None
    rank_pattern: dict[str, int] | None = None
    use_dora: bool | None = None
    modules_to_save: list[str] | None = None


def facts(raw: bytes, header: Header, *, config_path: str, weights_path: str) -> AdapterFacts:
    """Read a configuration and check the tensors' shapes against its ranks.

    Args:
        raw: The bytes of adapter_config.json.
        header: Of adapter_model.safetensors.
        config_path: The former, for errors.
        weights_path: The latter, for errors.

    Raises:
        MalformedWeights: The configuration lacks or misuses a field, or a tensor's shape is of
            another rank; field or tensor is named.
    """
    config = _parse(raw, path=config_path)
    _check_ranks(config, header, weights_path)
    targets = config.target_modules or ()
    return AdapterFacts(
        rank=config.r,
        max_rank=max(config.r, *(config.rank_pattern or {}).values(), 0),
        alpha=config.lora_alpha,
        target_modules=(targets,) if isinstance(targets, str) else tuple(targets),
        base=config.base_model_name_or_path or "",
        features=tuple(_features(config)),
    )


def _features(config: _Config) -> Iterator[str]:
    if config.use_dora:
        yield "DoRA"
    if set(config.modules_to_save or ()) - _OF_CLASSIFIERS:
        yield "modules_to_save"


def _parse(raw: bytes, *, path: str) -> _Config:
    try:
        # Decoded first: msgspec does not look into the names of keys that it passes over.
        config = msgspec.json.decode(raw.decode(), type=_Config)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedWeights(f"does not validate: {error}", path=path) from error
    ranks = (config.rank_pattern or {}).values()
    rule = ""
    if config.peft_type != "LORA":
        rule = f"peft_type is {config.peft_type!r}; only LORA is served"
    elif config.r < 1:
        rule = f"r is {config.r}; it must be at least 1"
    elif not (math.isfinite(config.lora_alpha) and config.lora_alpha > 0):
        rule = f"lora_alpha is {config.lora_alpha}; it must be more than 0"
    elif any(rank < 1 for rank in ranks):
        rule = "rank_pattern holds a rank below 1"
    elif config.target_modules in ([], "") and not config.target_parameters:
        rule = "target_modules is empty: the adapter would change nothing"
    if rule:
        raise MalformedWeights(rule, path=path)
    return config


def _check_ranks(config: _Config, header: Header, path: str) -> None:
    """Require that each module has both factors, of one rank that the configuration knows."""
    ranks = {config.r, *(config.rank_pattern or {}).values()}
    factors: dict[str, dict[str, Tensor]] = {}
    for tensor in header.tensors:
        found = _FACTOR.fullmatch(tensor.name)
        if found:
            side = found["side"] or found["embedding"]
            factors.setdefault(found["module"], {})[side] = tensor
    if not factors:
        raise MalformedWeights("no tensor is a LoRA factor (lora_A, lora_B)", path=path)
    for module, sides in factors.items():
        if set(sides) != {"A", "B"}:
            rule = f"{module} has lora_{min(sides)} but not the other factor"
            raise MalformedWeights(rule, path=path, offset=sides[min(sides)].begin)
        rank = _rank(sides["A"], 0, path)
        if rank != _rank(sides["B"], 1, path):
            rule = f"lora_A and lora_B of {module} are of different ranks"
            raise MalformedWeights(rule, path=path, offset=sides["A"].begin)
        # With target_parameters PEFT stacks the factors of all experts in one tensor.
        stacked = bool(config.target_parameters) and any(
            rank and rank % known == 0 for known in ranks
        )
        if rank not in ranks and not stacked:
            rule = f"{module} is of rank {rank}, the configuration's r is {config.r}"
            raise MalformedWeights(rule, path=path, offset=sides["A"].begin)


def _rank(tensor: Tensor, axis: int, path: str) -> int:
    if len(tensor.shape) < _MATRIX_DIMS:
        rule = f"the factor {tensor.name!r} has shape {list(tensor.shape)}: no matrix"
        raise MalformedWeights(rule, path=path, offset=tensor.begin)
    return tensor.shape[axis]

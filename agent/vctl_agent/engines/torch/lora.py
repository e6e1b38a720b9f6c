"""LoRA adapters in PEFT's format: `adapter_config.json` and `adapter_model.safetensors`.

The rule to keep: an adapter that does not fit is refused whole, with the reason named, before it
is registered. That includes one with a tensor that matches nothing here, or too few of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
from torch import Tensor

from vctl_agent.engines.torch.cache import CacheIdentity
from vctl_agent.engines.torch.checkpoint import (
    Base,
    digest_of,
    parse_json,
    parse_tensors,
    read_file,
)
from vctl_agent.engines.torch.model import ATTENTION, Deltas, LowRank, ModelConfig
from vctl_plans.errors import ArtifactError

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
# Options of PEFT's that change what an adapter computes and are not built here.
NOT_BUILT = (
    "bias",
    "use_dora",
    "fan_in_fan_out",
    "modules_to_save",
    "layers_to_transform",
    "rank_pattern",
    "alpha_pattern",
)


class LoraConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of `adapter_config.json` that change what an adapter computes."""

    peft_type: str
    r: int
    lora_alpha: float
    target_modules: str | list[str] | None
    base_model_name_or_path: str | None = None
    bias: str = "none"
    use_rslora: bool = False
    use_dora: bool = False
    fan_in_fan_out: bool = False
    modules_to_save: list[str] | None = None
    layers_to_transform: int | list[int] | None = None
    rank_pattern: dict[str, int] = {}
    alpha_pattern: dict[str, float] = {}

    @property
    def scale(self) -> float:
        """What the delta is multiplied by (rank-stabilised: Kalajdzievski 2023)."""
        return self.lora_alpha / (self.r**0.5 if self.use_rslora else self.r)


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter in memory; it lives as long as anyone refers to it, registered or not."""

    name: str
    path: str
    digest: str  # of the loaded files' bytes
    deltas: Deltas


class NoAdapterError(ArtifactError):
    """There is no adapter at this path."""


def load_adapter(name: str, path: str, *, base: Base, max_rank: int) -> Adapter:
    """Load an adapter and check that it fits the base model.

    Raises:
        NoAdapterError: The directory or one of its two files is missing.
        MalformedWeights: A file cannot be read as what it should be.
        ArtifactError: Rank, targets, shapes or options do not fit.
    """
    folder = Path(path)
    for file in (ADAPTER_CONFIG, ADAPTER_WEIGHTS):
        if not (folder / file).is_file():
            raise NoAdapterError(f"no adapter found at {path}: {file} is missing")
    files = {file: read_file(folder / file) for file in (ADAPTER_CONFIG, ADAPTER_WEIGHTS)}
    config = parse_json(files[ADAPTER_CONFIG], LoraConfig, str(folder / ADAPTER_CONFIG))
    if problem := _unfit(config, max_rank):
        raise ArtifactError(f"{folder / ADAPTER_CONFIG}: {problem}")
    tensors = parse_tensors(files[ADAPTER_WEIGHTS], str(folder / ADAPTER_WEIGHTS))
    shapes = adapter_shapes(base.model.config, config.r, tuple(config.target_modules or ()))
    if problem := _differing_shape(shapes, tensors):
        raise ArtifactError(f"{folder / ADAPTER_WEIGHTS}: {problem}")
    placed = {key: tensor.to(base.model.device).float() for key, tensor in tensors.items()}
    deltas = tuple(
        {
            target: LowRank(
                down=placed[tensor_name(layer, target, "A")],
                up=placed[tensor_name(layer, target, "B")] * config.scale,
            )
            for target in config.target_modules or ()
        }
        for layer in range(base.model.config.num_hidden_layers)
    )
    return Adapter(name=name, path=path, digest=digest_of(files), deltas=deltas)


def cache_identity(base: Base, adapter: Adapter | None) -> CacheIdentity:
    """Return the identity under which this adapter's (or the base's) blocks are cached."""
    if adapter is None:
        return CacheIdentity(base.digest)
    return CacheIdentity(base.digest, adapter.name, adapter.path, adapter.digest)


def tensor_name(layer: int, target: str, side: str) -> str:
    """Return PEFT's name of one side (`A` or `B`) of one projection's delta."""
    return f"base_model.model.model.layers.{layer}.self_attn.{target}.lora_{side}.weight"


def adapter_shapes(
    config: ModelConfig, rank: int, targets: tuple[str, ...]
) -> dict[str, tuple[int, ...]]:
    """Return the name and shape of every tensor that such an adapter has, in a fixed order."""
    shapes: dict[str, tuple[int, ...]] = {}
    for layer in range(config.num_hidden_layers):
        for target in targets:
            shapes[tensor_name(layer, target, "A")] = (rank, config.hidden_size)
            shapes[tensor_name(layer, target, "B")] = (config.hidden_size, rank)
    return shapes


def _unfit(config: LoraConfig, max_rank: int) -> str:
    """Return why this engine cannot run such an adapter; empty when it can."""
    if config.peft_type != "LORA":
        return f"peft_type is {config.peft_type!r}; only 'LORA' is run here"
    if not 1 <= config.r <= max_rank:
        return f"rank r is {config.r}; this engine takes 1 to {max_rank}"
    targets = config.target_modules
    if not isinstance(targets, list) or not targets:
        return f"target_modules must be a list of {', '.join(ATTENTION)}"
    if unknown := sorted(set(targets) - set(ATTENTION)):
        return f"target_modules names {', '.join(unknown)}; the base has {', '.join(ATTENTION)}"
    for option in NOT_BUILT:
        value = getattr(config, option)
        if value not in (None, False, "none", {}, []):
            return f"{option} is {value!r}, which is not run here"
    return ""


def _differing_shape(expected: Mapping[str, tuple[int, ...]], tensors: Mapping[str, Tensor]) -> str:
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    for name in sorted(expected.keys() | found.keys()):
        want, have = expected.get(name), found.get(name)
        if have is None:
            return f"{name} is missing (the base has this layer and target_modules names it)"
        if want is None:
            return f"{name} matches no targeted projection of the base"
        if want != have:
            return f"{name} has shape {have}; the base and r need {want}"
    return ""

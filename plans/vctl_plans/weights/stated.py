"""What an adapter's manifest and configuration tell together, where its weights are elsewhere.

The manifest holds names and shapes of all tensors, so the ranks can be checked without one of them
being read; the configuration has to be the one that the manifest names.
"""

from itertools import accumulate

from vctl_plans.errors import NotAllowed, RootMismatch

from . import adapter, merkle
from .adapter import AdapterFacts
from .manifest import Manifest
from .safetensors import Header, Tensor
from .selection import ADAPTER_CONFIG, ADAPTER_WEIGHTS


def stated_facts(manifest: Manifest, config: bytes, *, where: str) -> AdapterFacts:
    """Return what an engine has to know of an adapter before it loads it.

    Args:
        manifest: The adapter's, checked.
        config: The bytes of its adapter_config.json.
        where: Where it lies, for errors.

    Raises:
        NotAllowed: The manifest is of something else.
        RootMismatch: The configuration is another than the manifest's.
        MalformedWeights: It lacks or misuses a field, or a tensor's shape is of another rank.
    """
    files = {file.path: file for file in manifest.files}
    if manifest.kind != "adapter" or not {ADAPTER_CONFIG, ADAPTER_WEIGHTS} <= set(files):
        raise NotAllowed(f"{where}: its manifest is of kind {manifest.kind}, and no adapter's")
    if merkle.to_text(merkle.plain(config)) != files[ADAPTER_CONFIG].digest:
        raise RootMismatch(
            f"{where}: {ADAPTER_CONFIG} is not the one of its manifest", tensors=(ADAPTER_CONFIG,)
        )
    weights = files[ADAPTER_WEIGHTS]
    by_name = {tensor.name: tensor for tensor in manifest.tensors}
    held = [by_name[name] for name in weights.tensors]
    ends = list(accumulate((t.size for t in held), initial=weights.header_size))
    tensors = tuple(
        Tensor(t.name, t.dtype, t.shape, begin, begin + t.size)
        for t, begin in zip(held, ends, strict=False)
    )
    return adapter.facts(
        config,
        Header(weights.header_size, tensors),
        config_path=f"{where}/{ADAPTER_CONFIG}",
        weights_path=f"{where}/{ADAPTER_WEIGHTS}",
    )

"""Where inference runs, and on how many CPU threads."""

import torch

from vctl_plans.errors import PermanentEngineError


def chosen_device(name: str) -> torch.device:
    """Return the device for `auto` (CUDA when there is one), `cpu` or `cuda`.

    Raises:
        PermanentEngineError: `cuda` was asked for and there is none.
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise PermanentEngineError("there is no CUDA device", hint="--device cpu")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def use_threads(count: int) -> None:
    """Set how many CPU threads one computation may use; one is best for a model this small."""
    torch.set_num_threads(count)

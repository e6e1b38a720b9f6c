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


def free_memory(device: torch.device) -> float | None:
    """Return the free share of the memory of a CUDA device, to a hundredth; None on a CPU.

    What torch keeps reserved for itself counts as used, though it would use it for a load first:
    the figure errs on the side of too little.
    """
    if device.type != "cuda":
        return None
    free, total = torch.cuda.mem_get_info(device)
    return round(free / total, 2)


def memory_bytes(device: torch.device) -> int | None:
    """Return the memory of a CUDA device, in all; None on a CPU."""
    return torch.cuda.mem_get_info(device)[1] if device.type == "cuda" else None


def use_threads(count: int) -> None:
    """Set how many CPU threads one computation may use; one is best for a model this small."""
    torch.set_num_threads(count)

"""What NVIDIA's driver tells of the GPUs' memory, where an engine tells nothing of its own.

It is asked only where a plan demands free memory: the library is imported then, and no sooner. No
library, no driver, or no GPU: nothing is known, and nothing is guessed.
"""

import os
import time
from collections.abc import Callable
from typing import Any

import msgspec
import structlog

_KEPT_S = 2.0
"""An answer counts for so long: a cycle asks often."""

_log = structlog.get_logger(__name__)


class Memory(msgspec.Struct, frozen=True):
    """The memory of the GPU that has the least of it free."""

    free: float  # share, 0 to 1
    total_bytes: int


class Gpus:
    """Asks the driver, and remembers the answer for a moment.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._asked_at: float | None = None
        self._told: Memory | None = None

    def memory(self) -> Memory | None:
        """Return the memory of the GPU that has the least free; None: it is not known."""
        now = self._clock()
        if self._asked_at is None or now - self._asked_at >= _KEPT_S:
            self._asked_at, self._told = now, _ask()
        return self._told


def _ask() -> Memory | None:
    try:
        import pynvml  # noqa: PLC0415  an extra, and seldom asked
    except ImportError:
        _log.info("free memory is not known: nvidia-ml-py is not installed (extra gpu)")
        return None
    try:
        pynvml.nvmlInit()
        try:
            infos = [pynvml.nvmlDeviceGetMemoryInfo(handle) for handle in _handles(pynvml)]
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as cause:
        _log.info("free memory is not known", cause=str(cause))
        return None
    found = [Memory(info.free / info.total, info.total) for info in infos if info.total]
    return min(found, key=lambda memory: memory.free, default=None)


def _handles(nvml: Any) -> list[Any]:
    """Return the GPUs that CUDA programs started like this agent see."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else map(str, range(nvml.nvmlDeviceGetCount()))
    return [
        nvml.nvmlDeviceGetHandleByIndex(int(name))
        if name.strip().isdecimal()
        else nvml.nvmlDeviceGetHandleByUUID(name.strip())
        for name in names
    ]

"""What the driver tells of the GPUs' memory; what it does not tell is not known."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from vctl_agent.gpu import Gpus, Memory


class NVMLError(Exception):
    """As `pynvml.NVMLError`."""


class Driver(SimpleNamespace):
    """The calls of NVML that are made, on GPUs of 100 bytes each."""

    NVMLError = NVMLError

    def __init__(self, *free: int) -> None:
        super().__init__()
        self.free = free
        self.asked = 0

    def nvmlInit(self) -> None:  # noqa: N802  NVML's name
        self.asked += 1
        if not self.free:
            raise NVMLError("no driver")

    def nvmlShutdown(self) -> None:  # noqa: N802
        pass

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.free)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetHandleByUUID(self, name: str) -> int:  # noqa: N802
        return int(name.removeprefix("GPU-"))

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(free=self.free[handle], total=100)


def gpus(monkeypatch: pytest.MonkeyPatch, driver: object) -> Gpus:
    monkeypatch.setitem(sys.modules, "pynvml", driver)  # the library is a port of the driver's
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return Gpus()


def test_the_fullest_gpu_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Memory(0.3, 100) == gpus(monkeypatch, Driver(50, 30, 90)).memory()


@pytest.mark.parametrize(("visible", "free"), [("0,2", 0.5), ("GPU-2", 0.9)])
def test_only_gpus_that_are_visible_count(
    monkeypatch: pytest.MonkeyPatch, visible: str, free: float
) -> None:
    found = gpus(monkeypatch, Driver(50, 30, 90))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    assert Memory(free, 100) == found.memory()


def test_without_driver_or_library_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpus(monkeypatch, Driver()).memory() is None
    assert gpus(monkeypatch, None).memory() is None  # None: an import of it fails


def test_driver_is_not_asked_in_every_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    driver, now = Driver(50), [0.0]
    gpus(monkeypatch, driver)
    found = Gpus(lambda: now[0])

    assert found.memory() == found.memory()
    now[0] = 3.0
    found.memory()

    assert 2 == driver.asked

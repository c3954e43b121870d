"""What the accelerators of this machine are doing, through NVML where there are any and its bindings are installed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any


class Accelerators:
    """All that the driver shows: it knows no CUDA_VISIBLE_DEVICES. A figure that one of them can't give is missing."""

    def __init__(self, nvml: Any, handles: Sequence[Any]) -> None:
        self.nvml, self.handles = nvml, handles

    def read(self) -> dict[str, float]:
        values = {
            "accelerator_use": self._each(lambda one: self.nvml.nvmlDeviceGetUtilizationRates(one).gpu / 100),
            "accelerator_memory_bytes": self._each(lambda one: float(self.nvml.nvmlDeviceGetMemoryInfo(one).used)),
            "accelerator_power_w": self._each(lambda one: self.nvml.nvmlDeviceGetPowerUsage(one) / 1000),
        }
        # How busy is a mean, the others are sums.
        shares = {"accelerator_use": len(self.handles)}
        return {name: sum(found) / shares.get(name, 1) for name, found in values.items() if found}

    def _each(self, read: Callable[[Any], float]) -> list[float]:
        with suppress(self.nvml.NVMLError):
            return [read(one) for one in self.handles]
        return []


def find_accelerators() -> Accelerators | None:
    """None where there is none, no driver, or no bindings (the package nvidia-ml-py)."""
    try:
        nvml = import_module("pynvml")
    except ImportError:
        return None
    with suppress(nvml.NVMLError):
        nvml.nvmlInit()
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        return Accelerators(nvml, handles) if handles else None
    return None

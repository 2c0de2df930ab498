"""NVML that answers what a test says: no GPU is needed."""

from types import SimpleNamespace
from typing import Any


class NVMLError(Exception):
    """What NVML raises."""


def nvml(**answers: Any) -> SimpleNamespace:
    """The module `pynvml`: it starts, knows its clocks, and has no more functions than these."""
    started = dict.fromkeys(("nvmlInit", "nvmlShutdown"), lambda: None)
    clocks = {"NVML_CLOCK_SM": 1, "NVML_CLOCK_MEM": 2, "NVML_TEMPERATURE_GPU": 0}
    return SimpleNamespace(**{"NVMLError": NVMLError, **clocks, **started, **answers})

"""NVML against a scripted library: no GPU is needed."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from runners.system import nvml
from tests.scripted_nvml import NVMLError
from tests.scripted_nvml import nvml as scripted_nvml


def refuse(*_: object) -> None:
    raise NVMLError("Not Supported")


def library(**changes: Any) -> SimpleNamespace:
    """A driver of two devices; the second has fallen off the bus."""

    def handle(index: int) -> str:
        return "device" if index == 0 else refuse()  # type: ignore[return-value]

    def answer(value: object) -> Any:
        return lambda *_: value

    functions = {
        "nvmlDeviceGetCount": answer(2),
        "nvmlDeviceGetHandleByIndex": handle,
        "nvmlSystemGetDriverVersion": answer(b"570.86"),
        "nvmlSystemGetCudaDriverVersion_v2": answer(12080),
        "nvmlDeviceGetName": answer("NVIDIA H200"),
        "nvmlDeviceGetUUID": answer("GPU-1"),
        "nvmlDeviceGetCudaComputeCapability": answer((9, 0)),
        "nvmlDeviceGetMemoryInfo": answer(SimpleNamespace(total=150_754_820_096)),
        "nvmlDeviceGetVbiosVersion": answer("96.00.B7"),
        "nvmlDeviceGetEnforcedPowerLimit": answer(700_000),
        "nvmlDeviceGetPersistenceMode": answer(1),
        "nvmlDeviceGetEccMode": answer([0, 1]),
        "nvmlDeviceGetMigMode": refuse,
        "nvmlDeviceGetMaxClockInfo": lambda _, clock: 1980 if clock == 1 else 3201,
        "nvmlDeviceGetClockInfo": lambda _, clock: 345 if clock == 1 else 2619,
        "nvmlDeviceGetTemperature": answer(31),
        "nvmlDeviceGetPowerUsage": answer(76_000),
        "nvmlDeviceGetCurrentClocksEventReasons": refuse,
        "nvmlDeviceGetCurrentClocksThrottleReasons": answer(1),
        "nvmlDeviceGetComputeRunningProcesses": answer(["a", "b"]),
        "nvmlDeviceGetViolationStatus": answer(SimpleNamespace(violationTime=7)),
        "nvmlDeviceGetCurrPcieLinkGeneration": answer(5),
    }
    return scripted_nvml(**{**functions, **changes})


def test_what_is_stable_about_each_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library())
    gpus = nvml.probe()
    assert gpus.devices == (
        nvml.Gpu(
            "NVIDIA H200", "9.0", 150_754_820_096, "96.00.B7", 700_000, True, False, None, None, None, None, 1980, 3201
        ),
        nvml.Gpu(*[None] * 13),
    )
    assert gpus.uuids == ("GPU-1", None)
    assert (gpus.driver_version, gpus.cuda_version, gpus.reason) == ("570.86", "12.8", None)


def test_conditions_of_each_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library())
    conditions = nvml.read_conditions()
    assert {name[5:]: value for name, value in conditions.items() if name.startswith("gpu0_")} == {
        "sm_clock_mhz": 345,
        "memory_clock_mhz": 2619,
        "temperature_c": 31,
        "power_mw": 76_000,
        "clock_event_reasons_mask": 1,
        "compute_processes": 2,
        "held_by_power_ns": 7,
        "held_by_heat_ns": 7,
        "pcie_generation": 5,
        "pcie_width": None,
    }
    assert {value for name, value in conditions.items() if name.startswith("gpu1_")} == {None}


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (None, "the Python package nvidia-ml-py is not installed"),
        (library(nvmlInit=refuse), "NVML does not start: Not Supported"),
        (library(nvmlDeviceGetCount=lambda: 0), "NVML shows no device"),
    ],
)
def test_no_gpu_is_a_reason_and_no_error(monkeypatch: pytest.MonkeyPatch, module: Any, reason: str) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", module)
    gpus = nvml.probe()
    assert (gpus.devices, gpus.reason) == ((), reason)
    assert nvml.read_conditions() == {}

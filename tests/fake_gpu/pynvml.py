"""NVML of one GPU that is not there; each call is noted in the file that TAXMETER_FAKE_GPU names."""

import os
from types import SimpleNamespace

UUID = "34bf77d1-c686-6821-79a8-32d326c5039c"

NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2
NVML_TEMPERATURE_GPU = 0
NVML_SUCCESS, NVML_ERROR_NOT_SUPPORTED = 0, 3


class NVMLError(Exception):
    """What NVML raises."""


_JOULES = [1000]


def _energy(_handle):
    _JOULES[0] += 50_000
    return _JOULES[0]


_ANSWERS = {
    "nvmlInit": lambda: None,
    "nvmlShutdown": lambda: None,
    "nvmlSystemGetDriverVersion": lambda: "580.159.04",
    "nvmlSystemGetCudaDriverVersion_v2": lambda: 13000,
    "nvmlDeviceGetCount": lambda: 1,
    "nvmlDeviceGetHandleByIndex": lambda index: index,
    "nvmlDeviceGetHandleByUUID": lambda uuid: 0,
    "nvmlDeviceGetUUID": lambda _: "GPU-" + UUID,
    "nvmlDeviceGetName": lambda _: "Fake GPU",
    "nvmlDeviceGetCudaComputeCapability": lambda _: (9, 0),
    "nvmlDeviceGetMemoryInfo": lambda *_: SimpleNamespace(total=80 << 30, used=16 << 20, free=79 << 30),
    "nvmlDeviceGetUtilizationRates": lambda _: SimpleNamespace(gpu=0, memory=0),
    "nvmlDeviceGetClockInfo": lambda _, clock: 1980 if clock == NVML_CLOCK_SM else 2619,
    "nvmlDeviceGetTemperature": lambda *_: 40,
    "nvmlDeviceGetPowerUsage": lambda _: 90_000,
    "nvmlDeviceGetTotalEnergyConsumption": _energy,
    "nvmlDeviceGetComputeRunningProcesses": lambda _: [],
    "nvmlDeviceGetCurrentClocksEventReasons": lambda _: 1,
}


def __getattr__(name):
    if name not in _ANSWERS:
        raise AttributeError(name)

    def call(*arguments):
        path = os.environ.get("TAXMETER_FAKE_GPU")
        if path and os.access(path, os.W_OK):
            with open(path, "a") as stream:
                stream.write(f"{os.getpid()} {name}\n")
        return _ANSWERS[name](*arguments)

    return call

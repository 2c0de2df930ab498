"""NVIDIA GPUs through NVML: the one module that imports it. No CUDA context is ever created here."""

import contextlib
from dataclasses import dataclass
from typing import Any, Dict, Iterator, Optional, Tuple

from runners.contract.record import FactValue

_HELD_BY = {"power": 0, "heat": 1}
"""What holds clocks down, by NVML's number of the policy. Times are summed up since the driver was loaded."""


class NvmlUnavailable(Exception):  # noqa: N818 - a machine without a GPU is no error
    """There is no NVML here; the message says why."""


@dataclass(frozen=True)
class Gpu:
    """Null where the device or its driver does not say."""

    name: Optional[str]
    compute_capability: Optional[str]
    """Such as `9.0`."""
    memory_bytes: Optional[int]
    vbios: Optional[str]
    power_limit_mw: Optional[int]
    """The limit in force."""
    persistence: Optional[bool]
    ecc: Optional[bool]
    mig: Optional[bool]
    compute_mode: Optional[int]
    """NVML's number: 0 is shared, 3 is one process at a time."""
    pcie_generation_max: Optional[int]
    pcie_width_max: Optional[int]
    sm_clock_max_mhz: Optional[int]
    memory_clock_max_mhz: Optional[int]


@dataclass(frozen=True)
class Gpus:
    """Every GPU that NVML shows to this process, in NVML's order."""

    devices: Tuple[Gpu, ...]
    uuids: Tuple[Optional[str], ...]
    driver_version: Optional[str]
    cuda_version: Optional[str]
    """The newest CUDA version that the driver supports."""
    reason: Optional[str]
    """Why there are no devices; null if there are."""
    bus_ids: Tuple[Optional[str], ...] = ()
    """Of the devices, as NVML writes their addresses on the PCI bus."""


def probe() -> Gpus:
    """Reads what is stable about the GPUs; without NVML the reason is in the result."""
    try:
        with session() as nvml:
            handles = _handles(nvml)
            return Gpus(
                devices=tuple(_gpu(nvml, handle) for handle in handles),
                uuids=tuple(_text(ask(nvml, "nvmlDeviceGetUUID", handle)) for handle in handles),
                driver_version=_text(ask(nvml, "nvmlSystemGetDriverVersion")),
                cuda_version=_cuda_version(ask(nvml, "nvmlSystemGetCudaDriverVersion_v2")),
                reason=None if handles else "NVML shows no device",
                bus_ids=tuple(_bus_id(nvml, handle) for handle in handles),
            )
    except NvmlUnavailable as reason:
        return Gpus((), (), None, None, str(reason))


def read_conditions() -> Dict[str, FactValue]:
    """Clocks, temperature, power and neighbours of each GPU; empty without NVML."""
    conditions: Dict[str, FactValue] = {}
    try:
        with session() as nvml:
            for index, handle in enumerate(_handles(nvml)):
                for name, value in _device_conditions(nvml, handle).items():
                    conditions["gpu%d_%s" % (index, name)] = value
    except NvmlUnavailable:
        return {}
    return conditions


@contextlib.contextmanager
def session() -> Iterator[Any]:
    """The library, started; it is shut down at the end.

    Raises:
        NvmlUnavailable: there is none, or it does not start.
    """
    try:
        import pynvml as nvml
    except ImportError:
        raise NvmlUnavailable("the Python package nvidia-ml-py is not installed") from None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise NvmlUnavailable("NVML does not start: %s" % error) from None
    try:
        yield nvml
    finally:
        ask(nvml, "nvmlShutdown")


def _handles(nvml: Any) -> Tuple[Any, ...]:
    # A device that has fallen off the bus has no handle; it still counts, with nothing known about it.
    count = ask(nvml, "nvmlDeviceGetCount") or 0
    return tuple(ask(nvml, "nvmlDeviceGetHandleByIndex", index) for index in range(count))


def _gpu(nvml: Any, handle: Any) -> Gpu:
    def of_device(name: str, *arguments: Any) -> Any:
        return ask(nvml, name, handle, *arguments)

    capability = of_device("nvmlDeviceGetCudaComputeCapability")
    memory = of_device("nvmlDeviceGetMemoryInfo")
    return Gpu(
        name=_text(of_device("nvmlDeviceGetName")),
        compute_capability=None if capability is None else "%d.%d" % tuple(capability),
        memory_bytes=None if memory is None else int(memory.total),
        vbios=_text(of_device("nvmlDeviceGetVbiosVersion")),
        power_limit_mw=of_device("nvmlDeviceGetEnforcedPowerLimit"),
        persistence=_flag(of_device("nvmlDeviceGetPersistenceMode")),
        ecc=_current(of_device("nvmlDeviceGetEccMode")),
        mig=_current(of_device("nvmlDeviceGetMigMode")),
        compute_mode=of_device("nvmlDeviceGetComputeMode"),
        pcie_generation_max=of_device("nvmlDeviceGetMaxPcieLinkGeneration"),
        pcie_width_max=of_device("nvmlDeviceGetMaxPcieLinkWidth"),
        sm_clock_max_mhz=of_device("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_SM),
        memory_clock_max_mhz=of_device("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_MEM),
    )


def _bus_id(nvml: Any, handle: Any) -> Optional[str]:
    place = ask(nvml, "nvmlDeviceGetPciInfo", handle)
    return None if place is None else _text(place.busId)


def _device_conditions(nvml: Any, handle: Any) -> Dict[str, FactValue]:
    processes = ask(nvml, "nvmlDeviceGetComputeRunningProcesses", handle)
    reasons = ask(nvml, "nvmlDeviceGetCurrentClocksEventReasons", handle)
    if reasons is None:  # its name until driver 535
        reasons = ask(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    held = {name: ask(nvml, "nvmlDeviceGetViolationStatus", handle, policy) for name, policy in _HELD_BY.items()}
    return {
        **{"held_by_%s_ns" % name: None if time is None else int(time.violationTime) for name, time in held.items()},
        "pcie_generation": ask(nvml, "nvmlDeviceGetCurrPcieLinkGeneration", handle),
        "pcie_width": ask(nvml, "nvmlDeviceGetCurrPcieLinkWidth", handle),
        "sm_clock_mhz": ask(nvml, "nvmlDeviceGetClockInfo", handle, nvml.NVML_CLOCK_SM),
        "memory_clock_mhz": ask(nvml, "nvmlDeviceGetClockInfo", handle, nvml.NVML_CLOCK_MEM),
        "temperature_c": ask(nvml, "nvmlDeviceGetTemperature", handle, nvml.NVML_TEMPERATURE_GPU),
        "power_mw": ask(nvml, "nvmlDeviceGetPowerUsage", handle),
        "clock_event_reasons_mask": reasons,
        "compute_processes": None if processes is None else len(processes),
    }


def ask(nvml: Any, name: str, *arguments: Any) -> Any:
    """The answer of one NVML function; None if this version, driver or device has none."""
    function = getattr(nvml, name, None)
    if function is None or None in arguments[:1]:
        return None
    try:
        return function(*arguments)
    except nvml.NVMLError:
        return None


def _text(value: Any) -> Optional[str]:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _flag(value: Optional[int]) -> Optional[bool]:
    return None if value is None else bool(value)


def _current(value: Any) -> Optional[bool]:
    """Of a pair: what is in force and what will be after a restart."""
    return None if value is None else bool(value[0])


def _cuda_version(value: Optional[int]) -> Optional[str]:
    return None if value is None else "%d.%d" % (value // 1000, value % 1000 // 10)

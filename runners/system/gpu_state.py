"""How a trial's GPUs are at one moment: who uses them, what slows them down, how their clocks are set.

Read through NVML, so that no CUDA context is created. What NVML does not tell is null.
"""

import os
from dataclasses import dataclass
from typing import Any, Optional, Tuple

from runners.system import nvml

SLOWDOWNS = {
    0x8: "hardware slowdown",
    0x20: "thermal slowdown by software",
    0x40: "thermal slowdown by hardware",
    0x80: "power brake",
}
"""Of NVML's clock event reasons those that are throttling. The others belong to normal work: idle, the power limit
(0x4), clocks that somebody set (0x2), and several GPUs in step (0x10)."""

CLOCKS_SET = 0x2
"""The clock is held down because somebody set it."""

_THERMAL_POLICY = 1
_MEMORY_VERSION_2 = 0x02000028
_BYTES_PER_MIB = 2**20
_KINDS_OF_PROCESSES = (
    *("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses"),
    "nvmlDeviceGetMPSComputeRunningProcesses",
)


@dataclass(frozen=True)
class GpuState:
    """One GPU at one moment."""

    number: int
    """NVML's, from 0."""
    processes: Optional[int]
    """That NVML lists. In a container it may list none of those outside."""
    memory_used_mib: Optional[float]
    """Without what the driver keeps for itself, where it tells the two apart."""
    busy_permille: Optional[int]
    """Share of NVML's last sample period (at most a second) in which any kernel ran."""
    reasons: Optional[int]
    """Mask of NVML's clock event reasons."""
    thermal_ns: Optional[int]
    """For how long heat has held the clocks down, since the driver was loaded."""
    application_clock_mhz: Optional[int]
    application_clock_default_mhz: Optional[int]
    memory_clock_setting_mhz: Optional[int]
    power_limit_mw: Optional[int]
    """The limit in force."""
    memory_free_mib: Optional[float] = None

    @property
    def slowdowns(self) -> Tuple[str, ...]:
        """What throttles it now, in words."""
        return tuple(text for bit, text in SLOWDOWNS.items() if (self.reasons or 0) & bit)


def read_gpus() -> Tuple[GpuState, ...]:
    """The GPUs that a trial may see; empty without NVML."""
    try:
        with nvml.session() as library:
            count = nvml.ask(library, "nvmlDeviceGetCount") or 0
            handles = [(number, nvml.ask(library, "nvmlDeviceGetHandleByIndex", number)) for number in range(count)]
            visible = _visible_uuids()
            return tuple(
                _state(library, number, handle)
                for number, handle in handles
                if visible is None or _uuid(library, handle).startswith(visible)
            )
    except nvml.NvmlUnavailable:
        return ()


def _visible_uuids() -> Optional[Tuple[str, ...]]:
    """What CUDA_VISIBLE_DEVICES names by identity; None where it does not, as numbers differ from NVML's."""
    names = tuple(name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip())
    return names if names and all(name.startswith("GPU-") for name in names) else None


def _state(library: Any, number: int, handle: Any) -> GpuState:
    def ask(name: str, *arguments: Any) -> Any:
        return nvml.ask(library, name, handle, *arguments)

    rates = ask("nvmlDeviceGetUtilizationRates")
    reasons = ask("nvmlDeviceGetCurrentClocksEventReasons")
    if reasons is None:  # its name until driver 535
        reasons = ask("nvmlDeviceGetCurrentClocksThrottleReasons")
    thermal = ask("nvmlDeviceGetViolationStatus", _THERMAL_POLICY)
    memory = _memory(library, handle)
    return GpuState(
        number=number,
        processes=_processes(library, handle),
        memory_used_mib=None if memory is None else memory.used / _BYTES_PER_MIB,
        busy_permille=None if rates is None else int(rates.gpu) * 10,
        reasons=reasons,
        thermal_ns=None if thermal is None else int(thermal.violationTime),
        application_clock_mhz=ask("nvmlDeviceGetApplicationsClock", library.NVML_CLOCK_SM),
        application_clock_default_mhz=ask("nvmlDeviceGetDefaultApplicationsClock", library.NVML_CLOCK_SM),
        memory_clock_setting_mhz=ask("nvmlDeviceGetApplicationsClock", library.NVML_CLOCK_MEM),
        power_limit_mw=ask("nvmlDeviceGetEnforcedPowerLimit"),
        memory_free_mib=None if memory is None else memory.free / _BYTES_PER_MIB,
    )


def _processes(library: Any, handle: Any) -> Optional[int]:
    listed = [nvml.ask(library, name, handle) for name in _KINDS_OF_PROCESSES]
    known = [{process.pid for process in some} for some in listed if some is not None]
    # One that computes and draws is in both lists
    return len(set().union(*known)) if known else None


def _memory(library: Any, handle: Any) -> Any:
    try:
        memory = nvml.ask(library, "nvmlDeviceGetMemoryInfo", handle, _MEMORY_VERSION_2)
    except TypeError:  # a binding that knows no versions
        memory = None
    # Before driver 510 what the driver keeps and what is in use are one number
    return nvml.ask(library, "nvmlDeviceGetMemoryInfo", handle) if memory is None else memory


def _uuid(library: Any, handle: Any) -> str:
    uuid = nvml.ask(library, "nvmlDeviceGetUUID", handle)
    return uuid.decode("ascii", "replace") if isinstance(uuid, bytes) else str(uuid or "")

"""The conditions: what changes by itself between two trials. It is read before and after each of them.

Names end in their unit. `_us` and `_jiffies` are counters since the system started: subtract two readings.
"""

from typing import Dict, List, Optional

from runners.contract.record import FactValue
from runners.system import nvml, throttling
from runners.system.reading import list_names, parse_bytes, parse_int, read_fields, read_int, read_text

_CPUFREQ = "/sys/devices/system/cpu/cpufreq"
_THERMAL = "/sys/class/thermal"
_HWMON = "/sys/class/hwmon"


def read(root: str = "/") -> Dict[str, FactValue]:
    """Reads the conditions of the system below `root`; null where the system does not say.

    The GPUs are asked only below `/`. A system without them has no `gpu…` keys.
    """
    memory = read_fields(root, "/proc/meminfo")
    conditions: Dict[str, FactValue] = {
        "load_1m": _load(root),
        "pressure_cpu_some_us": _pressure(root, "cpu"),
        "pressure_memory_some_us": _pressure(root, "memory"),
        "pressure_io_some_us": _pressure(root, "io"),
        "cpu_steal_jiffies": _steal(root),
        "cpu_throttled_us": throttling.quota_us(root),
        "temperature_max_millidegrees_c": _temperature(root),
        "memory_available_bytes": parse_bytes(memory.get("MemAvailable")),
        "swap_used_bytes": _swap_used(memory),
    }
    clocks = _clocks_khz(root)
    conditions["cpu_clock_khz_min"] = min(clocks, default=None)
    conditions["cpu_clock_khz_max"] = max(clocks, default=None)
    conditions["cpu_clock_khz_mean"] = sum(clocks) // len(clocks) if clocks else None
    if root == "/":
        conditions.update(nvml.read_conditions())
    return conditions


def _load(root: str) -> Optional[float]:
    words = (read_text(root, "/proc/loadavg") or "").split()
    return float(words[0]) if words else None


def _pressure(root: str, resource: str) -> Optional[int]:
    for line in (read_text(root, "/proc/pressure/" + resource) or "").splitlines():
        if line.startswith("some "):
            return parse_int(line.rpartition("total=")[2])
    return None


def _steal(root: str) -> Optional[int]:
    words = (read_text(root, "/proc/stat") or "").partition("\n")[0].split()
    return parse_int(words[8]) if len(words) > 8 else None


def _swap_used(memory: Dict[str, str]) -> Optional[int]:
    total, free = parse_bytes(memory.get("SwapTotal")), parse_bytes(memory.get("SwapFree"))
    return None if total is None or free is None else total - free


def _clocks_khz(root: str) -> List[int]:
    # /proc/cpuinfo first: on kernels before 5.18 each read of scaling_cur_freq can sleep for 10 ms.
    lines = (read_text(root, "/proc/cpuinfo") or "").splitlines()
    policies = list_names(root, _CPUFREQ, r"policy\d+")
    measured = any(line.startswith("flags") and " aperfmperf" in line for line in lines[:40])
    if measured:
        return [round(float(line.partition(":")[2]) * 1000) for line in lines if line.startswith("cpu MHz")]
    # Without a counter /proc/cpuinfo repeats the nominal clock for ever, so cpufreq is the only other witness.
    read_khz = (read_int(root, "%s/%s/scaling_cur_freq" % (_CPUFREQ, policy)) for policy in policies)
    return [khz for khz in read_khz if khz is not None]


def _temperature(root: str) -> Optional[int]:
    paths = ["%s/%s/temp" % (_THERMAL, zone) for zone in list_names(root, _THERMAL, r"thermal_zone\d+")]
    for chip in list_names(root, _HWMON, r"hwmon\d+"):
        # AMD processors have no thermal zone, only their sensor.
        if read_text(root, "%s/%s/name" % (_HWMON, chip)) in ("coretemp", "k10temp", "zenpower"):
            sensors = list_names(root, _HWMON + "/" + chip, r"temp\d+_input")
            paths.extend("%s/%s/%s" % (_HWMON, chip, sensor) for sensor in sensors)
    temperatures = (read_int(root, path) for path in paths)
    return max((value for value in temperatures if value is not None), default=None)

"""Counters of how long processors were held back: by a quota of a control group, and by heat."""

from dataclasses import dataclass
from typing import Dict, Iterable, Optional

from runners.system.limits import controller_directories
from runners.system.reading import parse_int, read_fields, read_int

_CORE = "/sys/devices/system/cpu/cpu%d/thermal_throttle/"
_KINDS = ("core", "package")


@dataclass(frozen=True)
class ThrottleCounters:
    """Since the system started, or the control group was made; null where the system does not count."""

    quota_us: Optional[int]
    """By the quotas of this process's control group and of its visible ancestors."""
    heat_ms: Optional[int]
    """Of that core, or its package, that heat held back longest."""
    heat_events: Optional[int]
    """How often, over all cores; kernels before 5.5 and some processors count nothing else."""


def read_counters(cores: Iterable[int], root: str = "/") -> ThrottleCounters:
    """Reads the counters for some cores of the system below `root`."""
    wanted = list(cores)
    times = [_heat(root, core, "total_time_ms") for core in wanted]
    counts = [_heat(root, core, "count") for core in wanted]
    return ThrottleCounters(
        quota_us=quota_us(root),
        heat_ms=max((value for found in times for value in found.values()), default=None),
        heat_events=sum(value for found in counts for value in found.values()) if any(counts) else None,
    )


def quota_us(root: str = "/") -> Optional[int]:
    """Time for which quotas held this process's control groups back; None where none of them counts it."""
    counted = [_throttled_us(root, directory) for directory in controller_directories(root, "cpu")]
    known = [value for value in counted if value is not None]
    return sum(known) if known else None


def _throttled_us(root: str, directory: str) -> Optional[int]:
    fields = read_fields(root, directory + "/cpu.stat", " ")
    nanoseconds = parse_int(fields.get("throttled_time"))
    return parse_int(fields.get("throttled_usec")) if nanoseconds is None else nanoseconds // 1000


def _heat(root: str, core: int, what: str) -> Dict[str, int]:
    read = {kind: read_int(root, _CORE % core + "%s_throttle_%s" % (kind, what)) for kind in _KINDS}
    return {kind: value for kind, value in read.items() if value is not None}


def slowed_permille(first: ThrottleCounters, second: ThrottleCounters, passed_s: float) -> Dict[str, float]:
    """By cause (`quota`, `heat`), of the time that passed between two looks the part held back, in thousandths.

    A cause that the system does not count is left out.
    """
    steps = {
        "quota": _step(first.quota_us, second.quota_us, 1e6),
        "heat": _step(first.heat_ms, second.heat_ms, 1e3),
    }
    return {cause: 1000 * step_s / passed_s for cause, step_s in steps.items() if step_s is not None}


def _step(before: Optional[int], after: Optional[int], per_s: float) -> Optional[float]:
    return None if before is None or after is None else max(0, after - before) / per_s

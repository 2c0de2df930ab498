"""What each guard looks at. A check measures and compares with its limit; what follows from it is not its business."""

import time
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from typing import Callable, Deque, Dict, List, Optional, Sequence, Tuple

from runners.contract import ClockRule, ClocksGuard, GpuProcessesGuard, Guard, GuardPolicy, LoadGuard, ThrottlingGuard
from runners.system import clock_settings, core_times, throttling
from runners.system.core_times import CoreTimes, cores_text
from runners.system.gpu_state import GpuState
from runners.system.throttling import ThrottleCounters

Gpus = Tuple[GpuState, ...]
ReadGpus = Callable[[], Gpus]
Pause = Callable[[float], None]

_SETTLE_S = 1.0
"""NVML's longest sample period: after it, nothing of an earlier trial is in what a GPU says."""

_LONGEST_WINDOW = 20
"""So many windows say as much as one does. Before longer sessions a window's pause is next to nothing."""


@dataclass(frozen=True)
class Reading:
    """What a check saw; the fields are those of `GuardResult`."""

    observed: Optional[float]
    limit: float
    unit: str
    detail: Optional[str] = None

    @property
    def is_over(self) -> bool:
        """Whether the condition does not hold. What is unknown is not over."""
        return self.observed is not None and self.observed > self.limit


class Check(ABC):
    """One guard. `before` may be asked repeatedly, then `start` and `after` once each."""

    name: str
    """Of the guard in `Guards`."""
    complaint: str
    """What is wrong where the condition does not hold, without numbers: equal faults have equal reasons."""
    settings: Guard

    @abstractmethod
    def before(self, gpus: Gpus) -> Optional[Reading]:
        """Looks before the trial, while nothing of it runs; None if this guard has nothing to look at then."""

    @abstractmethod
    def start(self, gpus: Gpus) -> None:
        """The trial's first process is about to start: remembers what `after` compares with."""

    @abstractmethod
    def after(self, gpus: Gpus) -> Optional[Reading]:
        """Looks after the trial, when all its processes have ended."""


class LoadCheck(Check):
    """Who is on the trial's cores, beside us: before a trial none of our children runs, and what we used is known.

    Short sessions follow each other faster than a window passes. Then it is the window up to now that counts, whatever
    of ours ran in it.
    """

    name = "load"
    complaint = "others keep the trial's cores busy"

    def __init__(self, settings: LoadGuard, cores: Sequence[int], pause: Pause, root: str = "/") -> None:
        self.settings: LoadGuard = settings
        self._cores, self._pause, self._root = cores, pause, root
        self._first: Optional[CoreTimes] = None
        self._looks: Deque[CoreTimes] = deque()
        """The youngest that is a window old, if there is one, and all later ones."""

    def before(self, gpus: Gpus) -> Optional[Reading]:
        now = self._look()
        earlier = self._looks[0] if self._looks else None
        if now is not None and earlier is not None and self._is_a_window(now.at_s - earlier.at_s):
            reading = self._reading(earlier, now)
            # Before a session is refused or waits, somebody who has left meanwhile is looked for again
            if not reading.is_over or self.settings.policy is GuardPolicy.FLAG:
                return reading
        self._pause(self._window_s)
        return self._reading(now, self._look())

    def start(self, gpus: Gpus) -> None:
        self._first = self._look()

    def after(self, gpus: Gpus) -> Optional[Reading]:
        return self._reading(self._first, self._look())

    @property
    def _window_s(self) -> float:
        return self.settings.window_ms / 1000

    def _is_a_window(self, seconds: float) -> bool:
        return self._window_s <= seconds <= _LONGEST_WINDOW * self._window_s

    def _look(self) -> Optional[CoreTimes]:
        look = core_times.look(self._cores, self._root)
        if look is not None:
            self._looks.append(look)
            while len(self._looks) > 1 and look.at_s - self._looks[1].at_s >= self._window_s:
                self._looks.popleft()
        return look

    def _reading(self, first: Optional[CoreTimes], second: Optional[CoreTimes]) -> Reading:
        known = first is not None and second is not None
        observed = core_times.others_permille(first, second) if known else None  # type: ignore[arg-type]
        cores = "cores %s" % cores_text(self._cores)
        detail = cores if observed is not None else "%s: /proc/stat does not count them" % cores
        return Reading(observed, self.settings.max_busy_permille, "permille", detail)


class GpuProcessesCheck(Check):
    """Ours have no context on a GPU before and after a trial: what it holds then belongs to somebody else."""

    name = "gpu_processes"
    complaint = "others use the trial's GPU"

    def __init__(self, settings: GpuProcessesGuard, read: ReadGpus, pause: Pause) -> None:
        self.settings: GpuProcessesGuard = settings
        self._read, self._pause = read, pause

    def before(self, gpus: Gpus) -> Optional[Reading]:
        return self._settled(gpus, with_busy=True)

    def start(self, gpus: Gpus) -> None:
        """Nothing to remember: at the end there is nobody, or somebody came."""

    def after(self, gpus: Gpus) -> Optional[Reading]:
        # What was busy until now was the trial itself
        return self._settled(gpus, with_busy=False)

    def _settled(self, gpus: Gpus, with_busy: bool) -> Reading:
        reading = self._reading(gpus, with_busy)
        if reading.is_over:
            self._pause(_SETTLE_S)
            reading = self._reading(self._read(), with_busy)
        return reading

    def _reading(self, gpus: Gpus, with_busy: bool) -> Reading:
        known: List[Reading] = []
        for gpu in gpus:
            place = "gpu%d" % gpu.number
            known.append(Reading(gpu.processes, 0, "processes", place))
            known.append(Reading(gpu.memory_used_mib, self.settings.max_memory_mib, "MiB", place))
            if with_busy:
                known.append(Reading(gpu.busy_permille, self.settings.max_busy_permille, "permille", place))
        nothing = Reading(None, 0, "processes", "NVML shows no GPU")
        return _worst([check for check in known if check.observed is not None], nothing)


class ThrottlingCheck(Check):
    """Quotas and heat of the processors, heat and power brake of GPUs."""

    name = "throttling"
    complaint = "the system is throttled"

    def __init__(self, settings: ThrottlingGuard, cores: Sequence[int], root: str = "/") -> None:
        self.settings: ThrottlingGuard = settings
        self._cores, self._root = cores, root
        self._first: Optional[ThrottleCounters] = None
        self._heat_ns: Dict[int, Optional[int]] = {}
        self._started_s = 0.0

    def before(self, gpus: Gpus) -> Optional[Reading]:
        now = self._now(gpus)
        return _worst(now, now[0]) if now else None

    def start(self, gpus: Gpus) -> None:
        self._first = throttling.read_counters(self._cores, self._root)
        self._heat_ns = {gpu.number: gpu.thermal_ns for gpu in gpus}
        self._started_s = time.monotonic()

    def after(self, gpus: Gpus) -> Optional[Reading]:
        assert self._first is not None
        passed_s = max(time.monotonic() - self._started_s, 1e-3)
        second = throttling.read_counters(self._cores, self._root)
        slowed = throttling.slowed_permille(self._first, second, passed_s)
        if "heat" not in slowed and self._first.heat_events is not None and second.heat_events is not None:
            counted = [Reading(second.heat_events - self._first.heat_events, 0, "events", "heat")]
        else:
            counted = []
        for gpu in gpus:
            heat_ns = self._heat_ns.get(gpu.number)
            if heat_ns is not None and gpu.thermal_ns is not None:
                slowed["heat of gpu%d" % gpu.number] = (gpu.thermal_ns - heat_ns) / 1e6 / passed_s
        limit = self.settings.max_throttled_permille
        shares = [Reading(share, limit, "permille", cause) for cause, share in slowed.items()]
        nothing = Reading(None, limit, "permille", "no counter of quotas or heat can be read")
        return _worst([*shares, *counted, *self._now(gpus)], nothing)

    def _now(self, gpus: Gpus) -> List[Reading]:
        known = [gpu for gpu in gpus if gpu.reasons is not None]
        return [
            Reading(len(gpu.slowdowns), 0, "reasons", "gpu%d: %s" % (gpu.number, ", ".join(gpu.slowdowns) or "none"))
            for gpu in known
        ]


class ClocksCheck(Check):
    """The settings that decide clocks."""

    name = "clocks"

    def __init__(self, settings: ClocksGuard, cores: Sequence[int], root: str = "/") -> None:
        self.settings: ClocksGuard = settings
        self._cores, self._root = cores, root
        self._first: Dict[str, str] = {}
        self.complaint = "settings that decide clocks were changed"

    def before(self, gpus: Gpus) -> Optional[Reading]:
        if self.settings.require is not ClockRule.FIXED:
            return None
        self.complaint = "clocks may move by themselves"
        return self._reading(self._settings(gpus), clock_settings.movable(self._settings(gpus), gpus))

    def start(self, gpus: Gpus) -> None:
        self._first = self._settings(gpus)
        self.complaint = "settings that decide clocks were changed"

    def after(self, gpus: Gpus) -> Optional[Reading]:
        now = self._settings(gpus)
        return self._reading(now, clock_settings.changed(self._first, now))

    def _settings(self, gpus: Gpus) -> Dict[str, str]:
        return clock_settings.read_settings(self._cores, gpus, self._root)

    def _reading(self, settings: Dict[str, str], wrong: Sequence[str]) -> Reading:
        if not settings:
            return Reading(None, 0, "settings", "the system tells no setting of its clocks")
        detail = ", ".join(wrong or ("%s %s" % each for each in settings.items()))
        return Reading(len(wrong), 0, "settings", detail)


def _worst(readings: Sequence[Reading], nothing: Reading) -> Reading:
    """The reading that is furthest beyond its limit, or nearest to it; `nothing` if there is none."""

    def rank(reading: Reading) -> Tuple[bool, float]:
        return reading.is_over, (reading.observed or 0.0) / (reading.limit or 1.0)

    return max(readings, key=rank, default=nothing)

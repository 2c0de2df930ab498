"""Guards: what must hold on the machine around a trial, and what is done where it does not.

A neighbour, a hot processor or a clock that somebody changes makes a latency of another system. A guard looks before
and after a trial, and its policy says what becomes of a trial that was disturbed. Guards decide nothing about what is
measured: they are no part of a trial's key.
"""

from dataclasses import dataclass, fields
from enum import Enum
from typing import Optional, Tuple, Union


class GuardPolicy(str, Enum):
    """What is done where a guard's condition does not hold."""

    OFF = "off"
    """Nobody looks."""
    FLAG = "flag"
    """The trial runs, and its row says what was seen."""
    WAIT = "wait"
    """Before a trial: waits for the condition, then acts as `error`. After it there is nothing to wait for."""
    ERROR = "error"
    """The trial does not run, or what it measured does not count: an infrastructure error, tried again by a resume."""


class GuardMoment(str, Enum):
    """When a guard looked."""

    BEFORE = "before"
    AFTER = "after"
    """Over the time from the start of the trial's first process to the end of its last."""


class GuardOutcome(str, Enum):
    """What a guard found."""

    PASSED = "passed"
    FLAGGED = "flagged"
    WAITED = "waited"
    """It passed, but not at once."""
    FAILED = "failed"
    UNSEEN = "unseen"
    """The system does not tell: that is neither a pass nor a failure."""


class ClockRule(str, Enum):
    """What is asked of the settings that decide clocks."""

    UNCHANGED = "unchanged"
    """They are the same before and after the trial."""
    FIXED = "fixed"
    """Besides, they let no clock move by itself: governor `performance`, boost off, a GPU's application clocks set."""


@dataclass(frozen=True)
class GpuProcessesGuard:
    """Nobody else uses the GPUs. ImageLookup at for trials on a GPU, while nothing of ours runs there."""

    policy: GuardPolicy = GuardPolicy.FLAG
    max_memory_mib: int = 64
    """In use on any GPU; a driver keeps some for itself, and a CUDA context takes more than 64 MiB."""
    max_busy_permille: int = 50
    """Time in which any kernel ran, over NVML's last sample period (at most a second)."""
    wait_s: int = 60


@dataclass(frozen=True)
class LoadGuard:
    """Others leave the trial's cores alone."""

    policy: GuardPolicy = GuardPolicy.FLAG
    max_busy_permille: int = 100
    """Time of the trial's cores that others take, interrupts and a hypervisor's steal included."""
    window_ms: int = 250
    """For how long at least the cores are watched before a trial. The kernel counts in steps of 10 ms."""
    wait_s: int = 60


@dataclass(frozen=True)
class ThrottlingGuard:
    """Neither heat nor a quota slows the trial down. A GPU at its power limit is no throttling: load does that."""

    policy: GuardPolicy = GuardPolicy.FLAG
    max_throttled_permille: int = 10
    """Of the trial's time."""
    wait_s: int = 60


@dataclass(frozen=True)
class ClocksGuard:
    """Nobody changes the settings that decide clocks."""

    policy: GuardPolicy = GuardPolicy.FLAG
    require: ClockRule = ClockRule.UNCHANGED
    wait_s: int = 60


Guard = Union[GpuProcessesGuard, LoadGuard, ThrottlingGuard, ClocksGuard]


@dataclass(frozen=True)
class Guards:
    """All guards of a task. By default each one flags: nothing is hidden, and nobody's first run is stopped."""

    gpu_processes: GpuProcessesGuard = GpuProcessesGuard()
    load: LoadGuard = LoadGuard()
    throttling: ThrottlingGuard = ThrottlingGuard()
    clocks: ClocksGuard = ClocksGuard()

    @property
    def patience_s(self) -> int:
        """The longest that they hold a single trial back, in seconds."""
        every: Tuple[Guard, ...] = tuple(getattr(self, field.name) for field in fields(self))
        waits = sum(watch.wait_s for watch in every if watch.policy is GuardPolicy.WAIT)
        return waits + (0 if self.load.policy is GuardPolicy.OFF else self.load.window_ms // 1000 + 1)


NO_GUARDS = Guards(
    gpu_processes=GpuProcessesGuard(policy=GuardPolicy.OFF),
    load=LoadGuard(policy=GuardPolicy.OFF),
    throttling=ThrottlingGuard(policy=GuardPolicy.OFF),
    clocks=ClocksGuard(policy=GuardPolicy.OFF),
)


@dataclass(frozen=True)
class GuardResult:
    """What one guard found at one moment."""

    guard: str
    """Its name in `Guards`."""
    moment: GuardMoment
    policy: GuardPolicy
    outcome: GuardOutcome
    observed: Optional[float]
    """In `unit`; null if the system does not tell."""
    limit: float
    """The most that passes, in `unit`."""
    unit: str
    """`permille`, `MiB`, `processes`, `reasons`, `events` or `settings`."""
    detail: Optional[str]
    """What was seen, for a person."""
    waited_s: float
    """How long the trial was held back; no part of its time."""

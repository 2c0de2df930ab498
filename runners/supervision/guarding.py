"""The guards around a session: asks the checks at the right moments and does what their policies say."""

import os
import time
from dataclasses import dataclass
from typing import Callable, List, Optional, Sequence, Tuple

from runners.contract import GuardMoment, GuardOutcome, GuardPolicy, GuardResult, Guards
from runners.contract.catalogue.entries import CUDA
from runners.supervision.checks import (
    Check,
    ClocksCheck,
    GpuProcessesCheck,
    Gpus,
    LoadCheck,
    Pause,
    ReadGpus,
    Reading,
    ThrottlingCheck,
)

_POLL_S = 1.0
"""Between two looks while a trial waits."""


@dataclass(frozen=True)
class Verdict:
    """What the guards found at one moment."""

    results: Tuple[GuardResult, ...] = ()
    problem: Optional[str] = None
    """Why the trial must not run, or what it measured does not count; null if nothing speaks against it."""


class Guarding:
    """Watches sessions, one after the other: `before`, `start`, and `after` when all its processes have ended."""

    def __init__(
        self, checks: Sequence[Check], read_gpus: ReadGpus, pause: Pause, say: Callable[[str], None] = print
    ) -> None:
        """Takes what to watch.

        Args:
            checks: of the guards that are on, in the order in which they look before the trial.
            read_gpus: reads the trial's GPUs; none for a trial on a CPU.
            pause: waits so many seconds.
            say: told why a trial waits.
        """
        self._checks = checks
        self._read_gpus, self._pause, self._say = read_gpus, pause, say

    def before(self) -> Verdict:
        """Looks, and waits where that is the policy. After the first guard that fails no other is asked."""
        results: List[GuardResult] = []
        gpus = self._read_gpus() if self._checks else ()
        for check in self._checks:
            reading = check.before(gpus)
            if reading is None:
                continue
            waited_s = 0.0
            if reading.is_over and check.settings.policy is GuardPolicy.WAIT:
                reading, waited_s = self._patiently(check, reading)
                gpus = self._read_gpus()
            results.append(_result(check, GuardMoment.BEFORE, reading, waited_s))
            if results[-1].outcome is GuardOutcome.FAILED:
                still = ", still after waiting %d s" % check.settings.wait_s if waited_s else ""
                problem = "guard %s: %s%s; the trial did not run" % (check.name, check.complaint, still)
                return Verdict(tuple(results), problem)
        return Verdict(tuple(results))

    def start(self) -> None:
        """The trial's first process is about to start."""
        gpus = self._read_gpus() if self._checks else ()
        for check in self._checks:
            check.start(gpus)

    def after(self) -> Verdict:
        """Looks again, the most fleeting first."""
        results: List[GuardResult] = []
        problem = None
        gpus: Optional[Gpus] = None
        for check in reversed(self._checks):
            if gpus is None and not isinstance(check, LoadCheck):
                gpus = self._read_gpus()
            reading = check.after(gpus or ())
            if reading is not None:
                results.append(_result(check, GuardMoment.AFTER, reading, 0.0))
                if results[-1].outcome is GuardOutcome.FAILED and problem is None:
                    what = "guard %s, during the trial: %s" % (check.name, check.complaint)
                    problem = what + "; what it measured does not count"
        return Verdict(tuple(results), problem)

    def _patiently(self, check: Check, reading: Reading) -> Tuple[Reading, float]:
        started_s = time.monotonic()
        wait_s = check.settings.wait_s
        self._say("waiting up to %d s: guard %s: %s (%s)" % (wait_s, check.name, check.complaint, reading.detail))
        while reading.is_over and time.monotonic() - started_s < wait_s:
            self._pause(min(_POLL_S, max(0.0, started_s + wait_s - time.monotonic())))
            reading = check.before(self._read_gpus()) or reading
        return reading, time.monotonic() - started_s


def guarding_for(guards: Guards, device: str, pause: Pause, root: str = "/") -> Guarding:
    """The guards of a trial that are on and have something to look at.

    Args:
        guards: as the task has them.
        device: of the trial. On a CPU nobody asks about GPUs.
        pause: waits so many seconds.
        root: where the system's /proc and /sys are.
    """
    from runners.system.gpu_state import read_gpus

    read: ReadGpus = read_gpus if device == CUDA else tuple
    cores = sorted(os.sched_getaffinity(0))
    # The load last: it changes soonest, and what was waited for must not have made its answer old
    checks: List[Check] = [ClocksCheck(guards.clocks, cores, root)]
    if device == CUDA:
        checks.append(GpuProcessesCheck(guards.gpu_processes, read, pause))
    checks += [ThrottlingCheck(guards.throttling, cores, root), LoadCheck(guards.load, cores, pause, root)]
    on = [check for check in checks if check.settings.policy is not GuardPolicy.OFF]
    return Guarding(on, read, pause, lambda text: print(text, flush=True))


def _result(check: Check, moment: GuardMoment, reading: Reading, waited_s: float) -> GuardResult:
    return GuardResult(
        guard=check.name,
        moment=moment,
        policy=check.settings.policy,
        outcome=_outcome(check.settings.policy, reading, waited_s),
        observed=None if reading.observed is None else float(reading.observed),
        limit=float(reading.limit),
        unit=reading.unit,
        detail=reading.detail,
        waited_s=waited_s,
    )


def _outcome(policy: GuardPolicy, reading: Reading, waited_s: float) -> GuardOutcome:
    if reading.observed is None:
        return GuardOutcome.UNSEEN
    if reading.is_over:
        return GuardOutcome.FLAGGED if policy is GuardPolicy.FLAG else GuardOutcome.FAILED
    return GuardOutcome.WAITED if waited_s else GuardOutcome.PASSED

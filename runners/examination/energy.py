"""The energy pass: back-to-back calls over a few long windows, read from a counter at both ends of each.

Idle power is not subtracted: it is part of what a call costs. Sensors of GPUs look at a part of the time only
(arXiv 2312.02741), so several windows at random phase are taken, and a figure is good to 5 % at best.
"""

import itertools
import random
import statistics
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from runners.contract.record import FactValue
from runners.examination.counters import EnergyCounter, EnergyUnavailable, NvmlEnergyCounter, RaplEnergyCounter
from runners.examination.gpu import GpuUnavailable, gpu_of_torch

_LEAST_WINDOW_S = 2.0
_GOOD_WINDOW_S = 10.0
_MAX_SPREAD = 0.05
# Longer than the longest period of a GPU's counter
_PHASE_S = 0.1


@dataclass(frozen=True)
class Window:
    """One stretch of calls."""

    seconds: float
    joules: float
    calls: int


def counter_for(device: str) -> EnergyCounter:
    """The counter for `cpu` or `cuda`; the GPU is the current one of torch, found in NVML by its UUID.

    Raises:
        EnergyUnavailable: there is none, or this process may not read it.
    """
    if device == "cpu":
        return RaplEnergyCounter()
    try:
        return NvmlEnergyCounter(gpu_of_torch().uuid)
    except GpuUnavailable as reason:
        raise EnergyUnavailable(str(reason)) from None


def measure_energy(
    call: Callable[..., Any],
    ring: Sequence[Tuple[Any, ...]],
    synchronize: Optional[Callable[[], None]],
    counter: EnergyCounter,
    window_ms: int,
    windows: int = 3,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> Dict[str, FactValue]:
    """Measures the mean energy of a call while calls follow one another without a pause.

    Args:
        call: what is examined; it is warm.
        ring: its inputs.
        synchronize: waits for the device; None on a CPU.
        counter: what is read.
        window_ms: least length of a window; 10 s and more are good, less than 2 s are invalid.
        windows: how many.
        clock: seconds.
        sleep: waits a number of seconds, between windows.

    Returns:
        The facts of `facts_of`; all null, with the reason, if the counter stops answering.
    """
    # Not the trial's generator: where a window begins must not depend on the seed of the weights
    phases = random.Random()  # noqa: S311
    taken: List[Window] = []
    inputs = itertools.cycle(ring)
    try:
        for index in range(windows):
            if index:
                sleep(phases.uniform(0, _PHASE_S))
            taken.append(_window(call, inputs, synchronize, counter, window_ms / 1000, clock))
    except EnergyUnavailable as reason:
        return dict(unknown_energy(str(reason)), energy_source=counter.source)
    return facts_of(taken, counter.source)


def facts_of(windows: Sequence[Window], source: str) -> Dict[str, FactValue]:
    """The facts of some windows.

    Returns:
        `energy_per_call_j` and `energy_power_mean_w` over all windows, `energy_window_s` (the shortest),
        `energy_windows`, `energy_source`, `energy_valid` and `energy_problem`; a problem of valid energy is a
        remark.
    """
    if any(window.joules <= 0 for window in windows):
        return dict(unknown_energy("the counter did not move during a window"), energy_source=source)
    joules, seconds = sum(w.joules for w in windows), sum(w.seconds for w in windows)
    shortest = min(window.seconds for window in windows)
    per_call = [window.joules / window.calls for window in windows]
    spread = (max(per_call) - min(per_call)) / statistics.mean(per_call)
    faults, remarks = [], []
    if shortest < _LEAST_WINDOW_S:
        faults.append("a window lasted %.2g s, less than %g s" % (shortest, _LEAST_WINDOW_S))
    elif shortest < _GOOD_WINDOW_S:
        remarks.append("a window lasted %.2g s, less than the %g s that are good" % (shortest, _GOOD_WINDOW_S))
    if spread > _MAX_SPREAD:
        faults.append("the windows differ by %.1f %%, more than %g %%" % (100 * spread, 100 * _MAX_SPREAD))
    if len(windows) == 1:
        remarks.append("a single window shows no spread")
    return {
        "energy_per_call_j": joules / sum(window.calls for window in windows),
        "energy_power_mean_w": joules / seconds,
        "energy_window_s": shortest,
        "energy_windows": len(windows),
        "energy_source": source,
        "energy_valid": not faults,
        "energy_problem": "; ".join(faults + remarks) or None,
    }


def unknown_energy(problem: str) -> Dict[str, FactValue]:
    """The facts where nothing can be measured."""
    return {
        "energy_per_call_j": None,
        "energy_power_mean_w": None,
        "energy_window_s": None,
        "energy_windows": None,
        "energy_source": None,
        "energy_valid": False,
        "energy_problem": problem,
    }


def _window(
    call: Callable[..., Any],
    inputs: Iterator[Tuple[Any, ...]],
    synchronize: Optional[Callable[[], None]],
    counter: EnergyCounter,
    least_s: float,
    clock: Callable[[], float],
) -> Window:
    if synchronize is not None:
        synchronize()
    calls = 0
    before_j = counter.read_j()
    start = clock()
    while clock() - start < least_s:
        call(*next(inputs))
        calls += 1
    # The host runs ahead of a device: what it has asked for belongs to the window
    if synchronize is not None:
        synchronize()
    seconds = clock() - start
    return Window(seconds, counter.read_j() - before_j, calls)

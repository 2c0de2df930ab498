"""Check 6: how do clocks move with load, and does the reading that goes into rows show those of the timed calls?"""

import json
import os
import statistics
import time
from dataclasses import replace
from typing import Any, Dict, List, Optional, Tuple

from runners.check.running import Context, Findings, forked
from runners.check.subjects import BERT, PROTOCOL, Ready, ready, sized, spec_of
from runners.contract import WorkloadSpec
from runners.examination.gpu import GpuUnavailable, gpu_of_torch, nvml_device
from runners.examination.gpu_clock import gpu_clock
from runners.protocol import timing
from runners.system import nvml

_PERIOD_S = 0.02
_TOLERANCE = 0.02

Sample = Tuple[float, Optional[int]]
"""Seconds on the clock of `time.monotonic`, which all processes share, and the SM clock in MHz."""


def check(context: Context) -> Findings:
    """SM clocks through idle, lone calls and back-to-back calls, and how long a latency takes to settle."""
    found = Findings()
    values, problem = forked(
        lambda: _look(sized(BERT, context.size), 1.5 if context.size.is_small else 5.0), context.within(60)
    )
    if values is None:
        found.problems.append("clocks: %s" % problem)
        return found
    found.values = values
    told, busy = values["gauge_sync_sm_mhz"], values["sync"]["median_mhz"]
    found.require(told is not None, "NVML does not tell the SM clock")
    if told and busy:
        found.require(
            abs(told - busy) <= 0.05 * busy, "the clock beside the series is %s MHz, that during it %s" % (told, busy)
        )
    return found


def _look(workload: WorkloadSpec, seconds: float) -> Dict[str, Any]:
    import torch

    torch.cuda.init()
    sampler, reading = _sampler(str(gpu_of_torch().uuid))
    time.sleep(1.0)
    marks = {"idle": (time.monotonic() - 1.0, time.monotonic())}
    with ready(spec_of(workload, "float16")) as trial:
        marks["sync"], latencies = _calls(trial, seconds)
        with gpu_clock(is_on_gpu=True) as clock:
            timing.time_sync(replace(trial.subject, clock=clock), PROTOCOL, trial.last_ns)
            told = None if clock is None else clock.facts().get("clock_sync_sm_mhz")
        begin = time.monotonic()
        timing.time_pipelined(trial.subject, PROTOCOL, trial.last_ns, budget_ms=int(seconds * 1000))
        marks["pipelined"] = begin, time.monotonic()
    conditions = nvml.read_conditions()
    samples = _samples(sampler, reading)
    values: Dict[str, Any] = {name: _within(samples, *span) for name, span in marks.items()}
    values["gauge_sync_sm_mhz"] = told
    values["conditions_sm_mhz"] = next((v for k, v in conditions.items() if k.endswith("_sm_clock_mhz")), None)
    values["settled_after_s"] = settled_after(latencies)
    return values


def _calls(trial: Ready, seconds: float) -> Tuple[Tuple[float, float], List[Tuple[float, int]]]:
    begin = time.monotonic()
    latencies = []
    while time.monotonic() - begin < seconds:
        _, (wall, _) = timing.time_one(trial.subject, trial.subject.ring[0])
        latencies.append((time.monotonic() - begin, wall))
    return (begin, time.monotonic()), latencies


def settled_after(latencies: List[Tuple[float, int]], window: int = 50) -> Optional[float]:
    """Seconds until the median over a window stays within 2 % of the last one's; null without enough calls."""
    if len(latencies) < 2 * window:
        return None
    medians = [
        (latencies[index][0], statistics.median(wall for _, wall in latencies[index : index + window]))
        for index in range(0, len(latencies) - window + 1, window)
    ]
    last = medians[-1][1]
    outside = [at for at, median in medians if abs(median - last) > _TOLERANCE * last]
    return outside[-1] if outside else 0.0


def _sampler(uuid: str) -> Tuple[int, int]:
    """A process that reads the clock until it is killed; its id, and where its lines come out."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    try:
        os.close(reading)
        with nvml_device(uuid) as device:
            while True:
                mhz = device.ask("nvmlDeviceGetClockInfo", device.library.NVML_CLOCK_SM)
                os.write(writing, (json.dumps([time.monotonic(), mhz]) + "\n").encode())
                time.sleep(_PERIOD_S)
    except (GpuUnavailable, OSError):
        pass
    finally:
        os._exit(0)


def _samples(pid: int, reading: int) -> List[Sample]:
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    with os.fdopen(reading) as stream:
        lines = stream.read().splitlines()
    return [(at, mhz) for at, mhz in map(json.loads, lines)]


def _within(samples: List[Sample], begin: float, end: float) -> Dict[str, Any]:
    known = [mhz for at, mhz in samples if begin <= at <= end and mhz is not None]
    return {
        "samples": len(known),
        "median_mhz": statistics.median(known) if known else None,
        "least_mhz": min(known, default=None),
        "most_mhz": max(known, default=None),
    }

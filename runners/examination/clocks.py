"""Clocks, power and temperature of a GPU, sampled ten times a second by a process of its own.

A thread would take the interpreter's lock from what is measured. The sampler ends when its input is closed, and so
with the process that started it.
"""

import json
import os
import select
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass
from typing import Dict, List, Optional, Sequence, Tuple

import runners
from runners.contract.record import FactValue
from runners.examination.gpu import GpuUnavailable, NvmlDevice, nvml_device
from runners.system.gpu_state import SLOWDOWNS

_PERIOD_S = 0.1
_TIMEOUT_S = 10
# NVML's clock event reasons
_POWER_CAP = 0x4
_THROTTLE = sum(SLOWDOWNS)


@dataclass(frozen=True)
class Sample:
    """One look at the GPU; null where it does not say."""

    sm_clock_mhz: Optional[int]
    memory_clock_mhz: Optional[int]
    power_mw: Optional[int]
    temperature_c: Optional[int]
    reasons: Optional[int]
    """Mask of NVML's clock event reasons."""


class ClockSampler:
    """Samples the GPU with a UUID within the context; afterwards `facts` sums it up."""

    def __init__(self, uuid: str) -> None:
        self._uuid = uuid
        self._output = ""

    def __enter__(self) -> "ClockSampler":
        source = os.path.dirname(os.path.dirname(os.path.abspath(runners.__file__)))
        # What was on it stays: the environment may have its packages there
        path = os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, self._uuid],
            env=dict(os.environ, PYTHONPATH=path),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._output, _unused = self._process.communicate(timeout=_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._output, _unused = self._process.communicate()

    def facts(self) -> Dict[str, FactValue]:
        """The facts of `summary`, after the context."""
        return summary(*read_samples(self._output))


def read_samples(output: str) -> Tuple[List[Sample], Optional[str]]:
    """The sampler's lines, and the last thing that it said beside them."""
    samples: List[Sample] = []
    problem = None
    for line in output.splitlines():
        try:
            samples.append(Sample(**json.loads(line)))
        except (ValueError, TypeError):
            problem = line.strip() or problem
    return samples, problem


def summary(samples: Sequence[Sample], problem: Optional[str]) -> Dict[str, FactValue]:
    """Means and shares over the samples.

    Returns:
        `clock_sm_mean_mhz`, `clock_memory_mean_mhz`, `clock_power_mean_w`, `clock_temperature_max_c`, `clock_samples`;
        `clock_throttled_share`: of the samples, those with a slowdown by heat, hardware or power brake;
        `clock_power_capped_share`: at the power limit, which belongs to a compute-bound result; `clock_problem`.
    """

    def known(name: str) -> List[int]:
        values = (getattr(sample, name) for sample in samples)
        return [value for value in values if value is not None]

    def mean(name: str, unit: int = 1) -> Optional[float]:
        values = known(name)
        return statistics.mean(values) / unit if values else None

    def share(mask: int) -> Optional[float]:
        reasons = known("reasons")
        return sum(bool(each & mask) for each in reasons) / len(reasons) if reasons else None

    return {
        "clock_sm_mean_mhz": mean("sm_clock_mhz"),
        "clock_memory_mean_mhz": mean("memory_clock_mhz"),
        "clock_power_mean_w": mean("power_mw", 1000),
        "clock_temperature_max_c": max(known("temperature_c"), default=None),
        "clock_throttled_share": share(_THROTTLE),
        "clock_power_capped_share": share(_POWER_CAP),
        "clock_samples": len(samples),
        "clock_problem": problem or (None if samples else "the sampler gave no sample"),
    }


def look(device: NvmlDevice) -> Sample:
    """One sample."""
    nvml = device.library
    reasons = device.ask("nvmlDeviceGetCurrentClocksEventReasons")
    if reasons is None:  # its name until driver 535
        reasons = device.ask("nvmlDeviceGetCurrentClocksThrottleReasons")
    return Sample(
        sm_clock_mhz=device.ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
        memory_clock_mhz=device.ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
        power_mw=device.ask("nvmlDeviceGetPowerUsage"),
        temperature_c=device.ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
        reasons=reasons,
    )


def main(uuid: str) -> None:
    """Samples until the input is closed, and then prints a line for each: nobody empties the pipe before."""
    samples: List[Sample] = []
    try:
        with nvml_device(uuid) as device:
            closed = False
            while not closed:
                samples.append(look(device))
                closed = bool(select.select([sys.stdin], [], [], _PERIOD_S)[0])
    except GpuUnavailable as reason:
        print(reason)
    for sample in samples:
        print(json.dumps(asdict(sample)))


if __name__ == "__main__":
    main(sys.argv[1])

"""How much of the GPU works while calls follow one another: the quantities of the paper's table 3.

Three counters of the device, as shares of the time from 0 to 1: streaming multiprocessors with at least one warp,
resident warps against the maximum, and the memory interface. NVML gives them since Hopper, DCGM before. NVML's
older "utilisation" is something else, the share of its sample periods (1/6 to 1 s) in which anything ran at all: it is
returned under names that say so.
"""

import itertools
import math
import statistics
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from runners.contract.record import FactValue
from runners.examination.dcgm import DcgmUnavailable, DcgmWatch, first_line, parse_dmon
from runners.examination.gpu import GpuUnavailable, NvmlDevice, gpu_of_torch, nvml_device
from runners.system.nvml import ask

_WINDOW_MS = 2000
_SHARES = ("utilisation_sm_active_share", "utilisation_sm_occupancy_share", "utilisation_dram_bandwidth_share")
_GPM_METRICS = ("NVML_GPM_METRIC_SM_UTIL", "NVML_GPM_METRIC_SM_OCCUPANCY", "NVML_GPM_METRIC_DRAM_BW_UTIL")
_BUSY = ("utilisation_kernel_time_share", "utilisation_memory_time_share")

Shares = Tuple[Optional[float], ...]


class GpmUnavailable(Exception):  # noqa: N818 - older GPUs lack it
    """NVML gives no such counters; the message says why."""


def measure_utilisation(
    call: Callable[..., Any],
    ring: Sequence[Tuple[Any, ...]],
    synchronize: Optional[Callable[[], None]],
    window_ms: int = _WINDOW_MS,
    clock: Callable[[], float] = time.perf_counter,
) -> Dict[str, FactValue]:
    """Makes back-to-back calls for a window and reads the device's counters at both ends.

    Args:
        call: what is examined; it is warm.
        ring: its inputs.
        synchronize: waits for the device; None on a CPU.
        window_ms: length of the window.
        clock: seconds.

    Returns:
        `utilisation_sm_active_share`, `utilisation_sm_occupancy_share`, `utilisation_dram_bandwidth_share` with
        `utilisation_source` (`nvml_gpm` or `dcgm`); `utilisation_call_s` (wall time of a call in the window);
        `utilisation_kernel_time_share` and `utilisation_memory_time_share`
        (NVML: of its last sample periods, those in which a kernel ran, or memory was accessed); `utilisation_problem`.
    """
    facts: Dict[str, FactValue] = dict.fromkeys((*_SHARES, "utilisation_source", *_BUSY, "utilisation_problem"))

    def run() -> None:
        facts["utilisation_call_s"] = _run_for(call, ring, window_ms / 1000, clock)

    try:
        uuid = gpu_of_torch().uuid
        with nvml_device(uuid) as device:
            _device_facts(facts, device, str(uuid), run, synchronize)
    except GpuUnavailable as reason:
        facts["utilisation_problem"] = str(reason)
    return facts


def _device_facts(
    facts: Dict[str, FactValue],
    device: NvmlDevice,
    uuid: str,
    run: Callable[[], None],
    synchronize: Optional[Callable[[], None]],
) -> None:
    problems: List[str] = []
    try:
        shares, rates = gpm_shares(device.library, device.handle, run, synchronize)
        facts["utilisation_source"] = "nvml_gpm"
    except GpmUnavailable as reason:
        problems.append(str(reason))
        try:
            shares, rates = _with_dcgm(device, uuid, run, synchronize)
            facts["utilisation_source"] = "dcgm"
        except DcgmUnavailable as other:
            problems.append(str(other))
            run()
            rates = device.ask("nvmlDeviceGetUtilizationRates")
            _wait(synchronize)
            shares = (None,) * len(_SHARES)
    facts.update(zip(_SHARES, shares))
    if facts["utilisation_source"] is None or None in shares:
        facts["utilisation_problem"] = "; ".join(problems) or "NVML knows only a part of the counters"
    if rates is not None:
        facts.update(zip(_BUSY, (rates.gpu / 100, rates.memory / 100)))


def gpm_shares(
    nvml: Any, handle: Any, run: Callable[[], None], synchronize: Optional[Callable[[], None]]
) -> Tuple[Shares, Any]:
    """The shares between two samples, and NVML's rates while the device was still busy.

    Args:
        nvml: the library.
        handle: of the device.
        run: what is done between the samples.
        synchronize: waits for the device.

    Raises:
        GpmUnavailable: the device or its driver has no such counters, or NVML fails.
    """
    support = ask(nvml, "nvmlGpmQueryDeviceSupport", handle)
    if support is None or not support.isSupportedDevice:
        raise GpmUnavailable("NVML has no GPM metrics for this GPU (Hopper and newer have them)")
    samples: List[Any] = []
    try:
        while len(samples) < 2:
            samples.append(nvml.nvmlGpmSampleAlloc())
        _wait(synchronize)
        nvml.nvmlGpmSampleGet(handle, samples[0])
        run()
        # The queue is still being worked off here
        rates = ask(nvml, "nvmlDeviceGetUtilizationRates", handle)
        _wait(synchronize)
        nvml.nvmlGpmSampleGet(handle, samples[1])
        return _shares_between(nvml, samples), rates
    except nvml.NVMLError as error:
        raise GpmUnavailable("NVML's GPM metrics: %s" % error) from None
    finally:
        for sample in samples:
            nvml.nvmlGpmSampleFree(sample)


def _shares_between(nvml: Any, samples: Sequence[Any]) -> Shares:
    request = nvml.c_nvmlGpmMetricsGet_t()
    request.version = nvml.NVML_GPM_METRICS_GET_VERSION
    request.numMetrics = len(_GPM_METRICS)
    request.sample1, request.sample2 = samples
    for index, name in enumerate(_GPM_METRICS):
        request.metrics[index].metricId = getattr(nvml, name)
    nvml.nvmlGpmMetricsGet(request)
    metrics = [request.metrics[index] for index in range(len(_GPM_METRICS))]
    return tuple(
        metric.value / 100 if metric.nvmlReturn == nvml.NVML_SUCCESS and math.isfinite(metric.value) else None
        for metric in metrics
    )


def _with_dcgm(
    device: NvmlDevice, uuid: str, run: Callable[[], None], synchronize: Optional[Callable[[], None]]
) -> Tuple[Shares, Any]:
    with DcgmWatch(uuid) as watch:
        run()
        rates = device.ask("nvmlDeviceGetUtilizationRates")
        _wait(synchronize)
    samples = parse_dmon(watch.output)
    if not samples:
        raise DcgmUnavailable("dcgmi dmon gave no sample: %s" % first_line(watch.output))
    # Start and end of the window fall into the first and the last sample
    inner = samples[1:-1] or samples
    return tuple(statistics.mean(column) for column in zip(*inner)), rates


def _run_for(
    call: Callable[..., Any], ring: Sequence[Tuple[Any, ...]], seconds: float, clock: Callable[[], float]
) -> float:
    """Makes back-to-back calls; returns the time of one, as the host sees it."""
    start = clock()
    for calls, inputs in enumerate(itertools.cycle(ring), 1):
        call(*inputs)
        if clock() - start >= seconds:
            return (clock() - start) / calls
    raise AssertionError("the ring of inputs is empty")


def estimated_occupancy(facts: Mapping[str, FactValue]) -> Dict[str, FactValue]:
    """The occupancy by the profiler's estimate, where no counter of the device tells it.

    The profiler estimates what a kernel can occupy while it runs. Between kernels nothing is occupied, so that this
    times the share of the calls in which kernels ran is what a counter would say.

    Args:
        facts: of the passes of utilisation and of the profiler.
    """
    while_running, busy_s, call_s = (facts.get(name) for name in ("profiler_occupancy", "busy_s", "utilisation_call_s"))
    if facts.get("utilisation_sm_occupancy_share") is not None or facts.get("profiler_valid") is not True:
        return {}
    if not isinstance(while_running, float) or not isinstance(busy_s, float) or not isinstance(call_s, float):
        return {}
    share = while_running * min(1.0, busy_s / call_s)
    return {"utilisation_sm_occupancy_share": share, "utilisation_source": "profiler_estimate"}


def _wait(synchronize: Optional[Callable[[], None]]) -> None:
    if synchronize is not None:
        synchronize()

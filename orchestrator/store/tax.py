"""The framework tax of one trial: derived columns, from its series and its facts. Pure.

On a GPU the framework runs beside the kernels, so that the slower of both decides; on a CPU it runs before and
after them, and times add up. The formulae are therefore different and never mixed. Definitions: Fernandez et
al., The Framework Tax (EMNLP 2023), and docs/measurement.md.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from runners.contract import TWIN_GROWTH
from runners.contract.record import FactValue

FLOOR_QUANTILE: Final = 0.1
"""Of a twin's calls: the median of few, or of a disturbed moment, was up to 400 times as long."""

UPPER, LOWER = 1.1, 0.9
"""One side over the other: above the first it decides, below the second the other does; between them it is mixed."""

AGREEMENT = 0.1
"""Largest difference between the two estimates of the exposed overhead, as a share of the latency."""


class Regime(Enum):
    """What a trial's latency follows."""

    FRAMEWORK_BOUND = "framework-bound"
    MIXED = "mixed"
    COMPUTE_BOUND = "compute-bound"


@dataclass(frozen=True)
class Band:
    """The loads between which a trial is mixed."""

    low: float
    high: float


BANDS: Final[Mapping[str, Band]] = {
    # Floor over the rest of the latency is 1.1 where the latency is 2.1 / 1.1 floors.
    "cpu": Band((1 + UPPER) / (2 * UPPER), (1 + LOWER) / (2 * LOWER)),
    "cuda": Band(1 / UPPER, 1 / LOWER),
}
"""By device. The load is 1 where the regime changes: on a GPU busy over dispatch, on a CPU latency over two floors."""


@dataclass(frozen=True)
class Times:
    """Of a trial's series in seconds; null for a series that was not taken."""

    sync_s: float | None = None
    """This and all below but the twins': medians."""
    pipelined_s: float | None = None
    dispatch_s: float | None = None
    graph_s: float | None = None
    small_twin_s: float | None = None
    """On one thread; of the twins it is the quantile `FLOOR_QUANTILE`."""
    large_twin_s: float | None = None
    threaded_twin_s: float | None = None
    """The small twin on the trial's threads."""


def tax_columns(device: str, times: Times, facts: Mapping[str, FactValue]) -> dict[str, object]:
    """The columns that say how much of a latency is the framework's. What cannot be told is null."""
    if device == "cpu":
        return _on_a_cpu(times, facts)
    return _on_a_gpu(times, facts)


def regime(device: str, low: float, high: float) -> Regime:
    """The regime of a load that is known within an interval: the whole of it must lie beyond the band.

    Args:
        device: `cpu` or `cuda`.
        low: of the interval; of a number without one both ends are that number.
        high: of the interval.
    """
    band = BANDS[device]
    if high < band.low:
        return Regime.FRAMEWORK_BOUND
    return Regime.COMPUTE_BOUND if low > band.high else Regime.MIXED


def floor_s(small_s: float, large_s: float | None) -> float:
    """What the framework takes at least: the intercept of the line through both twins, at no elements at all.

    What grows with the size is arithmetic. Without a larger twin, or if that is no slower, it is the small one's time.

    Args:
        small_s: of the small twin.
        large_s: of the one with `TWIN_GROWTH` times the elements.
    """
    if large_s is None:
        return small_s
    return min(small_s, (TWIN_GROWTH * small_s - large_s) / (TWIN_GROWTH - 1))


def floor_columns(latency_s: float, floor_s: float) -> dict[str, object]:
    """What follows from a proven floor, for a latency on a CPU."""
    load = latency_s / (2 * floor_s)
    return {
        "exposed_overhead_s": floor_s,
        "framework_fraction": min(1.0, floor_s / latency_s),
        # Below 0 by noise on a trial that is nothing but framework
        "latency_floor_log_ratio": math.log(latency_s / floor_s),
        "regime": regime("cpu", load, load).value,
    }


def _on_a_cpu(times: Times, facts: Mapping[str, FactValue]) -> dict[str, object]:
    """Exposed overhead is the dispatch floor, a lower bound."""
    small_s, large_s, threaded_s = times.small_twin_s, times.large_twin_s, times.threaded_twin_s
    found_s = None if small_s is None else floor_s(small_s, large_s)
    valid, problem = facts.get("floor_valid"), facts.get("floor_problem")
    if found_s is not None and found_s <= 0:
        found_s, valid = None, False
        problem = problem or "the twins' time is in proportion to their size: it is all arithmetic"
    columns: dict[str, object] = {
        "dispatch_floor_s": found_s,
        "dispatch_floor_small_s": small_s,
        "dispatch_floor_large_s": large_s,
        "dispatch_floor_valid": valid,
        "dispatch_floor_problem": problem,
        "dispatch_floor_structure": facts.get("floor_structure"),
    }
    if small_s is not None and threaded_s is not None and valid and facts.get("floor_threads_problem") is None:
        columns["parallel_region_tax_s"] = threaded_s - small_s
    if found_s is None or times.sync_s is None or valid is not True:
        return columns
    return columns | floor_columns(times.sync_s, found_s)


def _on_a_gpu(times: Times, facts: Mapping[str, FactValue]) -> dict[str, object]:
    """Exposed overhead is the pipelined latency without the time in which the device was busy."""
    busy_s = facts.get("busy_s") if facts.get("profiler_valid") is True else None
    pipelined_s, graph_s, dispatch_s = times.pipelined_s, times.graph_s, times.dispatch_s
    columns: dict[str, object] = {"dispatch_s": dispatch_s, "graph_s": graph_s, "busy_s": busy_s}
    by_graph = pipelined_s - graph_s if pipelined_s is not None and graph_s is not None else None
    columns["exposed_overhead_graph_s"] = by_graph
    columns["tax_ratio"] = pipelined_s / graph_s if pipelined_s and graph_s else None
    if not isinstance(busy_s, float) or not busy_s:
        return columns
    if dispatch_s:
        load = busy_s / dispatch_s
        columns |= {"boundedness": 1 / load, "regime": regime("cuda", load, load).value}
    if pipelined_s:
        by_profiler = pipelined_s - busy_s
        columns["exposed_overhead_s"] = by_profiler
        columns["framework_fraction"] = max(0.0, by_profiler / pipelined_s)
        if by_graph is not None:
            columns["overhead_estimates_agree"] = abs(by_profiler - by_graph) <= AGREEMENT * pipelined_s
    return columns


def cost_columns(batch: int, best_s: float | None, facts: Mapping[str, FactValue]) -> dict[str, object]:
    """Arithmetic of a call, and how fast it was done.

    Args:
        batch: examples per call.
        best_s: the latency that throughput is judged by: pipelined where there is one.
        facts: of the trial.
    """
    flops, macs = (_times(facts.get(name), batch) for name in ("flops_per_example", "macs_per_example"))
    achieved = flops / best_s if flops is not None and best_s else None
    return {"flops": flops, "macs": macs, "achieved_flops_per_s": achieved}


def _times(value: FactValue, batch: int) -> int | None:
    return value * batch if isinstance(value, int) else None

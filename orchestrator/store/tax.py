"""The framework tax of one trial: derived columns, from its series and its facts. Pure.

On a GPU the framework runs beside the kernels, so that the slower of both decides; on a CPU it runs before and
after them, and times add up. The formulae are therefore different and never mixed. Definitions: Fernandez et
al., The Framework Tax (EMNLP 2023), and docs/measurement.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from runners.contract.record import FactValue

UPPER, LOWER = 1.1, 0.9
"""Boundedness above the first is framework-bound, below the second compute-bound; between them it is mixed."""

AGREEMENT = 0.1
"""Largest difference between the two estimates of the exposed overhead, as a share of the latency."""


class Regime(Enum):
    """What a trial's latency follows."""

    FRAMEWORK_BOUND = "framework-bound"
    MIXED = "mixed"
    COMPUTE_BOUND = "compute-bound"


@dataclass(frozen=True)
class Medians:
    """Medians of a trial's series in seconds; null for a series that was not taken."""

    sync_s: float | None = None
    pipelined_s: float | None = None
    dispatch_s: float | None = None
    graph_s: float | None = None
    floor_s: float | None = None


def tax_columns(device: str, medians: Medians, facts: Mapping[str, FactValue]) -> dict[str, object]:
    """The columns that say how much of a latency is the framework's. What cannot be told is null."""
    if device == "cpu":
        return _on_a_cpu(medians, facts)
    return _on_a_gpu(medians, facts)


def regime(boundedness: float | None) -> str | None:
    """The regime of one trial; the interval over rounds is for the analysis to judge."""
    if boundedness is None:
        return None
    if boundedness > UPPER:
        return Regime.FRAMEWORK_BOUND.value
    return str((Regime.COMPUTE_BOUND if boundedness < LOWER else Regime.MIXED).value)


def _on_a_cpu(medians: Medians, facts: Mapping[str, FactValue]) -> dict[str, object]:
    """Exposed overhead is the dispatch floor; boundedness is the floor over the rest of the latency."""
    columns: dict[str, object] = {
        "dispatch_floor_s": medians.floor_s,
        "dispatch_floor_valid": facts.get("floor_valid"),
        "dispatch_floor_problem": facts.get("floor_problem"),
    }
    if medians.floor_s is None or medians.sync_s is None or facts.get("floor_valid") is not True:
        return columns
    rest_s = medians.sync_s - medians.floor_s
    # A floor above the latency is noise on a trial that is nothing but framework.
    boundedness = medians.floor_s / rest_s if rest_s > 0 else None
    framework_bound = Regime.FRAMEWORK_BOUND.value
    return columns | {
        "exposed_overhead_s": medians.floor_s,
        "framework_fraction": min(1.0, medians.floor_s / medians.sync_s),
        "boundedness": boundedness,
        "regime": regime(boundedness) if boundedness is not None else framework_bound,
    }


def _on_a_gpu(medians: Medians, facts: Mapping[str, FactValue]) -> dict[str, object]:
    """Exposed overhead is the pipelined latency without the time in which the device was busy."""
    busy_s = facts.get("busy_s") if facts.get("profiler_valid") is True else None
    pipelined_s, graph_s, dispatch_s = medians.pipelined_s, medians.graph_s, medians.dispatch_s
    columns: dict[str, object] = {"dispatch_s": dispatch_s, "graph_s": graph_s, "busy_s": busy_s}
    by_graph = pipelined_s - graph_s if pipelined_s is not None and graph_s is not None else None
    columns["exposed_overhead_graph_s"] = by_graph
    columns["tax_ratio"] = pipelined_s / graph_s if pipelined_s and graph_s else None
    if not isinstance(busy_s, float) or not busy_s:
        return columns
    boundedness = dispatch_s / busy_s if dispatch_s is not None else None
    columns |= {"boundedness": boundedness, "regime": regime(boundedness)}
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

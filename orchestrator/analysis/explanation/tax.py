"""What one call consists of: the framework's part, the device's part, and which of them the latency follows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.analysis.frame import column_estimate, over_processes
from orchestrator.analysis.ratios import Row, is_ok
from orchestrator.analysis.statistics import Estimate
from orchestrator.analysis.tax import Regime, loads, proven, regime_of

GPU_PARTS = (
    *("latency_sync_median_s", "latency_pipelined_median_s", "dispatch_s", "busy_s", "graph_s"),
    *("exposed_overhead_s", "exposed_overhead_graph_s", "framework_fraction", "boundedness", "tax_ratio"),
)
CPU_PARTS = (
    *("latency_sync_median_s", "latency_pipelined_median_s", "dispatch_floor_s"),
    *("parallel_region_tax_s", "framework_fraction"),
)
_OF_A_PROVEN_FLOOR = ("framework_fraction", "parallel_region_tax_s")


@dataclass(frozen=True)
class Tax:
    """Of one configuration."""

    parts: Mapping[str, Estimate]
    """By column: medians over processes, with intervals over them. What was not measured is not in it."""
    load: Estimate | None
    """On a GPU busy over dispatch; on a CPU latency over two floors, at most. Null if nothing tells."""
    regime: Regime | None
    """With the interval of the load beyond the dead band; null if nothing tells the load.

    On a CPU framework-bound is proven by a floor that is a lower bound, compute-bound is not: see `is_by_lower_bound`.
    """
    is_by_lower_bound: bool
    """CPU: the framework may take more than its floor, so that compute-bound is what the floor says and no more."""
    is_decided: bool
    """False where a single process leaves the regime without an interval."""
    floor_problem: str | None
    """CPU: why the floor proves nothing."""
    estimates_disagree: int
    """GPU: processes in which profiler and CUDA graph give exposed overheads that differ by a tenth of the latency."""
    processes: int
    unsteady: int
    """Processes whose warm-up ended by its cap."""


def tax_of(rows: Sequence[Row], device: str) -> Tax:
    """The parts of a call, over the processes of a configuration.

    Args:
        rows: its trials, without the second halves of A/A pairs.
        device: `cpu` or `cuda`.
    """
    ok = [row for row in rows if is_ok(row)]
    valid = proven(ok)
    parts: dict[str, Estimate] = {}
    for column in CPU_PARTS if device == "cpu" else GPU_PARTS:
        # Of a floor that is not proven nothing follows, but it is shown.
        source = valid if column in _OF_A_PROVEN_FLOOR or (column == "dispatch_floor_s" and valid) else ok
        found = column_estimate(source, column)
        if found is not None:
            parts[column] = found
    load = over_processes(loads(valid, device).values())
    problems = [row["dispatch_floor_problem"] for row in ok if row["dispatch_floor_valid"] is False]
    return Tax(
        parts=parts,
        load=load,
        regime=None if load is None else regime_of(load, device),
        is_by_lower_bound=device == "cpu"
        and load is not None
        and regime_of(load, device) is not Regime.FRAMEWORK_BOUND,
        is_decided=load is not None and load.low is not None,
        floor_problem=problems[0] if problems else None,
        estimates_disagree=sum(1 for row in ok if row["overhead_estimates_agree"] is False),
        processes=len(ok),
        unsteady=sum(1 for row in ok if row["steady"] is False),
    )

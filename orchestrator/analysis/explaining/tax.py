"""What one call consists of: the framework's part, the device's part, and which of them the latency follows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.analysis.explaining.processes import Row, by_visit, is_ok, over_processes
from orchestrator.analysis.statistics import Estimate
from orchestrator.store.tax import LOWER, UPPER, Regime

GPU_PARTS = (
    *("latency_sync_median_s", "latency_pipelined_median_s", "dispatch_s", "busy_s", "graph_s"),
    *("exposed_overhead_s", "exposed_overhead_graph_s", "framework_fraction", "boundedness", "tax_ratio"),
)
CPU_PARTS = (
    *("latency_sync_median_s", "latency_pipelined_median_s", "dispatch_floor_s"),
    *("framework_fraction", "boundedness"),
)


@dataclass(frozen=True)
class Tax:
    """Of one configuration."""

    parts: Mapping[str, Estimate]
    """By column: medians over processes, with intervals over them. What was not measured is not in it."""
    regime: Regime | None
    """With the interval of the boundedness beyond the dead band; null if nothing tells the boundedness."""
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
        rows: of `countable` and `siblings`.
        device: `cpu` or `cuda`.
    """
    ok = [row for row in rows if is_ok(row)]
    valid = [row for row in ok if device != "cpu" or row["dispatch_floor_valid"] is True]
    parts: dict[str, Estimate] = {}
    for column in CPU_PARTS if device == "cpu" else GPU_PARTS:
        # Of a floor that is not proven nothing follows, but it is shown.
        source = valid if column in ("framework_fraction", "boundedness") else ok
        found = over_processes(list(by_visit(source, column).values()))
        if found is not None:
            parts[column] = found
    boundedness = parts.get("boundedness")
    problems = [row["dispatch_floor_problem"] for row in ok if row["dispatch_floor_valid"] is False]
    return Tax(
        parts=parts,
        regime=None if boundedness is None else regime_of(boundedness),
        is_decided=boundedness is not None and boundedness.low is not None,
        floor_problem=problems[0] if problems else None,
        estimates_disagree=sum(1 for row in ok if row["overhead_estimates_agree"] is False),
        processes=len(ok),
        unsteady=sum(1 for row in ok if row["steady"] is False),
    )


def regime_of(boundedness: Estimate) -> Regime:
    """Framework-bound if the whole interval lies above the dead band, compute-bound if below it, else mixed.

    Without an interval the value itself decides. The band is that of `store.tax`, 0.9 to 1.1.
    """
    low = boundedness.value if boundedness.low is None else boundedness.low
    high = boundedness.value if boundedness.high is None else boundedness.high
    if low > UPPER:
        return Regime.FRAMEWORK_BOUND
    return Regime.COMPUTE_BOUND if high < LOWER else Regime.MIXED

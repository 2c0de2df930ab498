"""The processes behind an explanation: which are the configuration itself, and which differ in one thing alone."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from orchestrator.analysis.pairing import Visit, shared_visits
from orchestrator.analysis.ratios import CPU_TIME_COLUMNS, RATIO_COLUMNS
from orchestrator.analysis.statistics import Estimate, median_of_values, paired_ratio, unpaired_ratio
from orchestrator.analysis.summary import last_attempts
from orchestrator.analysis.turns import WALL
from runners.contract import Status

Row: TypeAlias = Mapping[str, Any]

WHERE: Final = ("system_id", "environment_id", "isolation", "method_version", "protocol")
"""Siblings share all of it: a system with another driver is another system."""
WHAT: Final = (
    *("workload", "workload_options", "sequence_length", "image_size", "batch"),
    *("backend", "backend_options", "dtype", "device", "threads", "seed"),
)
_MEASURED: Final = (
    *("latency_sync_median_s", "latency_sync_samples", "latency_pipelined_median_s", "latency_pipelined_samples"),
    *("dispatch_floor_s", "dispatch_floor_valid", "dispatch_floor_problem", "dispatch_s", "busy_s", "graph_s"),
    *("dispatch_floor_structure", "dispatch_floor_small_s", "dispatch_floor_large_s", "parallel_region_tax_s"),
    *("exposed_overhead_s", "exposed_overhead_graph_s", "overhead_estimates_agree", "framework_fraction"),
    *("latency_floor_log_ratio", "boundedness", "tax_ratio", "operations", "kernels", "flops", "steady"),
)


def explain_columns() -> list[str]:
    """The columns of `trials` that an explanation needs."""
    identity = ("trial_id", "trial_key", "campaign_id", "round", "replicate", "attempt", "status", "reason", "host")
    system = ("environment", "cpu_model", "gpu_name", "driver_version")
    found = (*identity, *system, *WHERE, *WHAT, *_MEASURED, *RATIO_COLUMNS, WALL, *CPU_TIME_COLUMNS)
    return list(dict.fromkeys(found))


def countable(rows: Iterable[Row]) -> list[Row]:
    """Of each visit the attempt that counts, without the second halves of A/A pairs, which are there for the noise."""
    return [row for row in last_attempts([dict(row) for row in rows]) if row["replicate"] == 0]


def siblings(rows: Iterable[Row], target: Row, but: Sequence[str] = ()) -> list[Row]:
    """The rows that are like another in all but the named columns; all of them, failed ones too."""
    fixed = [name for name in (*WHERE, *WHAT) if name not in but]
    wanted = [target[name] for name in fixed]
    return [row for row in rows if [row[name] for name in fixed] == wanted]


def is_ok(row: Row) -> bool:
    """Whether the trial has numbers that count."""
    return bool(row["status"] == Status.OK.value)


def pace(device: str) -> str:
    """The column of the latency that the regime is about: on a GPU that of back-to-back calls."""
    return "latency_sync_median_s" if device == "cpu" else "latency_pipelined_median_s"


def by_visit(rows: Iterable[Row], column: str) -> dict[Visit, float]:
    """A number of each visit that ended well and has it."""
    return {
        (row["campaign_id"], row["host"] or "", row["round"]): row[column]
        for row in rows
        if is_ok(row) and row[column] is not None
    }


def loads(rows: Iterable[Row], device: str) -> dict[Visit, float]:
    """How much the device's side weighs against the framework's, by visit: 1 where the regime changes.

    On a GPU busy over dispatch; on a CPU the latency over two of its floors, where that is proven. As the floor is a
    lower bound, a CPU's load is an upper one.
    """
    if device == "cpu":
        proven = [row for row in rows if row["dispatch_floor_valid"] is True]
        return {visit: math.exp(value) / 2 for visit, value in by_visit(proven, "latency_floor_log_ratio").items()}
    return {visit: 1 / value for visit, value in by_visit(rows, "boundedness").items() if value > 0}


def over_processes(values: Sequence[float]) -> Estimate | None:
    """Median over processes with its interval; null without a process."""
    return median_of_values(np.asarray(values, dtype=np.float64), len(values)) if values else None


def ratio_of(numerators: Mapping[Visit, float], denominators: Mapping[Visit, float]) -> Estimate | None:
    """A ratio, paired by round where enough rounds are shared, else unpaired; null if a side is empty."""
    if not numerators or not denominators:
        return None
    shared = shared_visits(numerators, denominators)
    if shared:
        up, down = (np.array([side[visit] for visit in shared]) for side in (numerators, denominators))
        return paired_ratio(up, down, 2 * len(shared))
    up, down = (np.array(list(side.values())) for side in (numerators, denominators))
    return unpaired_ratio(up, down, len(up) + len(down))


def options_of(row: Row) -> dict[str, Any]:
    """The options of its workload."""
    found: dict[str, Any] = json.loads(row["workload_options"] or "{}")
    return found

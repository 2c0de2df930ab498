"""Which sweep would measure what an explanation lacks."""

from collections.abc import Mapping
from typing import TypeVar

from orchestrator.analysis.explanation.explain import Explanation, Lack
from orchestrator.analysis.explanation.larger import ADJUSTABLE
from orchestrator.config import Sweep, WorkloadAxis

_SERIES = 3
"""Batches that are worth calling a series."""

Name = TypeVar("Name")


def measuring(found: Explanation, lack: Lack, sweeps: Mapping[Name, Sweep]) -> Name | None:
    """The smallest of some sweeps that measures what is lacking; null if none of them does.

    Args:
        found: the explanation.
        lack: one of its lacks, but not of rounds, which `taxmeter reproduce` adds to what is there.
        sweeps: by name.
    """
    fitting = [(_size(sweep), name) for name, sweep in sweeps.items() if _measures(sweep, found, lack)]
    return min(fitting, key=lambda one: one[0])[1] if fitting else None


def _measures(sweep: Sweep, found: Explanation, lack: Lack) -> bool:
    row = found.row
    if (sweep.device, sweep.protocol.procedure) != (row["device"], "standard") or row["dtype"] not in sweep.dtypes:
        return False
    backends = {axis.name for axis in sweep.backends}
    if row["backend"] not in backends:
        return False
    return any(_axis_measures(axis, sweep, found, lack, len(backends)) for axis in sweep.workloads)


def _axis_measures(axis: WorkloadAxis, sweep: Sweep, found: Explanation, lack: Lack, backends: int) -> bool:
    row = found.row
    if lack is Lack.VARIANTS:
        return ADJUSTABLE in axis.name and any(len(values) > 1 for values in axis.options.values())
    if row["workload"] not in axis.name:
        return False
    if lack is Lack.TAX:
        budgets = sweep.protocol
        return row["batch"] in axis.batch and bool(
            budgets.floor_budget_ms if row["device"] == "cpu" else budgets.profile_calls and budgets.dispatch_budget_ms
        )
    if lack is Lack.BACKENDS:
        return row["batch"] in axis.batch and backends > 1
    if lack is Lack.LARGER_BATCHES:
        largest = found.transition.batches[-1] if found.transition else row["batch"]
        return max(axis.batch) > largest and len(axis.batch) >= _SERIES
    return len(axis.batch) >= _SERIES


def _size(sweep: Sweep) -> int:
    points = sum(
        len(axis.name) * len(axis.batch) * len(axis.sequence_length or (0,)) * len(axis.image_size or (0,))
        for axis in sweep.workloads
    )
    return points * len(sweep.backends) * len(sweep.dtypes) * sweep.planned_rounds

"""All that the store can say about one configuration, what it lacks to say more, and which sweep would measure that."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeVar

import numpy as np

from orchestrator.analysis.axes import Row, Shape, backend_name, grouped, shape_of
from orchestrator.analysis.explanation.call import ExecutionTax, execution_of, execution_taxes
from orchestrator.analysis.explanation.larger import (
    ADJUSTABLE,
    FreeBatch,
    Variant,
    free_batch,
    point_of,
    siblings,
    variants,
)
from orchestrator.analysis.frame import Frame, frame_columns, last_attempts, measured
from orchestrator.analysis.metrics import METRICS, default_metric
from orchestrator.analysis.ratios import Pairing, Visit, by_visit, is_ok, shared_visits
from orchestrator.analysis.statistics import Estimate, t_interval
from orchestrator.analysis.summary import FailureGroup, failure_groups
from orchestrator.analysis.tax import Tax, proven, tax_of
from orchestrator.analysis.transition import Side, Transition, transition_of
from orchestrator.config import Sweep, WorkloadAxis
from orchestrator.store import CONFIGURATION
from runners.contract import Status

ENOUGH_ROUNDS: Final = 3
"""With fewer, intervals say next to nothing: Student's t for two rounds is thirteen errors wide to either side."""
_SERIES: Final = 3
"""Batches that are worth calling a series."""
_MEASURED: Final = (
    *("dispatch_floor_s", "dispatch_floor_valid", "dispatch_floor_problem", "dispatch_s", "busy_s", "graph_s"),
    "parallel_region_tax_s",
    *("exposed_overhead_s", "exposed_overhead_graph_s", "overhead_estimates_agree", "framework_fraction"),
    *("latency_floor_log_ratio", "boundedness", "tax_ratio", "operations", "kernels", "flops"),
)


Name = TypeVar("Name")


class Lack(Enum):
    """What an explanation misses."""

    ROUNDS = "rounds"
    TAX = "tax"
    """The measurement that tells framework and device apart."""
    BATCHES = "batches"
    LARGER_BATCHES = "larger batches"
    BACKENDS = "backends"
    VARIANTS = "variants"


@dataclass(frozen=True)
class Alternative:
    """One other backend, on the same system and work."""

    backend: str
    speedup: Estimate | None
    """Our latency over its: above 1 it is faster. Null if no trial of it was ok."""
    removed_share: Estimate | None
    """The share of our exposed overhead that is gone with it, 1 if all; below 0 if it has more. Null if unknown."""
    is_paired: bool
    status: Status
    """`ok`, or how it ended."""
    reason: str | None


@dataclass(frozen=True)
class Explanation:
    """Of one configuration on one system."""

    row: Row
    """One of its trials, for what all of them share."""
    shape: Shape
    batch: int
    backend: str
    campaigns: tuple[str, ...]
    hosts: tuple[str, ...]
    tax: Tax
    execution: ExecutionTax | None
    """Null where no other backend shares a round with it."""
    failed: tuple[FailureGroup, ...]
    transition: Transition | None
    free: FreeBatch | None
    variants: tuple[Variant, ...]
    alternatives: tuple[Alternative, ...]
    lacks: tuple[Lack, ...]


def explain_columns() -> list[str]:
    """The columns of `trials` that an explanation needs."""
    latencies = (name for mode in ("latency_sync", "latency_pipelined") for name in frame_columns(METRICS[mode]))
    return list(dict.fromkeys(["trial_id", "attempt", *CONFIGURATION, *_MEASURED, *latencies]))


def explain(rows: Iterable[Row], target: Row) -> Explanation:
    """Explains a configuration.

    Args:
        rows: with the columns of `explain_columns`: at least all trials of its system.
        target: one of them, of the configuration that is asked about.
    """
    device = target["device"]
    whole = last_attempts(rows)
    every = [row for row in whole if row["replicate"] == 0]
    frame = Frame(every, default_metric({device}), campaigns=whole)
    ours = siblings(every, target)
    tax = tax_of(ours, device)
    series = grouped((row for row in siblings(every, target, but=("batch",)) if is_ok(row)), lambda row: row["batch"])
    others = _alternatives(siblings(every, target, but=("backend", "backend_options")), ours, frame)
    same_work = siblings(every, target, but=("backend", "backend_options", "environment_id"))
    larger = variants(frame, target)
    changing = transition_of(series, device)
    free = free_batch(series, frame)
    return Explanation(
        row=target,
        shape=shape_of(target),
        batch=target["batch"],
        backend=backend_name(target),
        campaigns=tuple(sorted({row["campaign_id"] for row in ours})),
        hosts=tuple(sorted({row["host"] for row in ours if row["host"]})),
        tax=tax,
        execution=execution_taxes(same_work).get(execution_of(target)),
        failed=failure_groups(ours, backend_name),
        transition=changing,
        free=free,
        variants=larger,
        alternatives=others,
        lacks=_lacks(tax, changing, free, others, needs_variants=not larger and point_of(target) is not None),
    )


def removed_share(ours: Mapping[Visit, float], theirs: Mapping[Visit, float]) -> Estimate | None:
    """How much of an overhead is gone, as a share; null unless we have any.

    Student's t on the rounds' shares themselves, not on logarithms: what is left may be nothing or less. Without enough
    shared rounds it is that of the medians, without an interval.
    """
    positive = {visit: value for visit, value in ours.items() if value > 0}
    if not positive or not theirs:
        return None
    shared = shared_visits(positive, theirs)
    if not shared:
        share = 1 - float(np.median(list(theirs.values())) / np.median(list(positive.values())))
        return Estimate(share, None, None, len(positive) + len(theirs), len(positive) + len(theirs))
    shares = np.array([1 - theirs[visit] / positive[visit] for visit in shared])
    return Estimate(*t_interval(shares), len(shares), 2 * len(shares))


def _alternatives(rows: Sequence[Row], ours: Sequence[Row], frame: Frame) -> tuple[Alternative, ...]:
    """The other backends, the fastest first, those that failed last."""
    own = {id(row) for row in ours}
    by_backend = grouped((row for row in rows if id(row) not in own), backend_name)
    found = [_alternative(name, theirs, ours, frame) for name, theirs in sorted(by_backend.items())]
    return tuple(sorted(found, key=lambda other: -other.speedup.value if other.speedup else 0.0))


def _alternative(name: str, theirs: Sequence[Row], ours: Sequence[Row], frame: Frame) -> Alternative:
    known = measured(theirs, frame.metric)
    ratio = frame.ratio(known, measured(ours, frame.metric))
    failed = [row for row in theirs if not is_ok(row)]
    on_cpu = theirs[0]["device"] == "cpu"
    # A proven floor or nothing: else the operations of the twin are not those of the trial.
    counts = [proven(rows) for rows in (ours, theirs)]
    share = removed_share(*(by_visit(rows, "exposed_overhead_s") for rows in counts))
    if on_cpu and share is not None:
        # Of two floors, each the least of its rounds: no rounds are left to scatter
        share = share.bare
    worst = failed[0] if failed and not known else None
    return Alternative(
        backend=name,
        speedup=None if ratio is None else ratio.estimate,
        removed_share=share,
        is_paired=ratio is not None and ratio.pairing is not Pairing.UNPAIRED,
        status=Status.OK if worst is None else Status(worst["status"]),
        reason=None if worst is None else worst["reason"],
    )


def _lacks(
    tax: Tax,
    changing: Transition | None,
    free: FreeBatch | None,
    others: Sequence[Alternative],
    *,
    needs_variants: bool,
) -> tuple[Lack, ...]:
    is_above = changing is not None and changing.side is Side.ABOVE
    missing = {
        Lack.ROUNDS: tax.processes < ENOUGH_ROUNDS,
        Lack.TAX: tax.load is None,
        Lack.BATCHES: free is None,
        # Where everything measured is free, the end of it is what is not known.
        Lack.LARGER_BATCHES: free is not None and (free.next_batch is None or is_above),
        Lack.BACKENDS: not any(other.speedup for other in others),
        Lack.VARIANTS: needs_variants,
    }
    return tuple(lack for lack, is_missing in missing.items() if is_missing)


def measuring(found: Explanation, lack: Lack, sweeps: Mapping[Name, Sweep]) -> Name | None:
    """The smallest of some sweeps that measures what is lacking; null if none of them does.

    Args:
        found: the explanation.
        lack: one of its lacks, but not of rounds, which `taxmeter reproduce` adds to what is there.
        sweeps: by name.
    """
    fitting = [(_size(sweep), name) for name, sweep in sweeps.items() if _measures(sweep, found, lack)]
    return min(fitting, key=lambda pair: pair[0])[1] if fitting else None


def _measures(sweep: Sweep, found: Explanation, lack: Lack) -> bool:
    row, backends = found.row, {axis.name for axis in sweep.backends}
    is_alike = (sweep.device, sweep.protocol.procedure) == (row["device"], "standard") and row["dtype"] in sweep.dtypes
    if not is_alike or row["backend"] not in backends:
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

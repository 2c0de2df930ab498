"""All that the store can say about one configuration, and what it lacks to say more."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

import numpy as np

from orchestrator.analysis.axes import Shape, backend_name, shape_of
from orchestrator.analysis.explanation.execution import ExecutionTax, execution_of, execution_taxes
from orchestrator.analysis.explanation.larger import FreeBatch, Variant, free_batch, point_of, siblings, variants
from orchestrator.analysis.explanation.tax import Tax, tax_of
from orchestrator.analysis.frame import Frame, cell_of, frame_columns, grouped, last_attempts
from orchestrator.analysis.metrics import METRICS, default_metric
from orchestrator.analysis.ratios import Pairing, Row, Visit, by_visit, is_ok, shared_visits
from orchestrator.analysis.statistics import Estimate, t_interval
from orchestrator.analysis.tax import loads, pace, proven
from orchestrator.analysis.transition import Side, Transition, transition
from orchestrator.store import CONFIGURATION
from runners.contract import Status

ENOUGH_ROUNDS: Final = 3
"""With fewer, intervals say next to nothing: Student's t for two rounds is thirteen errors wide to either side."""
_MEASURED: Final = (
    *("dispatch_floor_s", "dispatch_floor_valid", "dispatch_floor_problem", "dispatch_s", "busy_s", "graph_s"),
    "parallel_region_tax_s",
    *("exposed_overhead_s", "exposed_overhead_graph_s", "overhead_estimates_agree", "framework_fraction"),
    *("latency_floor_log_ratio", "boundedness", "tax_ratio", "operations", "kernels", "flops"),
)


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
class Failed:
    """A trial of the configuration that did not end well."""

    status: Status
    reason: str | None
    count: int


@dataclass(frozen=True)
class Alternative:
    """One other backend, on the same system and work."""

    backend: str
    speedup: Estimate | None
    """Our latency over its: above 1 it is faster. Null if no trial of it was ok."""
    removed: Estimate | None
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
    failed: tuple[Failed, ...]
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
    larger = variants(every, target)
    changing = _transition(series, device)
    free = free_batch({batch: by_visit(some, pace(device)) for batch, some in series.items()})
    return Explanation(
        row=target,
        shape=shape_of(target),
        batch=target["batch"],
        backend=backend_name(target),
        campaigns=tuple(sorted({row["campaign_id"] for row in ours})),
        hosts=tuple(sorted({row["host"] for row in ours if row["host"]})),
        tax=tax,
        execution=execution_taxes(same_work).get(execution_of(target)),
        failed=_failed(ours),
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

    Args:
        ours: exposed overhead in seconds.
        theirs: the same of the other backend.
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
    cells = [cell_of((), rows, frame.metric) for rows in (theirs, ours)]
    ratio = frame.ratio(cells[0].measured, cells[1].measured)
    failed = [row for row in theirs if not is_ok(row)]
    on_cpu = theirs[0]["device"] == "cpu"
    # A proven floor or nothing: else the operations of the twin are not those of the trial.
    counts = [proven(rows) for rows in (ours, theirs)]
    removed = removed_share(*(by_visit(rows, "exposed_overhead_s") for rows in counts))
    if on_cpu and removed is not None:
        # Of two floors, each the least of its rounds: no rounds are left to scatter
        removed = replace(removed, low=None, high=None)
    worst = failed[0] if failed and not cells[0].measured else None
    return Alternative(
        backend=name,
        speedup=None if ratio is None else ratio.estimate,
        removed=removed,
        is_paired=ratio is not None and ratio.pairing is not Pairing.UNPAIRED,
        status=Status.OK if worst is None else Status(worst["status"]),
        reason=None if worst is None else worst["reason"],
    )


def _transition(series: Mapping[int, Sequence[Row]], device: str) -> Transition | None:
    known = {batch: loads(rows, device) for batch, rows in series.items()}
    usable = {batch: visits for batch, visits in known.items() if visits}
    return transition(usable) if len(usable) > 1 else None


def _failed(rows: Sequence[Row]) -> tuple[Failed, ...]:
    groups = grouped((row for row in rows if not is_ok(row)), lambda row: (row["status"], row["reason"]))
    return tuple(Failed(Status(status), reason, len(some)) for (status, reason), some in groups.items())


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

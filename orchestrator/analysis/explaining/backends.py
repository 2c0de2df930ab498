"""What the other backends make of the same work: how much faster, and how much of the tax is left."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from orchestrator.analysis.explaining.processes import Row, by_visit, is_ok
from orchestrator.analysis.metrics import default_metric
from orchestrator.analysis.pairing import Visit, shared_visits
from orchestrator.analysis.ratios import Pairing, Priors, ratio_of
from orchestrator.analysis.shape import backend_name
from orchestrator.analysis.statistics import Estimate, t_interval
from runners.contract import Status


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


def alternatives(rows: Sequence[Row], ours: Sequence[Row], device: str, priors: Priors) -> tuple[Alternative, ...]:
    """The other backends, the fastest first, those that failed last.

    Args:
        rows: siblings in all but the backend.
        ours: those among them of the configuration itself.
        device: `cpu` or `cuda`.
        priors: of the system.
    """
    own = {id(row) for row in ours}
    by_backend: dict[str, list[Row]] = {}
    for row in rows:
        if id(row) not in own:
            by_backend.setdefault(backend_name(dict(row)), []).append(row)
    found = [_alternative(name, theirs, ours, device, priors) for name, theirs in sorted(by_backend.items())]
    return tuple(sorted(found, key=lambda one: -one.speedup.value if one.speedup else 0.0))


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


def _alternative(name: str, theirs: Sequence[Row], ours: Sequence[Row], device: str, priors: Priors) -> Alternative:
    metric = default_metric({device})
    sides = [[row for row in rows if is_ok(row) and (row[metric.column] or 0) > 0] for rows in (theirs, ours)]
    ratio = ratio_of(sides[0], sides[1], metric.reading, priors)
    failed = [row for row in theirs if not is_ok(row)]
    # A proven floor or nothing: else the operations of the twin are not those of the trial.
    proven = [
        [row for row in rows if device != "cpu" or row["dispatch_floor_valid"] is True] for rows in (ours, theirs)
    ]
    overheads = [by_visit(rows, "exposed_overhead_s") for rows in proven]
    removed = removed_share(*overheads)
    if device == "cpu" and removed is not None:
        # Of two floors, each the least of its rounds: no rounds are left to scatter
        removed = replace(removed, low=None, high=None)
    worst = failed[0] if failed and not sides[0] else None
    return Alternative(
        backend=name,
        speedup=None if ratio is None else ratio.estimate,
        removed=removed,
        is_paired=ratio is not None and ratio.pairing is not Pairing.UNPAIRED,
        status=Status.OK if worst is None else Status(worst["status"]),
        reason=None if worst is None else worst["reason"],
    )

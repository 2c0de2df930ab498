"""Trials of then and now, side by side: latencies, the ratio with its interval, and the verdict.

A ratio is the latency of then over that of now: above 1 is faster now. The rounds of two campaigns do not pair, so
that the processes of each side are what varies; what changed between the campaigns as wholes is what is asked for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from orchestrator.analysis.axes import Row, Shape, backend_name, grouped, shape_of
from orchestrator.analysis.frame import Frame, cell_of, frame_columns, last_attempts
from orchestrator.analysis.metrics import METRICS, Metric
from orchestrator.analysis.ratios import Ratio
from orchestrator.analysis.statistics import Estimate
from orchestrator.analysis.tax import complete, stored
from runners.contract import Status

MODES: Final[Mapping[str, Metric]] = {
    "one call at a time": METRICS["latency_sync"],
    "back-to-back calls": METRICS["latency_pipelined"],
    "the paper's procedure": METRICS["latency_legacy"],
}
"""By what they are called."""
_COLUMNS: Final = tuple(
    dict.fromkeys(["trial_id", "attempt", *(name for metric in MODES.values() for name in frame_columns(metric))])
)


@dataclass(frozen=True)
class TrialPlace:
    """Where the trials of one side are in the store."""

    campaign_id: str
    host: str
    trial_key: str


@dataclass(frozen=True)
class Sides:
    """One configuration then and now."""

    then: TrialPlace
    now: TrialPlace


@dataclass(frozen=True)
class ModeComparison:
    """One timing mode."""

    name: str
    then: Estimate | None
    """Seconds per call; null if no trial was measured."""
    now: Estimate | None
    ratio: Ratio | None
    """Latency then over latency now: above 1 is faster now. Null where a side is missing. All ratios of a reproduction
    are judged together."""


@dataclass(frozen=True)
class Comparison:
    """One configuration."""

    sides: Sides
    shape: Shape
    batch: int
    backend: str
    modes: tuple[ModeComparison, ...]
    statuses_then: Mapping[Status, int]
    statuses_now: Mapping[Status, int]
    reasons_now: tuple[str, ...]
    """Why trials did not end ok, each text once."""


def reproduction_columns() -> list[str]:
    return stored(_COLUMNS)


def compare_sides(then: pa.Table, now: pa.Table, sides: Sequence[Sides]) -> tuple[Comparison, ...]:
    """Compares configurations, in the order of `sides`."""
    tables = [complete(table, _COLUMNS).to_pylist() for table in (then, now)]
    rows = last_attempts(row for table in tables for row in table)
    frames = {name: Frame(rows, metric, campaigns=rows) for name, metric in MODES.items()}
    # Replicate 1 exists for the A/A control only
    firsts = (row for row in rows if row["replicate"] == 0)
    by_place = grouped(firsts, lambda row: TrialPlace(row["campaign_id"], row["host"] or "", row["trial_key"]))
    found = [_comparison(pair, by_place.get(pair.then, []), by_place.get(pair.now, []), frames) for pair in sides]
    ratios = iter(frames["one call at a time"].judged(mode.ratio for bare in found for mode in bare.modes))
    return tuple(replace(bare, modes=tuple(replace(mode, ratio=next(ratios)) for mode in bare.modes)) for bare in found)


def _comparison(sides: Sides, then: Sequence[Row], now: Sequence[Row], frames: Mapping[str, Frame]) -> Comparison:
    described = (now or then)[0]
    cells = {name: (cell_of((), then, frame.metric), cell_of((), now, frame.metric)) for name, frame in frames.items()}
    before, after = next(iter(cells.values()))
    return Comparison(
        sides=sides,
        shape=shape_of(described),
        batch=described["batch"],
        backend=backend_name(described),
        modes=tuple(
            ModeComparison(name, old.estimate, new.estimate, frames[name].ratio(new.measured, old.measured))
            for name, (old, new) in cells.items()
            if old.measured or new.measured
        ),
        statuses_then=before.statuses,
        statuses_now=after.statuses,
        reasons_now=after.reasons,
    )

"""Trials of then and now, side by side: latencies, the ratio with its interval, and the verdict.

A ratio is the latency of then over that of now: above 1 is faster now. The rounds of two campaigns do not pair, so
that the processes of each side are what varies; what changed between the campaigns as wholes is what is asked for.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from orchestrator.analysis.shape import Shape, backend_name, shape_of
from orchestrator.analysis.statistics import Estimate, Floats, median_over_processes, unpaired_ratio
from orchestrator.analysis.summary import last_attempts
from orchestrator.analysis.verdict import Judgement, judge_family
from runners.contract import Status

MODES: Mapping[str, str] = {
    "one call at a time": "samples_sync_s",
    "back-to-back calls": "samples_pipelined_s",
    "the paper's procedure": "samples_legacy_s",
}
"""By what they are called: the columns that hold their samples."""

_COLUMNS = (
    *("campaign_id", "trial_id", "attempt", "trial_key", "host", "round", "replicate", "status", "reason"),
    *("workload", "batch", "sequence_length", "image_size", "workload_options", "backend", "backend_options"),
    *("dtype", "device", "threads", "seed", "protocol"),
)

Row = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """Where the trials of one side are in the store."""

    campaign_id: str
    host: str
    trial_key: str


@dataclass(frozen=True)
class Sides:
    """One configuration then and now."""

    then: Place
    now: Place


@dataclass(frozen=True)
class ModeComparison:
    """One timing mode."""

    name: str
    then: Estimate | None
    """Seconds per call; null if no trial has samples."""
    now: Estimate | None
    ratio: Estimate | None
    """Latency then over latency now, unpaired: above 1 is faster now. Null where a side is missing."""
    judgement: Judgement | None
    """Null without a ratio. All ratios of a reproduction are judged together."""


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
    """The columns of `trials` that `compare_sides` needs."""
    return [*_COLUMNS, *MODES.values()]


def compare_sides(then: pa.Table, now: pa.Table, sides: Sequence[Sides]) -> tuple[Comparison, ...]:
    """Compares configurations, in the order of `sides`.

    Args:
        then: the trials of the campaign that was reproduced, with at least `reproduction_columns`.
        now: those of the new one.
        sides: what is compared with what.
    """
    by_place = _by_place(then) | _by_place(now)
    found = [_comparison(one, by_place.get(one.then, []), by_place.get(one.now, [])) for one in sides]
    # All of them are looked at together: chance must not find a difference among many.
    ratios = [mode.ratio for one in found for mode in one.modes if mode.ratio is not None]
    judgements = iter(judge_family(ratios))
    return tuple(
        replace(
            one,
            modes=tuple(
                mode if mode.ratio is None else replace(mode, judgement=next(judgements)) for mode in one.modes
            ),
        )
        for one in found
    )


def _by_place(trials: pa.Table) -> dict[Place, list[Row]]:
    found: dict[Place, list[Row]] = {}
    for row in last_attempts(trials.select(reproduction_columns()).to_pylist()):
        # Replicate 1 exists for the A/A control only
        if row["replicate"] == 0:
            place = Place(row["campaign_id"], row["host"] or "", row["trial_key"])
            found.setdefault(place, []).append(row)
    return found


def _comparison(sides: Sides, then: Sequence[Row], now: Sequence[Row]) -> Comparison:
    described = (now or then)[0]
    reasons = dict.fromkeys(row["reason"] for row in now if row["status"] != Status.OK.value and row["reason"])
    return Comparison(
        sides=sides,
        shape=shape_of(described),
        batch=described["batch"],
        backend=backend_name(described),
        modes=tuple(_mode(name, column, then, now) for name, column in MODES.items() if _has(column, then, now)),
        statuses_then=_statuses(then),
        statuses_now=_statuses(now),
        reasons_now=tuple(reasons),
    )


def _mode(name: str, column: str, then: Sequence[Row], now: Sequence[Row]) -> ModeComparison:
    before, after = _processes(then, column), _processes(now, column)
    ratio = None
    if before and after:
        samples = sum(len(one) for one in [*before, *after])
        ratio = unpaired_ratio(_medians(before), _medians(after), samples)
    return ModeComparison(name, _latency(before), _latency(after), ratio, None)


def _latency(processes: Sequence[Floats]) -> Estimate | None:
    return median_over_processes(processes) if processes else None


def _has(column: str, *sides: Sequence[Row]) -> bool:
    return any(_processes(rows, column) for rows in sides)


def _processes(rows: Sequence[Row], column: str) -> list[Floats]:
    ordered = sorted(rows, key=lambda row: row["round"])
    return [np.array(row[column]) for row in ordered if row["status"] == Status.OK.value and row[column]]


def _medians(processes: Sequence[Floats]) -> Floats:
    return np.array([np.median(one) for one in processes])


def _statuses(rows: Sequence[Row]) -> Counter[Status]:
    return Counter(Status(row["status"]) for row in rows)

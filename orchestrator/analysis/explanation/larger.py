"""What costs nothing: larger batches, and wider or deeper models, up to where latency begins to follow them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import numpy as np

from orchestrator.analysis.axes import Row, options_of
from orchestrator.analysis.frame import Frame, measured
from orchestrator.analysis.ratios import is_ok
from orchestrator.analysis.statistics import Estimate
from orchestrator.store import CONFIGURATION

FREE: Final = 1.1
"""A latency up to this many times that of one example counts as the same: the paper's plateau, as a number."""
ADJUSTABLE: Final = "bert"
"""The workload whose depth and width are options."""
_AS_ADJUSTABLE: Final = {"bert-base": {"layers": 12, "hidden_size": 768, "heads": 12, "intermediate_size": 0}}
"""Models that are the adjustable one at some point of it."""


class Direction(Enum):
    """In which way a model is larger."""

    WIDTH = "hidden_size"
    DEPTH = "layers"


@dataclass(frozen=True)
class FreeBatch:
    """The largest measured batch that is shown to cost no more than a tenth above the smallest."""

    base: int
    """The smallest measured batch."""
    batch: int
    cost: Estimate
    """Its latency over that of the base."""
    next_batch: int | None
    """The next larger one; null where even the largest measured batch is free."""
    next_cost: Estimate | None

    @property
    def is_decided(self) -> bool:
        """False where the next larger batch may be free, too."""
        return self.next_cost is None or is_free(self.next_cost) is False


@dataclass(frozen=True)
class Variant:
    """The same model, wider or deeper."""

    direction: Direction
    size: int
    """Of the option that the direction names."""
    cost: Estimate
    """Its latency over that of the configuration."""
    work: float | None
    """Its arithmetic over that of the configuration; null where it was not counted."""

    @property
    def is_free(self) -> bool | None:
        """Whether it costs no more than a tenth; null where that is not decided."""
        return is_free(self.cost)


def is_free(cost: Estimate) -> bool | None:
    """Whether something costs no more than a tenth; null where the interval reaches to both sides, or is missing."""
    if cost.low is None or cost.high is None:
        return None
    if cost.high <= FREE:
        return True
    return False if cost.low > FREE else None


def free_batch(series: Mapping[int, Sequence[Row]], frame: Frame) -> FreeBatch | None:
    """The free batch of a series over batches; null with fewer than two batches.

    A batch beyond one that costs more is not free, even if noise lets it look so; below one that is free all are.
    """
    known = {batch: rows for batch in sorted(series) if (rows := measured(series[batch], frame.metric))}
    costs = {batch: cost for batch, rows in known.items() if (cost := _cost(rows, next(iter(known.values())), frame))}
    batches = list(costs)
    if len(batches) < 2:
        return None
    at = 0
    for index, batch in enumerate(batches[1:], 1):
        shown = is_free(costs[batch])
        if shown is False:
            break
        if shown:
            at = index
    following = batches[at + 1] if at + 1 < len(batches) else None
    return FreeBatch(
        batches[0], batches[at], costs[batches[at]], following, None if following is None else costs[following]
    )


def siblings(rows: Iterable[Row], target: Row, but: Sequence[str] = ()) -> list[Row]:
    """The rows that are like another in all but the named columns; all of them, failed ones too."""
    fixed = [name for name in CONFIGURATION if name not in but]
    wanted = [target[name] for name in fixed]
    return [row for row in rows if [row[name] for name in fixed] == wanted]


def variants(frame: Frame, target: Row) -> tuple[Variant, ...]:
    """The trials of the same model with another width or depth alone, by direction and size."""
    point = point_of(target)
    if point is None:
        return ()
    alike = siblings(frame.rows, target, but=("workload", "workload_options"))
    ours = measured((row for row in alike if point_of(row) == point), frame.metric)
    found = []
    for direction in Direction:
        sizes = {size for row in alike if (size := _size_along(row, point, direction)) is not None}
        for size in sorted(sizes - {point[direction.value]}):
            theirs = [row for row in alike if _size_along(row, point, direction) == size]
            cost = _cost(measured(theirs, frame.metric), ours, frame)
            if cost is not None:
                found.append(Variant(direction, size, cost, _work(theirs, target)))
    return tuple(found)


def point_of(row: Row) -> dict[str, Any] | None:
    """All options of a row's model, as the adjustable one has them; null for any other model."""
    if row["workload"] != ADJUSTABLE and row["workload"] not in _AS_ADJUSTABLE:
        return None
    return {**_AS_ADJUSTABLE.get(row["workload"], {}), **options_of(row)}


def _cost(rows: Sequence[Row], base: Sequence[Row], frame: Frame) -> Estimate | None:
    """How many times the latency of some trials is that of others; null where there is no ratio."""
    ratio = frame.ratio(base, rows)
    return None if ratio is None else ratio.estimate


def _size_along(row: Row, point: Mapping[str, Any], direction: Direction) -> int | None:
    """Its size in one direction, if it differs from the point in no other."""
    here = point_of(row)
    if here is None or any(here.get(name) != value for name, value in point.items() if name != direction.value):
        return None
    return int(here[direction.value])


def _work(theirs: Sequence[Row], target: Row) -> float | None:
    counted = [row["flops"] for row in theirs if is_ok(row) and row["flops"]]
    return float(np.median(counted)) / target["flops"] if counted and target["flops"] else None

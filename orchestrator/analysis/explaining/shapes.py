"""Wider and deeper models beside the configuration: what their larger arithmetic costs in time."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from orchestrator.analysis.explaining.free import Direction, Variant
from orchestrator.analysis.explaining.processes import Row, by_visit, is_ok, options_of, pace, ratio_of, siblings

ADJUSTABLE: Final = "bert"
"""The workload whose depth and width are options."""
_AS_ADJUSTABLE: Final = {"bert-base": {"layers": 12, "hidden_size": 768, "heads": 12, "intermediate_size": 0}}
"""Models that are the adjustable one at some point of it."""


def variants(rows: Sequence[Row], target: Row) -> tuple[Variant, ...]:
    """The trials of the same model with another width or depth alone, by direction and size.

    Args:
        rows: of `countable`.
        target: a row of the configuration.
    """
    point = point_of(target)
    if point is None:
        return ()
    alike = siblings(rows, target, but=("workload", "workload_options"))
    ours = by_visit([row for row in alike if point_of(row) == point], pace(target["device"]))
    found = []
    for direction in Direction:
        sizes = {_size_along(row, point, direction) for row in alike} - {None, point[direction.value]}
        for size in sorted(one for one in sizes if one is not None):
            theirs = [row for row in alike if _size_along(row, point, direction) == size]
            cost = ratio_of(by_visit(theirs, pace(target["device"])), ours)
            if cost is not None:
                found.append(Variant(direction, size, cost, _work(theirs, target)))
    return tuple(found)


def point_of(row: Row) -> dict[str, Any] | None:
    """All options of a row's model, as the adjustable one has them; null for any other model."""
    if row["workload"] != ADJUSTABLE and row["workload"] not in _AS_ADJUSTABLE:
        return None
    return {**_AS_ADJUSTABLE.get(row["workload"], {}), **options_of(row)}


def _size_along(row: Row, point: dict[str, Any], direction: Direction) -> int | None:
    """Its size in one direction, if it differs from the point in no other."""
    here = point_of(row)
    if here is None or any(here.get(name) != value for name, value in point.items() if name != direction.value):
        return None
    return int(here[direction.value])


def _work(theirs: Sequence[Row], target: Row) -> float | None:
    counted = [row["flops"] for row in theirs if is_ok(row) and row["flops"]]
    return float(np.median(counted)) / target["flops"] if counted and target["flops"] else None

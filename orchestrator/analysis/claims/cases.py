"""Cases of claims: what a claim is decided for, each measurement once."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from orchestrator.analysis.axes import Axis
from orchestrator.analysis.claims.configurations import (
    Configuration,
    chosen,
    failures,
    grouped,
    pair_labels,
    pairs_of_groups,
)
from orchestrator.analysis.claims.intervals import Figure, Printed, Scale, figure_of
from orchestrator.analysis.conditions import parse_conditions
from orchestrator.analysis.ratios import ratio_of
from orchestrator.analysis.statistics import Estimate

Points: TypeAlias = Sequence[Configuration]
"""What a number is of, in the order in which they count: one configuration, or a series along an axis."""
Sides: TypeAlias = tuple[Points, Points]
"""What is compared, and what with; the second is empty where nothing is."""


@dataclass(frozen=True)
class Case:
    """What a claim is decided for."""

    label: str
    figure: Figure | None
    """Null if there is no number."""
    metric: str
    """What the number is of; of a correlation, what follows the other."""
    note: str = ""
    """What else there is to say of the number, or why there is none."""
    is_impossible: bool = False
    """Whether it cannot run, so that the claim cannot be about it."""
    published: Printed | None = None
    """What the source prints for this case alone."""


@dataclass(frozen=True)
class Cases:
    """All cases, and what is missing for more."""

    cases: tuple[Case, ...] = ()
    missing: tuple[str, ...] = ()


def case_of(
    label: str,
    estimate: Estimate | None,
    points: Points,
    metric: str | None,
    note: str = "",
    scale: Scale = Scale.LOGARITHMIC,
) -> Case:
    """The case of an estimate; without one it says why there is none."""
    name = points[0].metric(metric).name
    if estimate is not None:
        return Case(label, figure_of(estimate, scale), name, note)
    values = [value for point in points for value in point.values(point.metric(metric)).values()]
    not_above_0 = sum(value <= 0 for value in values)
    reasons = [f"not above 0 in {not_above_0} of {len(values)} processes"] if not_above_0 else failures(points)
    reason = reasons[0] if reasons else "it was not measured"
    return Case(label, None, name, reason, any(point.is_impossible for point in points))


def named(found: Iterable[Sides], metric: str | None) -> Iterator[tuple[str, str, Sides]]:
    """What cases are made of, with a label and a note; what has the same measurements behind it once.

    The floor of a processor is measured once for all shapes of a structure, and stands in the rows of each.
    """
    sets: dict[Any, list[Sides]] = {}
    for number, sides in enumerate(found):
        points = [*sides[0], *sides[1]]
        values = [point.values(points[0].metric(metric)) for point in points]
        behind = tuple(tuple(sorted(value.items())) for value in values)
        sets.setdefault(behind if all(behind) else number, []).append(sides)
    merged: list[Sides] = [
        ([point for ours, _ in same for point in ours], [point for _, theirs in same for point in theirs])
        for same in sets.values()
    ]
    for label, same in zip(pair_labels(merged), sets.values(), strict=True):
        names = pair_labels(same)
        note = f"measured once for {', '.join(names[:-1])} and {names[-1]}" if len(same) > 1 else ""
        yield label, note, same[0]


def paired(
    of: Sequence[str], against: Sequence[str], every: Points, known: Points, within: Sequence[Axis] = ()
) -> tuple[list[Sides], tuple[str, ...]]:
    """All pairs that differ in nothing but the axes of two lists of conditions, and what is missing.

    Args:
        of: conditions on one side.
        against: those on the other.
        every: to choose from.
        known: where words such as `A100` get their meaning from.
        within: axes along which each side is a series.
    """
    conditions = [parse_conditions(texts) for texts in (of, against)]
    sides, missing = zip(*(chosen(every, side, known) for side in conditions), strict=True)
    axes = {condition.axis.name: condition.axis for side in conditions for condition in side}
    pairs: list[Sides] = [*pairs_of_groups(sides[0], sides[1], list(axes.values()), within)]
    lost = tuple(text for texts in missing for text in texts)
    if not pairs and not lost:
        lost = (f"nothing with {' '.join(of)} is like something with {' '.join(against)} in all else",)
    return pairs, lost


def pair_cases(pairs: Iterable[Sides], metric: str | None, name: str = "", *, is_better: bool = False) -> list[Case]:
    """A case for each pair: the first over the second, or how many times better it is.

    Args:
        pairs: of one configuration each.
        metric: what is compared.
        name: what the label ends with.
        is_better: whether above 1 is better, whatever the metric.
    """
    return [
        case_of(
            f"{label} {name}".strip(), ratio(sides, metric, is_better=is_better), [*sides[0], *sides[1]], metric, note
        )
        for label, note, sides in named(pairs, metric)
    ]


def ratio(sides: Sides, metric: str | None, *, is_better: bool) -> Estimate | None:
    """The first over the second, or how many times better it is; null if a value is missing or not above 0."""
    (of,), (against,) = sides
    found = of.metric(metric)
    reading = found.reading if is_better else replace(found.reading, higher_is_better=True)
    estimated = ratio_of(of.measured(found), against.measured(found), reading, of.priors)
    return None if estimated is None else estimated.estimate


def series_along(axis: Axis, every: Points, at_least: int) -> tuple[list[Points], tuple[str, ...]]:
    """Series of configurations that differ along an axis alone, in its order, and why others are too short."""
    groups = grouped((point for point in every if axis.read(point.row) is not None), [axis])
    long: list[Points] = [
        sorted(group, key=lambda point: number_on(axis, point)) for group in groups if len(group) >= at_least
    ]
    most = max(map(len, groups), default=0)
    return long, () if long else (f"at most {most} values of {axis.name} in one series; {at_least} are needed",)


def number_on(axis: Axis, point: Configuration) -> float:
    """Where a configuration stands on an axis of numbers."""
    value = axis.read(point.row)
    assert isinstance(value, int)
    return float(value)

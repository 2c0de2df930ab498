"""From configurations to the cases of a claim: each a pair, a series or a set of points, with a number.

Each measurement is one case. Nothing is pooled over cases unless the claim says so (`mean_over`).
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, TypeAlias, TypeVar

from orchestrator.analysis.axes import AXES, Axis, grouped
from orchestrator.analysis.axes import axis as axis_of
from orchestrator.analysis.claims import intervals, schema
from orchestrator.analysis.claims.configurations import (
    Configuration,
    alike,
    chosen,
    failures,
    identity_without,
    labels,
    pair_labels,
    pairs_of_groups,
)
from orchestrator.analysis.claims.intervals import Figure, Printed, Scale, figure_of, mean_figure, quotient
from orchestrator.analysis.conditions import parse_conditions
from orchestrator.analysis.statistics import Estimate
from orchestrator.analysis.tax import is_bound
from orchestrator.analysis.transition import Side, transition_of

Points: TypeAlias = Sequence[Configuration]
"""What a number is of, in the order in which they count: one configuration, or a series along an axis."""
Sides: TypeAlias = tuple[Points, Points]
"""What is compared, and what with; the second is empty where nothing is."""
Point = TypeVar("Point")

TRANSITION_BATCH: Final = "transition_batch"


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

    def behind(sides: Sides) -> Any:
        points = [*sides[0], *sides[1]]
        values = [tuple(sorted(point.values(points[0].metric(metric)).items())) for point in points]
        return tuple(values) if all(values) else id(sides)

    sets = grouped(found, behind)
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
    """A case for each pair: the first over the second, or how many times better it is."""
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
    ours, theirs = of.measured(found), against.measured(found)
    if not is_better and not found.higher_is_better:
        # How many times better the second is, that is how many times less, is the first over it.
        ours, theirs = theirs, ours
    estimated = of.frames.by(found).ratio(ours, theirs)
    return None if estimated is None else estimated.estimate


def series_along(axis: Axis, every: Points, at_least: int) -> tuple[list[Points], tuple[str, ...]]:
    """Series of configurations that differ along an axis alone, in its order, and why others are too short."""
    groups = alike((point for point in every if axis.read(point.row) is not None), [axis])
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


def ratios(statistic: schema.Ratio, every: Points, known: Points, *, is_complete: bool) -> Cases:
    """A case for each pair that differs in nothing but what is compared; for each mean over pairs, or for two of them.

    Args:
        statistic: what the claim says.
        every: configurations that it is about.
        known: all configurations of the store.
        is_complete: whether all that the claim names is there, without which there is no mean.
    """
    if statistic.at is not None and statistic.than is not None:
        return _contrasts(statistic, statistic.at, statistic.than, every, known)
    pairs, missing = paired(statistic.of, statistic.against, every, known)
    if statistic.mean_over:
        return Cases(_means(statistic, pairs, every, is_complete=is_complete and not missing), missing)
    return Cases(tuple(pair_cases(pairs, statistic.metric, is_better=True)), missing)


def levels(statistic: schema.Level, every: Points) -> Cases:
    """A case for each configuration."""
    metric = statistic.metric
    return Cases(
        tuple(
            case_of(label, point.estimate(metric), [point], metric, note)
            for label, note, ((point,), _) in named((([point], []) for point in every), metric)
        )
    )


def flats(statistic: schema.Flat, every: Points) -> Cases:
    """A case for each series and value after the first."""
    axis, metric = axis_of(statistic.along), statistic.metric
    series, lost = series_along(axis, every, statistic.at_least)
    cases = []
    for label, note, ((first, *others), _) in named(((points, []) for points in series), metric):
        for other in others:
            values = [axis.shown(axis.read(point.row)) for point in (other, first)]
            name = f"{label} {axis.name} {' over '.join(values)}".strip()
            estimate = ratio(([other], [first]), metric, is_better=False)
            cases.append(case_of(name, estimate, [other, first], metric, note))
    return Cases(tuple(cases), lost)


def growths(statistic: schema.Growth, every: Points) -> Cases:
    """A case for each series."""
    axis, name = axis_of(statistic.along), statistic.metric
    series, lost = series_along(axis, every, statistic.at_least)
    cases = []
    for label, note, (points, _) in named(((points, []) for points in series), name):
        found = {number_on(axis, point): point.values(point.metric(name)) for point in points}
        known = {place: values for place, values in found.items() if values}
        if is_bound((row for point in points for row in point.rows), points[0].metric(name).column):
            # A floor is that of all its rounds: what scatters is the line.
            known = {place: dict([min(values.items(), key=lambda pair: pair[1])]) for place, values in known.items()}
        is_enough = len(known) >= statistic.at_least and all(min(values.values()) > 0 for values in known.values())
        span = f"{axis.name} {min(known):g} to {max(known):g}" if known else ""
        estimate = intervals.exponent(known) if is_enough else None
        cases.append(case_of(label, estimate, points, name, "; ".join(filter(None, (span, note))), Scale.LINEAR))
    return Cases(tuple(cases), lost)


def orderings(statistic: schema.Ordering, every: Points, known: Points, published: Sequence[float] | None) -> Cases:
    """A case for each pair of neighbours."""
    cases: list[Case] = []
    missing: dict[str, None] = {}
    for place, (less, more) in enumerate(pairwise(statistic.order)):
        sides = (f"{statistic.along}={more}",), (f"{statistic.along}={less}",)
        pairs, lost = paired(*sides, every, known)
        missing |= dict.fromkeys(lost)
        value = Printed.of(published[place + 1]).over(Printed.of(published[place])) if published else None
        found = pair_cases(pairs, statistic.metric, f"{more} over {less}")
        cases += [replace(case, published=value) for case in found]
    return Cases(tuple(cases), tuple(missing))


def transitions(statistic: schema.Transition, every: Points, known: Points) -> Cases:
    """A case for each series over batches, or for each pair of them."""
    batch = AXES["batch"]
    if statistic.of is None or statistic.against is None:
        series, lost = series_along(batch, every, 2)
        pairs: list[Sides] = [(points, []) for points in series]
    else:
        pairs, lost = paired(statistic.of, statistic.against, every, known, within=[batch])
    cases = []
    for label, (points, others) in zip(pair_labels(pairs), pairs, strict=True):
        figure, note = transition_batch(points), ""
        if others:
            other, note = transition_batch(others), "of the first over that of the second"
            figure = quotient(figure, other) if figure and other else None
        if figure is None:
            note = "the load of two batches at least is needed: dispatch and kernels, on a CPU a proven floor"
        elif figure.value is None:
            note = "beyond the batches that were measured"
        cases.append(Case(label, figure, TRANSITION_BATCH, note))
    return Cases(tuple(cases), lost)


def rank_correlations(statistic: schema.RankCorrelation, every: Points) -> Cases:
    """A case for each set of workloads; a workload is one point, the geometric mean over its configurations."""

    def points_of(group: Points) -> list[tuple[float, float]]:
        points: dict[str, list[tuple[float, float]]] = {}
        for configuration in group:
            x, y = (configuration.estimate(name) for name in (statistic.x, statistic.y))
            if x and y and x.value > 0 and y.value > 0:
                points.setdefault(configuration.row["workload"], []).append((math.log(x.value), math.log(y.value)))
        return [(sum(x) / len(x), sum(y) / len(y)) for x, y in (zip(*some, strict=True) for some in points.values())]

    groups = alike(every, [AXES["workload"]])
    return _correlations(groups, points_of, intervals.rank_correlation, statistic.at_least, statistic.y, "workloads")


def trends(statistic: schema.Trend, every: Points) -> Cases:
    """A case for each set of points, a point for each series over batches; one that is censored is a point, too."""
    batch = AXES["batch"]

    def points_of(group: Points) -> list[tuple[Figure, Figure]]:
        series = ((_peak_throughput(points), transition_batch(points)) for points in alike(group, [batch]))
        return [(x, y) for x, y in series if x and y]

    groups = alike(every, [batch, *map(axis_of, statistic.over)])
    return _correlations(groups, points_of, intervals.concordance, statistic.at_least, TRANSITION_BATCH, "series")


def transition_batch(series: Points) -> Figure | None:
    """The transition batch; beyond the measured batches its number is unknown, but the side is."""
    found = transition_of({point.row["batch"]: point.rows for point in series}, series[0].device)
    if found is None:
        return None
    degrees = max(1, found.rounds - 1)
    if found.interval is None:
        return Figure(found.batch, None, None, found.rounds, degrees)
    low = 0.0 if found.interval.low is None else found.interval.low
    high = math.inf if found.interval.high is None else found.interval.high
    return Figure(found.batch if found.side is Side.INSIDE else None, low, high, found.rounds, degrees)


def _peak_throughput(series: Points) -> Figure | None:
    found = [point.estimate("throughput") for point in series]
    best = max((estimate for estimate in found if estimate), key=lambda estimate: estimate.value, default=None)
    return None if best is None else figure_of(best)


def _means(statistic: schema.Ratio, pairs: Sequence[Sides], every: Points, *, is_complete: bool) -> tuple[Case, ...]:
    """A case for each set of pairs that differ in nothing but some axes."""
    axes = [axis_of(name) for name in statistic.mean_over]
    identity = identity_without(axes)

    def members(points: Points) -> set[tuple[Any, ...]]:
        return {tuple(axis.read(point.row) for axis in axes) for point in points}

    groups: dict[Any, tuple[list[Configuration], list[Configuration]]] = {}
    for (of,), (against,) in pairs:
        # What differs in what it is against is another case, too.
        sides = groups.setdefault((identity(of), identity(against)), ([], []))
        sides[0].append(of)
        sides[1].append(against)
    wanted = members(every)
    cases = []
    for label, once, (ours, theirs) in named(groups.values(), statistic.metric):
        singles = pair_cases(
            (([of], [against]) for of, against in zip(ours, theirs, strict=True)), statistic.metric, is_better=True
        )
        figures = [case.figure for case in singles if case.figure is not None]
        lost = [case for case in singles if case.figure is None]
        # The mean of other members is another number.
        is_whole = is_complete and members(ours) == wanted and all(case.is_impossible for case in lost)
        note = f"mean of {len(figures)}" + (f", {len(lost)} without: {lost[0].note}" if lost else "")
        notes = filter(None, (note, "" if is_whole else "the others were not measured", once))
        figure = mean_figure(figures) if figures and is_whole else None
        cases.append(Case(label, figure, singles[0].metric, "; ".join(notes)))
    return tuple(cases)


def _contrasts(statistic: schema.Ratio, at: Sequence[str], than: Sequence[str], every: Points, known: Points) -> Cases:
    """A case for each two pairs that differ in nothing but where they are: one ratio over the other."""
    (here, missing), (there, lost) = (
        paired((*statistic.of, *place), (*statistic.against, *place), every, known) for place in (at, than)
    )
    identity = identity_without([condition.axis for place in (at, than) for condition in parse_conditions(place)])

    def key(sides: Sides) -> tuple[Any, ...]:
        return identity(sides[0][0]), identity(sides[1][0])

    others = {key(sides): sides for sides in there}
    matched = [(sides, others[key(sides)]) for sides in here if key(sides) in others]
    cases = []
    for label, both in zip(pair_labels([sides for sides, _ in matched]), matched, strict=True):
        up, down = (
            case_of(label, ratio(sides, statistic.metric, is_better=True), [*sides[0], *sides[1]], statistic.metric)
            for sides in both
        )
        if up.figure and down.figure:
            down = replace(up, figure=quotient(up.figure, down.figure))
        cases.append(down if up.figure else up)
    return Cases(tuple(cases), (*missing, *lost))


def _correlations(
    groups: Sequence[Points],
    points_of: Callable[[Points], Sequence[tuple[Point, Point]]],
    correlate: Callable[[Sequence[tuple[Point, Point]]], Figure],
    at_least: int,
    metric: str,
    noun: str,
) -> Cases:
    cases, lost = [], []
    for label, group in zip(labels(groups), groups, strict=True):
        points = points_of(group)
        if len(points) < at_least:
            lost.append(f"{label or 'all'}: {len(points)} {noun} with both numbers; {at_least} are needed")
        else:
            cases.append(Case(label, correlate(points), metric, f"{len(points)} {noun}"))
    return Cases(tuple(cases), () if cases else tuple(lost[:3]))

"""The statistics of claims: from configurations to cases, each a number with its interval.

A case is a pair, a series or a set of points of its own. Nothing is pooled over cases unless the claim says so
(`mean_over`).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final, TypeVar

from orchestrator.analysis.axes import AXES
from orchestrator.analysis.axes import axis as axis_of
from orchestrator.analysis.claims import intervals, schema
from orchestrator.analysis.claims.cases import (
    Case,
    Cases,
    Points,
    Sides,
    case_of,
    named,
    number_on,
    pair_cases,
    paired,
    ratio,
    series_along,
)
from orchestrator.analysis.claims.configurations import Configuration, grouped, identity_without, labels, pair_labels
from orchestrator.analysis.claims.intervals import Figure, Printed, Scale, figure_of, mean_figure, quotient
from orchestrator.analysis.conditions import parse_conditions
from orchestrator.analysis.frame import over_processes
from orchestrator.analysis.transition import Side, transition

TRANSITION_BATCH: Final = "transition_batch"
Point = TypeVar("Point")


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
            case_of(label, over_processes(list(point.values(point.metric(metric)).values())), [point], metric, note)
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
        is_enough = len(known) >= statistic.at_least and all(min(values.values()) > 0 for values in known.values())
        span = f"{axis.name} {min(known):g} to {max(known):g}" if known else ""
        estimate = intervals.exponent(known) if is_enough else None
        cases.append(case_of(label, estimate, points, name, "; ".join(filter(None, (span, note))), Scale.LINEAR))
    return Cases(tuple(cases), lost)


def orderings(statistic: schema.Ordering, every: Points, known: Points, published: Sequence[float] | None) -> Cases:
    """A case for each pair of neighbours.

    Args:
        statistic: what the claim says.
        every: configurations that it is about.
        known: all configurations of the store.
        published: what the source prints for the values of the order.
    """
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
            metrics = (configuration.metric(name) for name in (statistic.x, statistic.y))
            x, y = (over_processes(list(configuration.values(metric).values())) for metric in metrics)
            if x and y and x.value > 0 and y.value > 0:
                points.setdefault(configuration.row["workload"], []).append((math.log(x.value), math.log(y.value)))
        return [(sum(x) / len(x), sum(y) / len(y)) for x, y in (zip(*some, strict=True) for some in points.values())]

    groups = grouped(every, [AXES["workload"]])
    return _correlations(groups, points_of, intervals.rank_correlation, statistic.at_least, statistic.y, "workloads")


def trends(statistic: schema.Trend, every: Points) -> Cases:
    """A case for each set of points, a point for each series over batches; one that is censored is a point, too."""
    batch = AXES["batch"]

    def points_of(group: Points) -> list[tuple[Figure, Figure]]:
        series = ((_peak_throughput(points), transition_batch(points)) for points in grouped(group, [batch]))
        return [(x, y) for x, y in series if x and y]

    groups = grouped(every, [batch, *map(axis_of, statistic.over)])
    return _correlations(groups, points_of, intervals.concordance, statistic.at_least, TRANSITION_BATCH, "series")


def transition_batch(series: Points) -> Figure | None:
    """The transition batch; beyond the measured batches its number is unknown, but the side is."""
    known = {point.row["batch"]: values for point in series if (values := point.loads)}
    if len(known) < 2:
        return None
    found = transition(known)
    degrees = max(1, found.rounds - 1)
    if found.interval is None:
        return Figure(found.batch, None, None, found.rounds, degrees)
    low = 0.0 if found.interval.low is None else found.interval.low
    high = math.inf if found.interval.high is None else found.interval.high
    return Figure(found.batch if found.side is Side.INSIDE else None, low, high, found.rounds, degrees)


def _peak_throughput(series: Points) -> Figure | None:
    found = [over_processes(list(point.values(point.metric("throughput")).values())) for point in series]
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

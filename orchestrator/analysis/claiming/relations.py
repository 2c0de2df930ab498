"""Statistics of claims over many configurations: rank correlations, transitions, and how one number follows another."""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from orchestrator.analysis.axes import AXES
from orchestrator.analysis.axes import axis as axis_of
from orchestrator.analysis.claiming.cases import Case, Cases, Known
from orchestrator.analysis.claiming.configurations import Configuration, chosen, grouped, labels, pair_labels
from orchestrator.analysis.claiming.figures import Figure, Scale, figure_of
from orchestrator.analysis.claiming.quantities import PEAK_THROUGHPUT, TRANSITION_BATCH, quantity
from orchestrator.analysis.claiming.schema import RankCorrelation, Scaling, Transition
from orchestrator.analysis.claiming.statistics import series_of, slope
from orchestrator.analysis.conditions import parse_conditions
from orchestrator.analysis.frame import over_processes
from orchestrator.analysis.statistics import Floats
from orchestrator.analysis.transition import Side, transition

_NORMAL: Final = 1.959963984540054
_MANY: Final = 1000
"""Degrees of freedom of an interval by the normal distribution."""


def rank_correlations(statistic: RankCorrelation, every: Sequence[Configuration]) -> Cases:
    """A case for each set of points."""
    axes = [axis_of(name) for name in statistic.over]
    groups = list(grouped(every, axes).values())
    x, y = quantity(statistic.x), quantity(statistic.y)
    cases, lost = [], []
    for label, group in zip(labels(groups), groups, strict=True):
        points = []
        for one in group:
            values = [over_processes(list(one.values(each).values())) for each in (x, y)]
            if all(values):
                points.append([value.value for value in values if value])
        if len(points) < statistic.at_least:
            lost.append(f"{label or 'all'}: {len(points)} points; {statistic.at_least} are needed")
            continue
        note = f"{len(points)} points"
        cases.append(Case(label, correlation([p[0] for p in points], [p[1] for p in points]), y.name, note))
    return Cases(tuple(cases), () if cases else tuple(lost[:3]))


def correlation(x: Sequence[float], y: Sequence[float]) -> Figure:
    """Spearman's rank correlation, with the interval of Bonett and Wright (Psychometrika 65, 2000).

    That interval ends at a perfect order, so that one is treated as the nearest order that is not perfect.
    """
    n = len(x)
    ranks = [_ranks(one) for one in (x, y)]
    value = float(np.corrcoef(ranks[0], ranks[1])[0, 1]) if all(one.std() > 0 for one in ranks) else 0.0
    if n < 4:
        return Figure(value, None, None, n, 1, Scale.LINEAR)
    nearest = 1 - 12 / (n * (n * n - 1))
    inside = max(-nearest, min(nearest, value))
    half = _NORMAL * math.sqrt((1 + inside * inside / 2) / (n - 3))
    low, high = (math.tanh(math.atanh(inside) + sign * half) for sign in (-1, 1))
    return Figure(value, min(low, value), max(high, value), n, _MANY, Scale.LINEAR)


def transitions(statistic: Transition, every: Sequence[Configuration], known: Known) -> Cases:
    """A case for each series over batches, or for each pair of them."""
    if statistic.of is None or statistic.against is None:
        groups, lost = series_of([AXES["batch"]], every, 2)
        found = [(label, _transition(group)) for label, group in zip(labels(groups), groups, strict=True)]
        return Cases(tuple(_transition_case(label, figure) for label, figure in found), tuple(lost))
    conditions = [parse_conditions(texts) for texts in (statistic.of, statistic.against)]
    sides, missing = zip(*(chosen(every, one, known) for one in conditions), strict=True)
    axes = [AXES["batch"], *{one.axis.name: one.axis for both in conditions for one in both}.values()]
    ours, theirs = (grouped(side, axes) for side in sides)
    pairs = [
        (one, other) for key in ours if key in theirs for one in _by_rest(ours[key]) for other in _by_rest(theirs[key])
    ]
    cases = []
    for label, (one, other) in zip(pair_labels(*([pair[at] for pair in pairs] for at in (0, 1))), pairs, strict=True):
        above, below = _transition(one), _transition(other)
        figure = quotient(above, below) if above and below else None
        cases.append(_transition_case(label, figure, "of one over that of the other"))
    lost_of = [text for texts in missing for text in texts]
    if not cases and not lost_of:
        lost_of.append("no two series over batches are alike in all else")
    return Cases(tuple(cases), tuple(lost_of))


def scalings(statistic: Scaling, every: Sequence[Configuration]) -> Cases:
    """A case for each set of points, a point for each series over batches."""
    axes = [axis_of(name) for name in statistic.over]
    outer = list(grouped(every, [AXES["batch"], *axes]).values())
    cases, lost = [], []
    for label, group in zip(labels(outer), outer, strict=True):
        points = [
            (x.value, y.value)
            for series in _by_rest(group)
            if (x := _number(statistic.by, series)) and (y := _number(statistic.of, series)) and x.value and y.value
        ]
        if len(points) < statistic.at_least:
            lost.append(f"{label or 'all'}: {len(points)} series with both numbers; {statistic.at_least} are needed")
            continue
        estimate = slope(*(np.log([point[at] for point in points]) for at in (0, 1)))
        cases.append(Case(label, figure_of(estimate, Scale.LINEAR), statistic.of, f"{len(points)} series"))
    return Cases(tuple(cases), () if cases else tuple(lost[:3]))


def _by_rest(group: Sequence[Configuration]) -> list[list[Configuration]]:
    """The series over batches in a group."""
    return list(grouped(group, [AXES["batch"]]).values())


def _number(name: str, series: Sequence[Configuration]) -> Figure | None:
    return {TRANSITION_BATCH: _transition, PEAK_THROUGHPUT: _peak_throughput}[name](series)


def _peak_throughput(series: Sequence[Configuration]) -> Figure | None:
    found = [over_processes(list(one.values(quantity("throughput")).values())) for one in series]
    best = max((one for one in found if one), key=lambda one: one.value, default=None)
    return None if best is None else figure_of(best)


def _transition(series: Sequence[Configuration]) -> Figure | None:
    """The transition batch; beyond the measured batches its number is unknown, but the side is."""
    known = {one.row["batch"]: values for one in series if (values := one.loads)}
    if len(known) < 2:
        return None
    found = transition(known)
    degrees = max(1, found.rounds - 1)
    if found.interval is None:
        return Figure(found.batch, None, None, found.rounds, degrees)
    low = 0.0 if found.interval.low is None else found.interval.low
    high = math.inf if found.interval.high is None else found.interval.high
    return Figure(found.batch if found.side is Side.INSIDE else None, low, high, found.rounds, degrees)


def quotient(one: Figure, other: Figure) -> Figure:
    """One batch over another; its interval joins theirs on logarithms (Zou and Donner, Statist. Med. 27, 2008).

    Where a batch is censored, its bounds alone are joined.
    """
    processes, degrees = one.processes + other.processes, min(one.degrees, other.degrees)
    if one.low is None or one.high is None or other.low is None or other.high is None:
        value = one.value / other.value if one.value and other.value else None
        return Figure(value, None, None, processes, degrees)
    if one.value is None or other.value is None:
        low = one.low / other.high if other.high < math.inf else 0.0
        return Figure(None, low, one.high / other.low if other.low > 0 else math.inf, processes, degrees)
    value = one.value / other.value
    down = math.hypot(_distance(one.value, one.low), _distance(other.high, other.value))
    up = math.hypot(_distance(one.high, one.value), _distance(other.value, other.low))
    return Figure(
        value, value * math.exp(-down), value * math.exp(up) if up < math.inf else math.inf, processes, degrees
    )


def _distance(high: float, low: float) -> float:
    return math.inf if low <= 0 or math.isinf(high) else math.log(high / low)


def _transition_case(label: str, figure: Figure | None, note: str = "") -> Case:
    if figure is None:
        note = "the load of two batches at least is needed: dispatch and kernels, on a CPU a proven floor"
    elif figure.value is None:
        note = "beyond the batches that were measured"
    return Case(label, figure, TRANSITION_BATCH, note)


def _ranks(values: Sequence[float]) -> Floats:
    """Ranks, with their mean where values are equal."""
    numbers = np.asarray(values, dtype=np.float64)
    return np.array([(numbers < one).sum() + ((numbers == one).sum() + 1) / 2 for one in numbers])

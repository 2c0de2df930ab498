"""The statistics of claims: from configurations to cases, each a number with its interval.

A case is a pair, a series or a point of its own. Nothing is pooled over cases unless the claim says so (`mean_over`).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, pairwise
from typing import Any, TypeAlias

import numpy as np

from orchestrator.analysis.axes import Axis
from orchestrator.analysis.axes import axis as axis_of
from orchestrator.analysis.claiming.cases import Case, Cases, Known, Points, case_of, distinct, measured, once
from orchestrator.analysis.claiming.configurations import (
    Configuration,
    chosen,
    grouped,
    identity_without,
    labels,
    pair_labels,
)
from orchestrator.analysis.claiming.figures import Scale, mean_figure
from orchestrator.analysis.claiming.quantities import Quantity
from orchestrator.analysis.claiming.schema import Flat, Growth, Level, Ordering, Ratio
from orchestrator.analysis.conditions import parse_conditions
from orchestrator.analysis.frame import over_processes
from orchestrator.analysis.ratios import Reading, Visit, ratio_of, shared_visits
from orchestrator.analysis.statistics import Estimate, Floats, t_interval
from runners.statistics.moderation import LEVEL
from runners.statistics.student import t_quantile

Pair: TypeAlias = tuple[Configuration, Configuration]


def ratios(statistic: Ratio, every: Sequence[Configuration], known: Known) -> Cases:
    """A case for each pair that differs in nothing but what is compared, or for each mean over some axes."""
    pairs, missing = paired(statistic.of, statistic.against, every, known)
    if statistic.mean_over:
        return Cases(tuple(_mean_cases(pairs, statistic)), missing)
    return Cases(tuple(_pair_cases(pairs, statistic.metric, lambda pair: _better(pair, statistic.metric))), missing)


def levels(statistic: Level, every: Sequence[Configuration]) -> Cases:
    """A case for each configuration."""
    sets = distinct([(one,) for one in every], lambda points: points, statistic.metric)
    cases = []
    for label, same in zip(labels([list(chain(*some)) for some in sets]), sets, strict=True):
        estimate = over_processes(list(same[0][0].values(measured(statistic.metric, same[0][0])).values()))
        cases.append(case_of(label, estimate, same[0], statistic.metric, once(labels(same))))
    return Cases(tuple(cases), ())


def flats(statistic: Flat, every: Sequence[Configuration]) -> Cases:
    """A case for each series and value after the first."""
    return _over_series(statistic, every, lambda label, note, series: _flat_cases(label, note, series, statistic))


def growths(statistic: Growth, every: Sequence[Configuration]) -> Cases:
    """A case for each series."""
    return _over_series(statistic, every, lambda label, note, series: [_growth_case(label, note, series, statistic)])


def orderings(statistic: Ordering, every: Sequence[Configuration], known: Known) -> Cases:
    """A case for each pair of neighbours."""
    cases: list[Case] = []
    missing: list[str] = []
    for less, more in pairwise(statistic.order):
        pairs, lost = paired((f"{statistic.along}={more}",), (f"{statistic.along}={less}",), every, known)
        missing += lost
        cases += _pair_cases(pairs, statistic.metric, lambda pair: _over(pair, statistic.metric), f"{more} over {less}")
    return Cases(tuple(cases), tuple(dict.fromkeys(missing)))


def paired(
    of: Sequence[str], against: Sequence[str], every: Sequence[Configuration], known: Known
) -> tuple[list[Pair], tuple[str, ...]]:
    """All pairs of configurations that differ in nothing but the axes of two lists of conditions."""
    conditions = [parse_conditions(texts) for texts in (of, against)]
    sides, missing = zip(*(chosen(every, one, known) for one in conditions), strict=True)
    axes = list({one.axis.name: one.axis for both in conditions for one in both}.values())
    ours, theirs = (grouped(side, axes) for side in sides)
    pairs = [(one, other) for key in ours if key in theirs for one in ours[key] for other in theirs[key]]
    lost = [text for texts in missing for text in texts]
    if not pairs and not lost:
        words = " ".join(of), " ".join(against)
        lost.append(f"no trial with {words[0]} has one with {words[1]} that is like it in all else")
    return pairs, tuple(lost)


def series_of(
    axes: Sequence[Axis], every: Sequence[Configuration], at_least: int
) -> tuple[list[list[Configuration]], list[str]]:
    """Groups of configurations that differ along axes alone, and why others are too short."""
    groups = list(
        grouped((one for one in every if all(axis.read(one.row) is not None for axis in axes)), axes).values()
    )
    long = [group for group in groups if len(group) >= at_least]
    names = ", ".join(axis.name for axis in axes)
    most = max(map(len, groups), default=0)
    lost = [] if long else [f"at most {most} values of {names} in one series; {at_least} are needed"]
    return long, lost


def _pair_cases(
    pairs: Sequence[Pair], metric: str | None, estimate_of: Callable[[Pair], Estimate | None], name: str = ""
) -> list[Case]:
    sets = distinct(pairs, lambda pair: pair, metric)
    return [
        case_of(
            f"{label} {name}".strip(), estimate_of(same[0]), same[0], metric, once(_labels([[one] for one in same]))
        )
        for label, same in zip(_labels(sets), sets, strict=True)
    ]


def _mean_cases(pairs: Sequence[Pair], statistic: Ratio) -> list[Case]:
    identity, metric = identity_without([axis_of(name) for name in statistic.mean_over]), statistic.metric
    groups: dict[Any, list[Pair]] = {}
    for of, against in pairs:
        # What differs in what it is against is another case, too.
        groups.setdefault((identity(of), identity(against)), []).append((of, against))
    sets = distinct(groups.values(), lambda group: list(chain(*group)), metric)
    cases = []
    for label, same in zip(_labels([list(chain(*some)) for some in sets]), sets, strict=True):
        singles = _pair_cases(same[0], metric, lambda pair: _better(pair, metric))
        figures = [case.figure for case in singles if case.figure is not None]
        lost = [case.note for case in singles if case.figure is None]
        note = f"mean of {len(figures)}" + (f", {len(lost)} without: {lost[0]}" if lost else "")
        notes = [one for one in (note, once(_labels(same))) if one]
        cases.append(Case(label, mean_figure(figures) if figures else None, singles[0].metric, "; ".join(notes)))
    return cases


def _labels(sets: Sequence[Sequence[Pair]]) -> list[str]:
    """What tells sets of pairs apart."""
    return pair_labels(*([[pair[side] for pair in some] for some in sets] for side in (0, 1)))


def _better(pair: Pair, metric: str | None) -> Estimate | None:
    """How many times better the first is."""
    one = measured(metric, pair[0])
    return _ratio(*pair, one, Reading(one.column, one.turns, one.higher_is_better))


def _over(pair: Pair, metric: str | None) -> Estimate | None:
    """The first over the second."""
    one = measured(metric, pair[0])
    return _ratio(*pair, one, Reading(one.column, one.turns, higher_is_better=True))


def _ratio(of: Configuration, against: Configuration, one: Quantity, reading: Reading) -> Estimate | None:
    found = ratio_of(of.measured(one), against.measured(one), reading, of.priors)
    return None if found is None else found.estimate


def _over_series(
    statistic: Flat | Growth, every: Sequence[Configuration], cases_of: Callable[[str, str, Points], list[Case]]
) -> Cases:
    axis = axis_of(statistic.along)
    groups, lost = series_of([axis], every, statistic.at_least)
    series = [sorted(group, key=lambda one: _place(axis, one)) for group in groups]
    sets = distinct(series, lambda points: points, statistic.metric)
    cases: list[Case] = []
    for label, same in zip(labels([list(chain(*some)) for some in sets]), sets, strict=True):
        cases += cases_of(label, once(labels(same)), same[0])
    return Cases(tuple(cases), tuple(lost))


def _flat_cases(label: str, note: str, series: Points, statistic: Flat) -> list[Case]:
    axis = axis_of(statistic.along)
    first, *others = series
    cases = []
    for other in others:
        name = f"{axis.name} {axis.shown(axis.read(other.row))} over {axis.shown(axis.read(first.row))}"
        pair = (other, first)
        cases.append(case_of(f"{label} {name}".strip(), _over(pair, statistic.metric), pair, statistic.metric, note))
    return cases


def _growth_case(label: str, note: str, series: Points, statistic: Growth) -> Case:
    axis = axis_of(statistic.along)
    one = measured(statistic.metric, series[0])
    known = {_place(axis, each): values for each in series if (values := each.values(one))}
    if len(known) < statistic.at_least:
        return case_of(label, None, series, statistic.metric)
    span = f"{axis.name} {min(known):g} to {max(known):g}"
    notes = "; ".join(text for text in (span, note) if text)
    return case_of(label, exponent(known), series, statistic.metric, notes, Scale.LINEAR)


def exponent(values: Mapping[float, Mapping[Visit, float]]) -> Estimate:
    """The exponent of a power law, by least squares on logarithms: Student's t over the slopes of the rounds.

    Without enough rounds in which all values were measured the scatter around the line stands for that of rounds.

    Args:
        values: by place, above 0, and visit.
    """
    places = sorted(values)
    shared = shared_visits(*(values[place] for place in places))
    x = np.log(places)
    if shared:
        y = np.log([[values[place][visit] for place in places] for visit in shared])
        slopes = ((y - y.mean(axis=1, keepdims=True)) * (x - x.mean())).sum(axis=1) / ((x - x.mean()) ** 2).sum()
        return Estimate(*t_interval(slopes), len(shared), len(shared) * len(places))
    return slope(x, np.array([np.mean(np.log(list(values[place].values()))) for place in places]))


def slope(x: Floats, y: Floats) -> Estimate:
    """Of a line by least squares, with Student's t on what is left; three points at least for an interval."""
    centred = x - x.mean()
    value = float((centred * y).sum() / (centred**2).sum())
    degrees = len(x) - 2
    if degrees < 1:
        return Estimate(value, None, None, len(x), len(x))
    left = y - y.mean() - value * centred
    error = math.sqrt(float((left**2).sum()) / degrees / float((centred**2).sum()))
    half = t_quantile((1 + LEVEL) / 2, degrees) * error
    return Estimate(value, value - half, value + half, len(x), len(x), degrees)


def _place(axis: Axis, one: Configuration) -> float:
    value = axis.read(one.row)
    assert isinstance(value, int)
    return float(value)

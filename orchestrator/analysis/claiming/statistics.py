"""The statistics of claims: from configurations to cases, each a number with its interval.

A case is what a claim is decided for: a pair, a series or a point of its own. Nothing is pooled over cases unless the
claim says so (`mean_over`).
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from orchestrator.analysis.axes import Axis
from orchestrator.analysis.axes import axis as axis_of
from orchestrator.analysis.claiming.configurations import (
    Configuration,
    chosen,
    failures,
    grouped,
    is_impossible,
    labels,
)
from orchestrator.analysis.claiming.figures import Figure, Scale, figure_of, mean_figure
from orchestrator.analysis.claiming.quantities import Quantity, default_quantity, quantity
from orchestrator.analysis.claiming.schema import Flat, Growth, Level, Ordering, Ratio
from orchestrator.analysis.conditions import parse_conditions
from orchestrator.analysis.explaining.processes import Visit, over_processes, ratio_of
from orchestrator.analysis.statistics import LEVEL, Estimate, Floats, t_interval
from orchestrator.analysis.student import t_quantile

_FEW: Final = 2


@dataclass(frozen=True)
class Case:
    """What a claim is decided for."""

    label: str
    figure: Figure | None
    """Null if there is no number."""
    note: str = ""
    """What the number is of, or why there is none."""
    is_impossible: bool = False
    """Whether it cannot run, so that the claim cannot be about it."""


@dataclass(frozen=True)
class Cases:
    """All cases, and what is missing for more."""

    cases: tuple[Case, ...]
    missing: tuple[str, ...]


Known = Sequence[Configuration]
"""All configurations of the store, where words such as `A100` get their meaning from."""


def ratios(statistic: Ratio, every: Sequence[Configuration], known: Known) -> Cases:
    """A case for each pair that differs in nothing but what is compared, or for each mean over some axes."""
    pairs, missing = paired(statistic.of, statistic.against, every, known)
    axes = [axis_of(name) for name in statistic.mean_over]
    if not axes:
        named = labels([[of] for of, _ in pairs])
        return Cases(
            tuple(_ratio_case(label, pair, statistic) for label, pair in zip(named, pairs, strict=True)), missing
        )
    sides = {id(of): against for of, against in pairs}
    groups = list(grouped((of for of, _ in pairs), axes).values())
    cases = []
    for label, group in zip(labels(groups), groups, strict=True):
        singles = [_ratio_case("", (of, sides[id(of)]), statistic) for of in group]
        figures = [case.figure for case in singles if case.figure is not None]
        lost = [case.note for case in singles if case.figure is None]
        note = f"mean of {len(figures)}" + (f", {len(lost)} without: {lost[0]}" if lost else "")
        cases.append(Case(label, mean_figure(figures) if figures else None, note))
    return Cases(tuple(cases), missing)


def levels(statistic: Level, every: Sequence[Configuration]) -> Cases:
    """A case for each configuration."""
    one = quantity(statistic.metric)
    cases = []
    for label, configuration in zip(labels([[each] for each in every]), every, strict=True):
        estimate = over_processes(list(configuration.values(one).values()))
        cases.append(_without(label, [configuration]) if estimate is None else Case(label, figure_of(estimate)))
    return Cases(tuple(cases), ())


def flats(statistic: Flat, every: Sequence[Configuration]) -> Cases:
    """A case for each series and value after the first."""
    return _over_series(statistic.along, statistic.at_least, every, lambda label, s: _flat_cases(label, s, statistic))


def growths(statistic: Growth, every: Sequence[Configuration]) -> Cases:
    """A case for each series."""
    return _over_series(
        statistic.along, statistic.at_least, every, lambda label, s: [_growth_case(label, s, statistic)]
    )


def orderings(statistic: Ordering, every: Sequence[Configuration], known: Known) -> Cases:
    """A case for each pair of neighbours."""
    cases: list[Case] = []
    missing: list[str] = []
    for less, more in pairwise(statistic.order):
        pairs, lost = paired((f"{statistic.along}={more}",), (f"{statistic.along}={less}",), every, known)
        missing += lost
        for label, (of, against) in zip(labels([[one] for one, _ in pairs]), pairs, strict=True):
            one = _quantity(statistic.metric, of)
            estimate = ratio_of(of.values(one), against.values(one))
            name = f"{label} {more} over {less}".strip()
            cases.append(_without(name, [of, against]) if estimate is None else Case(name, figure_of(estimate)))
    return Cases(tuple(cases), tuple(dict.fromkeys(missing)))


def paired(
    of: Sequence[str], against: Sequence[str], every: Sequence[Configuration], known: Known
) -> tuple[list[tuple[Configuration, Configuration]], tuple[str, ...]]:
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


def _ratio_case(label: str, pair: tuple[Configuration, Configuration], statistic: Ratio) -> Case:
    of, against = pair
    one = _quantity(statistic.metric, of)
    ours, theirs = of.values(one), against.values(one)
    estimate = ratio_of(ours, theirs) if one.higher_is_better else ratio_of(theirs, ours)
    return _without(label, pair) if estimate is None else Case(label, figure_of(estimate))


def _over_series(
    along: str,
    at_least: int,
    every: Sequence[Configuration],
    cases_of: Callable[[str, list[Configuration]], list[Case]],
) -> Cases:
    axis = axis_of(along)
    groups, lost = series_of([axis], every, at_least)
    cases: list[Case] = []
    for label, group in zip(labels(groups), groups, strict=True):
        cases += cases_of(label, sorted(group, key=lambda one: _place(axis, one)))
    return Cases(tuple(cases), tuple(lost))


def _flat_cases(label: str, series: Sequence[Configuration], statistic: Flat) -> list[Case]:
    axis = axis_of(statistic.along)
    one = _quantity(statistic.metric, series[0])
    first, *others = series
    cases = []
    for other in others:
        estimate = ratio_of(other.values(one), first.values(one))
        name = f"{axis.name} {axis.shown(axis.read(other.row))} over {axis.shown(axis.read(first.row))}"
        whole = f"{label} {name}".strip()
        cases.append(_without(whole, [first, other]) if estimate is None else Case(whole, figure_of(estimate)))
    return cases


def _growth_case(label: str, series: Sequence[Configuration], statistic: Growth) -> Case:
    axis = axis_of(statistic.along)
    one = _quantity(statistic.metric, series[0])
    known = {_place(axis, each): values for each in series if (values := each.values(one))}
    if len(known) < statistic.at_least:
        return _without(label, series)
    estimate = exponent(known)
    span = f"{axis.name} {min(known):g} to {max(known):g}"
    return Case(label, figure_of(estimate, Scale.LINEAR), span)


def exponent(values: Mapping[float, Mapping[Visit, float]]) -> Estimate:
    """The exponent of a power law, by least squares on logarithms: Student's t over the slopes of the rounds.

    Without two rounds in which all values were measured the scatter around the line stands for that of rounds.

    Args:
        values: by place, above 0, and visit.
    """
    places = sorted(values)
    shared = sorted(set.intersection(*(set(values[place]) for place in places)))
    x = np.log(places)
    if len(shared) >= _FEW:
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


def _quantity(name: str | None, one: Configuration) -> Quantity:
    return default_quantity(one.device) if name is None else quantity(name)


def _place(axis: Axis, one: Configuration) -> float:
    value = axis.read(one.row)
    assert isinstance(value, int)
    return float(value)


def _why(every: Iterable[Configuration]) -> str:
    """Why there is no number."""
    reasons = failures(every)
    return reasons[0] if reasons else "it was not measured"


def _without(label: str, every: Sequence[Configuration]) -> Case:
    return Case(label, None, _why(every), is_impossible(every))

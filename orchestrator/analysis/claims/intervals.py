"""Numbers of a claim with their intervals, what a threshold makes of them, and whether they agree with a print.

This is no second rule for verdicts: `verdict` asks whether two things differ, a claim whether a number of any kind,
transition batches and correlations among them, lies beyond a bound that its author fixed. Where one case of many
decides, intervals are widened by Bonferroni and not by Holm's steps: those need the probability of each number under
its bound, which a censored transition or a range of possible values has not, and they give no interval in which a
published value could lie.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from itertools import combinations
from typing import Final

import numpy as np

from orchestrator.analysis.ratios import Visit, shared_visits
from orchestrator.analysis.statistics import Estimate, Floats, t_interval
from runners.statistics.moderation import LEVEL
from runners.statistics.student import t_quantile

_TAIL: Final = (1 - LEVEL) / 2
_NORMAL: Final = 1.959963984540054
_ENDLESS_DEGREES: Final = 1000
"""From here on Student's t is the normal distribution for all that is asked of it."""


class Finding(Enum):
    """The first verdict on a claim or a case of it: whether its direction holds."""

    HOLDS = "holds"
    FAILS = "fails"
    NOT_ENOUGH_DATA = "not enough data"


class Agreement(Enum):
    """The second verdict: whether the published value lies in the interval."""

    INSIDE = "inside"
    OUTSIDE = "outside"
    NOT_ENOUGH_DATA = "not enough data"


class Scale(Enum):
    """On which scale an interval is symmetric."""

    LOGARITHMIC = "logarithmic"
    LINEAR = "linear"


@dataclass(frozen=True)
class Figure:
    """A number with its 95 % interval. An infinite end lies beyond what was measured."""

    value: float | None
    """Null where only bounds are known."""
    low: float | None
    """Null where there is no interval at all."""
    high: float | None
    processes: int
    degrees: int = _ENDLESS_DEGREES
    """Of freedom, of Student's t behind the interval."""
    scale: Scale = Scale.LOGARITHMIC

    def bounds(self, family: int = 1) -> tuple[float, float] | None:
        """The interval, widened so that all of a family hold the truth together (Bonferroni); null if there is none."""
        if self.low is None or self.high is None:
            return None
        if self.value is None or family < 2:
            return self.low, self.high
        wider = t_quantile(1 - _TAIL / family, self.degrees) / t_quantile(1 - _TAIL, self.degrees)
        if self.scale is Scale.LINEAR:
            return self.value - (self.value - self.low) * wider, self.value + (self.high - self.value) * wider
        low = self.value * (self.low / self.value) ** wider if self.low > 0 else self.low
        return low, self.value * (self.high / self.value) ** wider

    def agrees(self, published: "Printed", family: int = 1) -> Agreement:
        """Whether something that rounds to a published value lies in the interval, widened for a family."""
        found = self.bounds(family)
        if found is None:
            return Agreement.NOT_ENOUGH_DATA
        return Agreement.INSIDE if found[0] <= published.high and published.low <= found[1] else Agreement.OUTSIDE


@dataclass(frozen=True)
class Printed:
    """What a value in print stands for: all that rounds to it."""

    low: float
    high: float

    @classmethod
    def of(cls, value: float) -> "Printed":
        """A value with the digits that it is written with."""
        half = 10.0 ** float(Decimal(repr(value)).as_tuple().exponent) / 2
        return cls(value - half, value + half)

    def over(self, other: "Printed") -> "Printed":
        """One value over another, both above 0."""
        return Printed(self.low / other.high, self.high / other.low)


@dataclass(frozen=True)
class Threshold:
    """What a number must be for a claim to hold: above one bound, below another, or both; or within a factor of 1."""

    above: float | None = None
    below: float | None = None
    within: float | None = None

    @property
    def text(self) -> str:
        if self.within is not None:
            return f"within x{self.within:g}"
        ends = (("above", self.above), ("below", self.below))
        return " and ".join(f"{word} {end:g}" for word, end in ends if end is not None)

    @property
    def ends(self) -> tuple[float, float]:
        """What a number must lie between, infinite where nothing bounds it."""
        if self.within is not None:
            return 1 / self.within, self.within
        return (
            -math.inf if self.above is None else self.above,
            math.inf if self.below is None else self.below,
        )

    def judge(self, figure: Figure, *, family_of_holding: int = 1, family_of_failing: int = 1) -> Finding:
        """What it says of a number: nothing, unless the whole interval lies on one side.

        Args:
            figure: the number.
            family_of_holding: how many others could show the same by chance, where one that holds is enough.
            family_of_failing: the same, where one that fails is enough.
        """
        holding, failing = figure.bounds(family_of_holding), figure.bounds(family_of_failing)
        if holding is None or failing is None:
            return Finding.NOT_ENOUGH_DATA
        least, most = self.ends
        if (least < holding[0] or math.isinf(least)) and (holding[1] < most or math.isinf(most)):
            return Finding.HOLDS
        return Finding.FAILS if failing[1] <= least or failing[0] >= most else Finding.NOT_ENOUGH_DATA


def figure_of(estimate: Estimate, scale: Scale = Scale.LOGARITHMIC) -> Figure:
    """An estimate as a figure; what may be 0 and below is on a linear scale."""
    degrees = estimate.processes - 1 if estimate.degrees is None else estimate.degrees
    scale = scale if estimate.value > 0 and (estimate.low is None or estimate.low > 0) else Scale.LINEAR
    return Figure(
        estimate.value, estimate.low, estimate.high, estimate.processes,
        int(min(max(degrees, 1), _ENDLESS_DEGREES)), scale,
    )  # fmt: skip


def mean_figure(figures: Sequence[Figure]) -> Figure:
    """The geometric mean of ratios that have nothing to do with each other, such as those of several models.

    Its interval is about these models and not about others: their errors are added, with Welch's degrees of freedom.
    """
    values = [figure.value for figure in figures if figure.value is not None]
    centre = sum(map(math.log, values)) / len(values)
    processes = sum(figure.processes for figure in figures)
    variances = []
    for figure in figures:
        if figure.low is None or figure.high is None or len(values) < len(figures):
            return Figure(math.exp(centre), None, None, processes, 1)
        error = math.log(figure.high / figure.low) / 2 / t_quantile(1 - _TAIL, figure.degrees)
        variances.append((error / len(figures)) ** 2)
    spread = sum(variance**2 / figure.degrees for variance, figure in zip(variances, figures, strict=True))
    exact = sum(variances) ** 2 / spread if spread > 0 else _ENDLESS_DEGREES
    degrees = int(max(1, min(exact, _ENDLESS_DEGREES)))
    half = t_quantile(1 - _TAIL, degrees) * math.sqrt(sum(variances))
    return Figure(math.exp(centre), math.exp(centre - half), math.exp(centre + half), processes, degrees)


def quotient(up: Figure, down: Figure) -> Figure:
    """One number above 0 over another; the interval is joined on logarithms (Zou and Donner, Statist. Med. 27, 2008).

    Of a censored number its bounds alone are joined.
    """
    processes, degrees = up.processes + down.processes, min(up.degrees, down.degrees)
    value = up.value / down.value if up.value and down.value else None
    if up.low is None or up.high is None or down.low is None or down.high is None:
        return Figure(value, None, None, processes, degrees)
    if value is None or up.value is None or down.value is None:
        low = up.low / down.high if down.high < math.inf else 0.0
        return Figure(None, low, up.high / down.low if down.low > 0 else math.inf, processes, degrees)
    below = math.hypot(_distance(up.value, up.low), _distance(down.high, down.value))
    above = math.hypot(_distance(up.high, up.value), _distance(down.value, down.low))
    high = value * math.exp(above) if above < math.inf else math.inf
    return Figure(value, value * math.exp(-below), high, processes, degrees)


def concordance(points: Sequence[tuple[Figure, Figure]]) -> Figure:
    """Kendall's tau over these points alone: pairs in the same order less pairs in the opposite one, over all pairs.

    A pair counts where the intervals of both quotients, widened for all pairs, exclude 1; a censored number may be
    enough for that. What a pair does not say counts both ways: the interval has the bounds of what is possible.
    """
    pairs = list(combinations(points, 2))
    signs = [
        _direction(quotient(first[0], second[0]), len(pairs)) * _direction(quotient(first[1], second[1]), len(pairs))
        for first, second in pairs
    ]
    total, unknown = sum(signs), signs.count(0)
    low, high = (total - unknown) / len(pairs), (total + unknown) / len(pairs)
    return Figure(None if unknown else low, low, high, len(points), scale=Scale.LINEAR)


def rank_correlation(points: Sequence[tuple[float, float]]) -> Figure:
    """Spearman's rank correlation, with the interval of Bonett and Wright (Psychometrika 65, 2000).

    That interval ends at a perfect order, so that one is treated as the nearest order that is not perfect.
    """
    n = len(points)
    ranks = [_ranks([point[side] for point in points]) for side in (0, 1)]
    value = float(np.corrcoef(ranks[0], ranks[1])[0, 1]) if all(len(set(side)) > 1 for side in ranks) else 0.0
    if n < 4:
        return Figure(value, None, None, n, 1, Scale.LINEAR)
    nearest = 1 - 12 / (n * (n * n - 1))
    inside = max(-nearest, min(nearest, value))
    half = _NORMAL * math.sqrt((1 + inside * inside / 2) / (n - 3))
    low, high = (math.tanh(math.atanh(inside) + sign * half) for sign in (-1, 1))
    return Figure(value, min(low, value), max(high, value), n, scale=Scale.LINEAR)


def exponent(values: Mapping[float, Mapping[Visit, float]]) -> Estimate:
    """The exponent of a power law, by least squares on logarithms: Student's t over the slopes of the rounds.

    Without enough rounds in which all values were measured the scatter around the line stands for that of rounds.
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
    half = t_quantile(1 - _TAIL, degrees) * math.sqrt(float((left**2).sum() / degrees / (centred**2).sum()))
    return Estimate(value, value - half, value + half, len(x), len(x), degrees)


def _direction(figure: Figure, family: int) -> int:
    low, high = figure.bounds(family) or (0.0, math.inf)
    return (low > 1) - (high < 1)


def _distance(high: float, low: float) -> float:
    return math.inf if low <= 0 or math.isinf(high) else math.log(high / low)


def _ranks(values: Sequence[float]) -> list[float]:
    """Ranks, with their mean where values are equal."""
    array = np.asarray(values)
    return [float((array < value).sum() + ((array == value).sum() + 1) / 2) for value in values]

"""Numbers of a claim with their intervals, and what a threshold makes of them."""

import math
from dataclasses import dataclass
from enum import Enum

from orchestrator.analysis.statistics import Estimate
from runners.statistics.moderation import LEVEL
from runners.statistics.student import t_quantile

_ENDLESS_DEGREES = 1000
"""From here on Student's t is the normal distribution for all that is asked of it."""


class Finding(Enum):
    """What the store says about a claim, or about one case of it."""

    HOLDS = "holds"
    FAILS = "fails"
    NOT_ENOUGH_DATA = "not enough data"


class Scale(Enum):
    """On which scale an interval is symmetric."""

    LOGARITHMIC = "logarithmic"
    LINEAR = "linear"


@dataclass(frozen=True)
class Figure:
    """A number with its 95 % interval. An end of minus or plus infinity is known to lie beyond what was measured."""

    value: float | None
    """Null where it is only known to lie beyond one end of what was measured."""
    low: float | None
    """Null where there is no interval at all."""
    high: float | None
    processes: int
    degrees: int
    """Of freedom, of Student's t behind the interval."""
    scale: Scale = Scale.LOGARITHMIC

    def bounds(self, family: int) -> tuple[float, float] | None:
        """The interval, widened so that all of a family hold the truth together (Bonferroni); null if there is none.

        Args:
            family: how many intervals are looked at together.
        """
        if self.low is None or self.high is None:
            return None
        if self.value is None or family < 2:
            return self.low, self.high
        tail = (1 - LEVEL) / 2
        wider = t_quantile(1 - tail / family, self.degrees) / t_quantile(1 - tail, self.degrees)
        if self.scale is Scale.LINEAR:
            return self.value - (self.value - self.low) * wider, self.value + (self.high - self.value) * wider
        low = self.value * (self.low / self.value) ** wider if self.low > 0 else self.low
        return low, self.value * (self.high / self.value) ** wider


@dataclass(frozen=True)
class Threshold:
    """What a number must be for a claim to hold: exactly one of the three is set."""

    above: float | None = None
    below: float | None = None
    within: float | None = None
    """Between its inverse and itself; above 1."""

    @property
    def text(self) -> str:
        """In words."""
        if self.within is not None:
            return f"within x{self.within:g}"
        return f"above {self.above:g}" if self.above is not None else f"below {self.below:g}"

    @property
    def sign(self) -> str:
        """As short as it can be written."""
        if self.within is not None:
            return f"within x{self.within:g}"
        return f"> {self.above:g}" if self.above is not None else f"< {self.below:g}"

    @property
    def ends(self) -> tuple[float, float]:
        """What a number must lie between, infinite where nothing bounds it."""
        if self.within is not None:
            return 1 / self.within, self.within
        low = -math.inf if self.above is None else self.above
        return low, math.inf if self.below is None else self.below

    def contains(self, low: float, high: float) -> bool:
        """Whether an interval lies wholly where the claim holds."""
        least, most = self.ends
        return (least < low or math.isinf(least)) and (high < most or math.isinf(most))

    def excludes(self, low: float, high: float) -> bool:
        """Whether an interval lies wholly where the claim fails."""
        least, most = self.ends
        return high < least or low > most


def judge(figure: Figure, threshold: Threshold, *, family_of_holding: int = 1, family_of_failing: int = 1) -> Finding:
    """What a threshold says of a number: nothing, unless its whole interval lies on one side.

    Args:
        figure: the number.
        threshold: of the claim.
        family_of_holding: how many others could show the same by chance, where one that holds is enough.
        family_of_failing: the same, where one that fails is enough.
    """
    holding, failing = figure.bounds(family_of_holding), figure.bounds(family_of_failing)
    if holding is None or failing is None:
        return Finding.NOT_ENOUGH_DATA
    if threshold.contains(*holding):
        return Finding.HOLDS
    return Finding.FAILS if threshold.excludes(*failing) else Finding.NOT_ENOUGH_DATA


def figure_of(estimate: Estimate, scale: Scale = Scale.LOGARITHMIC) -> Figure:
    """An estimate as a figure."""
    degrees = estimate.processes - 1 if estimate.degrees is None else estimate.degrees
    degrees = int(min(max(degrees, 1), _ENDLESS_DEGREES))
    return Figure(estimate.value, estimate.low, estimate.high, estimate.processes, degrees, scale)


def mean_figure(figures: list[Figure]) -> Figure:
    """The geometric mean of ratios that have nothing to do with each other, such as those of several models.

    Its interval is about these models and not about others: their errors are added, with Welch's degrees of freedom.
    """
    values = [figure.value for figure in figures if figure.value is not None]
    centre = sum(map(math.log, values)) / len(values)
    processes = sum(figure.processes for figure in figures)
    errors = []
    for figure in figures:
        if figure.low is None or figure.high is None or len(values) < len(figures):
            return Figure(math.exp(centre), None, None, processes, 1)
        errors.append(math.log(figure.high / figure.low) / 2 / t_quantile((1 + LEVEL) / 2, figure.degrees))
    variances = [(error / len(figures)) ** 2 for error in errors]
    spread = sum(variance**2 / figure.degrees for variance, figure in zip(variances, figures, strict=True))
    exact = float(sum(variances)) ** 2 / spread if spread > 0 else float(_ENDLESS_DEGREES)
    degrees = int(max(1.0, min(exact, float(_ENDLESS_DEGREES))))
    half = t_quantile((1 + LEVEL) / 2, degrees) * math.sqrt(sum(variances))
    return Figure(math.exp(centre), math.exp(centre - half), math.exp(centre + half), processes, degrees)

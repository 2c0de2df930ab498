"""Estimates with intervals. The unit of independence is the process, never the single call.

**A median over processes.** Below 6 processes Student's t on the logarithms of their medians; from 6 on interpolated
order statistics (Hettmansperger and Sheather, Statistics & Probability Letters 4, 1986), which assume nothing about how
processes scatter, and with fewer values do not exist at 95 %. A bootstrap over processes and then samples, which stood
here before, held the truth 99 times in 100 where samples scatter as much as processes, because it counts their scatter
twice, and 88 times with 7 processes that differ, because the median of a few values can only be one of them.

**A ratio within sessions or rounds.** Student's t on the logarithms of their ratios, moderated by the other cells of
the campaign where there are some (`moderation`).

**A ratio without rounds.** Welch's t, which lets two sides scatter differently.

How often each holds the truth is simulated in `benchmarks/simulation`; docs/measured/statistics.md has the numbers.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
from numpy.typing import NDArray

from runners.statistics.moderation import LEVEL, Prior, half_width
from runners.statistics.student import t_quantile

MANY_PROCESSES = 6
"""From here on the median has an interval by order statistics (its level is 97 % with 6 values, 94 % with 5)."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval."""

    value: float
    low: float | None
    """Null with fewer than 2 processes."""
    high: float | None
    processes: int
    """Independent processes, or for a paired ratio sessions or rounds; for an unpaired one processes of both sides."""
    samples: int
    degrees: float | None = None
    """Of freedom, of an unpaired ratio's or a moderated interval; null for all that has one less than `processes`."""
    between: float = 0.0
    """The part of the standard error of the logarithm that further sessions of the same campaigns do not lessen."""

    @property
    def half_width(self) -> float | None:
        """Half the width of the interval, relative to the value."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2 / self.value

    @property
    def bare(self) -> "Estimate":
        """The value without its interval."""
        return replace(self, low=None, high=None, degrees=None)

    def scaled(self, factor: float) -> "Estimate":
        """The same in another unit."""
        low, high = (None if end is None else end * factor for end in (self.low, self.high))
        return replace(self, value=self.value * factor, low=low, high=high)


def median_of_values(values: Floats, samples: int) -> Estimate:
    """The median of one value per process.

    Args:
        values: one per process. With a value that is not above 0 Student's t is not on logarithms.
        samples: number of samples behind them, carried along.

    Raises:
        ValueError: there is no value.
    """
    if not len(values):
        raise ValueError("a median needs values")
    if len(values) >= MANY_PROCESSES:
        low, high = _order_interval(np.sort(values))
        return Estimate(median(values.tolist()), low, high, len(values), samples)
    _, lower, upper = (log_t_interval if values.min() > 0 else t_interval)(values)
    return Estimate(median(values.tolist()), lower, upper, len(values), samples)


def over_processes(values: Iterable[float]) -> Estimate | None:
    """The same of values that have one sample each; null without any."""
    found = np.array(list(values), dtype=np.float64)
    return median_of_values(found, len(found)) if len(found) else None


def mean_ratio(logs: Floats, samples: int, prior: Prior | None = None, between: float = 0.0) -> Estimate:
    """The geometric mean of the ratios of sessions or rounds; of a single one nobody knows how it scatters.

    Args:
        logs: logarithms of their ratios, at least one.
        samples: number of samples behind them, carried along.
        prior: what the other cells of the campaign say of the variance.
        between: standard error of their mean that is known and that they do not show.
    """
    centre, count = float(logs.mean()), len(logs)
    if count < 2:
        return Estimate(math.exp(centre), None, None, count, samples)
    half, degrees = half_width(logs.tolist(), prior, between)
    low, high = math.exp(centre - half), math.exp(centre + half)
    return Estimate(math.exp(centre), low, high, count, samples, degrees, between)


def unpaired_ratio(numerators: Floats, denominators: Floats, samples: int) -> Estimate:
    """The ratio of two geometric means whose processes have nothing to do with each other.

    Welch's t on the logarithms (Biometrika 34, 1947), with Satterthwaite's degrees of freedom.

    Raises:
        ValueError: there is none of either, or a value that is not above 0.
    """
    if not len(numerators) or not len(denominators):
        raise ValueError("an unpaired ratio needs values on both sides")
    if min(numerators.min(), denominators.min()) <= 0:
        raise ValueError("a ratio needs values above 0")
    sides = [np.log(numerators), np.log(denominators)]
    centre = float(sides[0].mean() - sides[1].mean())
    processes = len(numerators) + len(denominators)
    if min(len(side) for side in sides) < 2:
        return Estimate(math.exp(centre), None, None, processes, samples)
    errors = [float(side.var(ddof=1)) / len(side) for side in sides]
    spread = sum(error**2 / (len(side) - 1) for error, side in zip(errors, sides, strict=True))
    # Sides without any scatter, which only exact numbers have, leave nothing to estimate the degrees from.
    degrees = sum(errors) ** 2 / spread if spread > 0 else float(processes - 2)
    half = t_quantile((1 + LEVEL) / 2, degrees) * math.sqrt(sum(errors))
    return Estimate(math.exp(centre), math.exp(centre - half), math.exp(centre + half), processes, samples, degrees)


def log_t_interval(values: Floats) -> tuple[float, float | None, float | None]:
    """Geometric mean and its interval by Student's t on the logarithms; no interval for a single value."""
    centre, low, high = t_interval(np.log(values))
    return math.exp(centre), None if low is None else math.exp(low), None if high is None else math.exp(high)


def t_interval(values: Floats) -> tuple[float, float | None, float | None]:
    """Mean and its interval by Student's t, for what may be 0 and below; no interval for a single value."""
    centre = float(values.mean())
    if len(values) < 2:
        return centre, None, None
    half = t_quantile((1 + LEVEL) / 2, len(values) - 1) * float(values.std(ddof=1)) / math.sqrt(len(values))
    return centre, centre - half, centre + half


def _order_interval(ordered: Floats) -> tuple[float, float]:
    """The 95 % interval of a median, between the order statistics whose levels enclose 95 %."""
    n = len(ordered)
    whole = math.lgamma(n + 1) - n * math.log(2)
    chances = [math.exp(whole - math.lgamma(k + 1) - math.lgamma(n - k + 1)) for k in range(n // 2 + 1)]
    # Of the interval from the d-th smallest to the d-th largest value
    levels = 1 - 2 * np.cumsum(chances)
    inner = int(np.argmax(levels < LEVEL))
    outer = inner - 1
    share = (levels[outer] - LEVEL) / (levels[outer] - levels[inner])
    d = inner
    weight = (n - d) * share / (d + (n - 2 * d) * share)
    low = (1 - weight) * ordered[outer] + weight * ordered[inner]
    high = (1 - weight) * ordered[n - 1 - outer] + weight * ordered[n - 1 - inner]
    return float(low), float(high)

"""Estimates with intervals. The unit of independence is the process, never the single call.

With fewer than 6 processes the interval of a median is Student's t on the logarithms of the processes' medians;
from 6 on it is a hierarchical bootstrap, which draws processes and then samples within each. The interval of a
ratio is Student's t on the logarithms of the rounds' ratios, however many there are: in simulations of 6 rounds a
percentile bootstrap of the same mean held the truth 86 times in 100, not 95. Where two campaigns are compared no round
pairs with another, and the interval is Welch's, which lets the two scatter differently.

Where the samples behind a paired ratio are at hand, `bootstrap_paired_ratio` resamples rounds and then the samples
within each (Davison and Hinkley, Bootstrap Methods and their Application, 1997, section 3.8), with percentiles moved
outwards to where Student's t has them (Hesterberg, What Teachers Should Know About the Bootstrap, The American
Statistician 69, 2015), which mends the narrowness named above. The scatter within a round is in its median already, so
that of rounds with few samples the interval is somewhat too wide, never too narrow.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from orchestrator.analysis.student import t_quantile

BOOTSTRAP_MIN_PROCESSES = 6
BOOTSTRAP_DRAWS = 10_000
LEVEL = 0.95

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval."""

    value: float
    low: float | None
    """Null with fewer than 2 processes."""
    high: float | None
    processes: int
    """Independent processes, or for a paired ratio pairs of them; for an unpaired one those of both sides."""
    samples: int
    degrees: int | None = None
    """Degrees of freedom of an unpaired ratio's interval; null for all that has one less than `processes`."""

    @property
    def half_width(self) -> float | None:
        """Half the width of the interval, relative to the value."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2 / self.value


def median_over_processes(processes: Sequence[Floats], seed: int = 0) -> Estimate:
    """The median of the processes' medians.

    Args:
        processes: the samples of each process, above 0.
        seed: of the bootstrap.

    Raises:
        ValueError: there is no process, one without samples, or a sample that is not above 0.
    """
    if not processes or any(not len(one) or one.min() <= 0 for one in processes):
        raise ValueError("each process needs samples above 0")
    medians = np.array([np.median(one) for one in processes])
    if len(processes) < BOOTSTRAP_MIN_PROCESSES:
        _, low, high = log_t_interval(medians)
    else:
        low, high = _hierarchical_bootstrap(processes, np.random.default_rng(seed))
    return Estimate(float(np.median(medians)), low, high, len(processes), sum(len(one) for one in processes))


def paired_ratio(numerators: Floats, denominators: Floats, samples: int) -> Estimate:
    """The geometric mean of ratios that were paired by round.

    Args:
        numerators: one median per round.
        denominators: one median per round, in the same order.
        samples: number of samples behind both, carried along.

    Raises:
        ValueError: there is no pair, a different number of each, or a value that is not above 0.
    """
    if not len(numerators) or len(numerators) != len(denominators):
        raise ValueError("a paired ratio needs as many numerators as denominators")
    if min(numerators.min(), denominators.min()) <= 0:
        raise ValueError("a ratio needs values above 0")
    value, low, high = log_t_interval(numerators / denominators)
    return Estimate(value, low, high, len(numerators), samples)


def bootstrap_paired_ratio(
    numerators: Sequence[Floats], denominators: Sequence[Floats], draws: int = BOOTSTRAP_DRAWS, seed: int = 0
) -> Estimate:
    """The geometric mean of the rounds' ratios of medians, with an interval by the hierarchical bootstrap.

    Args:
        numerators: the samples of each round, above 0.
        denominators: the same of the other side, in the same order.
        draws: how often rounds, and samples within each, are drawn.
        seed: of the bootstrap.

    Raises:
        ValueError: there is no round, a different number on each side, a round without samples, or a sample that is not
            above 0.
    """
    if not numerators or len(numerators) != len(denominators):
        raise ValueError("a paired ratio needs as many numerators as denominators")
    if any(not len(one) or one.min() <= 0 for one in (*numerators, *denominators)):
        raise ValueError("each round needs samples above 0 on both sides")
    rounds = len(numerators)
    samples = sum(len(one) for one in (*numerators, *denominators))
    logs = [np.log(np.median(up) / np.median(down)) for up, down in zip(numerators, denominators, strict=True)]
    value = math.exp(float(np.mean(logs)))
    if rounds < 2:
        return Estimate(value, None, None, rounds, samples)
    generator = np.random.default_rng(seed)
    chosen = generator.integers(rounds, size=(draws, rounds))
    ratios = np.log(_drawn_medians(numerators, chosen, generator))
    ratios -= np.log(_drawn_medians(denominators, chosen, generator))
    low, high = np.exp(np.quantile(ratios.mean(axis=1), _expanded_levels(rounds)))
    return Estimate(value, float(low), float(high), rounds, samples)


def unpaired_ratio(numerators: Floats, denominators: Floats, samples: int) -> Estimate:
    """The ratio of two geometric means whose processes have nothing to do with each other.

    Welch's t on the logarithms, with its degrees of freedom rounded down.

    Args:
        numerators: one median per process.
        denominators: one median per process.
        samples: number of samples behind both, carried along.

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
    degrees = max(1, int(sum(errors) ** 2 / spread)) if spread > 0 else processes - 2
    half = t_quantile((1 + LEVEL) / 2, degrees) * math.sqrt(sum(errors))
    return Estimate(math.exp(centre), math.exp(centre - half), math.exp(centre + half), processes, samples, degrees)


def log_t_interval(values: Floats) -> tuple[float, float | None, float | None]:
    """Geometric mean and its interval by Student's t on the logarithms; no interval for a single value."""
    logs = np.log(values)
    centre = float(logs.mean())
    if len(logs) < 2:
        return math.exp(centre), None, None
    error = float(logs.std(ddof=1)) / math.sqrt(len(logs))
    half = t_quantile((1 + LEVEL) / 2, len(logs) - 1) * error
    return math.exp(centre), math.exp(centre - half), math.exp(centre + half)


def _hierarchical_bootstrap(processes: Sequence[Floats], generator: np.random.Generator) -> tuple[float, float]:
    chosen = generator.integers(len(processes), size=(BOOTSTRAP_DRAWS, len(processes)))
    return _percentiles(np.median(_drawn_medians(processes, chosen, generator), axis=1))


def _drawn_medians(processes: Sequence[Floats], chosen: NDArray[np.int64], generator: np.random.Generator) -> Floats:
    """The median of a fresh resample of each chosen process, in the shape of `chosen`."""
    medians = np.empty(chosen.shape)
    for index, samples in enumerate(processes):
        here = chosen == index
        medians[here] = _resampled_medians(np.sort(samples), int(here.sum()), generator)
    return medians


def _expanded_levels(n: int) -> tuple[float, float]:
    """The quantiles of a bootstrap of n values that stand where Student's t would put the ends of the interval."""
    normal = math.sqrt(n / (n - 1)) * t_quantile((1 + LEVEL) / 2, n - 1)
    tail = math.erfc(normal / math.sqrt(2)) / 2
    return tail, 1 - tail


def _resampled_medians(ordered: Floats, draws: int, generator: np.random.Generator) -> Floats:
    # The k-th smallest of n uniform numbers has a beta distribution, so that the median of a resample is drawn
    # directly, exactly as if all n samples had been drawn and sorted.
    n = len(ordered)
    k = (n + 1) // 2
    lower = generator.beta(k, n - k + 1, size=draws)
    values: Floats = ordered[_index(lower, n)]
    if n % 2:
        return values
    upper = lower + (1 - lower) * generator.beta(1, n - k, size=draws)
    return (values + ordered[_index(upper, n)]) / 2


def _index(uniform: Floats, n: int) -> NDArray[np.int64]:
    return np.minimum((uniform * n).astype(np.int64), n - 1)


def _percentiles(draws: Floats) -> tuple[float, float]:
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)

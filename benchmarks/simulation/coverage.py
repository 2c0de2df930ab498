"""How often the intervals that are no ratios of sessions hold the truth."""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from benchmarks.simulation.simulating import Noise, holds, samples_of, true_median
from orchestrator.analysis.statistics import Estimate, median_of_values, unpaired_ratio

RATIO: Final = 1.3

Interval = Callable[[np.random.Generator, Noise, int], Estimate]
"""Of a made-up campaign with this noise and so many processes."""


def covered(interval: Interval, random: np.random.Generator, noise: Noise, processes: int, runs: int) -> float:
    """The share of simulated campaigns whose interval has the truth in it."""
    truth = true_median(noise) if interval is median else RATIO
    return sum(holds(interval(random, noise, processes), truth) for _ in range(runs)) / runs


def unpaired(random: np.random.Generator, noise: Noise, processes: int) -> Estimate:
    """Of a ratio between two campaigns, by Welch's t."""
    medians = np.median(samples_of(random, noise, 2, processes), axis=-1)
    return unpaired_ratio(RATIO * medians[0], medians[1], 1)


def median(random: np.random.Generator, noise: Noise, processes: int) -> Estimate:
    """Of the median over processes."""
    medians = np.median(samples_of(random, noise, processes), axis=-1)
    return median_of_values(medians, len(medians))


INTERVALS: Final[Mapping[str, Interval]] = {
    "ratio between campaigns, Welch's t": unpaired,
    "median over processes": median,
}

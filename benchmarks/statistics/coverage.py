"""How often each interval holds the truth."""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from benchmarks.statistics.simulating import Floats, Noise, holds, samples_of, true_median
from orchestrator.analysis.statistics import (
    Estimate,
    bootstrap_paired_ratio,
    median_over_processes,
    paired_ratio,
    unpaired_ratio,
)

RATIO: Final = 1.3
BOOTSTRAP_DRAWS: Final = 2000

Interval = Callable[[np.random.Generator, Noise, int], Estimate]
"""Of a made-up campaign with this noise and so many rounds."""


def covered(interval: Interval, random: np.random.Generator, noise: Noise, rounds: int, runs: int) -> float:
    """The share of simulated campaigns whose interval has the truth in it."""
    truth = true_median(noise) if interval is median else RATIO
    return sum(holds(interval(random, noise, rounds), truth) for _ in range(runs)) / runs


def paired(random: np.random.Generator, noise: Noise, rounds: int) -> Estimate:
    """Of a ratio within rounds, by Student's t."""
    medians = np.median(_rounds(random, noise, rounds), axis=-1)
    return paired_ratio(medians[0], medians[1], 1)


def bootstrap(random: np.random.Generator, noise: Noise, rounds: int) -> Estimate:
    """Of a ratio within rounds, by the hierarchical bootstrap."""
    sides = _rounds(random, noise, rounds)
    return bootstrap_paired_ratio(list(sides[0]), list(sides[1]), BOOTSTRAP_DRAWS, int(random.integers(2**31)))


def unpaired(random: np.random.Generator, noise: Noise, rounds: int) -> Estimate:
    """Of a ratio between two campaigns, by Welch's t."""
    medians = np.median(samples_of(random, noise, 2, rounds), axis=-1)
    return unpaired_ratio(RATIO * medians[0], medians[1], 1)


def median(random: np.random.Generator, noise: Noise, rounds: int) -> Estimate:
    """Of the median over processes."""
    return median_over_processes(list(samples_of(random, noise, rounds)))


INTERVALS: Final[Mapping[str, Interval]] = {
    "ratio within rounds, Student's t": paired,
    "ratio within rounds, hierarchical bootstrap": bootstrap,
    "ratio between campaigns, Welch's t": unpaired,
    "median over processes": median,
}


def _rounds(random: np.random.Generator, noise: Noise, rounds: int) -> Floats:
    sides = samples_of(random, noise, 2, rounds) * np.exp(random.normal(0, noise.round_sigma, (1, rounds, 1)))
    sides[0] *= RATIO
    return sides

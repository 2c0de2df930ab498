"""Made-up campaigns whose truth is known: samples within processes, processes within rounds.

What happens in a lab is in it: a round that is slow for all, processes that differ for good (memory layout, clocks),
samples with a log-normal scatter, and now and then one that a neighbour made many times as long.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from orchestrator.analysis.comparing.cells import Cell
from orchestrator.analysis.comparing.policies import Interval
from orchestrator.analysis.comparing.ratios import noise_floors, noise_of, ratio_of
from orchestrator.analysis.metrics import METRICS
from orchestrator.analysis.statistics import Estimate, median_of_values
from orchestrator.analysis.verdict import MINIMUM_EFFECT, Verdict, judge_family

Floats = NDArray[np.float64]
METRIC: Final = METRICS["latency_sync"]
_LATENCY_S: Final = 0.01


@dataclass(frozen=True)
class Noise:
    """How a lab scatters."""

    process_cv: float
    """Between processes, relative: 0.01 to 0.1 in a lab."""
    round_sigma: float = 0.03
    """Standard deviation of the logarithm of what a round does to all of its trials."""
    sample_sigma: float = 0.05
    burst_share: float = 0.05
    """Of the samples that a neighbour prolongs."""
    burst_index: float = 2.5
    """Of their Pareto tail: the variance is infinite from 2 down."""
    samples: int = 30

    @property
    def process_sigma(self) -> float:
        """Standard deviation of the logarithm between processes."""
        return math.sqrt(math.log1p(self.process_cv**2))


def samples_of(random: np.random.Generator, noise: Noise, *shape: int) -> Floats:
    """Samples of processes around 1: the last axis is that of the samples."""
    of_process = random.normal(0, noise.process_sigma, (*shape, 1))
    within = random.normal(0, noise.sample_sigma, (*shape, noise.samples))
    is_burst = random.random((*shape, noise.samples)) < noise.burst_share
    bursts = np.where(is_burst, random.pareto(noise.burst_index, (*shape, noise.samples)), 0.0)
    return np.asarray(np.exp(of_process + within) * (1 + bursts))


@lru_cache
def true_median(noise: Noise, seed: int = 1) -> float:
    """The median over all processes that there could be of their medians."""
    return float(
        np.median(np.median(samples_of(np.random.default_rng(seed), noise, 400_000 // noise.samples * 10), -1))
    )


@dataclass(frozen=True)
class Campaign:
    """A simulated campaign: a family of settings, each with a baseline and what is compared with it."""

    settings: int = 5
    compared: int = 3
    rounds: int = 5
    effect: float = 1.0
    """How many times as long the first of the compared takes; all else is equal."""
    twins: int = 1
    """A/A pairs."""
    paired: bool = True
    """Whether both sides ran in the same rounds; else in two campaigns."""

    @property
    def ratios(self) -> int:
        """How many are judged together."""
        return self.settings * self.compared


def verdicts_of(
    random: np.random.Generator, noise: Noise, campaign: Campaign, minimum_effect: float = MINIMUM_EFFECT
) -> list[Verdict]:
    """The verdicts on a simulated campaign, by the code that compares real ones."""
    rounds = np.exp(random.normal(0, noise.round_sigma, (2, campaign.rounds)))
    ratios, effects = [], []
    floors = noise_floors(_twin_rows(random, noise, campaign, rounds[0]), METRIC)
    for setting in range(campaign.settings):
        medians = np.median(samples_of(random, noise, 1 + campaign.compared, campaign.rounds), axis=-1)
        if setting == 0:
            medians[1] *= campaign.effect
        baseline = _cell(medians[0] * rounds[0], "old")
        for values in medians[1:]:
            other = _cell(values * rounds[0], "old") if campaign.paired else _cell(values * rounds[1], "new")
            found = ratio_of(other, baseline, METRIC, Interval.STUDENT)
            assert found is not None
            ratios.append(found[0])
            effects.append(noise_of((other, baseline), floors).effect(minimum_effect))
    return list(judge_family(ratios, effects))


def holds(estimate: Estimate, truth: float) -> bool:
    """Whether an interval has the truth in it."""
    return estimate.low is not None and estimate.high is not None and estimate.low <= truth <= estimate.high


def _cell(medians: Floats, campaign_id: str) -> Cell:
    rows = tuple(_row(value, number, campaign_id) for number, value in enumerate(medians))
    return Cell((), rows, rows, median_of_values(medians, len(medians)))


def _row(median: float, number: int, campaign_id: str, replicate: int = 0, key: str = "k") -> dict[str, object]:
    return {
        "campaign_id": campaign_id, "host": "lab1", "trial_key": key, "round": number, "replicate": replicate,
        "status": "ok", METRIC.column: _LATENCY_S * float(median), "latency_sync_samples": 1,
    }  # fmt: skip


def _twin_rows(
    random: np.random.Generator, noise: Noise, campaign: Campaign, rounds: Floats
) -> Sequence[dict[str, object]]:
    medians = np.median(samples_of(random, noise, campaign.twins, 2, campaign.rounds), axis=-1) * rounds
    return [
        _row(medians[twin, replicate, number], number, "old", replicate, f"twin{twin}")
        for twin in range(campaign.twins)
        for replicate in (0, 1)
        for number in range(campaign.rounds)
    ]

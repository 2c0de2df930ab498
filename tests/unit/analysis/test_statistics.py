"""Intervals: exact where theory is, and right about 95 times in 100."""

import math

import numpy as np
import pytest
import scipy.stats

from orchestrator.analysis.statistics import (
    log_t_interval,
    mean_ratio,
    median_of_values,
    unpaired_ratio,
)


def test_the_t_interval_is_that_of_scipy_on_logarithms() -> None:
    values = np.array([0.011, 0.013, 0.012, 0.017, 0.010])
    logs = np.log(values)
    expected = scipy.stats.t.interval(0.95, 4, loc=logs.mean(), scale=scipy.stats.sem(logs))
    centre, low, high = log_t_interval(values)
    assert centre == pytest.approx(float(scipy.stats.gmean(values)), rel=1e-12)
    assert (low, high) == pytest.approx(tuple(np.exp(expected)), rel=1e-9)


@pytest.mark.parametrize("processes", [2, 3, 5])
def test_the_t_interval_covers_95_percent(processes: int) -> None:
    generator = np.random.default_rng(20)
    runs = 4000
    covered = 0
    for draw in generator.lognormal(math.log(0.01), 0.1, size=(runs, processes)):
        _, low, high = log_t_interval(draw)
        assert low is not None
        assert high is not None
        covered += low <= 0.01 <= high
    assert 0.93 < covered / runs < 0.97


def test_few_processes_get_the_t_interval_of_their_medians() -> None:
    estimate = median_of_values(np.array([2.0, 4.0, 3.0]), 10)
    _, low, high = log_t_interval(np.array([2.0, 4.0, 3.0]))
    assert (estimate.value, estimate.low, estimate.high) == (3.0, low, high)
    assert (estimate.processes, estimate.samples) == (3, 10)


def test_one_process_has_no_interval() -> None:
    estimate = median_of_values(np.array([2.0]), 2)
    assert (estimate.value, estimate.low, estimate.high, estimate.half_width) == (2.0, None, None, None)


@pytest.mark.parametrize("size", [6, 7, 8, 10, 15, 33, 1500])
def test_many_processes_get_interpolated_order_statistics(size: int) -> None:
    values = np.random.default_rng(4).lognormal(size=size)
    ordered = np.sort(values)
    # Hettmansperger and Sheather (1986), as they write it
    levels = {d: 1 - 2 * scipy.stats.binom.cdf(d - 1, size, 0.5) for d in range(1, size // 2 + 1)}
    d = max(number for number, level in levels.items() if level >= 0.95)
    inner = 1 - 2 * scipy.stats.binom.cdf(d, size, 0.5)
    share = (levels[d] - 0.95) / (levels[d] - inner)
    weight = (size - d) * share / (d + (size - 2 * d) * share)
    low = (1 - weight) * ordered[d - 1] + weight * ordered[d]
    high = (1 - weight) * ordered[size - d] + weight * ordered[size - d - 1]
    estimate = median_of_values(values, samples=99)
    assert (estimate.value, estimate.samples) == (float(np.median(values)), 99)
    assert (estimate.low, estimate.high) == pytest.approx((low, high), rel=1e-9)


def test_values_that_are_not_above_0_get_a_plain_t_interval() -> None:
    values = np.array([-0.1, 0.0, 0.4])
    expected = scipy.stats.t.interval(0.95, 2, loc=values.mean(), scale=scipy.stats.sem(values))
    estimate = median_of_values(values, 3)
    assert (estimate.low, estimate.high) == pytest.approx(tuple(map(float, expected)))
    assert estimate.value == 0.0
    assert median_of_values(np.array([0.0]), 1).low is None
    with pytest.raises(ValueError, match="needs values"):
        median_of_values(np.array([]), 0)


def test_a_ratio_is_paired_by_round() -> None:
    rounds = np.array([1.0, 5.0, 25.0])
    estimate = mean_ratio(np.log(1.5 * rounds / rounds), samples=60)
    assert (estimate.value, estimate.low, estimate.high) == pytest.approx((1.5, 1.5, 1.5))
    assert (estimate.processes, estimate.samples) == (3, 60)
    noisy = mean_ratio(np.log([2.0, 4.0]), samples=4)
    assert noisy.value == pytest.approx(math.sqrt(8))
    assert noisy.low is not None
    assert noisy.low < 1


@pytest.mark.parametrize("rounds", [3, 6, 10])
def test_the_interval_of_a_ratio_covers_95_percent(rounds: int) -> None:
    generator = np.random.default_rng(6)
    runs = 3000
    covered = 0
    for fast, slow in generator.lognormal(0, 0.1, size=(runs, 2, rounds)):
        estimate = mean_ratio(np.log(1.4 * slow / fast), samples=2 * rounds)
        assert estimate.low is not None
        assert estimate.high is not None
        covered += estimate.low <= 1.4 <= estimate.high
    assert 0.93 < covered / runs < 0.97


@pytest.mark.parametrize("processes", [3, 5, 6, 7, 8, 10])
def test_the_interval_of_a_median_covers_95_percent(processes: int) -> None:
    """Where samples scatter more than processes, and where they scatter less."""
    generator = np.random.default_rng(7)
    runs = 2000
    for between, within in ((0.01, 0.05), (0.1, 0.02)):
        covered = 0
        for centres in generator.lognormal(0, between, size=(runs, processes)):
            samples = centres[:, None] * generator.lognormal(0, within, (processes, 21))
            estimate = median_of_values(np.median(samples, axis=1), samples.size)
            assert estimate.low is not None
            assert estimate.high is not None
            covered += estimate.low <= 1 <= estimate.high
        assert 0.93 < covered / runs < 0.97


def test_an_unpaired_interval_is_that_of_welch_on_logarithms() -> None:
    then, now = np.array([0.011, 0.013, 0.012, 0.017, 0.010]), np.array([0.010, 0.0102, 0.0099])
    ratio = unpaired_ratio(then, now, samples=80)
    welch = scipy.stats.ttest_ind(np.log(then), np.log(now), equal_var=False)
    assert ratio.value == pytest.approx(float(scipy.stats.gmean(then) / scipy.stats.gmean(now)), rel=1e-12)
    assert ratio.degrees == pytest.approx(float(welch.df), rel=1e-12)
    expected = welch.confidence_interval(0.95)
    assert ratio.low is not None
    assert ratio.high is not None
    assert (math.log(ratio.low), math.log(ratio.high)) == pytest.approx((expected.low, expected.high), rel=1e-9)
    assert (ratio.processes, ratio.samples) == (8, 80)


@pytest.mark.parametrize(("rounds", "scatter"), [((3, 3), (0.05, 0.05)), ((3, 8), (0.02, 0.1)), ((5, 3), (0.1, 0.01))])
def test_the_unpaired_interval_covers_95_percent(rounds: tuple[int, int], scatter: tuple[float, float]) -> None:
    generator = np.random.default_rng(5)
    covered = 0
    runs = 3000
    for _ in range(runs):
        then, now = (generator.lognormal(0, s, size=n) for n, s in zip(rounds, scatter, strict=True))
        ratio = unpaired_ratio(1.2 * then, now, samples=1)
        assert ratio.low is not None
        assert ratio.high is not None
        covered += ratio.low <= 1.2 <= ratio.high
    assert 0.93 < covered / runs < 0.99  # rounded degrees of freedom only widen it


def test_an_unpaired_ratio_without_scatter_or_with_one_process() -> None:
    exact = unpaired_ratio(np.array([2.0, 2.0]), np.array([1.0, 1.0, 1.0]), samples=5)
    assert (exact.value, exact.low, exact.high, exact.degrees) == (pytest.approx(2.0), *[pytest.approx(2.0)] * 2, 3)
    single = unpaired_ratio(np.array([2.0]), np.array([1.0, 1.1]), samples=3)
    assert (single.low, single.high) == (None, None)
    with pytest.raises(ValueError, match="both sides"):
        unpaired_ratio(np.array([]), np.array([1.0]), samples=1)
    with pytest.raises(ValueError, match="above 0"):
        unpaired_ratio(np.array([0.0]), np.array([1.0]), samples=1)

"""Intervals: exact where theory is; `tests/unit/benchmarks` sees how often they hold the truth where it is not."""

import math

import numpy as np
import pytest
import scipy.stats

from orchestrator.analysis.statistics import log_t_interval, mean_ratio, median_of_values, unpaired_ratio

FIVE = np.array([0.011, 0.013, 0.012, 0.017, 0.010])


def test_few_processes_get_the_t_interval_of_logarithms_and_one_none() -> None:
    estimate = median_of_values(FIVE, 10)
    ends = scipy.stats.t.interval(0.95, 4, loc=np.log(FIVE).mean(), scale=scipy.stats.sem(np.log(FIVE)))
    assert (estimate.value, estimate.low, estimate.high) == pytest.approx((0.012, *np.exp(ends)), rel=1e-9)
    assert (estimate.processes, estimate.samples) == (5, 10)
    assert log_t_interval(FIVE)[0] == pytest.approx(scipy.stats.gmean(FIVE), rel=1e-9)
    alone = median_of_values(np.array([2.0]), 2)
    assert (alone.value, alone.low, alone.high, alone.half_width) == (2.0, None, None, None)


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


@pytest.mark.parametrize("ratios", [[1.5, 1.5, 1.5], [2.0, 4.0], [1.2, 1.3, 1.1, 1.25, 1.4]])
def test_the_interval_of_a_ratio_is_that_of_scipy_on_logarithms(ratios: list[float]) -> None:
    logs = np.log(ratios)
    expected = logs.mean() + scipy.stats.sem(logs) * np.array(scipy.stats.t.interval(0.95, len(ratios) - 1))
    estimate = mean_ratio(logs, samples=60)
    assert (estimate.value, estimate.low, estimate.high) == pytest.approx((math.exp(logs.mean()), *np.exp(expected)))
    assert (estimate.processes, estimate.samples) == (len(ratios), 60)


def test_an_unpaired_interval_is_that_of_welch_on_logarithms() -> None:
    now = np.array([0.010, 0.0102, 0.0099])
    ratio = unpaired_ratio(FIVE, now, samples=80)
    welch = scipy.stats.ttest_ind(np.log(FIVE), np.log(now), equal_var=False)
    value = scipy.stats.gmean(FIVE) / scipy.stats.gmean(now)
    expected = (value, *np.exp(welch.confidence_interval(0.95)), welch.df)
    assert (ratio.value, ratio.low, ratio.high, ratio.degrees) == pytest.approx(expected, rel=1e-9)
    assert (ratio.processes, ratio.samples) == (8, 80)


def test_an_unpaired_ratio_without_scatter_or_with_one_process() -> None:
    exact = unpaired_ratio(np.array([2.0, 2.0]), np.array([1.0, 1.0, 1.0]), samples=5)
    assert (exact.value, exact.low, exact.high, exact.degrees) == (pytest.approx(2.0), *[pytest.approx(2.0)] * 2, 3)
    single = unpaired_ratio(np.array([2.0]), np.array([1.0, 1.1]), samples=3)
    assert (single.low, single.high) == (None, None)
    for values, problem in (([], "both sides"), ([0.0], "above 0")):
        with pytest.raises(ValueError, match=problem):
            unpaired_ratio(np.array(values), np.array([1.0]), samples=1)

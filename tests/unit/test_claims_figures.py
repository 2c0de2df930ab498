"""Numbers of claims: against SciPy where it has them, and by simulation."""

import math

import numpy as np
import pytest
from scipy import stats

from orchestrator.analysis.claiming.figures import Figure, Finding, Scale, Threshold, figure_of, judge, mean_figure
from orchestrator.analysis.claiming.relations import correlation, quotient
from orchestrator.analysis.claiming.statistics import exponent, slope
from orchestrator.analysis.statistics import paired_ratio


def figure(value: float, low: float, high: float, scale: Scale = Scale.LOGARITHMIC) -> Figure:
    return Figure(value, low, high, 5, 4, scale)


@pytest.mark.parametrize(
    ("threshold", "interval", "finding"),
    [
        (Threshold(above=1.2), (1.21, 1.4), Finding.HOLDS),
        (Threshold(above=1.2), (1.19, 1.4), Finding.NOT_ENOUGH_DATA),
        (Threshold(above=1.2), (1.0, 1.19), Finding.FAILS),
        (Threshold(below=1.0), (0.8, 0.99), Finding.HOLDS),
        (Threshold(below=1.0), (0.9, 1.1), Finding.NOT_ENOUGH_DATA),
        (Threshold(below=1.0), (1.01, 1.1), Finding.FAILS),
        (Threshold(within=1.25), (0.81, 1.24), Finding.HOLDS),
        (Threshold(within=1.25), (0.79, 1.1), Finding.NOT_ENOUGH_DATA),
        (Threshold(within=1.25), (1.26, 1.4), Finding.FAILS),
        (Threshold(within=1.25), (0.6, 0.79), Finding.FAILS),
    ],
)
def test_a_number_decides_only_with_its_whole_interval(
    threshold: Threshold, interval: tuple[float, float], finding: Finding
) -> None:
    assert judge(figure(math.sqrt(interval[0] * interval[1]), *interval), threshold) is finding


def test_without_an_interval_nothing_is_decided() -> None:
    assert judge(Figure(9.0, None, None, 1, 1), Threshold(above=1)) is Finding.NOT_ENOUGH_DATA


@pytest.mark.parametrize("scale", list(Scale))
def test_the_interval_of_one_of_many_is_as_wide_as_bonferroni_asks(scale: Scale) -> None:
    random = np.random.default_rng(0)
    ratios = np.exp(random.normal(0.3, 0.05, 5))
    estimate = paired_ratio(ratios, np.ones(5), 10)
    found = figure_of(estimate, scale).bounds(20)
    assert found is not None
    logs = np.log(ratios)
    if scale is Scale.LOGARITHMIC:
        expected = stats.t.interval(1 - 0.05 / 20, 4, logs.mean(), stats.sem(logs))
        assert tuple(map(math.log, found)) == pytest.approx(expected, rel=1e-6)
    else:
        assert found[0] < estimate.low < estimate.high < found[1]  # type: ignore[operator]


def test_many_equal_cases_are_rarely_called_a_failure() -> None:
    """None of 60 cases is beyond the bound; 95 times in 100 none is called so."""
    random = np.random.default_rng(1)
    alarms = 0
    for _ in range(300):
        logs = random.normal(math.log(1.1), 0.02, (60, 5))
        findings = [
            judge(figure_of(paired_ratio(np.exp(one), np.ones(5), 10)), Threshold(within=1.1), family_of_failing=60)
            for one in logs
        ]
        alarms += Finding.FAILS in findings
    assert alarms / 300 < 0.06


def test_the_mean_of_ratios_holds_the_truth_95_times_in_100() -> None:
    random = np.random.default_rng(2)
    truths = np.log([1.3, 1.7, 2.2, 1.1])
    covered = 0
    for _ in range(1000):
        singles = [
            figure_of(paired_ratio(np.exp(random.normal(truth, scatter, 5)), np.ones(5), 5))
            for truth, scatter in zip(truths, (0.02, 0.05, 0.03, 0.08), strict=True)
        ]
        found = mean_figure(singles)
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= math.exp(truths.mean()) <= found.high
    assert 0.93 < covered / 1000 < 0.97


def test_a_mean_with_a_single_process_has_no_interval() -> None:
    found = mean_figure([figure(2.0, 1.9, 2.1), Figure(8.0, None, None, 1, 1)])
    assert found.value == pytest.approx(4)
    assert found.low is None


@pytest.mark.parametrize("ties", [False, True])
def test_the_rank_correlation_is_that_of_scipy(ties: bool) -> None:
    random = np.random.default_rng(4)
    x = random.integers(0, 6, 14).astype(float) if ties else random.normal(size=14)
    y = x + random.normal(size=14)
    found = correlation(list(x), list(y))
    assert found.value == pytest.approx(stats.spearmanr(x, y).statistic)


def test_the_interval_of_the_rank_correlation_holds_the_truth() -> None:
    random = np.random.default_rng(5)
    pearson = 0.6
    truth = 6 / math.pi * math.asin(pearson / 2)
    covered = 0
    for _ in range(1000):
        x = random.normal(size=17)
        y = pearson * x + math.sqrt(1 - pearson**2) * random.normal(size=17)
        found = correlation(list(x), list(y))
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= truth <= found.high
    assert 0.93 < covered / 1000 < 0.98


def test_a_perfect_order_of_few_points_proves_little() -> None:
    found = correlation([1, 2, 3, 4, 5], [2, 4, 6, 8, 10])
    assert found.value == pytest.approx(1)
    assert found.low is not None
    assert found.low < 0
    assert found.high == pytest.approx(1)


def test_the_slope_is_that_of_scipy() -> None:
    random = np.random.default_rng(6)
    x = random.normal(size=6)
    y = 2 * x + random.normal(size=6)
    expected = stats.linregress(x, y)
    half = stats.t.ppf(0.975, 4) * expected.stderr
    found = slope(x, y)
    assert (found.value, found.low, found.high) == pytest.approx(
        (expected.slope, expected.slope - half, expected.slope + half)
    )


def test_the_exponent_is_the_mean_slope_of_the_rounds() -> None:
    random = np.random.default_rng(8)
    visits = [("c", "h", number) for number in range(5)]
    values = {
        float(place): {visit: place**0.7 * math.exp(random.normal(0, 0.02)) for visit in visits}
        for place in (3, 6, 12, 24)
    }
    found = exponent(values)
    slopes = [
        stats.linregress(np.log([3, 6, 12, 24]), np.log([values[place][visit] for place in values])).slope
        for visit in visits
    ]
    expected = stats.t.interval(0.95, 4, np.mean(slopes), stats.sem(slopes))
    assert (found.value, found.low, found.high) == pytest.approx((np.mean(slopes), *expected))


def test_without_shared_rounds_the_scatter_around_the_line_counts() -> None:
    values = {3.0: {("a", "h", 1): 3.0}, 6.0: {("b", "h", 1): 6.3}, 12.0: {("c", "h", 1): 11.8}}
    found = exponent(values)
    assert found.value == pytest.approx(1, abs=0.1)
    assert found.degrees == 1


def test_the_quotient_of_two_batches_holds_the_truth() -> None:
    random = np.random.default_rng(9)
    covered = 0
    for _ in range(1000):
        sides = [
            figure_of(paired_ratio(np.exp(random.normal(math.log(truth), scatter, 5)), np.ones(5), 5))
            for truth, scatter in ((20, 0.03), (6, 0.06))
        ]
        found = quotient(*sides)
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 20 / 6 <= found.high
    assert covered / 1000 > 0.93


def test_of_a_censored_batch_the_quotient_knows_one_bound() -> None:
    beyond = Figure(None, 128.0, math.inf, 5, 4)
    found = quotient(beyond, figure(16, 15, 17))
    assert found.value is None
    assert found.low == pytest.approx(128 / 17)
    assert found.high == math.inf
    assert judge(found, Threshold(above=1)) is Finding.HOLDS
    assert judge(quotient(beyond, beyond), Threshold(above=1)) is Finding.NOT_ENOUGH_DATA

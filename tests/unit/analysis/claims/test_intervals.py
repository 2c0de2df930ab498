"""Numbers of claims: against SciPy where it has them, and by simulation."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from orchestrator.analysis.claims.intervals import (
    Agreement,
    Figure,
    Finding,
    Printed,
    Scale,
    Threshold,
    concordance,
    exponent,
    figure_of,
    mean_figure,
    quotient,
    rank_correlation,
    slope,
)
from orchestrator.analysis.statistics import mean_ratio

INSIDE, OUTSIDE = Agreement.INSIDE, Agreement.OUTSIDE
HOLDS, FAILS, UNDECIDED = Finding.HOLDS, Finding.FAILS, Finding.NOT_ENOUGH_DATA


def figure(value: float | None, low: float, high: float, scale: Scale = Scale.LOGARITHMIC) -> Figure:
    return Figure(value, low, high, 5, 4, scale)


def ratio(truth: float, scatter: float, random: np.random.Generator) -> Figure:
    return figure_of(mean_ratio(random.normal(math.log(truth), scatter, 5), 5))


@pytest.mark.parametrize(
    ("threshold", "interval", "finding"),
    [
        (Threshold(above=1.2), (1.21, 1.4), HOLDS),
        (Threshold(above=1.2), (1.19, 1.4), UNDECIDED),
        (Threshold(above=1.2), (1.0, 1.2), FAILS),
        (Threshold(below=1.0), (0.8, 0.99), HOLDS),
        (Threshold(below=1.0), (0.9, 1.1), UNDECIDED),
        (Threshold(below=1.0), (1.01, 1.1), FAILS),
        (Threshold(above=1, below=16), (2, 15), HOLDS),
        (Threshold(above=1, below=16), (2, 17), UNDECIDED),
        (Threshold(above=1, below=16), (0.0, 1.0), FAILS),
        (Threshold(above=1, below=16), (16.0, math.inf), FAILS),
        (Threshold(within=1.25), (0.81, 1.24), HOLDS),
        (Threshold(within=1.25), (0.79, 1.1), UNDECIDED),
        (Threshold(within=1.25), (1.26, 1.4), FAILS),
        (Threshold(within=1.25), (0.6, 0.79), FAILS),
    ],
)
def test_a_number_decides_only_with_its_whole_interval(
    threshold: Threshold, interval: tuple[float, float], finding: Finding
) -> None:
    assert threshold.judge(figure(None, *interval)) is finding


def test_without_an_interval_nothing_is_decided() -> None:
    single = Figure(9.0, None, None, 1, 1)
    assert Threshold(above=1).judge(single) is UNDECIDED
    assert single.agrees(Printed.of(9.0)) is Agreement.NOT_ENOUGH_DATA
    mean = mean_figure([figure(2.0, 1.9, 2.1), replace(single, value=8.0)])
    assert (mean.value, mean.low) == (pytest.approx(4), None)


def test_a_published_value_stands_for_all_that_rounds_to_it_and_agrees_within_the_interval_of_the_family() -> None:
    found = figure(2.0, 1.9, 2.1)
    assert [found.agrees(Printed.of(value)) for value in (2.05, 2.12)] == [INSIDE, OUTSIDE]
    assert found.agrees(Printed.of(2.12), family=10) is INSIDE
    exact = figure(1.7245, 1.7245, 1.7245)
    assert [exact.agrees(Printed.of(value)) for value in (1.72, 1.7, 1.73)] == [INSIDE, INSIDE, OUTSIDE]
    assert Printed.of(18.5).over(Printed.of(2.5)).high == pytest.approx(18.55 / 2.45)


@pytest.mark.parametrize("scale", list(Scale))
def test_the_interval_of_one_of_many_is_as_wide_as_bonferroni_asks(scale: Scale) -> None:
    logs = np.random.default_rng(0).normal(0.3, 0.05, 5)
    estimate = mean_ratio(logs, 10)
    found = figure_of(estimate, scale).bounds(20)
    assert found is not None
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
        cases = [ratio(1.1, 0.02, random) for _ in range(60)]
        alarms += any(Threshold(within=1.1).judge(case, family_of_failing=60) is FAILS for case in cases)
    assert alarms / 300 < 0.06


def mean_of_four(random: np.random.Generator) -> Figure:
    return mean_figure([ratio(*pair, random) for pair in ((1.3, 0.02), (1.7, 0.05), (2.2, 0.03), (1.1, 0.08))])


def rank_of_17(random: np.random.Generator) -> Figure:
    return rank_correlation(random.multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], 17).tolist())


def quotient_of_two(random: np.random.Generator) -> Figure:
    return quotient(ratio(20, 0.03, random), ratio(6, 0.06, random))


@pytest.mark.parametrize(
    ("draw", "truth", "most"),
    [
        (mean_of_four, (1.3 * 1.7 * 2.2 * 1.1) ** 0.25, 0.97),
        (rank_of_17, 6 / math.pi * math.asin(0.6 / 2), 0.98),
        (quotient_of_two, 20 / 6, 1.0),
    ],
)
def test_intervals_hold_the_truth_95_times_in_100(
    draw: Callable[[np.random.Generator], Figure], truth: float, most: float
) -> None:
    random = np.random.default_rng(2)
    held = [draw(random).agrees(Printed(truth, truth)) is INSIDE for _ in range(1000)]
    assert 0.93 < sum(held) / len(held) < most


@pytest.mark.parametrize("ties", [False, True])
def test_the_rank_correlation_is_that_of_scipy(ties: bool) -> None:
    random = np.random.default_rng(4)
    x = random.integers(0, 6, 14).astype(float) if ties else random.normal(size=14)
    y = x + random.normal(size=14)
    assert rank_correlation(list(zip(x, y, strict=True))).value == pytest.approx(stats.spearmanr(x, y).statistic)
    # A perfect order of few points proves little
    few = rank_correlation([(1, 2), (2, 4), (3, 6), (4, 8), (5, 10)])
    assert few.value == few.high == pytest.approx(1)
    assert (few.low or 1) < 0


def test_the_slope_is_that_of_scipy() -> None:
    random = np.random.default_rng(6)
    x = random.normal(size=6)
    y = 2 * x + random.normal(size=6)
    expected = stats.linregress(x, y)
    half = stats.t.ppf(0.975, 4) * expected.stderr
    found = slope(x, y)
    ends = (expected.slope - half, expected.slope + half)
    assert (found.value, found.low, found.high) == pytest.approx((expected.slope, *ends))


def test_the_exponent_is_the_mean_slope_of_the_rounds() -> None:
    random = np.random.default_rng(8)
    places = (3.0, 6.0, 12.0, 24.0)
    values = {
        place: {("c", "h", number): place**0.7 * math.exp(random.normal(0, 0.02)) for number in range(5)}
        for place in places
    }
    lines = np.log([list(visits.values()) for visits in values.values()])
    slopes = [stats.linregress(np.log(places), line).slope for line in lines.T]
    expected = stats.t.interval(0.95, 4, np.mean(slopes), stats.sem(slopes))
    found = exponent(values)
    assert (found.value, found.low, found.high) == pytest.approx((np.mean(slopes), *expected))
    # Without shared rounds the scatter around the line counts
    apart = exponent({3.0: {("a", "h", 1): 3.0}, 6.0: {("b", "h", 1): 6.3}, 12.0: {("c", "h", 1): 11.8}})
    assert (apart.value, apart.degrees) == (pytest.approx(1, abs=0.1), 1)


BEYOND = Figure(None, 128.0, math.inf, 5, 4)


def test_of_a_censored_batch_the_quotient_knows_one_bound() -> None:
    found = quotient(BEYOND, figure(16, 15, 17))
    assert (found.value, found.low, found.high) == (None, pytest.approx(128 / 17), math.inf)
    assert Threshold(above=1).judge(found) is HOLDS
    assert Threshold(above=1).judge(quotient(BEYOND, BEYOND)) is UNDECIDED


def test_a_censored_point_counts_in_a_trend() -> None:
    slow, fast, fastest = (figure(speed, 0.99 * speed, 1.01 * speed) for speed in (1, 2, 4))
    batches = figure(4, 3.9, 4.1), figure(16, 15, 17)
    rising = concordance([(slow, batches[0]), (fast, batches[1]), (fastest, BEYOND)])
    assert (rising.value, rising.low, rising.high) == (1, 1, 1)
    # Of two that are both censored nobody knows which turns first.
    half = concordance([(slow, batches[0]), (fast, BEYOND), (fastest, BEYOND)])
    assert (half.value, half.low, half.high) == (None, pytest.approx(1 / 3), 1)
    falling = concordance([(slow, BEYOND), (fast, batches[1]), (fastest, batches[0])])
    assert falling.value == -1

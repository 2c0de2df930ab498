"""The bootstrap of a paired ratio: the same as one written out, and right about 95 times in 100."""

import math

import numpy as np
import pytest
import scipy.stats

from orchestrator.analysis.statistics import bootstrap_paired_ratio, paired_ratio


def simulated(
    generator: np.random.Generator, rounds: int, samples: int, ratio: float, between: float = 0.05
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Rounds that share a disturbance, processes with one of their own, and samples within."""
    shared = generator.lognormal(math.log(0.01), 0.2, size=(rounds, 1))
    own = generator.lognormal(0, between, size=(2, rounds, 1))
    within = generator.lognormal(0, 0.1, size=(2, rounds, samples))
    both = shared * own * within
    return list(ratio * both[0]), list(both[1])


def written_out(
    numerators: list[np.ndarray], denominators: list[np.ndarray], draws: int, generator: np.random.Generator
) -> tuple[float, float]:
    """The same, one draw after the other, every sample drawn."""
    n = len(numerators)
    pairs = list(zip(numerators, denominators, strict=True))
    logs = np.array([math.log(np.median(up) / np.median(down)) for up, down in pairs])
    chosen = generator.integers(n, size=(draws, n))
    within = np.array([[drawn(pairs[index], generator) - logs[index] for index in row] for row in chosen])
    share = within.var() / logs.var()
    between = math.sqrt(max(0.0, 1 - share)) * (logs[chosen] - logs.mean())
    means = logs.mean() + (between + within / math.sqrt(max(1.0, share))).mean(axis=1)
    tail = scipy.stats.norm.cdf(scipy.stats.t.ppf(0.025, n - 1) * math.sqrt(n / (n - 1)))
    low, high = np.quantile(means, [tail, 1 - tail])
    return math.exp(low), math.exp(high)


def drawn(pair: tuple[np.ndarray, np.ndarray], generator: np.random.Generator) -> float:
    up, down = (np.median(generator.choice(one, size=len(one))) for one in pair)
    return math.log(up / down)


@pytest.mark.parametrize(("rounds", "samples"), [(7, 15), (20, 40)])
def test_the_vectorised_bootstrap_agrees_with_one_written_out(rounds: int, samples: int) -> None:
    numerators, denominators = simulated(np.random.default_rng(5), rounds, samples, 1.3)
    estimate = bootstrap_paired_ratio(numerators, denominators)
    low, high = written_out(numerators, denominators, 4000, np.random.default_rng(6))
    assert estimate.low is not None
    assert estimate.high is not None
    width = high - low
    assert estimate.low == pytest.approx(low, abs=0.1 * width)
    assert estimate.high == pytest.approx(high, abs=0.1 * width)
    medians = [np.median(one) for one in numerators], [np.median(one) for one in denominators]
    assert estimate.value == pytest.approx(scipy.stats.gmean(np.divide(*medians)), rel=1e-12)
    assert (estimate.processes, estimate.samples) == (rounds, 2 * rounds * samples)


@pytest.mark.parametrize(
    ("rounds", "samples", "between"), [(6, 60, 0.05), (10, 8, 0.05), (10, 30, 0.005), (20, 60, 0.05)]
)
def test_the_interval_of_a_ratio_covers_95_percent(rounds: int, samples: int, between: float) -> None:
    """Also where all that rounds differ in is the luck of their samples: that must not be counted twice."""
    generator = np.random.default_rng(7)
    runs, covered, width, width_of_t = 600, 0, 0.0, 0.0
    for run in range(runs):
        numerators, denominators = simulated(generator, rounds, samples, 1.3, between)
        estimate = bootstrap_paired_ratio(numerators, denominators, draws=800, seed=run)
        by_t = paired_ratio(
            np.array([np.median(one) for one in numerators]), np.array([np.median(one) for one in denominators]), 1
        )
        assert estimate.low is not None
        assert estimate.high is not None
        covered += estimate.low <= 1.3 <= estimate.high
        width += estimate.high - estimate.low
        assert by_t.high is not None
        assert by_t.low is not None
        width_of_t += by_t.high - by_t.low
    assert 0.92 < covered / runs < 0.98
    assert 0.9 < width / width_of_t < 1.1


def test_few_rounds_get_student_s_t() -> None:
    numerators, denominators = simulated(np.random.default_rng(3), 5, 9, 1.2)
    medians = [np.array([np.median(one) for one in side]) for side in (numerators, denominators)]
    assert bootstrap_paired_ratio(numerators, denominators) == paired_ratio(*medians, samples=90)


def test_rounds_that_all_agree_leave_no_doubt() -> None:
    sides = [np.array([2.0])] * 6, [np.array([1.0])] * 6
    estimate = bootstrap_paired_ratio(*sides)
    assert (estimate.value, estimate.low, estimate.high) == pytest.approx((2.0, 2.0, 2.0))


def test_the_same_samples_give_the_same_interval() -> None:
    sides = simulated(np.random.default_rng(8), 6, 9, 2.0)
    assert bootstrap_paired_ratio(*sides) == bootstrap_paired_ratio(*sides)
    assert bootstrap_paired_ratio(*sides) != bootstrap_paired_ratio(*sides, seed=1)


def test_one_round_has_no_interval() -> None:
    estimate = bootstrap_paired_ratio([np.array([2.0, 4.0])], [np.array([1.0, 2.0, 3.0])])
    assert (estimate.value, estimate.low, estimate.high, estimate.samples) == (1.5, None, None, 5)


def test_a_ratio_swaps_with_its_sides() -> None:
    up, down = simulated(np.random.default_rng(9), 12, 20, 1.5)
    there, back = bootstrap_paired_ratio(up, down), bootstrap_paired_ratio(down, up)
    assert there.low is not None
    assert back.high is not None
    assert there.value * back.value == pytest.approx(1, rel=1e-12)
    assert there.low * back.high == pytest.approx(1, rel=0.02)


@pytest.mark.parametrize(
    ("numerators", "denominators"),
    [([], []), ([np.array([1.0])], []), ([np.array([])], [np.array([1.0])]), ([np.array([0.0])], [np.array([1.0])])],
)
def test_what_is_no_ratio_is_refused(numerators: list[np.ndarray], denominators: list[np.ndarray]) -> None:
    with pytest.raises(ValueError, match="paired ratio|samples above 0"):
        bootstrap_paired_ratio(numerators, denominators)

"""Student's t against SciPy; the moderated t: as limma has it, and right about 95 times in 100."""

import math

import numpy as np
import pytest
import scipy.special
import scipy.stats

from orchestrator.analysis.statistics import mean_ratio
from runners.statistics.moderation import Prior, Spread, digamma, fitted_prior, moderated, trigamma, trigamma_inverse
from runners.statistics.student import t_cdf, t_quantile


@pytest.mark.parametrize("x", [1e-3, 0.3, 0.5, 1, 2.5, 7, 33, 1e4])
def test_the_polygamma_functions_are_those_of_scipy(x: float) -> None:
    assert digamma(x) == pytest.approx(float(scipy.special.digamma(x)), rel=1e-10)
    assert trigamma(x) == pytest.approx(float(scipy.special.polygamma(1, x)), rel=1e-10)
    assert trigamma_inverse(trigamma(x)) == pytest.approx(x, rel=1e-7)


@pytest.mark.parametrize("y", [1e-9, 1e9])
def test_the_inverse_reaches_both_ends(y: float) -> None:
    assert trigamma(trigamma_inverse(y)) == pytest.approx(y, rel=1e-3)
    with pytest.raises(ValueError, match="above 0"):
        trigamma_inverse(0.0)


def test_the_prior_is_found_again() -> None:
    """Variances drawn from the model of the article, equation 2: s² ~ σ² χ²_d / d with 1 / σ² ~ χ²_d0 / (d0 s0²)."""
    generator = np.random.default_rng(1)
    for d0, s0, d in ((4, 0.02, 2), (10, 0.05, 4)):
        true = d0 * s0**2 / generator.chisquare(d0, 20_000)
        cells = [Spread(one, d) for one in true * generator.chisquare(d, 20_000) / d]
        prior = fitted_prior(cells)
        assert prior is not None
        assert prior.degrees == pytest.approx(d0, rel=0.1)
        assert prior.variance == pytest.approx(s0**2, rel=0.05)


def test_variances_that_scatter_less_than_chance_are_one_variance() -> None:
    prior = fitted_prior([Spread(4e-4, 2), Spread(5e-4, 2), Spread(6e-4, 4)])
    assert prior == Prior(pytest.approx((4e-4 * 2 + 5e-4 * 2 + 6e-4 * 4) / 8), math.inf, 4.0)
    assert moderated(Spread(9e-4, 2), prior) == (prior.variance, 4)


def test_a_cell_never_has_more_degrees_of_freedom_than_all_together() -> None:
    assert moderated(Spread(2.0, 2), Prior(1.0, 4.0, 100)) == ((2 * 2.0 + 4 * 1.0) / 6, 6)
    assert moderated(Spread(2.0, 2), Prior(1.0, 40.0, 12))[1] == 12


def test_of_what_is_too_little_nothing_is_made_up() -> None:
    assert fitted_prior([]) is None
    assert fitted_prior([Spread(1.0, 2), Spread(2.0, 2)]) is None
    assert fitted_prior([Spread(0.0, 2), Spread(0.0, 2), Spread(1.0, 2)]) is None
    assert moderated(Spread(3.0, 2), None) == (3.0, 2)
    single = mean_ratio(np.array([0.1]), 5, Prior(1e-4, math.inf, 50))
    assert (single.value, single.low, single.high) == (pytest.approx(math.exp(0.1)), None, None)


@pytest.mark.parametrize(("cells", "sessions", "unequal"), [(4, 3, 0.0), (12, 3, 0.0), (12, 3, 0.3), (24, 2, 0.3)])
def test_moderated_intervals_cover_95_percent_and_are_narrower(cells: int, sessions: int, unequal: float) -> None:
    """Where the cells scatter alike, and where some scatter more."""
    generator = np.random.default_rng(2)
    covered, width, width_alone, runs = 0, [], [], 150
    for _ in range(runs):
        spreads = 0.03 * np.exp(unequal * generator.normal(size=(cells, 1)))
        logs = spreads * generator.normal(size=(cells, sessions))
        prior = fitted_prior([Spread(float(one.var(ddof=1)), sessions - 1) for one in logs])
        for one in logs:
            found, alone = mean_ratio(one, 1, prior), mean_ratio(one, 1)
            assert found.low is not None
            assert found.high is not None
            assert alone.low is not None
            assert alone.high is not None
            covered += found.low <= 1 <= found.high
            width.append(math.log(found.high / found.low))
            width_alone.append(math.log(alone.high / alone.low))
    assert 0.92 < covered / runs / cells < 0.975
    assert np.median(width) < 0.75 * np.median(width_alone)


@pytest.mark.parametrize("degrees", [0.7, 1, 1.5, 2, 2.01, 3, 4, 5.5, 9, 10, 30.3, 101, 1000, 1e5])
@pytest.mark.parametrize("probability", [0.5, 0.6, 0.9, 0.95, 0.975, 0.995, 0.9995])
def test_quantiles_are_those_of_scipy(degrees: float, probability: float) -> None:
    expected = float(scipy.stats.t.ppf(probability, degrees))
    assert t_quantile(probability, degrees) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert t_quantile(1 - probability, degrees) == pytest.approx(-expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("degrees", [0.5, 1, 2, 2.7, 3, 4, 7, 8, 250.5])
def test_the_distribution_is_that_of_scipy(degrees: float) -> None:
    for t in (-30.0, -2.5, -0.1, 0.0, 0.1, 1.0, 2.5, 30.0):
        assert t_cdf(t, degrees) == pytest.approx(float(scipy.stats.t.cdf(t, degrees)), rel=1e-9, abs=1e-14)


@pytest.mark.parametrize(("probability", "degrees"), [(0.0, 3), (1.0, 3), (0.975, 0)])
def test_what_has_no_quantile_is_refused(probability: float, degrees: int) -> None:
    with pytest.raises(ValueError, match="no quantile"):
        t_quantile(probability, degrees)

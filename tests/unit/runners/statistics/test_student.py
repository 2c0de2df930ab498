"""Student's t, against SciPy."""

import pytest
import scipy.stats

from runners.statistics.student import t_cdf, t_quantile


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

"""Quantiles of Student's t, so that SciPy need not be installed."""

import math


def t_cdf(t: float, degrees: int) -> float:
    """P(T <= t) for whole degrees of freedom, by the finite series (Abramowitz and Stegun 26.7.3 and 26.7.4)."""
    angle = math.atan2(t, math.sqrt(degrees))
    cosine, sine = math.cos(angle), math.sin(angle)
    odd = degrees % 2
    term = cosine if odd else 1.0
    total = 0.0
    for k in range(1 + odd, degrees, 2):
        total += term
        term *= cosine * cosine * k / (k + 1)
    inside = (angle + sine * total) * 2 / math.pi if odd else sine * total
    return 0.5 + inside / 2


def t_quantile(probability: float, degrees: int) -> float:
    """The t with P(T <= t) = `probability`.

    Raises:
        ValueError: `probability` is not between 0 and 1, or there is no degree of freedom.
    """
    if not 0 < probability < 1 or degrees < 1:
        raise ValueError(f"no quantile {probability} of Student's t with {degrees} degrees of freedom")
    if probability < 0.5:
        return -t_quantile(1 - probability, degrees)
    high = 1.0
    while t_cdf(high, degrees) < probability:
        high *= 2
    low = 0.0
    while low < (middle := (low + high) / 2) < high:
        if t_cdf(middle, degrees) < probability:
            low = middle
        else:
            high = middle
    return high

"""Quantiles of Student's t, so that SciPy need not be installed. Degrees of freedom may have a fraction: Welch's do."""

import math
from functools import lru_cache
from statistics import NormalDist

_TINY = 1e-300
_PRECISION = 1e-15
_NEAR = 1e-5
"""A step of Halley's that is so short, relative to where it is, leaves an error of its cube."""
_MOST_STEPS = 100
"""To a quantile, of which two or so are needed."""
_MOST_TERMS = 10_000
"""Of the continued fraction, which needs about the square root of its larger argument: ten for most."""


def t_cdf(t: float, degrees: float) -> float:
    """P(T <= t), by the incomplete beta function (Abramowitz and Stegun 26.7.1)."""
    square = t * t
    tail = _incomplete_beta(degrees / 2, 0.5, degrees / (degrees + square), square / (degrees + square)) / 2
    return tail if t < 0 else 1 - tail


@lru_cache(maxsize=4096)
def t_quantile(probability: float, degrees: float) -> float:
    """The t with P(T <= t) = `probability`.

    Raises:
        ValueError: `probability` is not between 0 and 1, or there are no degrees of freedom.
    """
    if not 0 < probability < 1 or not degrees > 0:
        raise ValueError("no quantile %s of Student's t with %s degrees of freedom" % (probability, degrees))
    if probability > 0.5:
        return -t_quantile(1 - probability, degrees)
    # In the lower tail, where the probability keeps all its digits
    low, high = -math.inf, 0.0
    middle = _expansion(probability, degrees)
    for _ in range(_MOST_STEPS):
        too_much = t_cdf(middle, degrees) - probability
        low, high = (low, middle) if too_much >= 0 else (middle, high)
        step = too_much / _density(middle, degrees)
        # Halley's step; Newton's where the density bends too much for it
        bend = 1 + step * (degrees + 1) * middle / (2 * (degrees + middle * middle))
        step = step / bend if bend > 0.5 else step
        if abs(step) <= _NEAR * abs(middle):
            return middle - step
        if not low < middle - step < high:
            step = middle - (2 * middle if math.isinf(low) else (low + high) / 2)
        middle -= step
    return middle


def _expansion(probability: float, degrees: float) -> float:
    """The quantile, to a thousandth or so from five degrees of freedom on (Abramowitz and Stegun 26.7.5)."""
    x = NormalDist().inv_cdf(probability)
    terms = (
        (x**3 + x) / 4,
        (5 * x**5 + 16 * x**3 + 3 * x) / 96,
        (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / 384,
    )
    return x + sum(term / degrees**power for power, term in enumerate(terms, 1))


def _density(t: float, degrees: float) -> float:
    scale = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2) - math.log(degrees * math.pi) / 2
    return math.exp(scale - (degrees + 1) / 2 * math.log1p(t * t / degrees))


def _incomplete_beta(a: float, b: float, x: float, rest: float) -> float:
    """The regularised incomplete beta function (Abramowitz and Stegun 26.5.8, from the side that converges fast).

    Args:
        a: above 0.
        b: above 0.
        x: the upper end of the integral.
        rest: 1 - x, to all its digits.
    """
    if x <= 0 or rest <= 0:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, rest, x)
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(rest)
    return math.exp(scale) / (a * _fraction(a, b, x))


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function, by Lentz's method."""
    value = numerator = 1.0
    denominator = 0.0
    for term in range(1, _MOST_TERMS):
        m = term // 2
        if term % 2:
            factor = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            factor = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        denominator = 1 / _not_zero(1 + factor * denominator)
        numerator = _not_zero(1 + factor / numerator)
        change = numerator * denominator
        value *= change
        if abs(change - 1) < _PRECISION:
            break
    return value


def _not_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY

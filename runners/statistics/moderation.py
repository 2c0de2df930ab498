"""Variances of few sessions, steadied by those of all cells of a campaign: the moderated t of limma.

G. K. Smyth, *Linear Models and Empirical Bayes Methods for Assessing Differential Expression in Microarray
Experiments*, Statistical Applications in Genetics and Molecular Biology 3 (2004), article 3. Three sessions leave two
degrees of freedom to a cell; the other cells of the campaign ran on the same machine at the same time, and their
variances say which are likely. Equation numbers are those of the article.
"""

import math
import statistics
from dataclasses import dataclass
from typing import Optional, Sequence, Tuple

from runners.statistics.student import t_quantile

LEVEL = 0.95
"""Of all intervals."""

BETWEEN_CAMPAIGNS = 0.009
"""Standard deviation of the logarithm of a ratio from campaign to campaign on one machine, beyond what the scatter of
their sessions lets expect. A shared machine stays in a state for longer than a campaign, and no session of that
campaign shows it: it is taken as known (type B in JCGM 100:2008, 4.3), rounded up from the 0.84 % that nine campaigns
gave (docs/measured/turns.md)."""

LEAST_CELLS = 3
"""Of fewer variances nobody can say how much they scatter; each cell then has its own alone."""
_FLOOR = 1e-5
"""A variance far below the median is a rounding, whose logarithm would decide everything; limma has the same floor."""
_PRECISION = 1e-8
_MANY = 1e4
"""Degrees of freedom that are as good as any number of them."""
_LARGE = 10.0
"""From here on the asymptotic series of the polygamma functions hold to 12 digits and more."""


@dataclass(frozen=True)
class Spread:
    """How much the sessions of one cell scatter."""

    variance: float
    """Of logarithms."""
    degrees: int
    """Of freedom: sessions less one, at least 1."""


@dataclass(frozen=True)
class Prior:
    """What the cells of a campaign say about the variance of any of them."""

    variance: float
    """s0², of logarithms."""
    degrees: float
    """d0; infinity where the variances scatter less than chance, so that all are taken for one."""
    pooled: float
    """Degrees of freedom beyond which no cell has any: half of those of all cells, because cells of a group share their
    baseline, and the variances of three ratios to one baseline are worth about one and a half."""


def moderated(own: Spread, prior: Optional[Prior]) -> Tuple[float, float]:
    """The variance of a cell between its own and the usual one, and its degrees of freedom (section 4.1).

    As in limma, the degrees of freedom have a limit that comes from those of all cells.

    Args:
        own: of the cell.
        prior: of its campaign; without one the variance is the cell's own.
    """
    if prior is None:
        return own.variance, own.degrees
    most = max(prior.pooled, own.degrees)
    if math.isinf(prior.degrees):
        return prior.variance, most
    total = own.degrees + prior.degrees
    variance = (own.degrees * own.variance + prior.degrees * prior.variance) / total
    return variance, min(total, most)


def fitted_prior(cells: Sequence[Spread]) -> Optional[Prior]:
    """The prior of a campaign, from the mean and the variance of the logarithms of its variances (section 6.2).

    Null with fewer cells than `LEAST_CELLS`, and where most do not scatter at all. Where the variances scatter less
    than chance alone makes them, it is their pooled variance with infinitely many degrees of freedom.
    """
    middle = statistics.median(cell.variance for cell in cells) if cells else 0.0
    if len(cells) < LEAST_CELLS or middle <= 0:
        return None
    degrees = [cell.degrees for cell in cells]
    variances = [max(cell.variance, _FLOOR * middle) for cell in cells]
    logs = [math.log(v) - digamma(d / 2) + math.log(d / 2) for v, d in zip(variances, degrees)]
    excess = statistics.variance(logs) - statistics.mean(trigamma(d / 2) for d in degrees)
    pooled = sum(degrees) / 2
    if excess <= 0:
        return Prior(sum(v * d for v, d in zip(variances, degrees)) / sum(degrees), math.inf, pooled)
    half = trigamma_inverse(excess)
    return Prior(math.exp(statistics.mean(logs) + digamma(half) - math.log(half)), 2 * half, pooled)


def half_width(logs: Sequence[float], prior: Optional[Prior], between: float = 0.0) -> Tuple[float, float]:
    """Half of the width of the interval of a mean of logarithms, at `LEVEL`, and its degrees of freedom.

    A standard error that is known has infinitely many; those of the sum are Welch's and Satterthwaite's (JCGM 100:2008,
    G.4.1).

    Args:
        logs: one of each session, at least two.
        prior: what the other cells of the campaign say of the variance.
        between: standard error of the mean that is known and that sessions do not show.
    """
    variance, degrees = moderated(Spread(statistics.variance(logs), len(logs) - 1), prior)
    own, known = variance / len(logs), between**2
    if known:
        degrees = min(_MANY, degrees * (1 + known / own) ** 2) if own else _MANY
    return t_quantile((1 + LEVEL) / 2, degrees) * math.sqrt(own + known), degrees


def digamma(x: float) -> float:
    """The derivative of the logarithm of the gamma function, for x above 0 (Abramowitz and Stegun 6.3.5 and 6.3.18)."""
    shift = 0.0
    while x < _LARGE:
        shift -= 1 / x
        x += 1
    y = 1 / (x * x)
    return shift + math.log(x) - 0.5 / x - y * (1 / 12 - y * (1 / 120 - y * (1 / 252 - y * (1 / 240 - y / 132))))


def trigamma(x: float) -> float:
    """The derivative of `digamma`, for x above 0 (Abramowitz and Stegun 6.4.6 and 6.4.12)."""
    shift = 0.0
    while x < _LARGE:
        shift += 1 / (x * x)
        x += 1
    y = 1 / (x * x)
    return shift + 1 / x + y / 2 + y / x * (1 / 6 - y * (1 / 30 - y * (1 / 42 - y * (1 / 30 - y * 5 / 66))))


def trigamma_inverse(y: float) -> float:
    """The x above 0 with trigamma(x) = y, by Newton's method on 1 / trigamma, which converges from below (appendix).

    Raises:
        ValueError: y is not above 0.
    """
    if not y > 0:
        raise ValueError("trigamma is above 0, and never %s" % y)
    if y > 1e7:
        return 1 / math.sqrt(y)
    if y < 1e-6:
        return 1 / y
    x = 0.5 + 1 / y
    while True:
        value = trigamma(x)
        step = value * (1 - value / y) / _tetragamma(x)
        x += step
        if -step < _PRECISION * x:
            return x


def _tetragamma(x: float) -> float:
    """The derivative of `trigamma`, for x above 0 (Abramowitz and Stegun 6.4.6 and 6.4.13)."""
    shift = 0.0
    while x < _LARGE:
        shift -= 2 / x**3
        x += 1
    y = 1 / (x * x)
    return shift - y - y / x - y * y * (1 / 2 - y * (1 / 6 - y * (1 / 6 - y * (3 / 10 - y * 5 / 6))))

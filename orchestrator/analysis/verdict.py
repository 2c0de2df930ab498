"""Whether two things differ: a decision about ratios, with a minimum effect and a bound on false alarms.

A ratio is called different only if it is further from 1 than the minimum effect, beyond doubt at the level of the
interval. Nobody has a use for a real difference of half a percent, and on a busy machine nobody can tell it from noise.
"""

import math
from collections.abc import Sequence
from enum import Enum

from orchestrator.analysis.statistics import LEVEL, Estimate
from orchestrator.analysis.student import t_cdf, t_quantile

MINIMUM_EFFECT = 0.03
"""A factor of 1.03 in either direction. Smaller differences count as none."""
LARGEST_EQUIVALENCE = 0.1
"""However noisy a machine is, what may differ by more is not called equivalent."""


class Verdict(Enum):
    """What a ratio says; above 1 is faster. Of a metric that is no time, faster stands for better."""

    FASTER = "faster"
    SLOWER = "slower"
    EQUIVALENT = "equivalent"
    """The whole interval lies within the margin."""
    INCONCLUSIVE = "inconclusive"
    """Neither difference nor equivalence is shown; more rounds would narrow the interval."""

    @property
    def is_different(self) -> bool:
        """Whether it calls the two sides different."""
        return self in (Verdict.FASTER, Verdict.SLOWER)


def judge(ratio: Estimate, minimum_effect: float = MINIMUM_EFFECT) -> Verdict:
    """Judges one ratio that was asked about for itself.

    It is different exactly if its 95 % interval lies outside of 1 / (1 + minimum effect) to 1 + minimum effect.

    Args:
        ratio: of `paired_ratio` or `unpaired_ratio`.
        minimum_effect: smaller differences are none; 0.03 is 3 %.
    """
    return judge_family([ratio], minimum_effect)[0]


def judge_family(
    ratios: Sequence[Estimate],
    minimum_effect: float | Sequence[float] = MINIMUM_EFFECT,
    margins: Sequence[float] | None = None,
) -> tuple[Verdict, ...]:
    """Judges ratios that are looked at together: in 95 of 100 families without a difference, none is called different.

    Differences are tested in the order of their probabilities, each at the level divided by the number that is left
    (Holm, Scandinavian Journal of Statistics 6, 1979). Whatever Holm allows, the 95 % interval must lie outside of the
    minimum effect, too.

    Args:
        ratios: of `paired_ratio` or `unpaired_ratio`.
        minimum_effect: smaller differences are none; 0.03 is 3 %. One for all, or one for each.
        margins: within which two things are equivalent, one for each; by default the minimum effect.
    """
    effects = [minimum_effect] * len(ratios) if isinstance(minimum_effect, float | int) else list(minimum_effect)
    margins = effects if margins is None else margins
    probabilities = [_probability(*one) for one in zip(ratios, effects, strict=True)]
    different: set[int] = set()
    for done, index in enumerate(sorted(range(len(ratios)), key=probabilities.__getitem__)):
        if not probabilities[index] < (1 - LEVEL) / (len(ratios) - done):
            break
        different.add(index)
    return tuple(
        _verdict(ratio, index in different, effects[index], margins[index]) for index, ratio in enumerate(ratios)
    )


def _is_outside(ratio: Estimate, minimum_effect: float) -> bool:
    if ratio.low is None or ratio.high is None:
        return False
    return ratio.low > 1 + minimum_effect or ratio.high < 1 / (1 + minimum_effect)


def _verdict(ratio: Estimate, different: bool, minimum_effect: float, margin: float) -> Verdict:
    if different and _is_outside(ratio, minimum_effect):
        return Verdict.FASTER if ratio.value > 1 else Verdict.SLOWER
    if ratio.low is None or ratio.high is None:
        return Verdict.INCONCLUSIVE
    within = ratio.low >= 1 / (1 + margin) and ratio.high <= 1 + margin
    return Verdict.EQUIVALENT if within else Verdict.INCONCLUSIVE


def _probability(ratio: Estimate, minimum_effect: float) -> float:
    """How likely chance puts a ratio this far out if the truth is the minimum effect; 1 if nothing can be said.

    Student's t on logarithms, as for the interval, with both tails: with a minimum effect well above the error the far
    one is next to nothing (Hodges and Lehmann, Journal of the Royal Statistical Society B 16, 1954).
    """
    if ratio.low is None or ratio.high is None:
        return 1.0
    distance, least = abs(math.log(ratio.value)), math.log(1 + minimum_effect)
    degrees = ratio.processes - 1 if ratio.degrees is None else ratio.degrees
    error = math.log(ratio.high / ratio.low) / 2 / t_quantile((1 + LEVEL) / 2, degrees)
    if error <= 0:
        return 0.0 if distance > least else 1.0
    return t_cdf(-(distance - least) / error, degrees) + t_cdf(-(distance + least) / error, degrees)

"""The one rule by which ratios are called different or equal, for all that shows them.

**Different** is a ratio whose interval, widened for all that are looked at together (Holm, Scandinavian Journal of
Statistics 6, 1979), excludes 1. **Equivalent** is one whose whole 95 % interval lies within a margin that was fixed
beforehand. Both can hold: a difference that is proven and too small to matter. Else it is **undecided**, and the rule
says how many sessions more would decide it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from orchestrator.analysis.statistics import Estimate
from runners.statistics.moderation import LEVEL
from runners.statistics.student import t_cdf, t_quantile

MARGIN: Final = 0.03
"""A factor of 1.03 in either direction: whoever wants another one says so before looking."""
MOST_SESSIONS: Final = 1000
"""More than so many would decide nothing within a day."""
_EXACT: Final = 1e-12
"""Logarithms of ratios that are nearer to 0 are 0 but for rounding."""


class Verdict(Enum):
    """What a ratio says; above 1 is faster. Of a metric that is no time, faster stands for better."""

    FASTER = "faster"
    SLOWER = "slower"
    SLIGHTLY_FASTER = "slightly faster"
    """Different and equivalent: faster beyond doubt, by less than the margin."""
    SLIGHTLY_SLOWER = "slightly slower"
    EQUIVALENT = "equivalent"
    """No difference is proven, and one beyond the margin is excluded."""
    UNDECIDED = "undecided"

    @property
    def direction(self) -> int:
        """1 if it is called faster, -1 if slower, 0 if no difference is proven."""
        return (self in _FASTER) - (self in _SLOWER)

    @property
    def is_different(self) -> bool:
        return self.direction != 0

    @property
    def is_equivalent(self) -> bool:
        """Whether it excludes a difference beyond the margin."""
        return self in (Verdict.EQUIVALENT, Verdict.SLIGHTLY_FASTER, Verdict.SLIGHTLY_SLOWER)


_FASTER: Final = (Verdict.FASTER, Verdict.SLIGHTLY_FASTER)
_SLOWER: Final = (Verdict.SLOWER, Verdict.SLIGHTLY_SLOWER)


@dataclass(frozen=True)
class Judgement:
    """What the rule says of one ratio among those that are shown with it."""

    verdict: Verdict
    least: float | None
    """The smallest difference that would have been called one here; 0.03 is 3 %. Null without an interval."""
    sessions: int | None
    """About how many more would decide it, if ratio and scatter stay as they are. Null if it is decided, if there is no
    interval, and if more than `MOST_SESSIONS` would be needed."""


UNJUDGED: Final = Judgement(Verdict.UNDECIDED, None, None)


def judge_family(ratios: Sequence[Estimate], margin: float = MARGIN) -> tuple[Judgement, ...]:
    """Judges ratios that are looked at together: in 95 of 100 families without a difference, none is called different.

    A ratio without an interval is undecided, and counts for nothing in the family.
    """
    different, level = _beyond(ratios, [abs(math.log(ratio.value)) for ratio in ratios])
    return tuple(_judgement(ratio, number in different, level, margin) for number, ratio in enumerate(ratios))


def slower_beyond(ratios: Sequence[Estimate], limit: float) -> tuple[Judgement, ...]:
    """Whether each of some ratios is slower by more than a limit: `SLOWER`, or `EQUIVALENT` if that is excluded.

    Proven is what the interval, widened for all of them (Holm), says; that it is within the limit the 95 % interval.

    Args:
        ratios: above 1 is faster.
        limit: what is allowed; 0.05 is 5 %.
    """
    beyond = [-math.log(ratio.value) - math.log1p(limit) for ratio in ratios]
    proven, level = _beyond(ratios, [max(0.0, distance) for distance in beyond])
    return tuple(_limited(ratio, number in proven, level, limit, beyond[number]) for number, ratio in enumerate(ratios))


def degrees_of(ratio: Estimate) -> float:
    """Degrees of freedom behind the interval of a ratio."""
    return ratio.processes - 1 if ratio.degrees is None else ratio.degrees


def _beyond(ratios: Sequence[Estimate], distances: Sequence[float]) -> tuple[set[int], float]:
    """Those whose distance is proven by Holm's procedure, and the level at which it ended."""
    tested = [
        (_probability(ratio, d), n) for n, (ratio, d) in enumerate(zip(ratios, distances, strict=True)) if _error(ratio)
    ]
    found: set[int] = set()
    level = (1 - LEVEL) / max(1, len(tested))
    for done, (probability, number) in enumerate(sorted(tested)):
        level = (1 - LEVEL) / (len(tested) - done)
        if not probability < level:
            break
        found.add(number)
    return found, level


def _probability(ratio: Estimate, distance: float) -> float:
    """How likely chance alone puts a ratio so far from where it is not allowed, in either direction."""
    error = _error(ratio)
    assert error is not None
    if distance < _EXACT:
        return 1.0
    return 2 * t_cdf(-distance / error, degrees_of(ratio)) if error > _EXACT else 0.0


def _error(ratio: Estimate) -> float | None:
    """The standard error of the logarithm, at least next to nothing; null without an interval."""
    if ratio.low is None or ratio.high is None:
        return None
    half = math.log(ratio.high / ratio.low) / 2
    return max(half / t_quantile((1 + LEVEL) / 2, degrees_of(ratio)), _EXACT)


def _judgement(ratio: Estimate, different: bool, level: float, margin: float) -> Judgement:
    error = _error(ratio)
    if error is None or ratio.low is None or ratio.high is None:
        return UNJUDGED
    equivalent = ratio.low >= 1 / (1 + margin) and ratio.high <= 1 + margin
    least = math.expm1(t_quantile(1 - level / 2, degrees_of(ratio)) * error)
    if different:
        verdicts = (_SLOWER, _FASTER)[ratio.value > 1]
        return Judgement(verdicts[equivalent], least, None)
    if equivalent:
        return Judgement(Verdict.EQUIVALENT, least, None)
    distance = abs(math.log(ratio.value))
    return Judgement(Verdict.UNDECIDED, least, _sessions(ratio, error, level, distance, math.log1p(margin) - distance))


def _limited(ratio: Estimate, proven: bool, level: float, limit: float, beyond: float) -> Judgement:
    error = _error(ratio)
    if error is None or ratio.low is None:
        return UNJUDGED
    least = math.expm1(math.log1p(limit) + t_quantile(1 - level / 2, degrees_of(ratio)) * error)
    if proven:
        return Judgement(Verdict.SLOWER, least, None)
    if ratio.low >= 1 / (1 + limit):
        return Judgement(Verdict.EQUIVALENT, least, None)
    return Judgement(Verdict.UNDECIDED, least, _sessions(ratio, error, level, beyond, -beyond))


def _sessions(ratio: Estimate, error: float, level: float, distance: float, room: float) -> int | None:
    """How many sessions more make the interval narrow enough for a decision.

    Args:
        ratio: that is undecided.
        error: of its logarithm.
        level: of the widened interval.
        distance: how far the widened interval may reach for a difference to be proven.
        room: how far the 95 % interval may reach for one to be excluded.
    """
    degrees = degrees_of(ratio)

    def decides(more: int) -> bool:
        now = ratio.processes
        narrowed = math.sqrt((error**2 - ratio.between**2) * now / (now + more) + ratio.between**2)
        # Whole degrees of freedom are exact enough here, and quantiles are remembered.
        then = max(1, round(degrees + more))
        wide, usual = (t_quantile(1 - tail / 2, then) * narrowed for tail in (level, 1 - LEVEL))
        return distance > wide or room > usual

    low, high = 0, 1
    while not decides(high):
        low, high = high, 2 * high
        if low >= MOST_SESSIONS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if decides(middle) else (middle, high)
    return high if high <= MOST_SESSIONS else None

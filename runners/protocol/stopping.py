"""When a series has enough samples: precise enough, or out of budget. Never because of what the numbers say."""

import math
import statistics
from dataclasses import dataclass
from typing import Optional, Sequence, Tuple

from runners.contract import Stop

_OVERRUN = 3
_OVERRUN_SAMPLES = 3
_FIRST_CHECKPOINT = 32
_Z_95 = 1.96


@dataclass(frozen=True)
class StoppingRule:
    """Decides after each sample. It is asked between samples and does next to nothing except at checkpoints."""

    budget_ns: float
    min_samples: int
    max_samples: int
    precision_permille: int = 0
    """0: the budget is always spent."""

    def verdict(self, durations_ns: Sequence[int], elapsed_ns: int) -> Optional[Stop]:
        """Why the series ends now; None if it goes on."""
        count = len(durations_ns)
        if count >= self.max_samples:
            return Stop.SAMPLES
        if count >= self.min_samples and elapsed_ns >= self.budget_ns:
            return Stop.BUDGET
        if count >= _OVERRUN_SAMPLES and elapsed_ns >= _OVERRUN * self.budget_ns:
            return Stop.OVERRUN
        if self.precision_permille and count >= self.min_samples and is_checkpoint(count):
            low, high = median_interval(durations_ns)
            middle = statistics.median(durations_ns)
            if max(high - middle, middle - low) * 1000 <= self.precision_permille * middle:
                return Stop.PRECISION
        return None


def is_checkpoint(count: int) -> bool:
    """Whether precision is looked at after so many samples: 32, 64, 128 and so on.

    Looking after every sample would stop at a lucky moment more often than the interval promises.
    """
    return count >= _FIRST_CHECKPOINT and count & (count - 1) == 0


def median_interval(values: Sequence[float]) -> Tuple[float, float]:
    """The 95 % interval of the median by order statistics, which assumes nothing about the distribution.

    Ranks are those of the binomial distribution in its normal approximation (Conover, Practical Nonparametric
    Statistics, section 3.2). Samples of one process depend on each other, so this decides only when to stop.
    """
    ordered = sorted(values)
    count = len(ordered)
    margin = _Z_95 * math.sqrt(count) / 2
    low = max(0, math.floor(count / 2 - margin) - 1)
    high = min(count - 1, math.ceil(count / 2 + margin))
    return ordered[low], ordered[high]

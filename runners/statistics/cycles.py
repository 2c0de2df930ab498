"""The ratio of two processes that took turns: what their session says of it.

What lasts longer than a cycle hits both of its turns and falls out of their ratio (Abedi and Brecht, *Conducting
Repeatable Experiments in Highly Variable Cloud Computing Environments*, ICPE 2017). What slows one program more than
another does not: beside a neighbour on the same core, eager PyTorch took 1.8 times as long and ONNX Runtime 1.6 times.
How much of the time that was so differed from one campaign to the next, and with it the median over all cycles. In the
quietest quarter of the cycles it is seldom so (docs/measured/turns.md).
"""

import math
import statistics
from typing import Optional, Sequence

QUIET_CYCLES = 4
"""One in so many."""

LEAST_CYCLES = 5
"""That are taken, if there are as many."""


def session_log_ratio(above: Sequence[Optional[float]], below: Sequence[Optional[float]]) -> float:
    """The logarithm of the ratio of a session: the median over the quietest cycles that both have.

    A cycle is as quiet as the product of its two turns is small. Both sides count alike, so that of two equal ones
    neither is favoured.

    Args:
        above: medians of the turns of one process, in seconds, first to last; null or not a number where it had none.
        below: those of the other.

    Raises:
        ValueError: they have no cycle in common.
    """
    logs = [(math.log(a), math.log(b)) for a, b in zip(above, below) if a and b and a > 0 and b > 0]
    if not logs:
        raise ValueError("two processes of a session have no cycle in common")
    count = max(LEAST_CYCLES, math.ceil(len(logs) / QUIET_CYCLES))
    quiet = sorted(logs, key=sum)[:count]
    return statistics.median(a - b for a, b in quiet)

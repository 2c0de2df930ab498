"""The transition batch: where framework and arithmetic take equally long.

Below it latency waits for the framework, above it for the arithmetic. The load of a batch is busy over dispatch on a
GPU; on a CPU, whose times add up, the latency over two floors. It is 1 where a GPU's regime changes, and on a CPU where
the floor is half of the latency: the floor is a lower bound, so that the transition lies there or at a larger batch.
Between two measured batches the load is taken to be linear in the batch, which is what `a + c · batch` over a constant
is; nothing is extrapolated, so that a transition outside of the measured batches is censored.

The interval is Fieller's (Some Problems in Interval Estimation, Journal of the Royal Statistical Society B 16, 1954):
all batches at which the interval of the logarithm of the load does not exclude 1. It needs no width of its own
to be known, and where the load never gets far enough from 1 it has no end, as it should.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

import numpy as np

from orchestrator.analysis.axes import Row
from orchestrator.analysis.statistics import Floats
from orchestrator.analysis.tax import loads
from runners.statistics.moderation import LEVEL
from runners.statistics.student import t_quantile

_STEPS = 32
"""Places between two measured batches at which the interval is looked at."""

Round: TypeAlias = Any
"""What tells the rounds of all campaigns and hosts apart."""


class Side(Enum):
    """Where the transition is, seen from the measured batches."""

    INSIDE = "inside"
    BELOW = "below"
    """Compute-bound from the smallest batch on."""
    ABOVE = "above"
    """Framework-bound up to the largest batch."""


@dataclass(frozen=True)
class Interval:
    """A 95 % interval of a batch; an end is null where it lies beyond the batches that were measured."""

    low: float | None
    high: float | None


@dataclass(frozen=True)
class Transition:
    """Where the regime changes."""

    side: Side
    batch: float | None
    """Null unless `side` is inside."""
    interval: Interval | None
    """Null with fewer than 2 rounds."""
    batches: tuple[int, ...]
    """Those that were measured."""
    rounds: int
    """Fewest of a batch."""


def transition_of(series: Mapping[int, Sequence[Row]], device: str) -> Transition | None:
    """The transition of trials by batch; null without a load at two batches."""
    known = {batch: visits for batch, rows in series.items() if (visits := loads(rows, device))}
    return transition(known) if len(known) > 1 else None


def transition(loads_by_batch: Mapping[int, Mapping[Round, float]]) -> Transition:
    """The batch at which the load is 1.

    Raises:
        ValueError: fewer than 2 batches, a batch without a round, or a value that is not above 0.
    """
    batches = tuple(sorted(loads_by_batch))
    if len(batches) < 2:
        raise ValueError("a transition needs at least two batches")
    if any(not rounds or min(rounds.values()) <= 0 for rounds in loads_by_batch.values()):
        raise ValueError("each batch needs a load above 0")
    logs = [np.log(list(loads_by_batch[batch].values())) for batch in batches]
    means = monotone([float(log.mean()) for log in logs], [len(log) for log in logs])
    crossing = _crossing(batches, [math.exp(mean) for mean in means])
    side = Side.INSIDE if crossing is not None else Side.ABOVE if means[-1] < 0 else Side.BELOW
    rounds = min(map(len, logs))
    interval = _interval(batches, logs) if rounds > 1 else None
    return Transition(side, crossing, interval, batches, rounds)


def monotone(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The non-decreasing sequence that is nearest to the values in weighted squares.

    By pooling adjacent violators (Barlow et al., Statistical Inference under Order Restrictions, 1972).
    """
    blocks: list[tuple[float, float, int]] = []
    for value, weight in zip(values, weights, strict=True):
        blocks.append((value, weight, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (before, left, length), (after, right, more) = blocks[-2:]
            blocks[-2:] = [((before * left + after * right) / (left + right), left + right, length + more)]
    return [value for value, _, length in blocks for _ in range(length)]


def _crossing(batches: Sequence[int], loads: Sequence[float]) -> float | None:
    """Where a rising load gets to 1; null if it does not within the batches."""
    if loads[0] > 1:
        return None
    for index in range(1, len(batches)):
        low, high = loads[index - 1], loads[index]
        if high >= 1:
            share = (1 - low) / (high - low) if high > low else 0.0
            return batches[index - 1] + share * (batches[index] - batches[index - 1])
    return None


def _interval(batches: Sequence[int], logs: Sequence[Floats]) -> Interval:
    """From the first batch at which the load may have got to 1 to the last at which it may not have got beyond."""
    pieces = [_bounds(batches[at : at + 2], logs[at : at + 2]) for at in range(len(batches) - 1)]
    places, lows, highs = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
    # What is true of a batch is true of all beyond it, because the load rises.
    low = None if highs[0] >= 0 else _first_at_zero(places, highs)
    high = None if lows[-1] <= 0 else -_first_at_zero(-places[::-1], -lows[::-1])
    return Interval(low, high)


def _bounds(batches: Sequence[int], logs: Sequence[Floats]) -> tuple[Floats, Floats, Floats]:
    """Places from one batch to the next, and the interval of the logarithm of the load at each.

    Batches are measured in sessions of their own, so that nothing pairs: errors add as Welch's do (Biometrika 34,
    1947), each batch by its share of the load.
    """
    share = np.linspace(0, 1, _STEPS + 1)
    left, right = (float(np.exp(log.mean())) for log in logs)
    load = (1 - share) * left + share * right
    weights = (1 - share) * left / load, share * right / load
    parts = [weight**2 * log.var(ddof=1) / len(log) for weight, log in zip(weights, logs, strict=True)]
    error = np.sqrt(parts[0] + parts[1])
    spread = sum(part**2 / (len(log) - 1) for part, log in zip(parts, logs, strict=True))
    least = min(len(log) for log in logs) - 1
    degrees = np.divide(error**4, spread, out=np.full(len(share), float(least)), where=spread > 0)
    # To two digits, so that few quantiles are computed and the others remembered
    half = error * np.array([t_quantile((1 + LEVEL) / 2, float(f"{freedom:.2g}")) for freedom in degrees])
    return batches[0] + share * (batches[1] - batches[0]), np.log(load) - half, np.log(load) + half


def _first_at_zero(places: Floats, values: Floats) -> float:
    """The first place at which values that begin below 0 get to it; the last place if they never do."""
    above = np.flatnonzero(values >= 0)
    if not len(above):
        return float(places[-1])
    at = int(above[0])
    share = values[at - 1] / (values[at - 1] - values[at])
    return float(places[at - 1] + share * (places[at] - places[at - 1]))

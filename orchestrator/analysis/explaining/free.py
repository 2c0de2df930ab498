"""What costs nothing: larger batches, and wider or deeper models, up to where latency begins to follow them."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from orchestrator.analysis.explaining.processes import ratio_of
from orchestrator.analysis.pairing import Visit
from orchestrator.analysis.statistics import Estimate

FREE = 1.1
"""A latency up to this many times that of one example counts as the same: the paper's plateau, as a number."""


def is_free(cost: Estimate) -> bool | None:
    """Whether something costs no more than a tenth; null where the interval reaches to both sides, or is missing."""
    if cost.low is None or cost.high is None:
        return None
    if cost.high <= FREE:
        return True
    return False if cost.low > FREE else None


@dataclass(frozen=True)
class FreeBatch:
    """The largest measured batch that is shown to cost no more than a tenth above the smallest."""

    base: int
    """The smallest measured batch."""
    batch: int
    cost: Estimate
    """Its latency over that of the base, paired by round where enough rounds are shared."""
    next_batch: int | None
    """The next larger one; null where even the largest measured batch is free."""
    next_cost: Estimate | None

    @property
    def is_decided(self) -> bool:
        """False where the next larger batch may be free, too."""
        return self.next_cost is None or is_free(self.next_cost) is False


class Direction(Enum):
    """In which way a model is larger."""

    WIDTH = "hidden_size"
    DEPTH = "layers"


@dataclass(frozen=True)
class Variant:
    """The same model, wider or deeper."""

    direction: Direction
    size: int
    """Of the option that the direction names."""
    cost: Estimate
    """Its latency over that of the configuration."""
    work: float | None
    """Its arithmetic over that of the configuration; null where it was not counted."""

    @property
    def is_free(self) -> bool | None:
        """Whether it costs no more than a tenth; null where that is not decided."""
        return is_free(self.cost)


def free_batch(latencies: Mapping[int, Mapping[Visit, float]]) -> FreeBatch | None:
    """The free batch of a series over batches; null with fewer than two batches.

    A batch beyond one that costs more is not free, even if noise lets it look so; below one that is free all are.

    Args:
        latencies: seconds by batch and visit.
    """
    batches = sorted(batch for batch, visits in latencies.items() if visits)
    if len(batches) < 2:
        return None
    base = batches[0]
    costs = {batch: cost for batch in batches if (cost := ratio_of(latencies[batch], latencies[base])) is not None}
    at = 0
    for index, batch in enumerate(batches[1:], 1):
        shown = is_free(costs[batch])
        if shown is False:
            break
        if shown:
            at = index
    following = batches[at + 1] if at + 1 < len(batches) else None
    return FreeBatch(base, batches[at], costs[batches[at]], following, None if following is None else costs[following])

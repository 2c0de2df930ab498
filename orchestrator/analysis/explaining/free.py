"""What costs nothing: larger batches, and wider or deeper models, up to where latency begins to follow them."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from orchestrator.analysis.explaining.processes import Visit, ratio_of
from orchestrator.analysis.statistics import Estimate

FREE = 1.1
"""A latency up to this many times that of one example counts as the same: the paper's plateau, as a number."""


@dataclass(frozen=True)
class FreeBatch:
    """The largest measured batch that costs no more than a tenth above the smallest."""

    base: int
    """The smallest measured batch."""
    batch: int
    cost: Estimate
    """Its latency over that of the base, paired by round where rounds are shared."""
    next_batch: int | None
    """The next larger one; null where even the largest measured batch is free."""
    next_cost: Estimate | None


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
    def is_free(self) -> bool:
        """Whether it costs no more than a tenth."""
        return self.cost.value <= FREE


def free_batch(latencies: Mapping[int, Mapping[Visit, float]]) -> FreeBatch | None:
    """The free batch of a series over batches; null with fewer than two batches.

    A batch beyond one that costs more is not free, even if noise lets it look so.

    Args:
        latencies: seconds by batch and visit.
    """
    batches = sorted(batch for batch, visits in latencies.items() if visits)
    if len(batches) < 2:
        return None
    costs = {batch: ratio_of(latencies[batch], latencies[batches[0]]) for batch in batches}
    free = batches[0]
    following: int | None = None
    for batch in batches[1:]:
        cost = costs[batch]
        if cost is None or cost.value > FREE:
            following = batch
            break
        free = batch
    cost = costs[free]
    assert cost is not None
    return FreeBatch(batches[0], free, cost, following, None if following is None else costs[following])

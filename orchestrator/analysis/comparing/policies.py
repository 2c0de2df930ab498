"""What a comparison may do, as the user decides it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from orchestrator.analysis.metrics import Metric
from orchestrator.analysis.verdict import MARGIN
from orchestrator.errors import ConfigurationError


class Pool(Enum):
    """What trials of one cell may differ in, if the user says so. By default in none of it."""

    ENVIRONMENT = "environment"
    METHOD = "method"
    ISOLATION = "isolation"
    PROTOCOL = "protocol"
    SEED = "seed"
    SYSTEM = "system"
    """Settings, kernel and driver of equal hardware."""
    HARDWARE = "hw"


POOLED_AXES: Final[Mapping[Pool, tuple[str, ...]]] = {
    Pool.ENVIRONMENT: ("environment", "environment_id"),
    Pool.METHOD: ("method",),
    Pool.ISOLATION: ("isolation",),
    Pool.PROTOCOL: ("protocol",),
    Pool.SEED: ("seed",),
    Pool.SYSTEM: ("system", "driver"),
    Pool.HARDWARE: ("hw", "system", "driver", "gpu", "cpu"),
}
"""The axes on which trials of a cell may then differ."""


@dataclass(frozen=True)
class Policy:
    """How to compare."""

    metric: Metric | None = None
    """By default the latency of lone calls on CPUs, and of back-to-back calls on GPUs."""
    pool: frozenset[Pool] = frozenset()
    latest: bool = False
    """Of each cell only the campaign that started last."""
    without_flagged: bool = False
    """Whether trials are left out whose guards found that something disturbed them."""
    margin: float = MARGIN
    """Within which two things are equivalent; 0.03 is 3 %."""

    @property
    def pooled_axes(self) -> frozenset[str]:
        """The axes on which trials of a cell may differ."""
        return frozenset(name for one in self.pool for name in POOLED_AXES[one])


def pools(names: tuple[str, ...], option: str | None = None) -> frozenset[Pool]:
    """What may be pooled, from the names that the user wrote.

    Raises:
        ConfigurationError: a name is unknown.
    """
    known = {one.value: one for one in Pool}
    for name in names:
        if name not in known:
            raise ConfigurationError(f"{name} cannot be pooled; these can: {', '.join(known)}", key=option)
    return frozenset(known[name] for name in names)

"""When a series has enough samples: its budget is spent, or it has as many as it may. What they say is no reason."""

from dataclasses import dataclass
from typing import Optional

from runners.contract import Stop


@dataclass(frozen=True)
class StoppingRule:
    """Decides after each sample, and does next to nothing."""

    budget_ns: float
    min_samples: int
    max_samples: int

    def verdict(self, count: int, elapsed_ns: int) -> Optional[Stop]:
        """Why the series ends now; None if it goes on.

        Args:
            count: of its samples.
            elapsed_ns: wall time since its first sample began.
        """
        if count >= self.max_samples:
            return Stop.SAMPLES
        return Stop.BUDGET if count >= self.min_samples and elapsed_ns >= self.budget_ns else None

"""A time limit that several steps share."""

import time


class Deadline:
    """Counts from its creation."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._end = time.monotonic() + limit_s

    def left_s(self, at_most: float = float("inf")) -> float:
        """Seconds that a step may take: what is left, at least a blink, so that a step fails by its own time limit."""
        return max(0.05, min(at_most, self._end - time.monotonic()))

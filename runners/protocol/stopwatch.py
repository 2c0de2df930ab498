"""Where the seconds of a process went."""

import time
from contextlib import contextmanager
from typing import Any, Dict, Iterator

from runners.contract import Phases


class Stopwatch:
    """Adds seconds up by phase, as `Phases` names them."""

    def __init__(self) -> None:
        self._seconds: Dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """The time of the block."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.add(name, time.perf_counter() - start)

    def add(self, name: str, seconds: float) -> None:
        """Adds seconds to a phase; or takes some away that are another's."""
        self._seconds[name] = self._seconds.get(name, 0.0) + seconds

    def phases(self) -> Phases:
        """What was added up."""
        found: Dict[str, Any] = {name: max(0.0, seconds) for name, seconds in self._seconds.items()}
        return Phases(**found)

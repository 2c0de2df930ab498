"""How a measured process takes its turns: it says when it is ready, is told to go on, and says when it is done.

A message is one byte. What else comes through the pipes, from a process that writes where it should not, means nothing.
"""

import os
import time
from typing import Iterator, Optional

from runners.contract import Stop

GO = b"g"
ENDS = {Stop.CYCLES: b"c", Stop.BUDGET: b"b", Stop.SHORT: b"s"}
"""Tell a process that it has had its last turn, and why."""

READY = b"r"
"""Warmed up; waits for its first turn."""
DONE = b"d"
"""Its turn is over."""
SPENT = b"x"
"""Its turn is over, and its timed calls have taken their budget."""

_STOPS = {command: stop for stop, command in ENDS.items()}


class Turns:
    """The turns of this process. Between two of them it is stopped, and others have theirs."""

    def __init__(self, commands: int, reports: int) -> None:
        """Takes the ends of two pipes.

        Args:
            commands: is read.
            reports: is written.
        """
        self._commands, self._reports = commands, reports
        self.is_spent = False
        """To be set by whoever takes the turns: its budget is spent. More turns may come all the same."""
        self.ended: Optional[Stop] = None
        """Why there are no more, when there are none."""
        self.waited_s = 0.0
        """Between its turns, for all of them together."""

    def __iter__(self) -> Iterator[None]:
        """One element for each turn."""
        report = READY
        while True:
            # Before the report: whoever reads it may stop this process at once, and what it then loses is waiting
            start = time.perf_counter()
            os.write(self._reports, report)
            command = os.read(self._commands, 1)
            self.waited_s += time.perf_counter() - start
            if command != GO:
                self.ended = _STOPS[command]
                return
            yield
            report = SPENT if self.is_spent else DONE

"""Limits that the orchestrator sets through the environment, kept by the kernel."""

import os
import resource
import signal
from typing import Optional

TIME_VARIABLE = "TAXMETER_TIME_LIMIT_S"
MEMORY_VARIABLE = "TAXMETER_MEMORY_BYTES"


def limit_time_of_this_process() -> None:
    """Lets an alarm end the supervisor when the whole task takes too long: its default action needs no code of ours.

    Children do not inherit the alarm, and die with the supervisor.
    """
    seconds = os.environ.get(TIME_VARIABLE)
    if seconds:
        signal.alarm(int(seconds))


def limit_memory_of_this_process() -> None:
    """Limits the private writable memory of a trial where no container does; an allocation beyond it fails."""
    limit = memory_limit_bytes()
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def memory_limit_bytes() -> Optional[int]:
    """What the trials that are alive may have together where no container limits them; None where one does."""
    limit = os.environ.get(MEMORY_VARIABLE)
    return int(limit) if limit else None

"""Brings tasks to hosts and their records back, as events."""

from orchestrator.scheduling.base import (
    Event,
    HostNotice,
    HostObserved,
    LineReceived,
    Scheduler,
    SchedulingHost,
    TaskEnded,
    TaskRequest,
)
from orchestrator.scheduling.local import LocalScheduler

__all__ = [
    "Event",
    "HostNotice",
    "HostObserved",
    "LineReceived",
    "LocalScheduler",
    "Scheduler",
    "SchedulingHost",
    "TaskEnded",
    "TaskRequest",
]

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
from orchestrator.scheduling.nodes import ExistingCluster

__all__ = [
    "Event",
    "ExistingCluster",
    "HostNotice",
    "HostObserved",
    "LineReceived",
    "LocalScheduler",
    "Scheduler",
    "SchedulingHost",
    "TaskEnded",
    "TaskRequest",
]

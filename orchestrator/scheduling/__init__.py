"""Brings tasks to hosts and their records back, as events."""

from orchestrator.scheduling.base import (
    Asking,
    Event,
    HostNotice,
    HostObserved,
    LineReceived,
    Scheduler,
    SchedulingHost,
    TaskEnded,
    TaskRequest,
    Tick,
)
from orchestrator.scheduling.local import LocalScheduler
from orchestrator.scheduling.nodes import ExistingCluster
from orchestrator.scheduling.workers import WorkerProcess

__all__ = [
    "Asking",
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
    "Tick",
    "WorkerProcess",
]

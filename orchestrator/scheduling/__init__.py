"""Brings tasks to hosts and their records back, as events."""

from orchestrator.scheduling.acknowledging import Acknowledgement, Disposal, acknowledge
from orchestrator.scheduling.base import (
    Asking,
    Event,
    HostNotice,
    HostObserved,
    HostStream,
    RecordPiece,
    Scheduler,
    SchedulingHost,
    TaskEnded,
    TaskRequest,
    Tick,
)
from orchestrator.scheduling.host_calls import (
    LeftoverPart,
    LeftoverPiece,
    Leftovers,
    Returned,
    is_there,
    read_leftovers,
    recover,
    remove_directories,
)
from orchestrator.scheduling.host_task import run_on_host
from orchestrator.scheduling.local import LocalScheduler
from orchestrator.scheduling.nodes import ExistingCluster
from orchestrator.scheduling.places import scheduler_at
from orchestrator.scheduling.workers import WorkerProcess

__all__ = [
    "Acknowledgement",
    "Asking",
    "Disposal",
    "Event",
    "ExistingCluster",
    "HostNotice",
    "HostObserved",
    "HostStream",
    "LeftoverPart",
    "LeftoverPiece",
    "Leftovers",
    "LocalScheduler",
    "RecordPiece",
    "Returned",
    "Scheduler",
    "SchedulingHost",
    "TaskEnded",
    "TaskRequest",
    "Tick",
    "WorkerProcess",
    "acknowledge",
    "is_there",
    "read_leftovers",
    "recover",
    "remove_directories",
    "run_on_host",
    "scheduler_at",
]

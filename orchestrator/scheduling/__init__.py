"""Brings tasks to hosts and their records back, as events."""

from orchestrator.scheduling.host_calls import (
    Acknowledgement,
    Disposal,
    Found,
    Leftover,
    LeftoverPiece,
    Leftovers,
    Returned,
    WorkerProcess,
    acknowledge,
    is_there,
    read_leftovers,
    recover,
    remove_directories,
)
from orchestrator.scheduling.host_task import run_on_host
from orchestrator.scheduling.messages import (
    HostNotice,
    HostObserved,
    RecordPiece,
    SchedulingHost,
    TaskEnded,
    TaskEvent,
    TaskRequest,
)
from orchestrator.scheduling.ray import HostStream, Scheduler, scheduler_at

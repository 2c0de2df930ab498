"""The process that runs a task on its host, so that a later one can end it there if it is stuck."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

_STARTED = 19
"""Place of a process's start among the fields of /proc/PID/stat that follow its name."""


@dataclass(frozen=True)
class WorkerProcess:
    """A process on one host; its number alone would be given to another one day."""

    pid: int
    started_ticks: int
    """When it started, since the host did."""


def this_worker() -> WorkerProcess:
    """The process that calls."""
    started = _started_ticks(os.getpid())
    assert started is not None
    return WorkerProcess(os.getpid(), started)


def end_worker(worker: WorkerProcess) -> bool:
    """Kills a process of this host, frozen or not. False if it is gone, or the very process that calls."""
    if worker.pid == os.getpid() or _started_ticks(worker.pid) != worker.started_ticks:
        return False
    try:
        os.kill(worker.pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _started_ticks(pid: int) -> int | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # A name may hold spaces and brackets of its own.
    return int(text.rpartition(")")[2].split()[_STARTED])

"""The one interface of the executors, and what they share: limits and logs."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Protocol

from orchestrator.boundary import open_foreign_file
from orchestrator.environments import ImageIdentity
from orchestrator.errors import ForeignDataError, InfrastructureError
from runners.contract import Task, TaskFiles

START_ALLOWANCE_S = 180
"""What a task may take beside its trials' own limits: engine, imports, self-check."""


@dataclass(frozen=True)
class DockerSettings:
    """A container on this machine's engine."""

    image_id: str
    engine: str | None
    cores: tuple[int, ...]
    memory_bytes: int
    """Limit of the container, swap included."""
    cache: Path
    expected: ImageIdentity | None = None
    """What the engine must have under `image_id`; null where nothing is to be proven."""
    gpu_uuid: str | None = None
    """The one GPU that trials of GPUs get; null for all, of which they take the first."""
    cache_scope: str = ""
    """What else than a trial decides the entries of the cache that it shares."""


@dataclass(frozen=True)
class Relay:
    """Who runs tasks on a host that no node of Ray serves: the command that began the campaign, over SSH."""

    host: str
    socket: Path
    """Of this machine; it listens there while the campaign runs."""


@dataclass(frozen=True)
class ProcessSettings:
    """A process in a virtual environment, on this machine or through a relay."""

    python: Path
    cores: tuple[int, ...]
    memory_bytes: int
    """Limit of each trial's own data; a process has no container to limit it."""
    cache: Path
    gpu_uuid: str | None = None
    """The one GPU that trials of GPUs see; null for all, of which they take the first."""
    relay: Relay | None = None
    """Null on this machine. Else `python` is a path on that host, and all others are those of its mirror here."""
    cache_scope: str = ""
    """What else than a trial decides the entries of the cache that it shares."""


@dataclass(frozen=True)
class FakeSettings:
    """No runner at all: each synthetic workload's outcome is made up, for tests of everything above."""

    pace_s: float = 0.0
    """Pause before each record."""
    samples: int = 5
    """In each series of a record."""


ExecutionSettings = DockerSettings | ProcessSettings | FakeSettings


@dataclass(frozen=True)
class TaskOutcome:
    """How the container or process of a task ended."""

    exit_code: int | None
    """Minus the signal for a killed process; null if the executor ended the task."""
    out_of_memory_at_ns: int | None
    """When the kernel last killed a process of it for its memory, since the epoch; null if it did not."""
    ended_because: str | None
    """Why the executor ended the task, or that its time was over; null if it ended by itself."""
    log_tail: str


class Executor(Protocol):
    """Runs tasks on this machine, one at a time."""

    def run(self, task: Task, directory: Path, stop: Event) -> TaskOutcome:
        """Runs a staged task to its end; the runner writes its records into the directory meanwhile.

        Whatever a trial does is data: a record, or an outcome that tells how the task died. However this ends, no
        container and no process of the task is left.

        Args:
            task: what to run.
            directory: a directory of the task's own, made by `stage`.
            stop: ends the task soon after it is set.

        Raises:
            InfrastructureError: the task could not be started, or the engine failed.
        """
        ...


def time_limit_s(task: Task) -> int:
    """Wall time after which a task is ended although its trials have limits of their own.

    What guards may wait before a trial comes on top: it is no part of the trial's time.
    """
    patience_s = task.guards.patience_s
    planned_s = sum(trial.timeout_s + 30 + patience_s for trial in task.trials)
    if task.allocation is None:
        return START_ALLOWANCE_S + planned_s
    # A session begins if its group's last one would have ended in time; it may take longer than that
    one_session_s = sum(trial.timeout_s + 30 + patience_s for trial in task.allocation.trials)
    return START_ALLOWANCE_S + planned_s + task.allocation.budget_ms // 1000 + one_session_s


def make_private(cache: Path, *owners: int) -> None:
    """Makes the directory of a cache, which nobody but its owner can enter.

    Raises:
        InfrastructureError: it is somebody else's, or no directory.
    """
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = cache.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (os.geteuid(), *owners):
        raise InfrastructureError(f"the cache {cache} is somebody else's; remove it")
    cache.chmod(0o700)


def log_tail(directory: Path, limit_bytes: int = 8192) -> str:
    """The end of what the supervisor printed; why it is not read, if its container has put something else there."""
    try:
        with open_foreign_file(Path(TaskFiles(str(directory)).log)) as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - limit_bytes))
            return stream.read(limit_bytes).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
    except ForeignDataError as error:
        return str(error)

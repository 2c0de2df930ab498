"""The interface of the schedulers, and what runs on a host for each task."""

import shutil
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from orchestrator.errors import InfrastructureError
from orchestrator.execution import INSTALLED, ExecutionSettings, TaskOutcome, create_executor, stage
from runners.contract import Line, Task
from runners.system import Fingerprint, collect


@dataclass(frozen=True)
class SchedulingHost:
    """A host as the scheduler addresses it."""

    name: str
    labels: Mapping[str, str]
    agent_cores: frozenset[int] = frozenset()
    """Cores that Ray keeps to; empty for all."""


@dataclass(frozen=True)
class TaskRequest:
    """A task with all that its host needs to run it."""

    host: str
    task: Task
    execution: ExecutionSettings
    directory: Path
    """The task's own directory on the host; it must not exist yet."""
    code: Path = INSTALLED
    """Where the runner's package lies on the host."""


@dataclass(frozen=True)
class HostObserved:
    """What a host is made of, read on it before a task starts."""

    host: str
    task_id: str
    fingerprint: Fingerprint


@dataclass(frozen=True)
class LineReceived:
    """A line of a task's records, while the task runs."""

    host: str
    task_id: str
    line: Line


@dataclass(frozen=True)
class TaskEnded:
    """A task is over; nothing of it is left running."""

    host: str
    task: Task
    outcome: TaskOutcome | None
    """Null if the task could not be run at all."""
    problem: str | None
    """What was at fault with the infrastructure; null if nothing was."""


Event = HostObserved | LineReceived | TaskEnded


class Scheduler(Protocol):
    """Runs tasks on hosts, one at a time per host."""

    def start(self, hosts: Sequence[SchedulingHost]) -> None:
        """Makes the hosts ready.

        Raises:
            NoUsableHostError: a host is not part of the cluster; says which and why, before any task starts.
            InfrastructureError: the cluster cannot be started.
        """
        ...

    def submit(self, request: TaskRequest) -> None:
        """Queues a task. Tasks of one host run in the order in which they were submitted."""
        ...

    def events(self) -> Iterator[Event]:
        """Yields what happens until every submitted task, later ones included, has ended."""
        ...

    def stop(self) -> None:
        """Ends running tasks, waits until nothing of them is left, and takes the cluster down."""
        ...


def run_on_host(request: TaskRequest) -> Iterator[Event]:
    """Runs one task on the machine that this is called on. Closing the iterator ends the task."""
    host, task = request.host, request.task
    yield HostObserved(host, task.task_id, collect())
    try:
        stage(task, request.directory, request.code)
        outcome = yield from _lines(request)
    except InfrastructureError as error:
        yield TaskEnded(host, task, None, str(error))
        return
    if outcome.exit_code == 0:
        shutil.rmtree(request.directory)  # its records have all been sent; a failed task's stay for a person to read
    yield TaskEnded(host, task, outcome, None)


def _lines(request: TaskRequest) -> Generator[LineReceived, None, TaskOutcome]:
    running = create_executor(request.execution).run(request.task, request.directory)
    try:
        while True:
            try:
                line = next(running)
            except StopIteration as end:
                outcome: TaskOutcome = end.value
                return outcome
            yield LineReceived(request.host, request.task.task_id, line)
    finally:
        running.close()

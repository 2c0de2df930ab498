"""What is done on a host besides its tasks: functions for `Scheduler.ask`."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.delivery import Client, Destination
from orchestrator.errors import InfrastructureError
from orchestrator.execution import remove_containers
from orchestrator.scheduling.workers import WorkerProcess, end_worker


@dataclass(frozen=True)
class Waiting:
    """Rows that wait on a host for a driver."""

    host: str
    destination: Destination


@dataclass(frozen=True)
class Returned:
    """A host that answers again after a task of it was lost."""

    waiting: Waiting
    campaign_id: str
    engines: tuple[str | None, ...]
    """Addresses of those that run its trials; none where trials are processes."""
    running: frozenset[str]
    """Ids of tasks that go on there."""
    lost: tuple[WorkerProcess, ...]
    """What ran the lost tasks."""


def is_there(host: str) -> str:
    """A sign of life: the answer is the question."""
    return host


def take_up(returned: Returned) -> list[str]:
    """Makes a host fit for further tasks: what a lost one left there is ended, and what it measured is delivered.

    Returns:
        What a person should know about it.

    Raises:
        InfrastructureError: its engine does not answer, or it cannot deliver: it is not fit yet.
    """
    # First the process: it would wait for its container, and hold the place of the next task.
    told = ["a process that did not answer any more was killed" for worker in returned.lost if end_worker(worker)]
    for engine in returned.engines:
        for name in remove_containers(engine, returned.campaign_id, returned.running):
            told.append(f"removed container {name} of a task that was lost")
    return told + deliver_waiting(returned.waiting)


def deliver_waiting(waiting: Waiting) -> list[str]:
    """Delivers what an earlier task of a host could not, and returns what a person should know about it.

    Raises:
        InfrastructureError: it could not be delivered again, and says where it is.
    """
    with Client(waiting.destination, waiting.host) as client:
        client.flush()
        return client.take_problems()


def remove_directories(directories: Sequence[Path]) -> None:
    """Removes directories of ours on a host, those that are there.

    Raises:
        InfrastructureError: one cannot be removed.
    """
    for directory in directories:
        if not directory.exists():
            continue
        try:
            shutil.rmtree(directory)
        except OSError as error:
            raise InfrastructureError(f"{directory} cannot be removed: {error.strerror or error}") from error

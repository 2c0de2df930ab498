"""What is done on a host besides its tasks: functions for `Scheduler.ask`."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from orchestrator.delivery import Client, Destination
from orchestrator.errors import InfrastructureError


@dataclass(frozen=True)
class Waiting:
    """Rows that wait on a host for a driver."""

    host: str
    destination: Destination


def deliver_waiting(waiting: Waiting) -> list[str]:
    """Delivers what an earlier task of a host could not, and returns what a person should know about it.

    Raises:
        InfrastructureError: it could not be delivered again, and says where it is.
    """
    with Client(waiting.destination, waiting.host) as client:
        client.flush()
        return client.take_problems()


def remove_directory(directory: Path) -> None:
    """Removes a directory of ours on a host, if it is there.

    Raises:
        InfrastructureError: it cannot be removed.
    """
    if not directory.exists():
        return
    try:
        shutil.rmtree(directory)
    except OSError as error:
        raise InfrastructureError(f"{directory} cannot be removed: {error.strerror or error}") from error

"""What a campaign does on hosts that agents serve, besides its tasks."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from orchestrator.delivery import Destination
from orchestrator.errors import InfrastructureError
from orchestrator.scheduling import Scheduler
from orchestrator.scheduling.chores import Waiting, deliver_waiting, remove_directory

DELIVERY_S = 120.0
"""A host that is up delivers what waits there in seconds; one that is not must not hold up the others."""

REMOVAL_S = 60.0

Asked = TypeVar("Asked")
Answered = TypeVar("Answered")


def deliver_what_waits(
    scheduler: Scheduler, destinations: Mapping[str, Destination], tell: Callable[[str], None]
) -> None:
    """Has hosts deliver what a killed campaign left there; `tell` is told what could not be."""
    waiting = {host: Waiting(host, destination) for host, destination in destinations.items()}
    for host, problems in _asked(scheduler, deliver_waiting, waiting, DELIVERY_S, tell).items():
        for problem in problems:
            tell(f"{host}: {problem}")


def remove_what_is_left(scheduler: Scheduler, directories: Mapping[str, Path], tell: Callable[[str], None]) -> None:
    """Removes a directory on each host; `tell` is told which could not be removed."""
    _asked(scheduler, remove_directory, directories, REMOVAL_S, tell)


def _asked(
    scheduler: Scheduler,
    question: Callable[[Asked], Answered],
    of: Mapping[str, Asked],
    timeout_s: float,
    tell: Callable[[str], None],
) -> dict[str, Answered]:
    if not of:
        return {}
    answers = {}
    for host, answer in scheduler.ask(question, of, timeout_s).items():
        if isinstance(answer, InfrastructureError):
            tell(f"{host}: {answer}")
        else:
            answers[host] = answer
    return answers

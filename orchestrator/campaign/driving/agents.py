"""What a campaign does on hosts that agents serve, besides its tasks."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from orchestrator.delivery import Destination
from orchestrator.errors import InfrastructureError
from orchestrator.scheduling import Scheduler
from orchestrator.scheduling.chores import Waiting, deliver_waiting, remove_directories

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


def remove_what_is_left(
    scheduler: Scheduler, directories: Mapping[str, Sequence[Path]], tell: Callable[[str], None]
) -> set[str]:
    """Removes directories on hosts, and returns the hosts that have none of them; `tell` is told about the others."""
    return set(_asked(scheduler, remove_directories, directories, REMOVAL_S, tell))


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

"""Runs a task on a host that no node of Ray serves, through the command that reaches it over SSH.

The task's directory here is the mirror of the one there: records arrive in it as they would from a process beside it.
The relay is spoken with through a socket: a line with the errand goes there, a line with the outcome comes back, and
whoever closes it gives up.
"""

import json
import os
import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event
from typing import Final

from pydantic import TypeAdapter, ValidationError

from orchestrator.errors import InfrastructureError
from orchestrator.execution.base import ProcessSettings, Relay, TaskOutcome
from orchestrator.execution.process import runner_command, scratch_of
from orchestrator.execution.runner_process import POLL_INTERVAL_S, RunnerCommand
from runners.contract import Task

MAX_MESSAGE_BYTES: Final = 2**20


@dataclass(frozen=True)
class Errand:
    """A task for a relay. All paths but that of the interpreter are those of the mirror."""

    host: str
    command: RunnerCommand
    directories: tuple[str, ...]
    """To be made before it starts."""


@dataclass(frozen=True)
class ErrandAnswer:
    """What became of it."""

    outcome: TaskOutcome | None
    problem: str | None = None
    """Why there is no outcome; null if there is one."""


ERRAND: Final = TypeAdapter(Errand)
ERRAND_ANSWER: Final = TypeAdapter(ErrandAnswer)


class RelayExecutor:
    """The `process` isolation on a host without a node of Ray."""

    def __init__(self, settings: ProcessSettings, relay: Relay) -> None:
        self._settings = settings
        self._relay = relay

    def run(self, task: Task, directory: Path, stop: Event) -> TaskOutcome:
        made = (str(scratch_of(directory)), str(self._settings.cache))
        errand = Errand(self._relay.host, runner_command(self._settings, task, directory), made)
        said = b""
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                with short_path(self._relay.socket) as path:
                    connection.connect(path)
                connection.sendall(json.dumps(asdict(errand)).encode() + b"\n")
                while not said.endswith(b"\n") and len(said) <= MAX_MESSAGE_BYTES:
                    if stop.is_set():
                        connection.shutdown(socket.SHUT_WR)
                    if select.select([connection], [], [], POLL_INTERVAL_S)[0]:
                        piece = connection.recv(2**16)
                        said += piece
                        if not piece:
                            break
            except OSError as error:
                raise InfrastructureError(f"nobody reaches {self._relay.host} any more: {error.strerror}") from error
        try:
            answer = ERRAND_ANSWER.validate_json(said, strict=True)
        except ValidationError:
            raise InfrastructureError(f"the command that reaches {self._relay.host} has ended") from None
        if answer.outcome is None:
            raise InfrastructureError(answer.problem or "it was not run")
        return answer.outcome


@contextmanager
def short_path(path: Path) -> Iterator[str]:
    """A name of a socket that is short enough to be one: addresses of sockets have 107 bytes at most."""
    descriptor = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{path.name}"
    finally:
        os.close(descriptor)

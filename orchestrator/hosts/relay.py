"""Runs tasks on hosts that have no engine and no agent: over SSH, in the interpreter that the inventory names.

A task's directory here is sent there, and what the runner records there is written into the one here, which is all
that the rest of a campaign sees. The lock of the host is held there while it runs. The connection is the runner's
lifeline. The directory there is removed when all of it is here and on the disk; what a lost connection or a killed
command leaves is fetched as soon as the host answers, or by the next campaign.
"""

import inspect
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path, PurePosixPath
from typing import Any, Final

from pydantic import ValidationError

from orchestrator.errors import InfrastructureError, Say
from orchestrator.execution import TaskOutcome, runner_process
from orchestrator.execution.relay import ERRAND, ERRAND_ANSWER, MAX_MESSAGE_BYTES, Errand, ErrandAnswer, short_path
from orchestrator.files import read_tree, write_atomically
from orchestrator.hosts.connection import Connections, HostConnectionError, end
from orchestrator.hosts.conversation import Listener, converse, names_in, outcome_in, texts_in
from orchestrator.hosts.lock import LOCKS
from orchestrator.hosts.ssh import SshHost, socket_of
from runners.contract import TaskFiles

PAUSE_S: Final = 3.0
"""Between two attempts to reach a host."""

_MOMENT_S: Final = 0.1
_CAMPAIGNS: Final = "campaigns"


@contextmanager
def relaying(
    hosts: Mapping[str, SshHost], connections: Connections, state: Path, store_id: str, return_s: float, say: Say
) -> Iterator[None]:
    """Takes errands for hosts while the block lasts, after it has fetched what an earlier campaign left there.

    Args:
        hosts: by name, each with an interpreter in place of an engine.
        state: below which the directories of campaigns are mirrored.
        say: told what a person should know; by any thread.
    """
    relay = _Relay(hosts, connections, state, return_s, say)
    for host in hosts.values():
        relay.fetch_leftovers(host, store_id)
    path = socket_of(state)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # of a command that was killed: who is here has the project for itself
    with socket.socket(socket.AF_UNIX) as server:
        with short_path(path) as short:
            server.bind(short)
        path.chmod(0o600)
        server.listen()
        threading.Thread(target=relay.serve, args=(server,), name="relay", daemon=True).start()
        try:
            yield
        finally:
            path.unlink()
            relay.leave()
            with suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)


class _Relay:
    def __init__(
        self, hosts: Mapping[str, SshHost], connections: Connections, state: Path, return_s: float, say: Say
    ) -> None:
        self._hosts = hosts
        self._connections = connections
        self._state = state.resolve()
        self._return_s = return_s
        self._say = say
        self._working: set[threading.Thread] = set()
        self._left = threading.Event()

    def serve(self, server: socket.socket) -> None:
        """Takes errands until it is left and the server is shut down."""
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                if self._left.wait(_MOMENT_S):  # else out of descriptors, which passes
                    return
                continue
            worker = threading.Thread(target=self._answer, args=(connection,), name="errand", daemon=True)
            self._working.add(worker)
            worker.start()

    def leave(self) -> None:
        """Waits for errands that are ending."""
        self._left.set()
        for worker in list(self._working):
            worker.join(runner_process.GRACE_S + PAUSE_S)

    def fetch_leftovers(self, host: SshHost, store_id: str) -> None:
        """Fetches what waits on a host for a store: it is stored as what was left here."""
        campaigns = f"{host.work_directory}/{_CAMPAIGNS}"
        order = {"do": "find", "campaigns": campaigns, "store_id": store_id, "wait_s": runner_process.GRACE_S + PAUSE_S}

        def heard(word: str, data: bytes) -> None:
            if word == "runs":
                name = data.decode("utf-8", "replace")
                self._say(f"{host.name}: {campaigns}/{name} runs still; what it records is fetched later")

        try:
            for campaign, task in names_in(self._ask(host, order, heard)):
                try:
                    self._fetch(host, self._state / _CAMPAIGNS / campaign / task)
                except HostConnectionError:
                    raise
                except InfrastructureError as error:
                    self._say(f"{host.name}: {campaigns}/{campaign}/{task} is fetched later: {error}")
        except InfrastructureError as error:
            self._say(f"{host.name}: what may wait there is fetched later: {error}")

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            try:
                answer = ErrandAnswer(self._do(_read_errand(connection), connection))
            except InfrastructureError as error:
                answer = ErrandAnswer(None, str(error))
            except OSError as error:
                place = f"{error.filename}: " if error.filename else ""
                answer = ErrandAnswer(None, f"this machine failed: {place}{error.strerror or error}")
            with suppress(OSError):  # who asked is gone, and nobody wants to know
                connection.sendall(ERRAND_ANSWER.dump_json(answer) + b"\n")

    def _do(self, errand: Errand, connection: socket.socket) -> TaskOutcome:
        host, mirror = self._hosts.get(errand.host), Path(errand.command.directory)
        if host is None or mirror.parent.parent != self._state / _CAMPAIGNS or not mirror.is_dir():
            raise InfrastructureError(f"{errand.host} or {mirror} is nothing that this command knows")
        there = PurePosixPath(self._text(host, str(mirror)))
        self._patiently(host, lambda: host.send_files(read_tree(mirror), there), connection)
        command = errand.command
        renamed = replace(
            command,
            argv=[self._text(host, word) for word in command.argv],
            directory=str(there),
            code=self._text(host, command.code),
            log=self._text(host, command.log),
            environment={name: self._text(host, value) for name, value in command.environment.items()},
        )
        order = {
            "do": "run",
            "command": asdict(renamed),
            "directories": [self._text(host, directory) for directory in errand.directories],
            "locks": str(LOCKS),
        }
        try:
            with _Mirror(mirror) as received:
                answer = self._ask(host, order, self._heard(host, received), connection)
        except InfrastructureError as error:
            # It ends there as the connection does. What it recorded is fetched before anybody hears of it.
            problem = error.problem if isinstance(error, HostConnectionError) else str(error)
            self._say(f"{host.name}: {problem}; what it recorded is fetched")
            self._patiently(host, lambda: self._fetch(host, mirror), connection)
            raise InfrastructureError(problem) from None
        self._patiently(host, lambda: self._forget(host, mirror), connection)
        outcome = outcome_in(answer)
        Path(TaskFiles(str(mirror)).log).write_text(outcome.log_tail, encoding="utf-8")
        return outcome

    def _heard(self, host: SshHost, received: "_Mirror") -> Listener:
        def heard(word: str, data: bytes) -> None:
            if word == "waits":
                self._say(f"{host.name}: another cluster measures there; this one waits for its turn")
            received.take(word, data)

        return heard

    def _patiently(self, host: SshHost, do: Callable[[], None], connection: socket.socket) -> None:
        """Does something as soon as the host answers.

        Raises:
            InfrastructureError: it did not in time, or nobody waits any longer, or it failed for another reason.
        """
        until_s, told = time.monotonic() + self._return_s, False
        while True:
            try:
                do()
            except HostConnectionError as error:
                if time.monotonic() > until_s or _is_closed(connection, PAUSE_S):
                    raise InfrastructureError(f"{error.problem}; what is there stays and is fetched later") from None
                if not told:
                    told = True
                    self._say(f"{host.name}: {error.problem}; it is waited for")
            else:
                return

    def _fetch(self, host: SshHost, mirror: Path) -> None:
        """Brings here what a directory there has more, and removes it there."""
        with _Mirror(mirror) as received:
            order = {"do": "take", "directory": self._text(host, str(mirror)), "offset": received.size}
            self._ask(host, order, received.take)
        self._forget(host, mirror)

    def _forget(self, host: SshHost, mirror: Path) -> None:
        self._remove(host, [self._text(host, str(mirror))])

    def _remove(self, host: SshHost, directories: Sequence[str]) -> None:
        """Removes directories there. What is in them is here, so nothing but room is lost by one that stays."""
        for problem in texts_in(self._ask(host, {"do": "remove", "directories": directories}, lambda *_: None)):
            self._say(f"{host.name}: {problem}")

    def _ask(
        self, host: SshHost, order: Mapping[str, object], heard: Listener, connection: socket.socket | None = None
    ) -> Any:
        """Has a host do something.

        Args:
            order: see `runner_process.main`.
            connection: whose end ends it there; null where it is short.

        Raises:
            HostConnectionError: it was not reached, or the connection ended.
            InfrastructureError: it cannot; says why.
        """
        program = inspect.getsource(runner_process) + "\nmain()\n"
        argv = [str(host.settings.python), "-I", "-c", program]
        started = self._connections.start(host.name, argv)
        try:
            return converse(started, order, heard, connection)
        except EOFError as error:
            raise self._connections.failure(host.name, started) from error
        finally:
            end(started)

    def _text(self, host: SshHost, text: str) -> str:
        """A path of a mirror as it is called there; anything else, such as the interpreter, as it is."""
        here, there = f"{self._state / _CAMPAIGNS}/", f"{host.work_directory}/{_CAMPAIGNS}/"
        return f"{there}{text.removeprefix(here)}" if text.startswith(here) else text


class _Mirror:
    """What has come of a task's directory; on the disk when the block ends. InfrastructureError if it cannot be."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._records = Path(TaskFiles(str(directory)).records)
        with _writing(self._records):
            directory.mkdir(parents=True, exist_ok=True)
            self._stream = self._records.open("ab")
        self.size = self._stream.tell()

    def __enter__(self) -> "_Mirror":
        return self

    def __exit__(self, *_: object) -> None:
        with _writing(self._records), self._stream:
            self._stream.flush()
            os.fsync(self._stream.fileno())

    def take(self, word: str, data: bytes) -> None:
        """Takes what the host says."""
        path = self._records if word == "records" else self._directory / word
        with _writing(path):
            if word == "records":
                self._stream.write(data)
                self._stream.flush()
            elif word in ("origin.json", "task.json") and not (path.exists() and path.stat().st_size):
                write_atomically(path, data.decode("utf-8", "replace"))


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InfrastructureError(f"{path} cannot be written on this machine: {error.strerror or error}") from error


def _read_errand(connection: socket.socket) -> Errand:
    said = b""
    while not said.endswith(b"\n"):
        piece = connection.recv(2**16)
        said += piece
        if not piece or len(said) > MAX_MESSAGE_BYTES:
            raise InfrastructureError("an errand was not whole")
    try:
        return ERRAND.validate_json(said)
    except ValidationError as error:
        raise InfrastructureError(f"an errand was damaged: {error.errors(include_url=False)[0]['msg']}") from None


def _is_closed(connection: socket.socket, wait_s: float) -> bool:
    """Whether who asked has given up; waits so long for that."""
    ready, _, _ = select.select([connection], [], [], wait_s)
    return bool(ready) and not connection.recv(1)

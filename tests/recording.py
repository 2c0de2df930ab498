"""Lines of records for tests, and tasks that are run for their records."""

import os
import signal
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

from orchestrator.execution import ExecutionSettings, TaskOutcome, create_executor, read_lines
from runners.contract import Begin, Line, Task, TrialRecord


def line_of(text: str | bytes) -> bytes:
    """A line that fits its checksum, whatever else it is: `text` is an object as JSON has it."""
    body = (text.encode() if isinstance(text, str) else text)[:-1]
    return body + b',"crc32":"%08x"}\n' % zlib.crc32(body)


def with_first(data: bytes, old: bytes, new: bytes) -> bytes:
    """Lines of which the first says something else than it did, and fits its checksum all the same."""
    first, _, rest = data.partition(b"\n")
    return line_of(first.partition(b',"crc32"')[0].replace(old, new) + b"}") + rest


@dataclass
class Ended:
    """A task that has ended, and what it recorded."""

    lines: list[Line]
    outcome: TaskOutcome

    @property
    def records(self) -> dict[str, TrialRecord]:
        return {line.trial_id: line for line in self.lines if isinstance(line, TrialRecord)}

    @property
    def begun(self) -> dict[str, Begin]:
        return {line.trial_id: line for line in self.lines if isinstance(line, Begin)}


def run_staged(settings: ExecutionSettings, task: Task, directory: Path) -> Ended:
    """Runs a task directory to its end."""
    outcome = create_executor(settings).run(task, directory, Event())
    return Ended(read_lines(directory), outcome)


class Running:
    """A task that runs in a thread until it is stopped."""

    def __init__(self, settings: ExecutionSettings, task: Task, directory: Path) -> None:
        self.directory = directory
        self.stop = Event()
        self.outcomes: list[TaskOutcome] = []
        executor = create_executor(settings)
        self._thread = Thread(target=lambda: self.outcomes.append(executor.run(task, directory, self.stop)))
        self._thread.start()

    def wait_for(self, kind: type[Line], timeout_s: float = 60) -> None:
        """Until a line of a kind was recorded."""
        wait_for(lambda: any(isinstance(line, kind) for line in read_lines(self.directory)), timeout_s)

    def end(self) -> None:
        self.stop.set()
        self._thread.join()


def wait_for(condition: Callable[[], object], timeout_s: float = 20) -> None:
    pause, passed_s = Event(), 0.0
    while not condition():
        assert passed_s < timeout_s, f"it did not happen within {timeout_s} s"
        pause.wait(0.02)
        passed_s += 0.02


@contextmanager
def neighbour(core: int) -> Iterator[None]:
    """Somebody who keeps a core busy."""
    command = ["taskset", "--cpu-list", str(core), sys.executable, "-c", "while True: pass"]
    with subprocess.Popen(command, start_new_session=True) as process:
        try:
            yield
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def processes_naming(text: str | Path) -> list[str]:
    """Living processes, other than this one, that have a text among their arguments or in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != str(os.getpid()):
            try:
                arguments, environ = ((entry / name).read_bytes() for name in ("cmdline", "environ"))
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue  # gone meanwhile, or not ours
            if os.fsencode(text) in arguments + environ:
                found.append(f"{entry.name} {arguments.decode(errors='replace')}")
    return found

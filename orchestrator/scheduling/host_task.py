"""What runs on a host for each task: the executor in a thread, and beside it a stream of what the runner records.

The host makes no rows and opens no port: its records wait in the task's directory until the driver has stored them.
"""

import queue
import stat
import threading
import time
from collections.abc import Callable, Generator
from contextlib import nullcontext
from pathlib import Path
from typing import Final

from orchestrator.errors import ForeignDataError, InfrastructureError
from orchestrator.execution import TaskOutcome, create_executor, read_pieces, stage, unpack
from orchestrator.hosts import fingerprint_here
from orchestrator.scheduling.host_calls import acknowledge, set_aside, this_worker
from orchestrator.scheduling.messages import HostNotice, HostObserved, RecordPiece, TaskEnded, TaskEvent, TaskRequest
from runners.contract import TaskFiles, encode

TICK_S: Final = 1.0
"""A task of which nothing else is to be said is heard of so often."""

LOOK_S: Final = 0.1
"""Between two looks at the records: a `stat` each time, far below what a measurement could feel."""

_PATIENCE_S = 1.0
"""Before it is told that a task waits for another one to end."""

_Said = TaskOutcome | BaseException | HostNotice | HostObserved


def run_on_host(request: TaskRequest) -> Generator[TaskEvent, None, None]:
    """Runs one task on the machine that this is called on. Closing the iterator ends the task.

    Yields:
        What the host is made of; the records as they grow, and an empty piece after each second without; at last how
        the task ended.
    """
    said: queue.SimpleQueue[_Said] = queue.SimpleQueue()
    stop = threading.Event()
    # In a thread, for a call of the engine may take long, and the driver takes silence for death.
    worker = threading.Thread(target=_work, args=(request, said.put, stop), name="task", daemon=True)
    worker.start()
    try:
        yield from _events(request, said, stop)
    finally:
        stop.set()
        while worker.is_alive():
            worker.join(LOOK_S)  # in short steps, so that an interrupt is heard


def _events(
    request: TaskRequest, said: "queue.SimpleQueue[_Said]", stop: threading.Event
) -> Generator[TaskEvent, None, None]:
    host, task_id, violation = request.host, request.task.task_id, None
    records = Path(TaskFiles(str(request.directory)).records)
    sequence, offset, spoken_s = 0, 0, time.monotonic()
    while True:
        try:
            word: _Said | None = said.get(timeout=LOOK_S)
        except queue.Empty:
            word = None
        # After the word, because of all words the last one comes when the records are complete
        try:
            for data in read_pieces(records, offset) if violation is None and _has_grown(records, offset) else ():
                yield RecordPiece(host, task_id, sequence, offset, data)
                sequence, offset, spoken_s = sequence + 1, offset + len(data), time.monotonic()
        except ForeignDataError as error:
            violation = str(error)
            stop.set()
        if time.monotonic() - spoken_s >= TICK_S:
            yield RecordPiece(host, task_id, sequence, offset, b"")
            sequence, spoken_s = sequence + 1, time.monotonic()
        if isinstance(word, HostNotice | HostObserved):
            yield word
        elif isinstance(word, TaskOutcome):
            if violation is not None:
                set_aside(request.directory)
            yield TaskEnded(host, task_id, word, None, offset, violation)
            return
        elif isinstance(word, InfrastructureError):
            yield TaskEnded(host, task_id, None, str(word), offset)
            return
        elif word is not None:
            raise word


def _has_grown(records: Path, offset: int) -> bool:
    try:
        status = records.lstat()
    except FileNotFoundError:
        return False
    return status.st_size > offset or not stat.S_ISREG(status.st_mode)


def _work(request: TaskRequest, say: Callable[[_Said], None], stop: threading.Event) -> None:
    try:
        say(_run(request, say, stop))
    except BaseException as error:  # noqa: BLE001 - a defect is raised where somebody hears it
        say(error)


def _run(request: TaskRequest, say: Callable[[_Said], None], stop: threading.Event) -> TaskOutcome:
    host, task = request.host, request.task
    for problem in acknowledge(request.acknowledged):
        say(HostNotice(host, task.task_id, problem))
    fingerprint = request.fingerprint or fingerprint_here()
    say(HostObserved(host, task.task_id, fingerprint, this_worker()))
    code = request.code if request.packed is None else unpack(request.packed, request.code)
    origin = {"store_id": request.store_id, "origin": request.origin, "fingerprint": encode(fingerprint)}
    stage(task, request.directory, code, origin)
    with nullcontext() if request.lock is None else request.lock.hold() as lock:
        if lock is not None and not lock.wait(_PATIENCE_S):
            say(HostNotice(host, task.task_id, "another cluster measures there; this one waits for its turn"))
            while not lock.wait(_PATIENCE_S):
                if stop.is_set():
                    return TaskOutcome(None, None, "the task was ended from outside", "")
        return create_executor(request.execution).run(task, request.directory, stop)

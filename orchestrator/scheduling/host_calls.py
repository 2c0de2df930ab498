"""What is done on a host besides its tasks: generator functions for `Scheduler.stream`.

A task's directory stays on its host until the driver has every row of it: then it is acknowledged.
"""

import fcntl
import os
import shutil
import signal
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from orchestrator.boundary import load_json, read_foreign_file
from orchestrator.errors import ForeignDataError
from orchestrator.execution import MAX_LINE_BYTES, read_pieces, remove_containers
from runners.contract import TaskFiles

RUNNER_ENDS_S: Final = 15.0
"""A runner whose driver was killed ends within that."""

STORED: Final = "records.stored.jsonl"
"""The records of a failed task, whose directory stays for its logs."""

SET_ASIDE: Final = "records.refused.jsonl"
"""Records of which some gave no row: a person decides about them."""

_PAUSE_S: Final = 0.1

_STARTED: Final = 19
"""Place of a process's start among the fields of /proc/PID/stat that follow its name."""


@dataclass(frozen=True)
class WorkerProcess:
    """A process on one host; its number alone would be given to another one day."""

    pid: int
    started_ticks: int
    """When it started, since the host did."""


class Disposal(Enum):
    """What becomes of a directory."""

    REMOVE = "remove"
    KEEP_LOGS = "keep logs"
    SET_ASIDE = "set aside"


@dataclass(frozen=True)
class Acknowledgement:
    """The driver has read a task's records and stored what they say."""

    directory: Path
    size: int
    """In bytes, of the records that were read."""
    disposal: Disposal


@dataclass(frozen=True)
class Leftovers:
    """Where records wait on a host for a driver."""

    campaigns: Path
    """Holds the directories of campaigns, and these those of tasks."""
    store_id: str
    """Of the store that the records are for."""
    in_use: frozenset[str] = frozenset()
    """Names of the directories of tasks that go on."""


@dataclass(frozen=True)
class Returned:
    """A host that answers again after a task of it was lost."""

    leftovers: Leftovers
    campaign_id: str
    engines: tuple[str | None, ...]
    """Addresses of those that run its trials; none where trials are processes."""
    running: frozenset[str]
    """Ids of tasks that go on there."""
    lost: tuple[WorkerProcess, ...]
    """What ran the lost tasks."""
    acknowledged: tuple[Acknowledgement, ...] = ()
    """Tasks of which every row is stored."""


@dataclass(frozen=True)
class Leftover:
    """A task directory that waits on a host; its records follow in pieces."""

    directory: Path
    origin: bytes
    """The document that makes rows of its records."""
    task: bytes
    size: int
    """Of its records, in bytes."""


@dataclass(frozen=True)
class LeftoverPiece:
    """Bytes of the records of a task directory that waits on a host, in their order."""

    directory: Path
    data: bytes


Found = Leftover | LeftoverPiece | str
"""What a host says that is asked for what waits there; a text is a line for a person."""


def is_there(host: str) -> Iterator[str]:
    """A sign of life: the answer is the question."""
    yield host


def acknowledge(acknowledgements: Sequence[Acknowledgement]) -> Iterator[str]:
    """Removes directories of tasks, or puts their records aside.

    Nothing is lost by an acknowledgement: one that comes while a runner works there, or after the records have grown,
    changes nothing. One that comes again does no harm.

    Yields:
        What could not be done.
    """
    for acknowledged in acknowledgements:
        directory, records = acknowledged.directory, Path(TaskFiles(str(acknowledged.directory)).records)
        try:
            size = _size(records)
            if size and size != acknowledged.size:
                yield f"{records} has {size} bytes, and {acknowledged.size} are stored: it stays, and is read again"
            elif not _is_free(directory):
                yield f"{directory} stays: a runner works there"
            elif acknowledged.disposal is Disposal.REMOVE:
                if directory.exists():
                    # First the records: who dies in between leaves nothing that looks as if it had to be stored.
                    records.unlink(missing_ok=True)
                    shutil.rmtree(directory)
            elif size:
                set_aside(directory, STORED if acknowledged.disposal is Disposal.KEEP_LOGS else SET_ASIDE)
        except OSError as error:
            yield f"{directory} cannot be cleared: {error.strerror or error}"


def set_aside(directory: Path, name: str = SET_ASIDE) -> None:
    """Renames the records of a task, whatever stands in their place: nobody reads them as such any more."""
    with suppress(FileNotFoundError):
        Path(TaskFiles(str(directory)).records).rename(directory / name)


def recover(returned: Returned) -> Iterator[Found]:
    """Makes a host fit for further tasks: what a lost one left there is ended, and what it measured is read.

    Raises:
        InfrastructureError: its engine does not answer: it is not fit yet.
    """
    # First the process: it would wait for its container, and hold the place of the next task.
    for worker in returned.lost:
        if end_worker(worker):
            yield "a process that did not answer any more was killed"
    for engine in returned.engines:
        for name in remove_containers(engine, returned.campaign_id, returned.running):
            yield f"removed container {name} of a task that was lost"
    yield from acknowledge(returned.acknowledged)
    yield from read_leftovers(returned.leftovers)


def read_leftovers(leftovers: Leftovers) -> Iterator[Found]:
    """Reads the records of a store that wait on this machine, whichever campaign they are of."""
    for directory in sorted(path for path in leftovers.campaigns.glob("*/*") if path.name not in leftovers.in_use):
        try:
            yield from _read_leftover(directory, leftovers.store_id)
        except ForeignDataError as error:
            yield f"{error}; the records there stay"
        except OSError as error:
            yield f"{error.filename or directory} cannot be read: {error.strerror or error}; the records there stay"


def _read_leftover(directory: Path, store_id: str) -> Iterator[Found]:
    files = TaskFiles(str(directory))
    if not _size(Path(files.records)):
        return
    try:
        origin = read_foreign_file(Path(files.origin), MAX_LINE_BYTES)
        if load_json(origin, files.origin)["store_id"] != store_id:
            return
    except FileNotFoundError:
        return
    except (ForeignDataError, TypeError, KeyError):
        yield f"{files.origin} is damaged; the records beside it stay"
        return
    if not _is_free(directory, RUNNER_ENDS_S):
        yield f"a runner works in {directory}; what it records is stored later"
        return
    try:
        task = read_foreign_file(Path(files.task), MAX_LINE_BYTES)
    except FileNotFoundError:
        task = b""
    yield Leftover(directory, origin, task, _size(Path(files.records)))
    for piece in read_pieces(Path(files.records)):
        yield LeftoverPiece(directory, piece)


def remove_directories(directories: Sequence[Path]) -> Iterator[str]:
    """Removes directories of ours on a host, those that are there and hold no record that is not stored.

    Yields:
        Why one stays.
    """
    for directory in directories:
        try:
            unstored = sorted(str(path) for path in directory.glob("*") if path.is_dir() and _is_unstored(path))
            if unstored:
                yield f"{unstored[0]} stays: it has records that are not stored"
            elif directory.exists():
                shutil.rmtree(directory)
        except OSError as error:
            yield f"{directory} cannot be removed: {error.strerror or error}"


def this_worker() -> WorkerProcess:
    """The process that calls."""
    started = _started_ticks(os.getpid())
    assert started is not None
    return WorkerProcess(os.getpid(), started)


def end_worker(worker: WorkerProcess) -> bool:
    """Kills a process of this host, frozen or not. False if it is gone, or the very process that calls."""
    if worker.pid == os.getpid() or _started_ticks(worker.pid) != worker.started_ticks:
        return False
    try:
        os.kill(worker.pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _is_unstored(directory: Path) -> bool:
    """Whether a task directory has records that nobody acknowledged, or that were refused."""
    names = (Path(TaskFiles(str(directory)).records).name, SET_ASIDE)
    return any(_size(directory / name) for name in names)


def _size(path: Path) -> int:
    """Of a regular file, in bytes; 0 of everything else, and of nothing."""
    try:
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def _is_free(directory: Path, wait_s: float = 0.0) -> bool:
    """Whether no runner works in a task directory; waits for one that is just ending."""
    until_s = time.monotonic() + wait_s
    while _is_locked(Path(TaskFiles(str(directory)).lock)):
        if time.monotonic() >= until_s:
            return False
        time.sleep(_PAUSE_S)
    return True


def _is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _started_ticks(pid: int) -> int | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # A name may hold spaces and brackets of its own.
    return int(text.rpartition(")")[2].split()[_STARTED])

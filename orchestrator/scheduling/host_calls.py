"""What is done on a host besides its tasks: functions for `Scheduler.ask`, `begin` and `stream`."""

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from orchestrator.errors import InfrastructureError
from orchestrator.execution import read_pieces, remove_containers
from orchestrator.scheduling.acknowledging import Acknowledgement, acknowledge, is_free, is_unstored
from orchestrator.scheduling.workers import WorkerProcess, end_worker
from runners.contract import TaskFiles

RUNNER_ENDS_S: Final = 15.0
"""A runner whose driver was killed ends within that."""


@dataclass(frozen=True)
class Leftovers:
    """Where records wait on a host for a driver."""

    host: str
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


class LeftoverPart(Enum):
    """What a piece of a leftover belongs to."""

    ORIGIN = "origin"
    TASK = "task"
    RECORDS = "records"
    END = "end"
    """All of the directory has come."""
    NOTICE = "notice"
    """A line for a person."""


@dataclass(frozen=True)
class LeftoverPiece:
    """Bytes of a task directory that waits on a host: its origin, its task, its records, and then its end."""

    directory: Path
    part: LeftoverPart
    data: bytes = b""


def is_there(host: str) -> str:
    """A sign of life: the answer is the question."""
    return host


def recover(returned: Returned) -> Iterator[LeftoverPiece]:
    """Makes a host fit for further tasks: what a lost one left there is ended, and what it measured is read.

    Raises:
        InfrastructureError: its engine does not answer: it is not fit yet.
    """
    nowhere = returned.leftovers.campaigns
    # First the process: it would wait for its container, and hold the place of the next task.
    for worker in returned.lost:
        if end_worker(worker):
            yield _notice(nowhere, "a process that did not answer any more was killed")
    for engine in returned.engines:
        for name in remove_containers(engine, returned.campaign_id, returned.running):
            yield _notice(nowhere, f"removed container {name} of a task that was lost")
    for problem in acknowledge(returned.acknowledged):
        yield _notice(nowhere, problem)
    yield from read_leftovers(returned.leftovers)


def read_leftovers(leftovers: Leftovers) -> Iterator[LeftoverPiece]:
    """Reads the records of a store that wait on this machine, whichever campaign they are of."""
    for directory in sorted(path for path in leftovers.campaigns.glob("*/*") if path.name not in leftovers.in_use):
        files = TaskFiles(str(directory))
        try:
            has_records = Path(files.records).stat().st_size > 0
            origin = Path(files.origin).read_bytes() if has_records else b""
        except (FileNotFoundError, NotADirectoryError):
            continue
        try:
            is_ours = bool(origin) and json.loads(origin)["store_id"] == leftovers.store_id
        except (ValueError, TypeError, KeyError):
            yield _notice(directory, f"{files.origin} is damaged; the records beside it stay")
            continue
        if not is_ours:
            continue
        if not is_free(directory, RUNNER_ENDS_S):
            yield _notice(directory, f"a runner works in {directory}; what it records is stored later")
            continue
        parts = ((LeftoverPart.ORIGIN, files.origin), (LeftoverPart.TASK, files.task))
        for part, path in (*parts, (LeftoverPart.RECORDS, files.records)):
            for piece in read_pieces(Path(path)):
                yield LeftoverPiece(directory, part, piece)
        yield LeftoverPiece(directory, LeftoverPart.END)


def remove_directories(directories: Sequence[Path]) -> None:
    """Removes directories of ours on a host, those that are there.

    Raises:
        InfrastructureError: one cannot be removed, or holds records that are not stored.
    """
    for directory in directories:
        unstored = sorted(str(path) for path in directory.glob("*") if path.is_dir() and is_unstored(path))
        if unstored:
            raise InfrastructureError(f"{unstored[0]} stays: it has records that are not stored")
        if not directory.exists():
            continue
        try:
            shutil.rmtree(directory)
        except OSError as error:
            raise InfrastructureError(f"{directory} cannot be removed: {error.strerror or error}") from error


def _notice(directory: Path, text: str) -> LeftoverPiece:
    return LeftoverPiece(directory, LeftoverPart.NOTICE, text.encode())

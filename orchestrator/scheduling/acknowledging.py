"""What a host does with a task directory of which the driver has every row: the acknowledgement."""

import fcntl
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from runners.contract import TaskFiles

STORED: Final = "records.stored.jsonl"
"""The records of a failed task, whose directory stays for its logs."""

SET_ASIDE: Final = "records.refused.jsonl"
"""Records of which some gave no row: a person decides about them."""

_PAUSE_S = 0.1


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


def acknowledge(acknowledgements: Sequence[Acknowledgement]) -> list[str]:
    """Removes directories of tasks, or puts their records aside.

    Nothing is lost by an acknowledgement: one that comes while a runner works there, or after the records have grown,
    changes nothing. One that comes again does no harm.

    Returns:
        What could not be done.
    """
    return [problem for acknowledgement in acknowledgements if (problem := _take(acknowledgement)) is not None]


def is_unstored(directory: Path) -> bool:
    """Whether a task directory has records that nobody acknowledged, or that were refused."""
    names = (Path(TaskFiles(str(directory)).records).name, SET_ASIDE)
    return any((directory / name).is_file() and (directory / name).stat().st_size for name in names)


def is_free(directory: Path, wait_s: float = 0.0) -> bool:
    """Whether no runner works in a task directory; waits for one that is just ending."""
    until_s = time.monotonic() + wait_s
    while _is_locked(Path(TaskFiles(str(directory)).lock)):
        if time.monotonic() >= until_s:
            return False
        time.sleep(_PAUSE_S)
    return True


def _take(acknowledged: Acknowledgement) -> str | None:
    directory, records = acknowledged.directory, Path(TaskFiles(str(acknowledged.directory)).records)
    try:
        size = records.stat().st_size if records.exists() else 0
        if size and size != acknowledged.size:
            return f"{records} has {size} bytes, and {acknowledged.size} are stored: it stays, and is read again"
        if not is_free(directory):
            return f"{directory} stays: a runner works there"
        if acknowledged.disposal is not Disposal.REMOVE:
            if size:
                records.rename(directory / (STORED if acknowledged.disposal is Disposal.KEEP_LOGS else SET_ASIDE))
        elif directory.exists():
            shutil.rmtree(directory)
    except OSError as error:
        return f"{directory} cannot be cleared: {error.strerror or error}"
    return None


def _is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False

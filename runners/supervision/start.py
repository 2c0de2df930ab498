"""One start of a task directory: the first one, or a later one that goes on where the earlier ones stopped.

Every start has a directory of its own: the first is the task directory, later ones are `again-2`, `again-3` and so on
in it. So each `records.jsonl` is of one start on one machine, which `system.json` beside it describes.
"""

import errno
import fcntl
import itertools
import json
import os
import time
from dataclasses import replace
from typing import Dict, Iterable, Iterator, List, Optional, Set, Tuple

from runners.backends.base import CACHE_VARIABLE
from runners.contract import (
    Begin,
    ContractError,
    Line,
    Status,
    Task,
    TaskFiles,
    Trial,
    TrialRecord,
    decode_line,
    encode,
)
from runners.contract.catalogue.entries import CUDA
from runners.statistics.allocation import goes_on, past_of
from runners.supervision.supervisor import EXIT_BAD_TASK, read_task, run_task
from runners.supervision.surroundings import settle

EXIT_GIVEN_UP = 66
EXIT_BUSY = 69

MAX_ATTEMPTS = 3
"""Starts that may end while one trial runs; then it is left alone."""

_PATIENCE_S = 15.0
"""For an earlier start that is just ending."""

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


def run_directory(directory: str) -> int:
    """Runs the trials of a task directory that have no record yet and returns the exit code of the process.

    A trial with a record is never measured again, but for an infrastructure error. One that began and has no record,
    because its start ended, is measured again with the next attempt, after all others.
    """
    files = TaskFiles(directory)
    try:
        task = read_task(files.task)
        descriptor = os.open(files.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except (ContractError, OSError) as error:
        print("%s: %s" % (files.task, error), flush=True)
        return EXIT_BAD_TASK
    removed = settle(any(trial.spec.device == CUDA for trial in task.every_trial))
    if removed:
        print("without these variables, which change results: %s" % ", ".join(removed), flush=True)
    try:
        if not _lock(descriptor):
            print("%s: another process runs this task; wait for it, or end it" % directory, flush=True)
            return EXIT_BUSY
        return _run_what_is_left(task, files)
    finally:
        os.close(descriptor)


def divide(task: Task, lines: Iterable[Line]) -> Tuple[Tuple[Trial, ...], Tuple[Trial, ...]]:
    """What earlier starts left of a task.

    Args:
        task: as it was planned.
        lines: all that earlier starts wrote.

    Returns:
        The trials to run, those that were begun before at the end, at their last start alone; and those in which too
        many starts ended. A trial that a guard kept from running, or from counting, is run again however often that
        was.
    """
    begun: Dict[str, int] = {}
    deaths: Dict[str, int] = {}
    recorded: Set[str] = set()
    for line in lines:
        if isinstance(line, Begin):
            begun[line.trial_id] = max(line.attempt, begun.get(line.trial_id, 0))
            deaths[line.trial_id] = deaths.get(line.trial_id, 0) + 1
        elif isinstance(line, TrialRecord):
            deaths[line.trial_id] = deaths.get(line.trial_id, 0) - 1
            if line.status is Status.INFRASTRUCTURE_ERROR:
                begun[line.trial_id] = max(line.attempt, begun.get(line.trial_id, 0))
            else:
                recorded.add(line.trial_id)
    open_trials = [trial for trial in task.trials if trial.trial_id not in recorded]
    fresh = [trial for trial in open_trials if trial.trial_id not in begun]
    again = [
        replace(trial, attempt=begun[trial.trial_id] + 1, alone=deaths[trial.trial_id] >= MAX_ATTEMPTS - 1)
        for trial in open_trials
        if trial.trial_id in begun
    ]
    left = fresh + [trial for trial in again if deaths[trial.trial_id] < MAX_ATTEMPTS]
    return tuple(left), tuple(trial for trial in again if deaths[trial.trial_id] >= MAX_ATTEMPTS)


def _run_what_is_left(task: Task, files: TaskFiles) -> int:
    earlier = [start for start in files.starts() if os.path.exists(start.records)]
    if not earlier:
        _write_system(files)
        return run_task(files.directory)
    starts = [list(_lines([start])) for start in earlier]
    left, given_up = divide(task, itertools.chain.from_iterable(starts))
    task = task if task.allocation is None else replace(task, allocation=past_of(task, starts))
    code = 0
    if left or goes_on(task):
        number = len(earlier) + 1
        while os.path.exists(files.again(number).records):
            number += 1  # a directory between them was removed
        print("start %d: %d of %d trials are left" % (number, len(left), len(task.trials)), flush=True)
        code = run_task(_prepare_again(task, left, files, number))
    else:
        print("nothing is left: %d of %d trials" % (len(given_up), len(task.trials)), flush=True)
    for trial in given_up:
        print("%s: %d starts ended while it ran; it is not tried again" % (trial.trial_id, MAX_ATTEMPTS), flush=True)
    return code or (EXIT_GIVEN_UP if given_up else 0)


def _prepare_again(task: Task, left: Tuple[Trial, ...], files: TaskFiles, number: int) -> str:
    start = files.again(number)
    os.makedirs(start.directory, exist_ok=True)
    # Another process with a state of its own, and so another task
    rest = replace(task, task_id="%s-again-%d" % (task.task_id, number), trials=left)
    _write_json(start.task, encode(rest))
    _write_system(start)
    os.environ.setdefault(CACHE_VARIABLE, os.path.join(files.directory, "cache"))
    return start.directory


def _lock(descriptor: int) -> bool:
    """Locks a file for this process; its children do not inherit the lock."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _NO_LOCKS:
                print("this file system has no locks; see to it that one process alone runs this task", flush=True)
                return True
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise
        else:
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)


def _write_system(files: TaskFiles) -> None:
    from runners.system import collect

    _write_json(files.system, {"fingerprint": encode(replace(collect(), private=None))})


def _write_json(path: str, document: object) -> None:
    temporary = path + ".partial"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, path)


def _lines(starts: List[TaskFiles]) -> Iterator[Line]:
    for start in starts:
        with open(start.records, "rb") as file:
            for number, raw in enumerate(file.read().split(b"\n"), 1):
                line = _decoded(raw, "%s:%d" % (start.records, number)) if raw else None
                if line is not None:
                    yield line


def _decoded(raw: bytes, where: str) -> Optional[Line]:
    try:
        return decode_line(raw)
    except ContractError as error:
        # What it said is lost, and its trial is measured again
        print("%s: %s" % (where, error), flush=True)
        return None

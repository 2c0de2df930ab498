"""Reads `records.jsonl`, whole or in pieces as it grows, and says what a task that ended early leaves behind.

Whoever reads what a runner says reads it by this.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.boundary import open_foreign_file
from orchestrator.execution.base import TaskOutcome
from orchestrator.execution.validation import check_line
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
)

PIECE_BYTES: Final = 64 * 2**10
"""Longest piece: what is shorter than 100 kB travels in Ray's own messages, without its object store."""

MAX_LINE_BYTES: Final = 64 * 2**20
"""A runner writes no longer record, and nobody a longer document."""


@dataclass(frozen=True)
class RecordLine:
    """A whole line."""

    number: int
    """Counted from 1."""
    line: Line | None
    """Null if it cannot be used."""
    problem: str
    """Why it cannot; empty if it can."""
    size: int
    """In bytes, without its end."""


class RecordReader:
    """Joins the pieces of one file and decodes its lines. A line that a dying supervisor has cut is never whole."""

    def __init__(self) -> None:
        self.size = 0
        """Bytes that were read."""
        self._pieces: list[bytes] = []
        self._waiting = 0
        self._number = 0

    @property
    def is_cut(self) -> bool:
        """Whether the last line has no end yet."""
        return self._waiting > 0

    def feed(self, data: bytes) -> Iterator[RecordLine]:
        """Takes the next piece and yields the lines that are whole with it."""
        self.size += len(data)
        *ends, rest = data.split(b"\n")
        for end in ends:
            self._keep(end)
            yield self._take()
        self._keep(rest)

    def _keep(self, data: bytes) -> None:
        self._waiting += len(data)
        if self._waiting > MAX_LINE_BYTES:
            self._pieces.clear()  # whatever comes of it, it takes no memory
        elif data:
            self._pieces.append(data)

    def _take(self) -> RecordLine:
        raw, size = b"".join(self._pieces), self._waiting
        self._pieces.clear()
        self._waiting = 0
        self._number += 1
        if size > MAX_LINE_BYTES:
            return RecordLine(self._number, None, f"{size} bytes in one line; at most {MAX_LINE_BYTES} are taken", size)
        try:
            line = decode_line(raw)
            check_line(line)
        except ContractError as error:
            return RecordLine(self._number, None, str(error), size)
        return RecordLine(self._number, line, "", size)


def read_pieces(path: Path, offset: int = 0) -> Iterator[bytes]:
    """What a file holds from an offset on, in pieces of `PIECE_BYTES`; nothing if it is not there.

    Raises:
        ForeignDataError: whoever owns its directory has put something else there.
    """
    try:
        stream = open_foreign_file(path)
    except FileNotFoundError:
        return
    with stream:
        stream.seek(offset)
        while piece := stream.read(PIECE_BYTES):
            yield piece


def read_lines(directory: Path) -> list[Line]:
    """The lines of a task directory that can be used."""
    reader = RecordReader()
    pieces = read_pieces(Path(TaskFiles(str(directory)).records))
    return [read.line for piece in pieces for read in reader.feed(piece) if read.line is not None]


def aftermath(
    task: Task, begun: Mapping[str, Begin], recorded: frozenset[str], outcome: TaskOutcome
) -> tuple[tuple[TrialRecord, ...], tuple[Trial, ...]]:
    """Divides the trials of an ended task.

    Args:
        task: what was to run.
        begun: the `begin` lines by trial id.
        recorded: ids of the trials that have a record.
        outcome: how the task ended.

    Returns:
        The records of the trials that were running when the task died: none, or those of one session. Which of several
        ended it is not known. And the trials that never ran.
    """
    open_trials = [trial for trial in task.trials if trial.trial_id not in recorded]
    running = [trial for trial in open_trials if trial.trial_id in begun]
    victims = tuple(_victim(trial, begun[trial.trial_id], outcome, len(running)) for trial in running)
    return victims, tuple(trial for trial in open_trials if trial.trial_id not in begun)


def _victim(trial: Trial, begin: Begin, outcome: TaskOutcome, together: int) -> TrialRecord:
    while_running = "while this trial ran" if together == 1 else f"while the {together} trials of a session ran"
    if outcome.out_of_memory_at_ns is not None and outcome.out_of_memory_at_ns >= begin.started_at_ns:
        status, reason = Status.OOM, f"the task ran out of memory {while_running}"
    elif outcome.ended_because is not None:
        status, reason = Status.TIMEOUT, outcome.ended_because
    else:
        status, reason = Status.CRASHED, f"the supervisor ended {while_running} ({exit_text(outcome.exit_code)})"
    return TrialRecord(
        trial_id=trial.trial_id,
        attempt=trial.attempt,
        status=status,
        reason=reason,
        started_at_ns=begin.started_at_ns,
        finished_at_ns=time.time_ns(),
        exit_code=outcome.exit_code,
        log_tail=outcome.log_tail,
    )


def exit_text(code: int | None) -> str:
    """An exit code for people: containers say 137 where processes say -9, and both mean the same."""
    if code is None:
        return "no exit code"
    signal_number = -code if code < 0 else code - 128 if code > 128 else None
    return f"exit code {code}" + (f", signal {signal_number}" if signal_number else "")

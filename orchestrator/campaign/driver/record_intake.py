"""Makes rows of the records of one task directory."""

import queue
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

from orchestrator.errors import StoreError
from orchestrator.execution import RecordLine, RecordReader
from orchestrator.scheduling import Acknowledgement, Disposal
from orchestrator.store import Attempt
from orchestrator.store.ingest import Answer, Outcome
from orchestrator.store.rows import RowBuilder, Rows
from runners.contract import Begin, End, Environment, Line, Status, Task, Trial, TrialRecord, repetition
from runners.system import Fingerprint

MOST_PROBLEMS: Final = 100
"""So many are told of one file; who writes a million bad lines fills no memory."""


class RowSink(Protocol):
    """What takes rows and answers for them, such as `Ingest`."""

    def submit(self, rows: Rows, answer: Callable[[Answer], None]) -> None:
        """Takes rows of one trial; `answer` is told once what became of them."""


class RecordIntake:
    """Makes rows of the records of one task directory, hands them to the store, and says what its host may forget."""

    def __init__(
        self,
        directory: Path,
        task: Task,
        builder: RowBuilder,
        ingest: RowSink,
        attempts: Mapping[str, Attempt] | None = None,
        adapted: Callable[[Trial, TrialRecord], Trial] = lambda trial, _: trial,
    ) -> None:
        """Takes nothing yet.

        Args:
            directory: on its host.
            task: of whose trials it can have records.
            builder: makes their rows.
            ingest: stores them.
            attempts: the latest of each trial, where none of them goes on: a record that comes after its host was
                given up is a further one.
            adapted: the trial that a record is of, where its task does not say all of it.
        """
        self.directory = directory
        self.builder = builder
        self.begun: dict[str, Begin] = {}
        """By id of the trials that have begun and have no row yet."""
        self.has_begin = False
        """Whether any trial has begun."""
        self.has_end = False
        """Whether the runner said that it was done."""
        self.problems: list[str] = []
        """Why records give no row, of the first `MOST_PROBLEMS`."""
        self._trials = {trial.trial_id: trial for trial in task.trials}
        self._open = set(self._trials)
        self._task = task
        self._ingest = ingest
        self._attempts = attempts or {}
        self._adapted = adapted
        self._reader = RecordReader()
        self._answers: queue.SimpleQueue[tuple[int, Trial, TrialRecord, Answer]] = queue.SimpleQueue()
        self._unanswered = 0
        self._differs: str | None = None
        self._is_left = False
        self._has_environment = False

    @property
    def size(self) -> int:
        """Bytes that were taken."""
        return self._reader.size

    @property
    def is_cut(self) -> bool:
        """Whether the last line that was taken has no end yet."""
        return self._reader.is_cut

    @property
    def problem(self) -> str | None:
        """Why the first of its records that gives no row does not."""
        return self.problems[0] if self.problems else None

    @property
    def trials(self) -> tuple[Trial, ...]:
        """Those of its task, and the repetitions of which a begin was taken."""
        return tuple(self._trials.values())

    @property
    def open(self) -> int:
        """How many trials of its task have no row yet; repetitions are not counted."""
        return len(self._open)

    @property
    def current(self) -> Trial | None:
        """The first of the trials that have begun and have no row yet."""
        return next((self._trials[name] for name in self.begun), None)

    def trial(self, trial_id: str) -> Trial:
        """One of `trials`."""
        return self._trials[trial_id]

    @property
    def doubt(self) -> str | None:
        """Why its records stay where they are, for a person to decide about; null if all of them are rows."""
        return self.problem or self._differs

    @property
    def is_settled(self) -> bool:
        """Whether the store has answered for all that was taken, and `answered` has told of it."""
        return self._unanswered == 0

    def take(self, data: bytes) -> list[Trial]:
        """Takes the next bytes of the records; returns the trials that begin with them."""
        begun = []
        for read in self._reader.feed(data):
            if read.line is None:
                self.fail(f"line {read.number} of its records cannot be read: {read.problem}")
            elif isinstance(read.line, Environment):
                self._saw(read.line, read.number)
            elif isinstance(read.line, End):
                self.has_end = True
            elif (trial := self._trial(read.line)) is not None:
                if isinstance(read.line, Begin):
                    self.begun[trial.trial_id] = read.line
                    self.has_begin = True
                    begun.append(trial)
                elif isinstance(read.line, TrialRecord):
                    self._record(trial, read.line, read)
        return begun

    def runs_on(self, fingerprint: Fingerprint) -> None:
        """Takes what the host is made of."""
        try:
            self.builder.runs_on(fingerprint)
        except StoreError as error:
            self.fail(f"of its records none gives a row: {error}")

    def answered(self) -> list[tuple[Trial, TrialRecord]]:
        """The records whose rows the store has, of those that it has answered for since the last time."""
        stored = []
        while not self._answers.empty():
            number, trial, record, answer = self._answers.get()
            self._unanswered -= 1
            if answer.outcome is Outcome.REFUSED:
                self.fail(f"line {number} of its records gives no row: {answer.reason}")
            elif answer.outcome is Outcome.LEFT:
                self._is_left = True
            else:
                self._differs = answer.reason or self._differs
                self._open.discard(trial.trial_id)
                self.begun.pop(trial.trial_id, None)
                stored.append((trial, record))
        return stored

    def fail(self, problem: str) -> None:
        """Notes what is wrong with its records."""
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(problem)

    def acknowledgement(self, *, is_well: bool) -> Acknowledgement | None:
        """For its host; null if the store took nothing more, so that its records have to be read again.

        Args:
            is_well: whether nobody needs the logs of the task.
        """
        if self._is_left:
            return None
        disposal = Disposal.REMOVE if is_well else Disposal.KEEP_LOGS
        return Acknowledgement(self.directory, self.size, disposal if self.doubt is None else Disposal.SET_ASIDE)

    def _trial(self, line: Line) -> Trial | None:
        if not isinstance(line, Begin | TrialRecord):
            return None
        again = repetition(line, self._task) if isinstance(line, Begin) else None
        if again is not None:
            self._trials.setdefault(again.trial_id, again)
        trial = self._trials.get(line.trial_id)
        if trial is None:
            self.fail(f"the runner recorded {line.trial_id}, which is no trial of its task")
        return trial

    def _saw(self, environment: Environment, number: int) -> None:
        if self._has_environment:
            self.fail(f"line {number} of its records is a second environment")
            return
        try:
            self.builder.saw(environment)
        except StoreError as error:
            self.fail(f"line {number} of its records gives no row: {error}")
        else:
            self._has_environment = True

    def _record(self, trial: Trial, record: TrialRecord, read: RecordLine) -> None:
        if not self._has_environment:
            # A row that says less than it could have said could never be compared or reproduced.
            self.fail(f"line {read.number} of its records gives no row: no environment stands before it")
            return
        trial = self._adapted(trial, record)
        last = self._attempts.get(trial.trial_id)
        failed = Status.INFRASTRUCTURE_ERROR
        if last is not None and last.status is failed is not record.status and record.attempt <= last.number:
            trial, record = replace(trial, attempt=last.number + 1), replace(record, attempt=last.number + 1)
        try:
            rows = self.builder.rows([(trial, record)], read.size)
        except (StoreError, KeyError) as error:
            self.fail(f"line {read.number} of its records gives no row: {error}")
            return
        self._unanswered += 1
        self._ingest.submit(rows, lambda answer: self._answers.put((read.number, trial, record, answer)))

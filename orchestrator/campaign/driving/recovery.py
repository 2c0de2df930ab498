"""What tasks left on their hosts: hosts that come back are made fit, and records that wait there are stored."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from orchestrator.errors import InfrastructureError, StoreError
from orchestrator.execution import RecordReader
from orchestrator.scheduling import (
    Acknowledgement,
    Asking,
    Disposal,
    HostStream,
    LeftoverPart,
    LeftoverPiece,
    Leftovers,
    Returned,
    Scheduler,
    acknowledge,
    is_there,
    read_leftovers,
    recover,
)
from orchestrator.store import Answer, Ingest, Outcome, RowBuilder, read_origin
from runners.contract import End, Environment, Line, Task, Trial, TrialRecord

PING_S: Final = 5.0
"""A host that is there answers in well under a second; in more a frozen one is asked anew, if it comes back."""

PAUSE_S: Final = 3.0
"""Between two attempts."""

RECOVERY_S: Final = 60.0
"""Within that a host says the next thing of what is left there, or that there is no more."""

LEFTOVERS_S: Final = 120.0
"""A host that is up tells what waits there in seconds; one that is not must not hold up the others."""

MAX_WAITING_BYTES: Final = 64 * 2**20
"""Of records whose rows are not stored yet; nothing more is taken from anybody while there are more."""

_MAX_DOCUMENT_BYTES = 64 * 2**20
_TASK = TypeAdapter(Task)


class _Directory:
    """One task directory of which pieces come."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.documents = {LeftoverPart.ORIGIN: bytearray(), LeftoverPart.TASK: bytearray()}
        self.reader = RecordReader()
        self.builder: RowBuilder | None = None
        self.trials: dict[str, Trial] = {}
        self.unanswered = 0
        self.has_end = False
        self.is_complete = False
        self.problem: str | None = None
        self.is_left = False

    def open(self) -> None:
        """Reads what the rows need.

        Raises:
            StoreError: it is damaged.
        """
        stored = read_origin(bytes(self.documents[LeftoverPart.ORIGIN]))
        try:
            task = _TASK.validate_json(bytes(self.documents[LeftoverPart.TASK]), strict=True)
        except ValidationError as error:
            raise StoreError(f"its task is damaged: {error.errors(include_url=False)[0]['msg']}") from None
        self.builder = RowBuilder(stored.origin)
        self.builder.runs_on(stored.fingerprint)
        self.trials = {trial.trial_id: trial for trial in task.trials}

    def acknowledgement(self) -> Acknowledgement:
        disposal = Disposal.REMOVE if self.has_end else Disposal.KEEP_LOGS
        disposal = disposal if self.problem is None else Disposal.SET_ASIDE
        return Acknowledgement(self.directory, self.reader.size, disposal)


class LeftoverIntake:
    """Makes rows of what waits on one host, and says what the host may forget."""

    def __init__(self, ingest: Ingest, tell: Callable[[str], None]) -> None:
        """Takes nothing yet.

        Args:
            ingest: stores the rows.
            tell: takes a line for a person.
        """
        self._ingest = ingest
        self._tell = tell
        self._directories: dict[Path, _Directory] = {}
        self._current: _Directory | None = None
        self.stored = 0
        """Rows that were not in the store before. Of settled directories only."""

    @property
    def is_settled(self) -> bool:
        """Whether every record was answered by the store."""
        return not any(directory.unanswered for directory in self._directories.values())

    def take(self, piece: LeftoverPiece) -> None:
        """Takes the next piece."""
        if piece.part is LeftoverPart.NOTICE:
            self._tell(piece.data.decode("utf-8", "replace"))
            return
        directory = self._directories.setdefault(piece.directory, _Directory(piece.directory))
        if piece.part is LeftoverPart.END:
            directory.is_complete = True
        elif piece.part is LeftoverPart.RECORDS:
            for read in directory.reader.feed(piece.data):
                if read.line is None:
                    self._wrong(directory, f"line {read.number} cannot be read: {read.problem}")
                else:
                    self._line(directory, read.line, read.size)
        elif len(directory.documents[piece.part]) <= _MAX_DOCUMENT_BYTES:
            directory.documents[piece.part] += piece.data

    def acknowledgements(self) -> list[Acknowledgement]:
        """What the host may forget now that all is settled. A directory of which something is not stored stays."""
        found = []
        for directory in self._directories.values():
            if directory.is_complete and not directory.is_left:
                if directory.problem is not None:
                    self._tell(f"{directory.directory}: {directory.problem}; its records are kept there")
                found.append(directory.acknowledgement())
        return found

    def _line(self, directory: _Directory, line: Line, size: int) -> None:
        if directory.builder is None and directory.problem is None:
            try:
                directory.open()
            except StoreError as error:
                self._wrong(directory, str(error))
        if directory.builder is None:
            return
        if isinstance(line, Environment):
            directory.builder.saw(line)
        elif isinstance(line, End):
            directory.has_end = True
        elif isinstance(line, TrialRecord):
            trial = directory.trials.get(line.trial_id)
            if trial is None:
                self._wrong(directory, f"{line.trial_id} is no trial of its task")
                return
            try:
                rows = directory.builder.rows([(replace(trial, attempt=line.attempt), line)], size)
            except (StoreError, KeyError) as error:
                self._wrong(directory, f"the record of {line.trial_id} gives no row: {error}")
                return
            directory.unanswered += 1
            self._ingest.submit(rows, lambda answer: self._answer(directory, answer))

    def _answer(self, directory: _Directory, answer: Answer) -> None:
        """Called by the thread of the store, one at a time; nobody else changes these but before it is called."""
        self.stored += answer.outcome is Outcome.STORED
        if answer.outcome is Outcome.REFUSED:
            self._wrong(directory, f"a record gives no row: {answer.reason}")
        elif answer.outcome is Outcome.LEFT:
            directory.is_left = True
        elif answer.reason:
            self._wrong(directory, answer.reason)
        directory.unanswered -= 1

    def _wrong(self, directory: _Directory, problem: str) -> None:
        directory.problem = directory.problem or problem


class Recovery:
    """The way back of one host: it answers, is made fit, what it has is stored, it takes tasks again. Never waits."""

    def __init__(
        self, scheduler: Scheduler, host: str, returned: Callable[[], Returned], intake: Callable[[], LeftoverIntake]
    ) -> None:
        """Asks nobody yet.

        Args:
            scheduler: reaches the host.
            host: its name.
            returned: what is to be done there, once it answers.
            intake: takes what it has.
        """
        self._scheduler = scheduler
        self._host = host
        self._returned = returned
        self._new_intake = intake
        self._ping: Asking[str] | None = None
        self._stream: HostStream[LeftoverPiece] | None = None
        self._intake: LeftoverIntake | None = None
        self._until_s = 0.0
        self._not_before_s = 0.0
        self.problem: str | None = None
        """Why it could not be taken up, though it answered."""

    @property
    def is_under_way(self) -> bool:
        """Whether it has answered, and is being made fit."""
        return self._stream is not None

    def look(self, now_s: float, *, may_take: bool = True) -> list[Acknowledgement] | None:
        """Goes on as far as that is possible without waiting.

        Args:
            now_s: by the driver's monotonic clock.
            may_take: whether there is room for more records.

        Returns:
            What the host may forget, once it is fit; null until then.
        """
        if self._stream is None:
            self._look_for_answer(now_s)
        if self._stream is None or self._intake is None:
            return None
        if may_take:
            for piece in self._stream.take():
                self._intake.take(piece)
                self._until_s = now_s + RECOVERY_S
        if self._stream.problem is not None:
            self.problem = str(self._stream.problem)
            self._again(now_s)
        elif self._stream.is_over:
            if self._intake.is_settled:
                self._stream = None
                return self._intake.acknowledgements()
        elif may_take and now_s > self._until_s:
            self.problem = f"it answers, but did not remove what was left there within {RECOVERY_S:.0f} s"
            self._again(now_s)
        return None

    def drop(self) -> None:
        """Takes back what was asked."""
        if self._ping is not None:
            self._ping.drop()
        if self._stream is not None and not self._stream.is_over:
            self._stream.drop()
        self._ping = self._stream = None

    def _look_for_answer(self, now_s: float) -> None:
        if self._ping is None:
            if now_s < self._not_before_s:
                return
            self._ping = self._scheduler.begin(is_there, self._host, self._host)
            self._until_s = now_s + PING_S
        answer = self._ping.reply()
        if isinstance(answer, InfrastructureError):
            self._ping = None
            self._not_before_s = now_s + PAUSE_S
        elif answer is not None:
            self._ping = None
            self._stream = self._scheduler.stream(recover, self._host, self._returned())
            self._intake = self._new_intake()
            self._until_s = now_s + RECOVERY_S
        elif now_s > self._until_s:
            self._again(now_s)

    def _again(self, now_s: float) -> None:
        self.drop()
        self._not_before_s = now_s + PAUSE_S


def store_leftovers_here(leftovers: Iterable[Leftovers], ingest: Ingest, tell: Callable[[str], None]) -> int:
    """Stores what waits on this machine, waiting for room on the disk; returns the number of rows that were new.

    Raises:
        StoreError: the store takes nothing more.
    """
    intake = LeftoverIntake(ingest, tell)
    for asked in leftovers:
        for piece in read_leftovers(asked):
            _wait_for_room(ingest)
            intake.take(piece)
    _settle([intake], ingest, None)
    for problem in acknowledge(intake.acknowledgements()):
        tell(problem)
    return intake.stored


def store_leftovers(
    scheduler: Scheduler, leftovers: Mapping[str, Leftovers], ingest: Ingest, tell: Callable[[str], None]
) -> None:
    """Stores what waits on hosts, all at once; `tell` is told what could not be.

    Raises:
        StoreError: the store takes nothing more.
    """
    streams = {host: scheduler.stream(read_leftovers, host, asked) for host, asked in leftovers.items()}
    intakes = {host: LeftoverIntake(ingest, _prefixed(host, tell)) for host in leftovers}
    until_s = time.monotonic() + LEFTOVERS_S
    while open_streams := [host for host, stream in streams.items() if not stream.is_over]:
        taken = 0
        for host in open_streams:
            pieces = streams[host].take()
            for piece in pieces:
                intakes[host].take(piece)
            taken += len(pieces)
        _wait_for_room(ingest)
        if time.monotonic() > until_s:
            for host in open_streams:
                streams[host].drop()
                tell(f"{host}: it gave no answer within {LEFTOVERS_S:.0f} s")
            break
        if not taken:
            time.sleep(0.02)
    for host, stream in streams.items():
        if stream.problem is not None:
            tell(f"{host}: {stream.problem}")
    _settle(list(intakes.values()), ingest, None)
    acknowledged = {host: intake.acknowledgements() for host, intake in intakes.items()}
    answers = scheduler.ask(acknowledge, {host: found for host, found in acknowledged.items() if found}, RECOVERY_S)
    for host, answer in answers.items():
        for problem in [str(answer)] if isinstance(answer, InfrastructureError) else answer:
            tell(f"{host}: {problem}")


def _prefixed(host: str, tell: Callable[[str], None]) -> Callable[[str], None]:
    return lambda text: tell(f"{host}: {text}")


def _wait_for_room(ingest: Ingest) -> None:
    while ingest.waiting_bytes > MAX_WAITING_BYTES:
        ingest.answered.wait(1.0)
        ingest.answered.clear()


def _settle(intakes: list[LeftoverIntake], ingest: Ingest, timeout_s: float | None) -> None:
    """Waits until the store has answered for everything."""
    until_s = float("inf") if timeout_s is None else time.monotonic() + timeout_s
    ingest.hurry()
    while not all(intake.is_settled for intake in intakes) and time.monotonic() < until_s:
        ingest.answered.wait(0.05)
        ingest.answered.clear()
    if ingest.failure is not None:
        raise ingest.failure

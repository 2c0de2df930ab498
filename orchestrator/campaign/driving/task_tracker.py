"""What is known of the tasks that run, and what becomes of their trials when one ends."""

import queue
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.campaign.progress import Notice, Observer, TrialBegun, TrialRecorded
from orchestrator.campaign.provision import ReadyHost
from orchestrator.campaign.seats import exclusive_for, seat_of, seated
from orchestrator.errors import StoreError
from orchestrator.execution import FakeSettings, RecordReader, TaskOutcome, aftermath
from orchestrator.planning import PlannedTask, Skip, with_trials
from orchestrator.scheduling import Acknowledgement, Disposal, HostNotice, HostObserved, RecordPiece
from orchestrator.store import Answer, Ingest, Outcome, Reproduces, RowBuilder, RowContext, RowKey, TaskOrigin
from runners.contract import Begin, Environment, Line, Status, Task, Trial, TrialRecord
from runners.system import Fingerprint, cores_text

MAX_ATTEMPTS = 3
"""Of a trial, or of a task that dies before its first trial begins, when the infrastructure is at fault."""

AGAIN = "-again-"
"""Between a task's planned id and what tells its restarts apart."""

SKIPS_AT_ONCE = 1000

FINE = frozenset({Status.OK, Status.UNSUPPORTED, Status.SKIPPED})
"""What a trial may come to without anything being wrong."""


@dataclass(frozen=True)
class Origins:
    """Knows where each row of a campaign comes from."""

    campaign_id: str
    hosts: Mapping[str, ReadyHost]
    reproduces: Reproduces | None
    fingerprint: Fingerprint
    """Of this machine."""

    def of(self, host: str, environment: str, task: Task | None) -> TaskOrigin:
        """The origin of a task's rows, or of rows that no task made.

        Args:
            host: where they are made.
            environment: of its trials.
            task: tells the part of the host that its trials have; null for rows that no task made.
        """
        ready = self.hosts[host]
        pin = ready.planning.environments[environment]
        execution = ready.executions.get(environment) if task is None else seated(ready, task)
        slot = None if task is None else seat_of(ready.planning, task)
        limits = None if isinstance(execution, FakeSettings) else execution
        context = RowContext(
            campaign_id=self.campaign_id,
            task_id=None if task is None else task.task_id,
            host=host,
            isolation=pin.isolation.value,
            executor_reason=pin.reason,
            environment=environment,
            environment_id=None,
            image_digest=pin.image_digest,
            image_id=pin.image_id,
            lock_sha256=pin.lock_sha256,
            runner_sha256=None,
            versions={},
            hw_id=None,
            system_id=None,
            hot={},
            trial_cores=None if limits is None else cores_text(limits.cores),
            memory_limit_bytes=None if limits is None else limits.memory_bytes,
            gpu_uuid=None if slot is None else slot.gpu_uuid,
            exclusive=None if task is None else exclusive_for(ready.planning, task).value,
            slot=None if task is None else slot.index if slot is not None else 0,
        )
        if self.reproduces is None:
            return TaskOrigin(context, pin)
        keys = None if task is None else {trial.trial_key for trial in task.trials}
        counterparts = {
            key: counterpart
            for key, counterpart in self.reproduces.trials.get(host, {}).items()
            if keys is None or key in keys
        }
        return TaskOrigin(context, pin, self.reproduces.campaign_id, counterparts)

    def builder(self, origin: TaskOrigin) -> RowBuilder:
        """Makes rows; of trials that never ran on the machine that was known before."""
        builder = RowBuilder(origin)
        ready = self.hosts[str(origin.context.host)]
        fingerprint = self.fingerprint if ready.work_directory is None else ready.fingerprint
        if fingerprint is not None:
            builder.runs_on(fingerprint)
        return builder


@dataclass
class _TaskState:
    """What is known of a task while it runs."""

    host: str
    task: Task
    directory: Path
    builder: RowBuilder
    reader: RecordReader = field(default_factory=RecordReader)
    pieces: int = 0
    begun: dict[str, Begin] = field(default_factory=dict)
    unanswered: int = 0
    """Records whose rows may not be on the disk yet."""
    problem: str | None = None
    """What is wrong with its records."""
    is_acknowledged: bool = True
    """Whether all that was read may be forgotten by the host."""

    def trial(self, trial_id: str) -> Trial | None:
        return next((trial for trial in self.task.trials if trial.trial_id == trial_id), None)


@dataclass(frozen=True)
class _Answered:
    task_id: str
    trial: Trial
    record: TrialRecord
    answer: Answer


@dataclass(frozen=True)
class TaskEnd:
    """What is to be done when a task has ended."""

    left: tuple[Trial, ...]
    """The trials that are to run again; one that was running is counted on to its next attempt."""
    problem: str | None
    """What was at fault with the infrastructure; null if nothing was."""
    acknowledgement: Acknowledgement | None
    """For its host; null if what it recorded has to be read again."""


class TaskTracker:
    """Sees that each trial gets its row, and decides which are tried again."""

    def __init__(self, campaign_id: str, ingest: Ingest, origins: Origins, observe: Observer) -> None:
        self._campaign_id = campaign_id
        self._ingest = ingest
        self._origins = origins
        self._observe = observe
        self._states: dict[str, _TaskState] = {}
        self._answers: queue.SimpleQueue[_Answered] = queue.SimpleQueue()
        self._failed_starts: dict[str, int] = {}
        self.lost_a_task = False
        """Whether a task ended before its trials were done."""
        self.failed: dict[str, int] = {}
        """By host, the trials with a final row that says that something went wrong."""

    def begin(self, planned: PlannedTask, directory: Path) -> TaskOrigin:
        """Opens the account of a task that will write into a directory; its rows have the origin that this returns."""
        task = planned.task
        origin = self._origins.of(planned.host, task.environment, task)
        self._states[task.task_id] = _TaskState(planned.host, task, directory, self._origins.builder(origin))
        return origin

    def take(self, event: HostObserved | RecordPiece | HostNotice) -> None:
        """Takes what a host says of a task."""
        state = self._states[event.task_id]
        if isinstance(event, HostObserved):
            state.builder.runs_on(event.fingerprint)
        elif isinstance(event, HostNotice):
            self.notice(f"{event.host}: {event.text}")
        else:
            self._piece(state, event)
        self.confirm()

    def confirm(self) -> None:
        """Tells of the records whose rows are on the disk by now, and of no others."""
        while not self._answers.empty():
            answered = self._answers.get()
            state = self._states.get(answered.task_id)
            if state is None:
                continue
            state.unanswered -= 1
            outcome, reason = answered.answer.outcome, answered.answer.reason
            if outcome in (Outcome.REFUSED, Outcome.LEFT) or reason:
                state.is_acknowledged = False
            if outcome is Outcome.REFUSED:
                state.problem = f"the record of {answered.trial.trial_id} gives no row: {reason}"
            elif outcome is not Outcome.LEFT:
                self._tell(state.host, answered.trial, answered.record, final=True)

    def is_settled(self, task_id: str) -> bool:
        """Whether all that a task has recorded, and this has taken, was answered by the store."""
        self.confirm()
        return self._states[task_id].unanswered == 0

    def end(self, task_id: str, outcome: TaskOutcome | None, problem: str | None, size: int | None) -> TaskEnd:
        """Closes the account of a settled task, with a row for the trial that died with it.

        Args:
            task_id: of the task.
            outcome: how it ended; null if nobody knows.
            problem: what was at fault with the infrastructure; null if nothing was.
            size: of its records; null if nobody knows.
        """
        state = self._states.pop(task_id)
        problem = problem or state.problem
        left = self._left(state, outcome, problem)
        if size != state.reader.size:
            return TaskEnd(left, problem, None)
        disposal = Disposal.REMOVE if outcome is not None and outcome.exit_code == 0 else Disposal.KEEP_LOGS
        if state.problem is not None or not state.is_acknowledged:
            disposal = Disposal.SET_ASIDE
        return TaskEnd(left, problem, Acknowledgement(state.directory, size, disposal))

    def _left(self, state: _TaskState, outcome: TaskOutcome | None, problem: str | None) -> tuple[Trial, ...]:
        recorded = frozenset(trial.trial_id for trial in state.task.trials if self.is_stored(trial))
        outcome = outcome or TaskOutcome(None, None, None, "")
        what_is_left = aftermath(state.task, state.begun, recorded, outcome)
        left = list(what_is_left.left)
        if what_is_left.victim is not None:
            left += self._victim(state, what_is_left.victim, problem)
        self.lost_a_task |= bool(left) or what_is_left.victim is not None
        if not left:
            return ()
        why = problem or f"the task ended with exit code {outcome.exit_code} before its trials were done"
        if problem is None:
            self.notice(f"{state.host}: {why}{_last_line(outcome.log_tail)}")
        origin = _origin(state.task)
        # What was measured and did not arrive is no progress: it would be measured for ever.
        progressed = bool(recorded) or (problem is None and bool(state.begun))
        self._failed_starts[origin] = 0 if progressed else self._failed_starts.get(origin, 0) + 1
        if self._failed_starts[origin] < MAX_ATTEMPTS:
            return tuple(left)
        self._give_up(state.host, state.builder, left, why, outcome.log_tail)
        return ()

    def give_up(self, planned: PlannedTask, why: str) -> None:
        """Gives the trials of a task that waits a final row: the infrastructure failed them. A resume tries again."""
        origin = self._origins.of(planned.host, planned.task.environment, None)
        self._give_up(planned.host, self._origins.builder(origin), self.open_trials(planned.task), why, "")
        self.lost_a_task = True

    def record_skips(self, skips: Sequence[Skip]) -> None:
        """Gives rows to trials that cannot run."""
        for host, environment in sorted({(skip.host, skip.environment) for skip in skips}):
            builder = self._origins.builder(self._origins.of(host, environment, None))
            here = [skip for skip in skips if (skip.host, skip.environment) == (host, environment)]
            for first in range(0, len(here), SKIPS_AT_ONCE):
                some = here[first : first + SKIPS_AT_ONCE]
                records = [(skip.trial, _unrun(skip.trial, Status.SKIPPED, skip.reason)) for skip in some]
                self._ingest.commit(builder.rows(records))

    def open_trials(self, task: Task) -> tuple[Trial, ...]:
        """The trials of a task whose rows have not arrived, on whatever way."""
        return tuple(trial for trial in task.trials if not self.is_stored(trial))

    def is_stored(self, trial: Trial) -> bool:
        """Whether the row of this attempt is on the disk."""
        return self._ingest.is_stored(RowKey(self._campaign_id, trial.trial_id, trial.attempt))

    def current(self, task_id: str) -> Trial | None:
        """The trial that a task runs now, as far as is known."""
        state = self._states[task_id]
        begun = [trial for trial in state.task.trials if trial.trial_id in state.begun]
        return next((trial for trial in begun if not self.is_stored(trial)), None)

    def notice(self, text: str) -> None:
        """Tells something that a person should know."""
        self._observe(Notice(text))

    def _piece(self, state: _TaskState, piece: RecordPiece) -> None:
        if (piece.sequence, piece.offset) != (state.pieces, state.reader.size):
            raise AssertionError(
                f"piece {piece.sequence} at {piece.offset}, expected {state.pieces} at {state.reader.size}"
            )
        state.pieces += 1
        for read in state.reader.feed(piece.data):
            if read.line is not None:
                self._line(state, read.line, read.size)
            else:
                state.problem = f"line {read.number} of its records cannot be read: {read.problem}"

    def _line(self, state: _TaskState, line: Line, size: int) -> None:
        if isinstance(line, Environment):
            state.builder.saw(line)
        if not isinstance(line, Begin | TrialRecord):
            return
        trial = state.trial(line.trial_id)
        if trial is None:
            state.problem = f"the runner recorded {line.trial_id}, which is no trial of its task"
        elif isinstance(line, Begin):
            state.begun[line.trial_id] = line
            self._observe(TrialBegun(state.host, trial))
        else:
            self._record(state, trial, line, size)

    def _record(self, state: _TaskState, trial: Trial, record: TrialRecord, size: int) -> None:
        try:
            rows = state.builder.rows([(trial, record)], size)
        except StoreError as error:
            state.problem = f"the record of {trial.trial_id} gives no row: {error}"
            return
        state.unanswered += 1
        task_id = state.task.task_id
        self._ingest.submit(rows, lambda answer: self._answers.put(_Answered(task_id, trial, record, answer)))

    def _tell(self, host: str, trial: Trial, record: TrialRecord, *, final: bool) -> None:
        if final and record.status not in FINE:
            self.failed[host] = self.failed.get(host, 0) + 1
        self._observe(TrialRecorded(host, trial, record, final))

    def _write(self, host: str, builder: RowBuilder, trial: Trial, record: TrialRecord, *, final: bool) -> bool:
        """Stores a row of the driver's own and tells of it; false if the task's own row came just before, and stays."""
        answer = self._ingest.commit(builder.rows([(trial, record)]))
        if answer.outcome is Outcome.DUPLICATE:
            return False
        self._tell(host, trial, record, final=final)
        return True

    def _victim(self, state: _TaskState, victim: TrialRecord, problem: str | None) -> list[Trial]:
        """Records the trial that was running; returns it once more if the infrastructure was at fault."""
        trial = state.trial(victim.trial_id)
        assert trial is not None
        if problem is None:
            self._write(state.host, state.builder, trial, victim, final=True)
            return []
        again = trial.attempt < MAX_ATTEMPTS
        failed = replace(victim, status=Status.INFRASTRUCTURE_ERROR, reason=problem)
        was_lost = self._write(state.host, state.builder, trial, failed, final=not again)
        return [replace(trial, attempt=trial.attempt + 1)] if again and was_lost else []

    def _give_up(self, host: str, builder: RowBuilder, left: Sequence[Trial], problem: str, log_tail: str) -> None:
        for trial in left:
            record = _unrun(trial, Status.INFRASTRUCTURE_ERROR, problem, log_tail)
            self._write(host, builder, trial, record, final=True)


def restarted(task: Task, trials: tuple[Trial, ...] | None = None, origin: str | None = None) -> Task:
    """The same work for another container: a task id names one container, the outer level of replication.

    Args:
        task: that was to run, or did.
        trials: those to run now; by default all.
        origin: what its id begins with; by default what it was planned as.
    """
    whole = task if trials is None else with_trials(task, trials)
    return replace(whole, task_id=f"{origin or _origin(task)}{AGAIN}{uuid.uuid4().hex[:6]}")


def _origin(task: Task) -> str:
    """The id that a task had when it was planned, whatever number of restarts ago."""
    return task.task_id.partition(AGAIN)[0]


def _unrun(trial: Trial, status: Status, reason: str, log_tail: str = "") -> TrialRecord:
    now_ns = time.time_ns()
    return TrialRecord(
        trial_id=trial.trial_id,
        attempt=trial.attempt,
        status=status,
        reason=reason,
        started_at_ns=now_ns,
        finished_at_ns=now_ns,
        log_tail=log_tail,
    )


def _last_line(log: str) -> str:
    lines = log.strip().splitlines()
    return f" ({lines[-1].strip()})" if lines else ""

"""From the records of a task to its rows, and what becomes of its trials when it ends."""

import itertools
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from orchestrator.campaign.driver.record_intake import RecordIntake
from orchestrator.campaign.driver.requests import Requests
from orchestrator.campaign.progress import Notice, Observer, TrialBegun, TrialRecorded
from orchestrator.execution import TaskOutcome, aftermath
from orchestrator.planning import PlannedTask, Skip
from orchestrator.scheduling import (
    Acknowledgement,
    HostNotice,
    HostObserved,
    RecordPiece,
    TaskEnded,
    WorkerProcess,
)
from orchestrator.store.ingest import Ingest, Outcome, RowKey
from orchestrator.store.origin import TaskOrigin
from orchestrator.store.rows import RowBuilder
from runners.contract import (
    EXIT_CANNOT_RECORD,
    Status,
    Task,
    Trial,
    TrialRecord,
)

MAX_ATTEMPTS = 3
"""Of a trial, or of a task that dies before its first trial begins, when the infrastructure is at fault."""

AGAIN = "-again-"
"""Between a task's planned id and what tells its restarts apart."""

SKIPS_AT_ONCE = 1000

FINE = frozenset({Status.OK, Status.UNSUPPORTED, Status.SKIPPED})
"""What a trial may come to without anything being wrong."""


@dataclass
class RunningTask:
    """A task that was submitted and has not ended."""

    planned: PlannedTask
    origin: TaskOrigin
    """Of its rows."""
    intake: RecordIntake
    heard_s: float
    """When something of it was heard last, or it was submitted, by the driver's `ListeningClock`."""
    pieces: int = 0
    """That have come."""
    has_begun: bool = False
    worker: WorkerProcess | None = None
    ended: TaskEnded | None = None
    """How it ended; some of its rows may not be on the disk yet."""
    stuck: WorkerProcess | None = None
    """What ran it, if nothing was heard of it any more and it may be stuck."""


@dataclass
class TaskTracker:
    """Sees that each trial gets its row, and decides which are tried again."""

    requests: Requests
    ingest: Ingest
    observe: Observer
    lost_a_task: bool = field(default=False, init=False)
    """Whether a task ended before its trials were done."""
    failed: Counter[str] = field(default_factory=Counter, init=False)
    """By host, the trials with a final row that says that something went wrong."""
    _failed_starts: Counter[str] = field(default_factory=Counter, init=False)
    """By planned id of a task."""

    def begin(self, planned: PlannedTask, now_s: float) -> RunningTask:
        """A task that starts now, in a directory of its own."""
        task = planned.task
        origin = self.requests.origin(planned.host, task.environment, task)
        directory = self.requests.directory(planned)
        intake = RecordIntake(directory, task, self.requests.builder(origin), self.ingest)
        return RunningTask(planned, origin, intake, now_s)

    def take(self, running: RunningTask, event: HostObserved | RecordPiece | HostNotice) -> None:
        """Takes what a host says of a task."""
        if isinstance(event, HostObserved):
            running.has_begun, running.worker = True, event.worker
            running.intake.runs_on(event.fingerprint)
        elif isinstance(event, HostNotice):
            self.notice(f"{event.host}: {event.text}")
        else:
            expected = running.pieces, running.intake.size
            if (event.sequence, event.offset) != expected:
                running.intake.fail(f"piece {event.sequence} at {event.offset} of its records came, not {expected}")
                return
            running.pieces += 1
            for trial in running.intake.take(event.data):
                self.observe(TrialBegun(event.host, trial))

    def confirm(self, running: RunningTask) -> None:
        """Tells of the records of a task whose rows are on the disk by now, and of no others."""
        for trial, record in running.intake.answered():
            self._tell(running.planned.host, trial, record, final=True)

    def end(
        self, running: RunningTask, ended: TaskEnded
    ) -> tuple[tuple[Trial, ...], str | None, Acknowledgement | None]:
        """Ends a settled task, with a row for each trial that died with it.

        Returns:
            The trials that are to run again, those that were running counted on to their next attempt; what was at
            fault with the infrastructure; and what its host may forget, null if what it recorded has to be read again.
            What its container did wrong is told, and is nobody's fault but its own.
        """
        intake, problem = running.intake, ended.problem
        if ended.violation is not None:
            intake.fail(ended.violation)
        if problem is None and ended.outcome is not None and ended.outcome.exit_code == EXIT_CANNOT_RECORD:
            problem = f"its runner could not write its records{_last_line(ended.outcome.log_tail)}"
        violation = None if intake.problem is None else f"{intake.directory}: {intake.problem}"
        if violation is not None:
            self.notice(f"{running.planned.host}: {violation}")
        left = self._left(running, ended.outcome, problem or violation)
        is_whole = ended.size == intake.size
        is_well = ended.outcome is not None and ended.outcome.exit_code == 0
        return left, problem, intake.acknowledgement(is_well=is_well) if is_whole else None

    def starts_again(self, running: RunningTask, problem: str | None) -> bool:
        """Whether a task whose trials all have rows goes on with its budget, because it ended before it was spent."""
        task = running.planned.task
        if task.allocation is None or running.intake.has_end:
            return False
        self.lost_a_task = True
        origin = _origin(task)
        self._failed_starts[origin] = 0 if running.intake.has_begin else self._failed_starts[origin] + 1
        again = self._failed_starts[origin] < MAX_ATTEMPTS
        goes_on = "it goes on" if again else "the same command goes on"
        outcome = None if running.ended is None else running.ended.outcome
        tail = "" if outcome is None else _last_line(outcome.log_tail)
        self.notice(f"{running.planned.host}: {problem or 'a task'} ended before its budget was spent; {goes_on}{tail}")
        return again

    def _left(self, running: RunningTask, outcome: TaskOutcome | None, problem: str | None) -> tuple[Trial, ...]:
        host, task = running.planned.host, replace(running.planned.task, trials=running.intake.trials)
        recorded = frozenset(trial.trial_id for trial in task.trials if self.is_stored(trial))
        outcome = outcome or TaskOutcome(None, None, None, "")
        victims, rest = aftermath(task, running.intake.begun, recorded, outcome)
        # One of several ended the task, and the others did nothing: at the last attempt each is alone.
        blamed = [problem or (victim.reason if len(victims) > 1 else None) for victim in victims]
        alone = problem is None and len(victims) > 1
        lost = [self._victim(running, victim, fault, alone) for victim, fault in zip(victims, blamed, strict=True)]
        left = [*rest, *itertools.chain.from_iterable(lost)]
        self.lost_a_task |= bool(left or victims)
        if not left:
            return ()
        why = problem or f"the task ended with exit code {outcome.exit_code} before its trials were done"
        if problem is None:
            self.notice(f"{host}: {why}{_last_line(outcome.log_tail)}")
        origin = _origin(task)
        # What was measured and did not arrive is no progress: it would be measured for ever.
        progressed = bool(recorded) or (problem is None and running.intake.has_begin)
        self._failed_starts[origin] = 0 if progressed else self._failed_starts[origin] + 1
        if self._failed_starts[origin] < MAX_ATTEMPTS:
            return tuple(left)
        self._give_up(host, running.intake.builder, left, why, outcome.log_tail)
        return ()

    def give_up(self, planned: PlannedTask, why: str) -> None:
        """Gives the trials of a task that waits a final row: the infrastructure failed them. A resume tries again."""
        builder = self.requests.builder(self.requests.origin(planned.host, planned.task.environment))
        self._give_up(planned.host, builder, self.open_trials(planned.task), why)
        self.lost_a_task = True

    def record_skips(self, skips: Sequence[Skip]) -> None:
        """Gives rows to trials that cannot run."""
        for host, environment in sorted({(skip.host, skip.environment) for skip in skips}):
            builder = self.requests.builder(self.requests.origin(host, environment))
            here = [skip for skip in skips if (skip.host, skip.environment) == (host, environment)]
            for first in range(0, len(here), SKIPS_AT_ONCE):
                some = here[first : first + SKIPS_AT_ONCE]
                records = [(skip.trial, _unrun(skip.trial, Status.SKIPPED, skip.reason)) for skip in some]
                self.ingest.commit(builder.rows(records))

    def open_trials(self, task: Task) -> tuple[Trial, ...]:
        """The trials of a task whose rows have not arrived, on whatever way."""
        return tuple(trial for trial in task.trials if not self.is_stored(trial))

    def is_stored(self, trial: Trial) -> bool:
        """Whether the row of this attempt is on the disk."""
        return self.ingest.is_stored(RowKey(self.requests.campaign_id, trial.trial_id, trial.attempt))

    def notice(self, text: str) -> None:
        """Tells something that a person should know."""
        self.observe(Notice(text))

    def _tell(self, host: str, trial: Trial, record: TrialRecord, *, final: bool) -> None:
        self.failed[host] += final and record.status not in FINE
        self.observe(TrialRecorded(host, trial, record, final))

    def _write(self, host: str, builder: RowBuilder, trial: Trial, record: TrialRecord, *, final: bool) -> bool:
        """Stores a row of the driver's own and tells of it; false if the task's own row came just before, and stays."""
        answer = self.ingest.commit(builder.rows([(trial, record)]))
        if answer.outcome is Outcome.DUPLICATE:
            return False
        self._tell(host, trial, record, final=final)
        return True

    def _victim(self, running: RunningTask, victim: TrialRecord, problem: str | None, is_suspect: bool) -> list[Trial]:
        """Records a trial that was running; returns it once more if it may not have been at fault.

        Of several suspects that had begun together each is alone at its last attempt.
        """
        host, builder = running.planned.host, running.intake.builder
        trial = running.intake.trial(victim.trial_id)
        if problem is None:
            self._write(host, builder, trial, victim, final=True)
            return []
        again = trial.attempt < MAX_ATTEMPTS
        failed = replace(victim, status=Status.INFRASTRUCTURE_ERROR, reason=problem)
        was_lost = self._write(host, builder, trial, failed, final=not again)
        number = trial.attempt + 1
        alone = trial.alone or (is_suspect and number >= MAX_ATTEMPTS)
        return [replace(trial, attempt=number, alone=alone)] if again and was_lost else []

    def _give_up(self, host: str, builder: RowBuilder, left: Sequence[Trial], problem: str, log_tail: str = "") -> None:
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
    chosen = task.trials if trials is None else trials
    return replace(task, trials=chosen, task_id=f"{origin or _origin(task)}{AGAIN}{uuid.uuid4().hex[:6]}")


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

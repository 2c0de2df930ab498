"""What is known of the tasks that run, and what becomes of their trials when one ends."""

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from orchestrator.campaign.driving.origins import Origins
from orchestrator.campaign.progress import Notice, Observer, TrialBegun, TrialRecorded
from orchestrator.delivery import Committer, Origin, Outcome, Recording, RowKey
from orchestrator.execution import TaskOutcome, aftermath
from orchestrator.planning import PlannedTask, Skip, with_trials
from orchestrator.scheduling import HostNotice, HostObserved, LineReceived
from runners.contract import Begin, Environment, Line, Status, Task, Trial, TrialRecord

MAX_ATTEMPTS = 3
"""Of a trial, or of a task that dies before its first trial begins, when the infrastructure is at fault."""

AGAIN = "-again-"
"""Between a task's planned id and what tells its restarts apart."""

SKIPS_AT_ONCE = 1000

FINE = frozenset({Status.OK, Status.UNSUPPORTED, Status.SKIPPED})
"""What a trial may come to without anything being wrong."""


@dataclass
class _TaskState:
    """What is known of a task while it runs."""

    host: str
    task: Task
    recording: Recording
    begun: dict[str, Begin] = field(default_factory=dict)
    unconfirmed: dict[str, TrialRecord] = field(default_factory=dict)
    """Records that the host has told of, and whose rows are not seen on the disk yet."""


class TaskAccounts:
    """Sees that each trial gets its row, and decides which are tried again."""

    def __init__(self, campaign_id: str, committer: Committer, origins: Origins, observe: Observer) -> None:
        self._campaign_id = campaign_id
        self._committer = committer
        self._origins = origins
        self._observe = observe
        self._states: dict[str, _TaskState] = {}
        self._failed_starts: dict[str, int] = {}
        self.lost_a_task = False
        """Whether a task ended before its trials were done."""
        self.failed: dict[str, int] = {}
        """By host, the trials with a final row that says that something went wrong."""

    def begin(self, planned: PlannedTask) -> Origin:
        """Opens the account of a task; its rows have the origin that this returns."""
        task = planned.task
        origin = self._origins.of(planned.host, task.environment, task.task_id, task)
        self._states[task.task_id] = _TaskState(planned.host, task, self._origins.recording(origin))
        return origin

    def take(self, event: HostObserved | LineReceived | HostNotice) -> None:
        """Takes what a host says of a task."""
        state = self._states[event.task_id]
        if isinstance(event, HostObserved):
            state.recording.runs_on(event.fingerprint)
        elif isinstance(event, HostNotice):
            self.notice(f"{event.host}: {event.text}")
        else:
            self._line(state, event.line)
        self._confirm(state)

    def end(self, task_id: str, outcome: TaskOutcome | None, problem: str | None) -> tuple[Trial, ...]:
        """Closes the account of a task, with a row for the trial that died with it.

        Args:
            task_id: of the task.
            outcome: how it ended; null if nobody knows.
            problem: what was at fault with the infrastructure; null if nothing was.

        Returns:
            The trials that are to run again; one that was running is counted on to its next attempt.
        """
        state = self._states.pop(task_id)
        self._confirm(state)
        recorded = frozenset(trial.trial_id for trial in state.task.trials if self.is_stored(trial))
        outcome = outcome or TaskOutcome(None, None, None, "")
        what_is_left = aftermath(state.task, state.begun, recorded, outcome)
        left = list(what_is_left.left)
        if what_is_left.victim is not None:
            left += self._victim(state, what_is_left.victim, problem)
            self._confirm(state)
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
        self._give_up(state.host, state.recording, left, why, outcome.log_tail)
        return ()

    def give_up(self, planned: PlannedTask, why: str) -> None:
        """Gives the trials of a task that waits a final row: the infrastructure failed them. A resume tries again."""
        origin = self._origins.of(planned.host, planned.task.environment, None)
        self._give_up(planned.host, self._origins.recording(origin), self.open_trials(planned.task), why, "")
        self.lost_a_task = True

    def record_skips(self, skips: Sequence[Skip]) -> None:
        """Gives rows to trials that cannot run."""
        for host, environment in sorted({(skip.host, skip.environment) for skip in skips}):
            recording = self._origins.recording(self._origins.of(host, environment, None))
            here = [skip for skip in skips if (skip.host, skip.environment) == (host, environment)]
            for first in range(0, len(here), SKIPS_AT_ONCE):
                some = here[first : first + SKIPS_AT_ONCE]
                records = [(one.trial, _unrun(one.trial, Status.SKIPPED, one.reason)) for one in some]
                self._committer.commit(recording.rows(records))
                recording.delivered()

    def open_trials(self, task: Task) -> tuple[Trial, ...]:
        """The trials of a task whose rows have not arrived, on whatever way."""
        return tuple(trial for trial in task.trials if not self.is_stored(trial))

    def is_stored(self, trial: Trial) -> bool:
        """Whether the row of this attempt is on the disk."""
        return self._committer.is_stored(RowKey(self._campaign_id, trial.trial_id, trial.attempt))

    def current(self, task_id: str) -> Trial | None:
        """The trial that a task runs now, as far as is known."""
        state = self._states[task_id]
        begun = [trial for trial in state.task.trials if trial.trial_id in state.begun]
        return next((trial for trial in begun if not self.is_stored(trial)), None)

    def notice(self, text: str) -> None:
        """Tells something that a person should know."""
        self._observe(Notice(text))

    def _line(self, state: _TaskState, line: Line) -> None:
        if isinstance(line, Environment):
            state.recording.saw(line)
        elif isinstance(line, Begin):
            state.begun[line.trial_id] = line
            self._observe(TrialBegun(state.host, _trial_of(state.task, line.trial_id)))
        elif isinstance(line, TrialRecord):
            state.unconfirmed[line.trial_id] = line

    def _confirm(self, state: _TaskState) -> None:
        """Tells of the records whose rows are on the disk: what a host says is no proof of it."""
        for trial_id in [name for name in state.unconfirmed if self.is_stored(_trial_of(state.task, name))]:
            record = state.unconfirmed.pop(trial_id)
            self._tell(state.host, _trial_of(state.task, trial_id), record, final=True)

    def _tell(self, host: str, trial: Trial, record: TrialRecord, *, final: bool) -> None:
        if final and record.status not in FINE:
            self.failed[host] = self.failed.get(host, 0) + 1
        self._observe(TrialRecorded(host, trial, record, final))

    def _write(self, host: str, recording: Recording, trial: Trial, record: TrialRecord, *, final: bool) -> bool:
        """Stores a row of the driver's own and tells of it; false if the task's own row came just before, and stays."""
        answer = self._committer.commit(recording.rows([(trial, record)]))
        if answer.outcome is Outcome.DUPLICATE:
            return False
        recording.delivered()
        self._tell(host, trial, record, final=final)
        return True

    def _victim(self, state: _TaskState, victim: TrialRecord, problem: str | None) -> list[Trial]:
        """Records the trial that was running; returns it once more if the infrastructure was at fault."""
        trial = _trial_of(state.task, victim.trial_id)
        if problem is None:
            self._write(state.host, state.recording, trial, victim, final=True)
            return []
        again = trial.attempt < MAX_ATTEMPTS
        failed = replace(victim, status=Status.INFRASTRUCTURE_ERROR, reason=problem)
        was_lost = self._write(state.host, state.recording, trial, failed, final=not again)
        return [replace(trial, attempt=trial.attempt + 1)] if again and was_lost else []

    def _give_up(self, host: str, recording: Recording, left: Sequence[Trial], problem: str, log_tail: str) -> None:
        for trial in left:
            record = _unrun(trial, Status.INFRASTRUCTURE_ERROR, problem, log_tail)
            self._write(host, recording, trial, record, final=True)


def restarted(task: Task, trials: tuple[Trial, ...] | None = None, origin: str | None = None) -> Task:
    """The same work for another container: a task id names one container, the outer level of replication.

    Args:
        task: that was to run, or did.
        trials: those to run now; by default all.
        origin: what its id begins with; by default what it was planned as.
    """
    whole = task if trials is None else with_trials(task, trials)
    return replace(whole, task_id=f"{origin or _origin(task)}{AGAIN}{uuid.uuid4().hex[:6]}")


def _trial_of(task: Task, trial_id: str) -> Trial:
    return next(trial for trial in task.trials if trial.trial_id == trial_id)


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

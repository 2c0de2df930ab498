"""Pretends to run tasks, for tests of everything above the executors."""

import time
import uuid
from pathlib import Path
from threading import Event

from orchestrator.execution.base import FakeSettings, TaskOutcome
from runners.contract import (
    Begin,
    End,
    Environment,
    Interleaving,
    Series,
    Session,
    Status,
    Task,
    TaskFiles,
    Trial,
    TrialRecord,
    Verification,
    encode_line,
    sessions_of,
)

_ENDINGS = {
    "synthetic-wrong": (Status.WRONG_OUTPUT, "made up: the output differs"),
    "synthetic-turns-wrong": (Status.WRONG_OUTPUT, "made up: the output differs after timing"),
    "synthetic-raise": (Status.CRASHED, "made up: an exception"),
    "synthetic-unsupported": (Status.UNSUPPORTED, "made up: unsupported"),
    "synthetic-exit": (Status.CRASHED, "made up: exit code 173"),
    "synthetic-crash": (Status.CRASHED, "made up: killed by SIGSEGV"),
    "synthetic-hang": (Status.TIMEOUT, "made up: too long"),
    "synthetic-memory": (Status.OOM, "made up: out of memory"),
    "synthetic-print": (Status.CRASHED, "made up: printed too much"),
    "synthetic-garbage": (Status.CRASHED, "made up: garbage"),
}


class FakeExecutor:
    """Gives each workload the ending that its name promises, and `ok` to every other."""

    def __init__(self, settings: FakeSettings) -> None:
        self._settings = settings

    def run(self, task: Task, directory: Path, stop: Event) -> TaskOutcome:
        with open(TaskFiles(str(directory)).records, "ab", buffering=0) as records:
            records.write(encode_line(Environment(task.task_id, {"python": "0"}, {}, "fake")))
            for trials in sessions_of(task.trials):
                session = Session(uuid.uuid4().hex, Interleaving.TURNS, len(trials))
                for trial in trials:
                    records.write(encode_line(Begin(trial.trial_id, trial.attempt, time.time_ns())))
                for trial in trials:
                    if stop.wait(self._settings.pace_s):
                        return TaskOutcome(None, None, "the task was ended from outside", "")
                    if trial.spec.workload.name == "synthetic-kill-supervisor":
                        return TaskOutcome(-9, None, None, "made up: killed")
                for trial in trials:
                    records.write(encode_line(_record(trial, self._settings.samples, session)))
            records.write(encode_line(End(task.task_id, len(task.trials))))
        return TaskOutcome(0, None, None, "")


def _record(trial: Trial, samples: int, session: Session) -> TrialRecord:
    status, reason = _ENDINGS.get(trial.spec.workload.name, (Status.OK, None))
    now = time.time_ns()
    ok = status is Status.OK
    durations = tuple(1_000_000 * trial.spec.workload.batch + step for step in range(samples))
    turns = (samples,) if samples else ()
    series = (Series("sync", 1, durations, durations, turns=turns), Series("pipelined", 1, durations, durations))
    return TrialRecord(
        trial_id=trial.trial_id,
        attempt=trial.attempt,
        status=status,
        reason=reason,
        started_at_ns=now,
        finished_at_ns=now,
        series=series if ok else (),
        session=session,
        steady=True if ok else None,
        verification=Verification(True, 0.0, 0.0, 1.0, 0.0, 0.0, True, True) if ok else None,
        exit_code=0 if ok else 70,
        log_tail="" if ok else "made up",
    )

"""Pretends to run tasks, for tests of everything above the executors."""

import time
from collections.abc import Generator
from pathlib import Path

from orchestrator.execution.base import FakeSettings, TaskOutcome
from runners.contract import (
    Begin,
    End,
    Environment,
    Line,
    Series,
    Status,
    Task,
    Trial,
    TrialRecord,
    Verification,
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

    def run(self, task: Task, directory: Path) -> Generator[Line, None, TaskOutcome]:  # noqa: ARG002 - the interface
        """See `Executor.run`. The directory is not used."""
        yield Environment(task_id=task.task_id, versions={"python": "0"}, facts={}, runner_sha256="fake")
        for trial in task.trials:
            yield Begin(trial_id=trial.trial_id, attempt=trial.attempt, started_at_ns=time.time_ns())
            time.sleep(self._settings.pace_s)
            if trial.spec.workload.name == "synthetic-kill-supervisor":
                return TaskOutcome(-9, None, None, "made up: killed")
            yield _record(trial, self._settings.samples)
        yield End(task_id=task.task_id, records=len(task.trials))
        return TaskOutcome(0, None, None, "")


def _record(trial: Trial, samples: int) -> TrialRecord:
    status, reason = _ENDINGS.get(trial.spec.workload.name, (Status.OK, None))
    now = time.time_ns()
    ok = status is Status.OK
    durations = tuple(1_000_000 * trial.spec.workload.batch + step for step in range(samples))
    return TrialRecord(
        trial_id=trial.trial_id,
        attempt=trial.attempt,
        status=status,
        reason=reason,
        started_at_ns=now,
        finished_at_ns=now,
        series=tuple(Series(mode, 1, durations, durations) for mode in ("sync", "pipelined")) if ok else (),
        steady=True if ok else None,
        verification=Verification(True, 0.0, 0.0, 1.0, 0.0, 0.0, True, True) if ok else None,
        exit_code=0 if ok else 70,
        log_tail="" if ok else "made up",
    )

"""What a task that ended early leaves behind: one trial that was running, and the rest that never ran."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.execution.base import TaskOutcome
from runners.contract import Begin, Status, Task, Trial, TrialRecord


@dataclass(frozen=True)
class Aftermath:
    """Empty for a task that recorded all its trials."""

    victim: TrialRecord | None
    """The record of the trial that was running when the task died."""
    left: tuple[Trial, ...]
    """Trials to schedule again."""


def aftermath(task: Task, begun: Mapping[str, Begin], recorded: frozenset[str], outcome: TaskOutcome) -> Aftermath:
    """Divides the trials of an ended task.

    Args:
        task: what was to run.
        begun: the `begin` lines by trial id.
        recorded: ids of the trials that have a record.
        outcome: how the task ended.
    """
    running = next((t for t in task.trials if t.trial_id in begun and t.trial_id not in recorded), None)
    left = tuple(t for t in task.trials if t.trial_id not in recorded and t is not running)
    if running is None:
        return Aftermath(None, left)
    return Aftermath(_victim(running, begun[running.trial_id], outcome), left)


def _victim(trial: Trial, begin: Begin, outcome: TaskOutcome) -> TrialRecord:
    if outcome.out_of_memory_at_ns is not None and outcome.out_of_memory_at_ns >= begin.started_at_ns:
        status, reason = Status.OOM, "the task ran out of memory while this trial ran"
    elif outcome.ended_because is not None:
        status, reason = Status.TIMEOUT, outcome.ended_because
    else:
        status, reason = Status.CRASHED, f"the supervisor ended while this trial ran ({exit_text(outcome.exit_code)})"
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

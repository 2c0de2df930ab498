"""Which trials of a task are measured in turns with each other."""

from dataclasses import replace
from typing import Dict, List, Optional, Sequence, Tuple

from runners.contract.codec import canonical_json, digest
from runners.contract.record import Begin
from runners.contract.spec import LEGACY, BackendSpec, Task, Trial

_NO_BACKEND = BackendSpec("", {})


def sessions_of(trials: Sequence[Trial]) -> Tuple[Tuple[Trial, ...], ...]:
    """The sessions of a task in the order of their first trials: what differs in nothing but its backend.

    The second half of an A/A pair is in the session of the first. Alone are a trial of the procedure `legacy`, and one
    that is to be.
    """
    sessions: Dict[Tuple[int, str], List[Trial]] = {}
    texts: Dict[int, str] = {}  # by identity: the rounds of a plan share their specifications
    for trial in trials:
        if trial.spec.protocol.procedure == LEGACY or trial.alone:
            key = 0, trial.trial_id
        else:
            if id(trial.spec) not in texts:
                texts[id(trial.spec)] = canonical_json(replace(trial.spec, backend=_NO_BACKEND))
            key = trial.round, texts[id(trial.spec)]
        sessions.setdefault(key, []).append(trial)
    return tuple(tuple(session) for session in sessions.values())


def repeated(trial: Trial, round_number: int) -> Trial:
    """The visit of the same trial in a later round that no plan foresaw."""
    identity = digest({"repeats": trial.trial_id, "round": round_number})[:32]
    return replace(trial, trial_id=identity, round=round_number, attempt=1, alone=False)


def repetition(begin: Begin, task: Task) -> Optional[Trial]:
    """The repetition that a line of a task begins; null if it begins none that the task may make."""
    trial = None if task.allocation is None or begin.repeats is None else task.allocation.repeatable.get(begin.repeats)
    if trial is None or begin.round is None:
        return None
    again = repeated(trial, begin.round)
    return again if again.trial_id == begin.trial_id else None

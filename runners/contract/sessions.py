"""Which trials of a task are measured in turns with each other."""

from dataclasses import replace
from typing import Dict, Iterable, List, Optional, Sequence, Tuple

from runners.contract.codec import Known, canonical_json, digest
from runners.contract.record import Begin
from runners.contract.spec import LEGACY, BackendSpec, Task, Trial, TrialSpec

_NO_BACKEND = BackendSpec("", {})


def shared_parts(specs: Iterable[TrialSpec], known: Optional[Known] = None) -> Known:
    """The texts of workloads, backends and protocols: few, where specifications are many. For `canonical_json`.

    Args:
        specs: that share them.
        known: of earlier ones; what is missing is added.
    """
    known = {} if known is None else known
    for spec in specs:
        for part in (spec.workload, spec.backend, spec.protocol):
            if id(part) not in known:
                known[id(part)] = part, canonical_json(part)
    return known


def sessions_of(
    trials: Sequence[Trial], groups: Optional[Known] = None, known: Optional[Known] = None
) -> Tuple[Tuple[Trial, ...], ...]:
    """The sessions of a task in the order of their first trials: what differs in nothing but its backend.

    The second half of an A/A pair is in the session of the first. Alone are a trial of the procedure `legacy`, and one
    that is to be.

    Args:
        trials: of the task.
        groups: digests of specifications without their backends, for tasks that share them: what is missing is added.
        known: of their parts; see `canonical_json`.
    """
    groups = {} if groups is None else groups
    new = {id(trial.spec): trial.spec for trial in trials if id(trial.spec) not in groups}
    known = shared_parts(new.values()) if known is None else known
    for name, spec in new.items():
        groups[name] = spec, digest(replace(spec, backend=_NO_BACKEND), known)
    sessions: Dict[Tuple[int, str], List[Trial]] = {}
    for trial in trials:
        is_alone = trial.alone or trial.spec.protocol.procedure == LEGACY
        key = (0, trial.trial_id) if is_alone else (trial.round, groups[id(trial.spec)][1])
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

"""Which campaign a command continues: the difference between the plan and the store."""

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from orchestrator.planning import Plan, PlannedTask, PlanningHost, estimate_s, plan, with_trials
from orchestrator.store import Attempt, Store
from orchestrator.sweep import Sweep
from runners.contract import Status, Trial


class ResumePolicy(Enum):
    """What to do when the store holds a campaign with the same plan."""

    AUTO = "auto"
    """Continue the newest one if it is not complete, else start anew."""
    ALWAYS = "always"
    """Continue the newest one, even if nothing is left of it."""
    NEVER = "never"


@dataclass(frozen=True)
class Continuation:
    """A campaign to run."""

    campaign_id: str
    is_new: bool
    plan: Plan
    """All of it."""
    left: Plan
    """What is not in the store yet."""


def choose_campaign(sweep: Sweep, hosts: Sequence[PlanningHost], store: Store, policy: ResumePolicy) -> Continuation:
    """Plans a new campaign, or finds the one to continue."""
    fresh_id = new_campaign_id(sweep.name)
    fresh = plan(sweep, hosts, fresh_id)
    if policy is not ResumePolicy.NEVER:
        earlier = store.newest_campaign(fresh.digest)
        if earlier is not None:
            full = plan(sweep, hosts, earlier)
            left = unfinished(full, store.attempts(earlier))
            if left.tasks or left.skips or policy is ResumePolicy.ALWAYS:
                return Continuation(earlier, False, full, left)
    return Continuation(fresh_id, True, fresh, fresh)


def unfinished(full: Plan, attempts: Mapping[str, Attempt]) -> Plan:
    """The part of a plan that has no final row, in its order, with the attempts counted on.

    Args:
        full: the plan.
        attempts: the last attempt of each trial in the store, by trial id.
    """
    tasks = []
    for planned in full.tasks:
        trials = (_next_attempt(trial, attempts.get(trial.trial_id)) for trial in planned.task.trials)
        left = tuple(trial for trial in trials if trial is not None)
        if left:
            tasks.append(PlannedTask(planned.host, with_trials(planned.task, left)))
    skips = tuple(skip for skip in full.skips if skip.trial.trial_id not in attempts)
    return replace(full, tasks=tuple(tasks), skips=skips, estimate_s=estimate_s(tasks))


def new_campaign_id(sweep_name: str) -> str:
    """Readable, sortable by time, and unique without asking anyone."""
    return f"{sweep_name}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{secrets.token_hex(3)}"


def _next_attempt(trial: Trial, last: Attempt | None) -> Trial | None:
    if last is None:
        return trial
    if last.status is not Status.INFRASTRUCTURE_ERROR:
        return None
    return replace(trial, attempt=last.number + 1)

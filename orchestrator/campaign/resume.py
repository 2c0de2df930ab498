"""Which campaign a command continues: the difference between the plan and the store."""

import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import pyarrow.compute as pc

from orchestrator.campaign.stored_plan import StoredPlan, disagreeing, is_shared, places_of, plan_document
from orchestrator.config import Sweep
from orchestrator.planning import Plan, PlanningHost, estimate_s, plan, with_trials
from orchestrator.store import Attempt, Row, Store
from runners.contract import Status, Trial


class ResumePolicy(Enum):
    """What to do when the store holds a campaign with the same plan, or one that agrees with it."""

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
    """All of it that is for the hosts at hand."""
    left: Plan
    """What is not in the store yet."""
    widened: Row | None = None
    """What the campaign's row must say of a plan that has more places than before; null if it says all already."""
    joined: tuple[str, ...] = ()
    """The places that the plan has besides."""


Choose = Callable[[Sequence[PlanningHost], Store, Collection[str]], Continuation]
"""Says which campaign runs, when the hosts at hand are ready; last come those that are meant and cannot be used."""


def choose_campaign(
    sweep: Sweep,
    hosts: Sequence[PlanningHost],
    store: Store,
    policy: ResumePolicy,
    *,
    absent: Collection[str] = (),
) -> Continuation:
    """Plans a new campaign, or finds the one to continue.

    That is the newest with the same plan. Where there is none, or it is complete, it is the newest campaign of the
    sweep that was to do the same at every place that both have: hosts may have come and gone.

    Args:
        sweep: the parameter space.
        hosts: those at hand.
        store: what was measured so far.
        policy: whether to continue at all.
        absent: hosts that are meant and cannot be used now. A campaign that waits for them alone is continued, though
            nothing is left to do for the others.
    """
    fresh_id = new_campaign_id(sweep.name)
    fresh = plan(sweep, hosts, fresh_id)
    if policy is not ResumePolicy.NEVER:
        for row in _candidates(fresh, sweep.name, store):
            stored = StoredPlan.of(row)
            attempts = store.attempts(row["campaign_id"])
            found = continued(row["campaign_id"], stored, sweep, hosts, attempts)
            if policy is ResumePolicy.ALWAYS or _goes_on(found, stored, attempts, absent):
                return found
    return Continuation(fresh_id, True, fresh, fresh)


def continued(
    campaign_id: str,
    stored: StoredPlan | None,
    sweep: Sweep,
    hosts: Sequence[PlanningHost],
    attempts: Mapping[str, Attempt],
) -> Continuation:
    """A campaign of the store on the hosts at hand; its plan and theirs agree.

    Args:
        campaign_id: its identity.
        stored: its plan; null if the store has none of it.
        sweep: its parameter space.
        hosts: those at hand.
        attempts: its trials in the store.
    """
    full = plan(sweep, hosts, campaign_id)
    widened, joined = None, set[str]()
    if stored is not None:
        elsewhere = {place: n for place, n in stored.waiting(attempts).items() if place not in places_of(full)}
        told = tuple(f"{place}: {count} trials of the campaign are left there" for place, count in elsewhere.items())
        full = replace(full, unmatched=(*full.unmatched, *told))
        joined = places_of(full).keys() - stored.places
        if joined:
            widened = stored.with_places_of(full, plan_document(full))
    return Continuation(campaign_id, False, full, unfinished(full, attempts), widened, tuple(sorted(joined)))


def write_widened(continuation: Continuation, inventory_document: str, store: Store) -> None:
    """Writes into the row of a campaign which places it has got besides, and the inventory that has them.

    Raises:
        StoreError: the store takes nothing.
    """
    if continuation.widened is not None:
        with store.writer() as writer:
            columns = {**continuation.widened, "inventory_document": inventory_document}
            writer.finish_campaign(continuation.campaign_id, **columns)


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
            tasks.append(replace(planned, task=with_trials(planned.task, left)))
    skips = tuple(skip for skip in full.skips if skip.trial.trial_id not in attempts)
    return replace(full, tasks=tuple(tasks), skips=skips, estimate_s=estimate_s(tasks))


def new_campaign_id(sweep_name: str) -> str:
    """Readable, sortable by time, and unique without asking anyone."""
    return f"{sweep_name}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{secrets.token_hex(3)}"


def _candidates(fresh: Plan, sweep_name: str, store: Store) -> Iterator[dict[str, Any]]:
    """Rows of campaigns that may be continued: the newest with this plan, then the newest that agrees with it."""
    campaigns = store.campaigns()
    of_sweep = campaigns.filter(pc.equal(campaigns["sweep"], sweep_name)).sort_by([("started_at", "descending")])
    rows = of_sweep.to_pylist()
    same = next((row for row in rows if row["plan_digest"] == fresh.digest), None)
    if same is not None:
        yield same
    for row in rows:
        stored = StoredPlan.of(row)
        if stored is not None and is_shared(stored, fresh) and not disagreeing(stored, fresh):
            if row is not same:
                yield row
            return


def _goes_on(
    found: Continuation, stored: StoredPlan | None, attempts: Mapping[str, Attempt], absent: Collection[str]
) -> bool:
    something_left = bool(found.left.tasks or found.left.skips)
    if stored is None:
        return something_left
    waiting = stored.waiting(attempts)
    if something_left:
        # A complete campaign does not grow because another host can take part by now.
        return found.widened is None or bool(waiting)
    return any(stored.hosts(place) & set(absent) for place in waiting)


def _next_attempt(trial: Trial, last: Attempt | None) -> Trial | None:
    if last is None:
        return trial
    if last.status is not Status.INFRASTRUCTURE_ERROR:
        return None
    return replace(trial, attempt=last.number + 1)

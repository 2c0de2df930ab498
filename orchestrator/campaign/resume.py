"""Which campaign a command continues: the difference between the plan and the store."""

import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import islice

from orchestrator.boundary import plain_name
from orchestrator.campaign.allocation import with_more, with_past
from orchestrator.campaign.provision import ReadyHost
from orchestrator.campaign.stored_plan import StoredPlan, plan_document
from orchestrator.config import Faults, Sweep
from orchestrator.errors import ConfigurationError, ForeignDataError, Say
from orchestrator.planning import Plan, PlanningHost, estimate_s, plan
from orchestrator.store import Attempt, Row, Stage, Store
from orchestrator.store.origin import Reproduces
from runners.contract import LEGACY, Status, Trial
from runners.statistics.allocation import goes_on


class ResumePolicy(Enum):
    """What to do when the store holds a campaign with the same plan, or one that agrees with it."""

    AUTO = "auto"
    """Continue the newest one if it is not complete, else start anew."""
    ALWAYS = "always"
    """Continue the newest one, even if nothing is left of it."""
    NEVER = "never"


@dataclass(frozen=True)
class ResumeDecision:
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


@dataclass(frozen=True)
class CampaignRequest:
    """Everything that a campaign needs, decided before it starts: what to run, where, and what to note about it."""

    continuation: ResumeDecision
    hosts: Sequence[ReadyHost]
    sweep_name: str
    sweep_document: str
    inventory_document: str
    git_commit: str | None
    reproduces: Reproduces | None = None
    """Null for a campaign that measures something of its own."""
    faults: Faults = field(default_factory=Faults)
    """How long hosts are waited for that do not answer."""
    sweep: Sweep | None = None
    """What is measured, to tell which trials a host that comes later can take; null where none can."""
    spent: Mapping[Stage, float] = field(default_factory=dict)
    """Seconds of its stages until it is driven."""
    is_cold: bool = False
    """What other campaigns left in the caches of hosts is made anew."""


Choose = Callable[[Sequence[PlanningHost], Store, Collection[str]], ResumeDecision]
"""Says which campaign runs, when the hosts at hand are ready; last come those that are meant and cannot be used."""


def choose_campaign(
    sweep: Sweep,
    hosts: Sequence[PlanningHost],
    store: Store,
    policy: ResumePolicy,
    *,
    absent: Collection[str] = (),
    more_s: float | None = None,
    tell: Say = lambda _text: None,
) -> ResumeDecision:
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
        more_s: seconds for further sessions on each host, of the newest campaign, finished or not.
        tell: told why a campaign of the sweep is left alone.

    Raises:
        ConfigurationError: further sessions are asked for, and there is no campaign yet.
    """
    if more_s is not None and sweep.protocol.procedure == LEGACY:
        raise ConfigurationError(f"further sessions are asked for, and procedure {LEGACY} has none; use rounds")
    fresh_id = new_campaign_id(sweep.name)
    fresh = plan(sweep, hosts, fresh_id)
    if policy is not ResumePolicy.NEVER:
        for campaign_id, stored in _candidates(fresh, sweep.name, store, tell):
            if other := other_hardware(campaign_id, hosts, store):
                tell(f"campaign {campaign_id} is not continued: {'; '.join(other)}")
                continue
            attempts = store.attempts(campaign_id)
            found = continued(campaign_id, stored, sweep, hosts, store, more_s)
            if more_s is not None or policy is ResumePolicy.ALWAYS or _goes_on(found, stored, attempts, absent):
                return found
    if more_s is not None:
        raise ConfigurationError(
            f"no campaign of sweep {sweep.name} is in the store that could go on; run the sweep first, without MORE"
        )
    return ResumeDecision(fresh_id, True, fresh, fresh)


def continued(
    campaign_id: str,
    stored: StoredPlan,
    sweep: Sweep,
    hosts: Sequence[PlanningHost],
    store: Store,
    more_s: float | None = None,
) -> ResumeDecision:
    """A campaign of the store on the hosts at hand; its plan and theirs agree.

    Args:
        campaign_id: its identity.
        stored: its plan.
        sweep: its parameter space.
        hosts: those at hand.
        store: knows what was measured.
        more_s: seconds for further sessions on each host.
    """
    attempts = store.attempts(campaign_id)
    full = with_past(plan(sweep, hosts, campaign_id), store, campaign_id)
    if more_s is not None:
        full = with_more(full, sweep, more_s, store, campaign_id)
    now = StoredPlan(sweep.name, plan_document(full))
    elsewhere = {place: count for place, count in stored.waiting(attempts).items() if place not in now.places}
    told = tuple(f"{place}: {count} trials of the campaign are left there" for place, count in elsewhere.items())
    full = replace(full, unmatched=(*full.unmatched, *told))
    joined = tuple(sorted(now.places - stored.places))
    widened = stored.with_places_of(StoredPlan(sweep.name, plan_document(full))) if joined else None
    return ResumeDecision(campaign_id, False, full, unfinished(full, attempts), widened, joined)


def other_hardware(campaign_id: str, hosts: Sequence[PlanningHost], store: Store) -> list[str]:
    """The hosts at hand of whose name the campaign measured another machine: a line for each."""
    trials = store.trials(["host", "hw_id", "started_at"], campaign_id=campaign_id)
    measured = trials.sort_by("started_at").to_pylist()
    last = {row["host"]: row["hw_id"] for row in measured if row["hw_id"] is not None}
    return [
        f"{host.name} is other hardware ({host.hw_id}) than what it measured under this name ({last[host.name]})"
        for host in hosts
        if host.hw_id is not None and last.get(host.name, host.hw_id) != host.hw_id
    ]


def write_widened(continuation: ResumeDecision, inventory_document: str, store: Store) -> None:
    """Writes into the row of a campaign which places it has got besides, and the inventory that has them.

    Raises:
        StoreError: the store takes nothing.
    """
    if continuation.widened is not None:
        with store.writer() as writer:
            columns = {**continuation.widened, "inventory_document": inventory_document}
            writer.finish_campaign(continuation.campaign_id, **columns)


def unfinished(full: Plan, attempts: Mapping[str, Attempt]) -> Plan:
    """The part of a plan that has no final row, in its order, with the attempts counted on, and what goes on.

    Args:
        full: the plan; its tasks know what was measured where they can spend a budget.
        attempts: the last attempt of each trial in the store, by trial id.
    """
    tasks = []
    for planned in full.tasks:
        trials = (_next_attempt(trial, attempts.get(trial.trial_id)) for trial in planned.task.trials)
        left = tuple(trial for trial in trials if trial is not None)
        if left or goes_on(planned.task):
            tasks.append(replace(planned, task=replace(planned.task, trials=left)))
    skips = tuple(skip for skip in full.skips if skip.trial.trial_id not in attempts)
    return replace(full, tasks=tuple(tasks), skips=skips, estimate_s=estimate_s(tasks))


def new_campaign_id(sweep_name: str) -> str:
    """Readable, sortable by time, and unique without asking anyone."""
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    return f"{plain_name(sweep_name, 'sweep')}-{moment}-{secrets.token_hex(3)}"


def _candidates(fresh: Plan, sweep_name: str, store: Store, tell: Say) -> Iterator[tuple[str, StoredPlan]]:
    """Campaigns that may be continued: the newest with this plan, then the newest that agrees with it."""
    now = StoredPlan(sweep_name, plan_document(fresh))
    newest_first = store.own_campaigns().sort_by([("started_at", "descending")]).to_pylist()
    of_sweep = [row for row in newest_first if row["sweep"] == sweep_name]
    plans: dict[str, StoredPlan] = {}
    for row in of_sweep:
        try:
            stored = StoredPlan.of(row)
        except ForeignDataError as error:
            tell(f"{error}; it is not continued")
        else:
            plans |= {} if stored is None else {row["campaign_id"]: stored}
    same = [row["campaign_id"] for row in of_sweep if row["plan_digest"] == fresh.digest][:1]
    agreeing = (name for name, stored in plans.items() if stored.shares_work(now) and not stored.disagreeing(now))
    for campaign_id in dict.fromkeys([*same, *islice(agreeing, 1)]):
        if campaign_id in plans:
            yield campaign_id, plans[campaign_id]


def _goes_on(
    found: ResumeDecision, stored: StoredPlan, attempts: Mapping[str, Attempt], absent: Collection[str]
) -> bool:
    waiting = stored.waiting(attempts)
    if found.left.tasks or found.left.skips:
        # A complete campaign does not grow because another host can take part by now.
        return found.widened is None or bool(waiting)
    return any(stored.hosts(place) & set(absent) for place in waiting)


def _next_attempt(trial: Trial, last: Attempt | None) -> Trial | None:
    if last is None:
        return trial
    if last.status is not Status.INFRASTRUCTURE_ERROR:
        return None
    return replace(trial, attempt=last.number + 1)

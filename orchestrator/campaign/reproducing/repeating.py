"""The campaign that runs stored trials again, as the runner of campaigns takes it."""

import random
from collections.abc import Mapping
from typing import Any

from orchestrator.campaign.order import CampaignOrder
from orchestrator.campaign.reproducing.reproduction import Reproduction, places
from orchestrator.campaign.reproducing.stored import Wanted
from orchestrator.campaign.resuming.resume import Continuation, new_campaign_id, unfinished
from orchestrator.planning import Plan, PlannedTask, estimate_s, visit
from orchestrator.store import Store
from runners.contract import CONTRACT_VERSION, Guards, Task, digest

_PREFIX = "reproduce-"
_MADE_BY = "# made by `taxmeter reproduce"


def continuation_of(reproduction: Reproduction, store: Store) -> Continuation:
    """A new campaign, or the one that an interrupted command left."""
    fresh_id = new_campaign_id(sweep_name(reproduction.wanted))
    fresh = plan_again(reproduction, fresh_id)
    earlier = store.newest_campaign(fresh.digest)
    if earlier is not None:
        full = plan_again(reproduction, earlier)
        left = unfinished(full, store.attempts(earlier))
        if left.tasks:
            return Continuation(earlier, False, full, left)
    return Continuation(fresh_id, True, fresh, fresh)


def plan_again(reproduction: Reproduction, campaign_id: str) -> Plan:
    """One task per host, environment and round, each in an order of its own."""
    tasks = []
    visits = []
    for (host, environment), group in places(reproduction.again).items():
        for number in range(1, reproduction.rounds + 1):
            order = list(group)
            random.Random(f"{campaign_id}/{host}/{environment}/{number}").shuffle(order)  # noqa: S311 - an order, no secret
            trials = tuple(
                visit(campaign_id, host, one.trial_key, one.then.spec, number, position, 0, one.then.timeout_s)
                for position, one in enumerate(order)
            )
            visits += [[host, trial.trial_key, number] for trial in trials]
            task_id = f"{campaign_id}-{host}-{environment}-r{number}"
            # Those that a sweep has which says nothing: the store does not tell which ones were chosen then
            task = Task(CONTRACT_VERSION, campaign_id, task_id, environment, trials, Guards())
            tasks.append(PlannedTask(host, task))
    tasks.sort(key=lambda planned: planned.task.trials[0].round)
    work = {"reproduces": reproduction.wanted.campaign_id, "visits": sorted(visits)}
    return Plan(tuple(tasks), (), (), digest(work), estimate_s(tasks))


def order_again(
    reproduction: Reproduction, chosen: Continuation, inventory_document: str, taxmeter_version: str, commit: str | None
) -> CampaignOrder:
    """All that the campaign needs. In place of a sweep's text it keeps what was reproduced."""
    wanted = reproduction.wanted
    lines = [f"{_MADE_BY} {wanted.trial_id or wanted.campaign_id}`"]
    lines += [f"reproduces: {wanted.campaign_id}", f"rounds: {reproduction.rounds}", "trial_keys:"]
    lines += [f"  - {one.trial_key}  # {one.name} on {one.host}" for one in wanted.configurations]
    return CampaignOrder(
        chosen,
        reproduction.hosts,
        sweep_name(wanted),
        "\n".join(lines) + "\n",
        inventory_document,
        taxmeter_version,
        commit,
        reproduction.reproduces,
    )


def is_reproduction(row: Mapping[str, Any]) -> bool:
    """Whether a row of `campaigns` is of one that ran stored trials again."""
    return str(row["sweep_document"]).startswith(_MADE_BY)


def sweep_name(wanted: Wanted) -> str:
    """The name under which the new campaign goes."""
    return _PREFIX + str(wanted.campaign["sweep"]).removeprefix(_PREFIX)

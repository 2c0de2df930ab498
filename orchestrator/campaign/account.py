"""The row of a campaign: what it was to do, and what came of it."""

import platform
from datetime import UTC, datetime
from importlib.metadata import distributions
from typing import Any

from orchestrator.campaign.order import CampaignOrder
from orchestrator.planning import Plan
from orchestrator.store import Row, Store, Writer, campaign_row, campaign_totals
from runners.contract import Trial, encode


def opening_row(order: CampaignOrder) -> Row:
    """The row as the campaign starts."""
    continuation = order.continuation
    return campaign_row(
        continuation.campaign_id,
        datetime.now(UTC),
        order.sweep_name,
        sweep_document=order.sweep_document,
        inventory_document=order.inventory_document,
        planned_trials=continuation.plan.trials,
        plan_digest=continuation.plan.digest,
        taxmeter_version=order.taxmeter_version,
        git_commit=order.git_commit,
        plan=plan_document(continuation.plan),
        versions=driver_versions(),
    )


def close_account(store: Store, writer: Writer, campaign_id: str) -> None:
    """Writes down when a campaign ended, for now or for good, and what there is of it by then.

    Raises:
        StoreError: the store takes nothing more.
    """
    statuses = [attempt.status for attempt in store.attempts(campaign_id).values()]
    rows = len(store.trials(["trial_id"], campaign_id=campaign_id))
    writer.finish_campaign(campaign_id, **campaign_totals(datetime.now(UTC), statuses, rows=rows))


def plan_document(plan: Plan) -> dict[str, Any]:
    """A plan as a JSON value. What trials share with their repetitions is written once, under their key."""
    tasks = [
        {
            "task_id": one.task.task_id,
            "host": one.host,
            "environment": one.task.environment,
            "trials": [_trial(trial) for trial in one.task.trials],
        }
        for one in plan.tasks
    ]
    skips = [
        {"host": skip.host, "environment": skip.environment, "reason": skip.reason, "trial": _trial(skip.trial)}
        for skip in plan.skips
    ]
    trials = [*(trial for one in plan.tasks for trial in one.task.trials), *(skip.trial for skip in plan.skips)]
    return {
        "tasks": tasks,
        "skips": skips,
        "unmatched": list(plan.unmatched),
        "specifications": {trial.trial_key: encode(trial.spec) for trial in trials},
    }


def driver_versions() -> dict[str, str]:
    """Every distribution that is installed beside this code, and Python itself."""
    found = {str(one.metadata["Name"]).lower(): one.version for one in distributions()}
    return {**found, "python": platform.python_version()}


def _trial(trial: Trial) -> dict[str, Any]:
    return {name: value for name, value in encode(trial).items() if name != "spec"}

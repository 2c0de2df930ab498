"""The row of a campaign: what it was to do, and what came of it."""

import platform
from datetime import UTC, datetime
from importlib.metadata import distributions

from orchestrator.campaign.order import CampaignOrder
from orchestrator.campaign.resuming.earlier import plan_document
from orchestrator.store import Row, Store, Writer, campaign_row, campaign_totals


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


def driver_versions() -> dict[str, str]:
    """Every distribution that is installed beside this code, and Python itself."""
    found = {str(distribution.metadata["Name"]).lower(): distribution.version for distribution in distributions()}
    return {**found, "python": platform.python_version()}

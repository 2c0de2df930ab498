"""Rows of the small tables, which trials refer to. Pure: no clock, no files."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType

from orchestrator.errors import StoreError
from orchestrator.store.schema import TOTALS, total_column
from orchestrator.store.schema.columns import HOT_SYSTEM, Origin, Stage
from runners.contract import Status
from runners.contract.record import FactValue

Row = dict[str, object]


def json_text(value: object) -> str:
    """The one way in which JSON stands in the store: sorted, without blanks."""
    return json.dumps(value, sort_keys=True, allow_nan=False, separators=(",", ":"))


def hot_system(hot: Mapping[str, FactValue]) -> Row:
    """The columns of `columns.HOT_SYSTEM`; another name is a `StoreError`."""
    names = [column.name for column in HOT_SYSTEM]
    unknown = sorted(set(hot) - set(names))
    if unknown:
        raise StoreError(f"no such system column: {', '.join(unknown)}")
    return {name: hot.get(name) for name in names}


def system_row(system_id: str, hw_id: str, hot: Mapping[str, FactValue], fingerprint: Mapping[str, object]) -> Row:
    """One row of `systems`; a name that the schema does not have is a `StoreError`."""
    return {"system_id": system_id, "hw_id": hw_id, **hot_system(hot), "fingerprint": json_text(fingerprint)}


def environment_row(
    environment_id: str,
    environment: str,
    versions: Mapping[str, str],
    facts: Mapping[str, FactValue],
    *,
    image_digest: str | None,
    lock_sha256: str | None,
    image_layers: Sequence[str] = (),
    image_config_sha256: str | None = None,
) -> Row:
    """One row of `environments`.

    Args:
        versions: of each package, as seen inside; empty for an environment that is declared and that nobody has
            looked into, such as that of a trial that never ran.
        image_digest: a virtual environment has none.
        image_layers: digests of the content of its image's layers, first to last.
    """
    return {
        "environment_id": environment_id,
        "environment": environment,
        "image_digest": image_digest,
        "lock_sha256": lock_sha256,
        "versions": json_text(versions),
        "facts": json_text(facts),
        "image_layers": list(image_layers) or None,
        "image_config_sha256": image_config_sha256,
    }


def campaign_row(
    campaign_id: str,
    started_at: datetime,
    sweep: str,
    *,
    sweep_document: str,
    inventory_document: str,
    plan_digest: str,
    planned_trials: int,
    taxmeter_version: str,
    git_commit: str | None,
    plan: object = None,
    versions: Mapping[str, str] | None = None,
    origin: Origin = Origin.MEASURED,
) -> Row:
    """One row of `campaigns`, as the campaign starts; `campaign_totals` gives the rest when it ends.

    Args:
        sweep_document: the text as the user wrote it; so is `inventory_document`.
        taxmeter_version: of the driver; so is `git_commit`.
        plan: what was planned, as a JSON value; null if unknown.
        versions: of the driver's packages, `python` included; null if unknown.
        origin: how it comes into the store; in which store that was first, `Writer.put_campaign` knows.
    """
    return {
        "campaign_id": campaign_id,
        "origin": origin.value,
        "origin_store": None,
        "started_at": started_at,
        "sweep": sweep,
        "sweep_document": sweep_document,
        "inventory_document": inventory_document,
        **campaign_plan(plan, plan_digest=plan_digest, planned_trials=planned_trials),
        "taxmeter_version": taxmeter_version,
        "git_commit": git_commit,
        "versions": None if versions is None else json_text(versions),
        **dict.fromkeys(TOTALS),
    }


def as_merged(campaign: Row) -> Row:
    """The row of a campaign of another store."""
    return {**campaign, "origin": Origin.MERGED.value}


def campaign_plan(plan: object, *, plan_digest: str, planned_trials: int) -> Row:
    """The columns of `campaigns` that say what is planned, as a JSON value or null; see `Writer.finish_campaign`."""
    return {
        "plan_digest": plan_digest,
        "planned_trials": planned_trials,
        "plan": None if plan is None else json_text(plan),
    }


def campaign_totals(
    finished_at: datetime,
    statuses: Iterable[Status],
    *,
    rows: int,
    stages: Mapping[Stage, float] = MappingProxyType({}),
) -> Row:
    """The columns of `campaigns` that are known when a campaign ends, for `Writer.finish_campaign`.

    Args:
        statuses: that of the last attempt of each trial.
        rows: of `trials` that the campaign has; with its earlier attempts more than it has trials.
        stages: what it spent its time on, in seconds; those that are not known stay as they are.
    """
    counted = Counter(statuses)
    return {
        "finished_at": finished_at,
        "rows": rows,
        **{total_column(status): counted[status] for status in Status},
        **{stage.value: round(seconds, 3) for stage, seconds in stages.items()},
    }

"""The campaigns of a store, and how their trials ended. By Arrow alone: who lists them does not wait for DuckDB."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.store.query.view import View
from orchestrator.store.schema import CAMPAIGNS, KEYS, total_column
from orchestrator.store.storage.layout import reading_errors
from runners.contract import Status

_COUNTS: Final = ("planned", "ok", "failed", "unsupported", "skipped", "left_to_do")
_LISTED: Final = pa.schema(
    [
        *(CAMPAIGNS.field(name) for name in ("campaign_id", "started_at", "sweep", "origin", "origin_store")),
        ("hosts", pa.list_(pa.string())),
        *((name, pa.int64()) for name in _COUNTS),
        ("duration_s", pa.float64()),
    ]
)
_READ: Final = [
    *("campaign_id", "started_at", "finished_at", "sweep", "origin", "origin_store", "planned_trials", "rows"),
    *map(total_column, Status),
]


def campaign_list(view: View) -> pa.Table:
    """The campaigns, the newest first.

    Returns:
        campaign_id, started_at, sweep, origin, origin_store, hosts; planned, ok, failed, unsupported, skipped and
        left_to_do in trials;
        duration_s from the start of the campaign to the end of its last trial, null if none ran.
    """
    with reading_errors(view.snapshot.directory, "; `taxmeter results verify` tells more"):
        campaigns = view.dataset("campaigns").to_table(columns=_READ).to_pylist()
        present = _present(view)
        told = {row["campaign_id"]: _totals(row) for row in campaigns if _has_totals(row, present)}
        told |= _counted(view, [row["campaign_id"] for row in campaigns if row["campaign_id"] not in told])
    rows = [_listed(row, present.get(row["campaign_id"]), told[row["campaign_id"]]) for row in campaigns]
    order = [("started_at", "descending"), (KEYS["campaigns"], "ascending")]
    return pa.Table.from_pylist(rows, _LISTED).sort_by(order)


def _present(view: View) -> dict[str, dict[str, Any]]:
    """By campaign how many rows it has, when the last of them ended, and their hosts."""
    rows = view.dataset("trials").to_table(columns=["campaign_id", "host", "finished_at"])
    found = rows.group_by("campaign_id").aggregate([([], "count_all"), ("finished_at", "max"), ("host", "distinct")])
    return {row["campaign_id"]: row for row in found.to_pylist()}


def _has_totals(row: Mapping[str, Any], present: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether the row of a campaign says how its trials ended, and it has got no rows since."""
    there = present.get(row["campaign_id"])
    return row[total_column(Status.OK)] is not None and there is not None and row["rows"] == there["count_all"]


def _totals(row: Mapping[str, Any]) -> Counter[str]:
    return Counter({status.value: row[total_column(status)] for status in Status})


def _counted(view: View, campaigns: Collection[str]) -> dict[str, Counter[str]]:
    """How the trials of campaigns ended: of each the last attempt counts."""
    counted = {campaign: Counter[str]() for campaign in campaigns}
    if campaigns:
        columns = ["campaign_id", "trial_id", "attempt", "status"]
        rows = view.dataset("trials").to_table(columns=columns, filter=pc.field("campaign_id").isin(list(campaigns)))
        by_trial = rows.sort_by("attempt").group_by(["campaign_id", "trial_id"], use_threads=False)
        last = by_trial.aggregate([("status", "last")]).group_by(["campaign_id", "status_last"])
        for row in last.aggregate([([], "count_all")]).to_pylist():
            counted[row["campaign_id"]][row["status_last"]] = row["count_all"]
    return counted


def _listed(row: Mapping[str, Any], there: Mapping[str, Any] | None, ended: Counter[str]) -> dict[str, Any]:
    hosts: Sequence[str | None] = () if there is None else there["host_distinct"]
    end = row["finished_at"] or (None if there is None else there["finished_at_max"])
    ok, unsupported, skipped, again = (
        ended[status.value] for status in (Status.OK, Status.UNSUPPORTED, Status.SKIPPED, Status.INFRASTRUCTURE_ERROR)
    )
    # A trial that infrastructure failed runs again on a resume; one that the plan skips was never planned to run.
    done = ended.total() - skipped - again
    return {
        **{name: row[name] for name in ("campaign_id", "started_at", "sweep", "origin", "origin_store")},
        "hosts": sorted(host for host in hosts if host is not None),
        "planned": row["planned_trials"],
        "ok": ok,
        "failed": ended.total() - ok - unsupported - skipped,
        "unsupported": unsupported,
        "skipped": skipped,
        "left_to_do": max(0, row["planned_trials"] - done),
        "duration_s": None if end is None else round((end - row["started_at"]).total_seconds(), 3),
    }

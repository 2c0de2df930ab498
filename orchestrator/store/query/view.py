"""Reading the store: sealed parts and what is still in the journal, each row once; and how its campaigns ended.

By Arrow alone: who lists campaigns does not wait for DuckDB.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from orchestrator.store.schema import CAMPAIGNS, KEYS, SCHEMAS, SHARED_TEXTS, TRIALS, total_column
from orchestrator.store.storage.journal import read_segment
from orchestrator.store.storage.layout import Layout, Snapshot, reading_errors, storage_errors
from orchestrator.store.storage.parts import campaigns_in
from orchestrator.store.storage.seal import new_rows
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


@dataclass(frozen=True)
class View:
    """All rows of the store at one moment."""

    snapshot: Snapshot
    unsealed: pa.Table
    """Rows of `trials` that no plain reader sees yet; none of them is in the snapshot, and none is twice here."""
    _datasets: dict[str, ds.Dataset] = field(default_factory=dict, init=False, repr=False, compare=False)
    """By table; a dataset remembers the footers of its files."""

    def dataset(self, table: str) -> ds.Dataset:
        """A table, rows in no promised order."""
        if table not in self._datasets:
            known = self.snapshot.dataset(table)
            if table == "trials" and len(self.unsealed):
                known = ds.dataset([known, ds.dataset(self.unsealed)])
            self._datasets[table] = known
        return self._datasets[table]

    @cached_property
    def files_by_campaign(self) -> Mapping[str, Collection[str]]:
        """By campaign with trials the files that hold them; none of one that is not sealed."""
        found = {campaign: set[str]() for campaign in self.unsealed["campaign_id"].unique().to_pylist()}
        with reading_errors(self.snapshot.directory):
            for path in self.snapshot.files["trials"]:
                for campaign in campaigns_in(self.snapshot.filesystem, path):
                    found.setdefault(campaign, set()).add(path)
        return found

    def of_campaigns(self, campaigns: Collection[str]) -> "View":
        """The same without the files of `trials` that hold nothing of some campaigns."""
        kept = {path for campaign in campaigns for path in self.files_by_campaign.get(campaign, ())}
        files = {**self.snapshot.files, "trials": tuple(path for path in self.snapshot.files["trials"] if path in kept)}
        return View(replace(self.snapshot, files=files), self.unsealed)

    def table(self, table: str, columns: Sequence[str], condition: pc.Expression | None) -> pa.Table:
        """Some columns of the rows of a table for which a condition is true, with their units; errors are Arrow's."""
        schema = pa.schema([SCHEMAS[table].field(name) for name in columns], SCHEMAS[table].metadata)
        rows = self.dataset(table)
        if condition is None:
            return rows.to_table(columns=list(columns)).cast(schema)
        found = [_rows_of(part, rows.schema, columns, condition) for part in rows.get_fragments(condition)]
        return pa.concat_tables([schema.empty_table(), *(part.cast(schema) for part in found if part is not None)])


def _rows_of(part: ds.Fragment, schema: pa.Schema, columns: Sequence[str], condition: pc.Expression) -> pa.Table | None:
    """Some columns of the rows of a file for which a condition is true; null if there are none.

    Ids of campaigns are in no order, so that statistics leave few parts out: the columns of the condition do it, before
    all others are decoded, and texts that most rows share as dictionaries, each once.
    """
    if not isinstance(part, ds.ParquetFileFragment):
        return ds.Scanner.from_fragment(part, schema=schema, columns=list(columns), filter=condition).to_table()
    near = part.subset(condition, schema)
    kept = ds.Scanner.from_fragment(near, schema=schema, columns={"kept": condition}).to_table()["kept"]
    if not pc.any(kept).as_py():
        return None
    groups = [group.id for group in near.row_groups]
    shared = ds.ParquetFileFormat(dictionary_columns=SHARED_TEXTS).make_fragment(
        part.path, part.filesystem, row_groups=groups
    )
    return shared.to_table(columns=list(columns)).filter(kept)


def current_view(layout: Layout) -> View:
    """What is in the store now. Sealed parts are unique among themselves; only the journal is compared with them."""
    # The journal first: a segment that is sealed meanwhile is then met twice, never missed.
    tables = [TRIALS.empty_table()]
    for segment in layout.segments():
        with storage_errors(f"cannot read {segment}"):
            try:
                tables.append(read_segment(segment).table)
            except FileNotFoundError:
                continue
    snapshot = layout.snapshot()
    return View(snapshot, new_rows(pa.concat_tables(tables), snapshot.parts()))


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
        told = {
            row["campaign_id"]: Counter({status.value: row[total_column(status)] for status in Status})
            for row in campaigns
            if _has_totals(row, present)
        }
        told |= _counted(view, [row["campaign_id"] for row in campaigns if row["campaign_id"] not in told])
    rows = [_listed(row, present.get(row["campaign_id"]), told[row["campaign_id"]]) for row in campaigns]
    order = [("started_at", "descending"), (KEYS["campaigns"], "ascending")]
    return pa.Table.from_pylist(rows, _LISTED).sort_by(order)


def _present(view: View) -> dict[str, dict[str, Any]]:
    """By campaign how many rows it has, when the last of them ended, and their hosts."""
    columns, texts = ["campaign_id", "host", "finished_at"], ["campaign_id", "host"]
    sealed = view.snapshot.dataset("trials", texts).to_table(columns=columns)
    rows = pa.concat_tables([sealed, view.unsealed.select(columns).cast(sealed.schema)]).unify_dictionaries()
    found = rows.group_by("campaign_id").aggregate([([], "count_all"), ("finished_at", "max"), ("host", "distinct")])
    return {row["campaign_id"]: row for row in found.to_pylist()}


def _has_totals(row: Mapping[str, Any], present: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether the row of a campaign says how its trials ended, and it has got no rows since."""
    there = present.get(row["campaign_id"])
    return row[total_column(Status.OK)] is not None and there is not None and row["rows"] == there["count_all"]


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

"""The schema, how Parquet stores it, and rows of campaigns."""

import dataclasses
import json
from datetime import UTC, datetime
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.store.fleet import Campaign
from benchmarks.store.rows import campaign_rows
from orchestrator.store import CAMPAIGNS, TRIALS, campaign_row, campaign_totals
from orchestrator.store.schema import DICTIONARY_COLUMNS, SPLIT_COLUMNS, parquet_options
from orchestrator.store.storage.parts import encode_trials
from runners.contract import GuardResult, Status

TRIAL_BYTES = 1100
"""What a trial with 100 samples may take once it is sealed, in bytes."""


@pytest.fixture(scope="module")
def campaign() -> pa.Table:
    return pa.Table.from_batches([campaign_rows(Campaign(3, 10))])


def test_every_encoding_belongs_to_a_column() -> None:
    options = parquet_options()
    stored = pq.ParquetFile(pa.BufferReader(encode_trials(TRIALS.empty_table()))).schema
    paths = {stored.column(number).path for number in range(len(stored))}
    assert {*options["column_encoding"], *options["use_dictionary"], *options["write_statistics"]} <= paths
    assert set(DICTIONARY_COLUMNS).isdisjoint(options["column_encoding"])
    assert {path for path in paths if path.startswith("samples_")} <= set(SPLIT_COLUMNS)


def test_a_guards_result_has_a_field_for_each_of_the_contract() -> None:
    declared = [field.name for field in dataclasses.fields(GuardResult)]
    assert [field.name for field in TRIALS.field("guards").type.value_type] == declared


def test_what_people_select_by_has_statistics_and_samples_have_none(campaign: pa.Table) -> None:
    group = pq.ParquetFile(pa.BufferReader(encode_trials(campaign))).metadata.row_group(0)
    stored = {group.column(number).path_in_schema: group.column(number) for number in range(group.num_columns)}
    selected = ("campaign_id", "workload", "backend", "batch", "started_at", "system_id", "latency_sync_median_s")
    others = ("samples_sync_s.list.element", "facts", "trial_id", "guards.list.element.observed")
    assert [name for name in (*selected, *others) if stored[name].is_stats_set] == list(selected)


def test_a_trial_with_100_samples_takes_little_space(campaign: pa.Table) -> None:
    """Without our encodings 1280 bytes, plain 1410."""
    assert len(encode_trials(campaign)) / len(campaign) <= TRIAL_BYTES


NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
of_campaign = partial(
    campaign_row, "c", NOON, "quick", planned_trials=3, git_commit=None, sweep_document="", inventory_document="",
    plan_digest="p", taxmeter_version="1",
)  # fmt: skip


def test_a_campaign_that_starts_has_no_totals() -> None:
    versions = {"python": "3.11.7", "pyarrow": "26.0.1"}
    row = of_campaign(plan=[{"b": 1, "a": 2}], versions=versions)
    assert set(row) == set(CAMPAIGNS.names)
    assert row["plan"] == '[{"a":2,"b":1}]'
    assert json.loads(str(row["versions"])) == versions
    assert {row[name] for name in row if name.startswith("trials_")} == {None}
    assert (row["finished_at"], row["rows"]) == (None, None)
    assert [of_campaign()[name] for name in ("plan", "versions")] == [None, None], "what nobody says is null"


def test_the_totals_of_a_campaign_count_each_status_and_none_is_null() -> None:
    totals = campaign_totals(NOON, [Status.OK, Status.OOM, Status.OK], rows=5)
    [back] = pa.RecordBatch.from_pylist([of_campaign() | totals], CAMPAIGNS).to_pylist()
    assert (back["finished_at"], back["rows"]) == (NOON, 5)
    counted = {name: value for name, value in back.items() if name.startswith("trials_")}
    assert counted == {f"trials_{status.value}": 0 for status in Status} | {"trials_ok": 2, "trials_oom": 1}

"""The schema, and how Parquet stores it."""

import dataclasses

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.store.fleet import Campaign
from benchmarks.store.rows import campaign_rows
from orchestrator.store import TRIALS
from orchestrator.store.schema import DICTIONARY_COLUMNS, SPLIT_COLUMNS, parquet_options
from orchestrator.store.storage.parts import encode_trials
from runners.contract import GuardResult

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
    for name in ("campaign_id", "workload", "backend", "batch", "started_at", "system_id", "latency_sync_median_s"):
        assert stored[name].is_stats_set, name
    for name in ("samples_sync_s.list.element", "facts", "trial_id", "guards.list.element.observed"):
        assert not stored[name].is_stats_set, name


def test_a_trial_with_100_samples_takes_little_space(campaign: pa.Table) -> None:
    """Without our encodings 1280 bytes, plain 1410."""
    assert len(encode_trials(campaign)) / len(campaign) <= TRIAL_BYTES

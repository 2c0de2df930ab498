"""The schema, and how Parquet stores it."""

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from orchestrator.store import TRIALS
from orchestrator.store.schema import DICTIONARY_COLUMNS, SPLIT_COLUMNS, parquet_options
from orchestrator.store.storage.parts import encode_trials
from runners.contract import GuardResult

TRIAL_BYTES = 1100
"""What a trial with 100 samples may take once it is sealed, in bytes."""


def test_every_encoding_belongs_to_a_column() -> None:
    options = parquet_options()
    data = encode_trials(TRIALS.empty_table())
    stored = pq.ParquetFile(pa.BufferReader(data)).schema
    paths = {stored.column(number).path for number in range(len(stored))}
    assert {*options["column_encoding"], *options["use_dictionary"], *options["write_statistics"]} <= paths
    assert set(DICTIONARY_COLUMNS).isdisjoint(options["column_encoding"])
    assert {path for path in paths if path.startswith("samples_")} <= set(SPLIT_COLUMNS)


def test_a_guards_result_has_a_field_for_each_of_the_contract() -> None:
    declared = [field.name for field in dataclasses.fields(GuardResult)]
    assert [field.name for field in TRIALS.field("guards").type.value_type] == declared


def test_what_people_select_by_has_statistics_and_samples_have_none() -> None:
    row = {field.name: _least(field.type) for field in TRIALS}
    metadata = pq.ParquetFile(pa.BufferReader(encode_trials(pa.Table.from_pylist([row], TRIALS)))).metadata
    group = metadata.row_group(0)
    stored = {group.column(number).path_in_schema: group.column(number) for number in range(group.num_columns)}
    for name in ("campaign_id", "workload", "backend", "batch", "started_at", "system_id", "latency_sync_median_s"):
        assert stored[name].is_stats_set, name
    for name in ("samples_sync_s.list.element", "facts", "trial_id", "guards.list.element.observed"):
        assert not stored[name].is_stats_set, name


def test_a_trial_with_100_samples_takes_little_space() -> None:
    table = sealed_rows(4000, 100)
    assert len(encode_trials(table)) / len(table) <= TRIAL_BYTES


def sealed_rows(count: int, samples: int) -> pa.Table:
    """Rows of 60 visits of 67 trials, each number of its own, as sealing sorts them."""
    random = np.random.default_rng(7)
    trial = np.arange(count) * 67 // count
    latency_s = np.exp(random.normal(-5, 1, 67))[trial]
    noise = np.exp(random.normal(0, 0.02, (count, samples)))
    series = np.rint(latency_s[:, None] * noise * 1e9) / 1e9
    offsets = np.arange(count + 1) * samples
    measured = {field.name for field in TRIALS if field.type == pa.float64() and field.name in MEASURED}
    arrays = []
    for field in TRIALS:
        if field.name == "samples_sync_s":
            arrays.append(pa.ListArray.from_arrays(offsets.astype(np.int32), series.ravel(), type=field.type))
        elif field.name in measured:
            arrays.append(pa.array(latency_s * np.exp(random.normal(0, 0.02, count))))
        elif field.name == "trial_id":
            arrays.append(pa.array([random.bytes(16).hex() for _ in range(count)]))
        elif field.name in ("conditions_before", "conditions_after", "facts"):
            loads = random.integers(10**9, 10**10, (count, 2))
            arrays.append(pa.array([f'{{"load_1m":{one % 977},"pressure_cpu_some_us":{two}}}' for one, two in loads]))
        elif field.type == pa.string():
            arrays.append(pa.array([f"{field.name}-{number % 9}" for number in trial]))
        elif field.type == pa.timestamp("us", "UTC"):
            arrays.append(pa.array(1_793_000_000_000_000 + random.integers(0, 10**12, count), field.type))
        elif pa.types.is_integer(field.type):
            arrays.append(pa.array(trial % 7, field.type))
        else:
            arrays.append(pa.nulls(count, field.type))
    return pa.Table.from_arrays(arrays, schema=TRIALS)


MEASURED = {
    *(f"latency_sync_{name}_s" for name in ("min", "p10", "p25", "median", "p75", "p90", "mean")),
    *("latency_pipelined_median_s", "latency_pipelined_mean_s", "cpu_time_per_call_s", "cpu_wall_ratio"),
    *("throughput_examples_per_s", "achieved_flops_per_s", "first_call_s", "warmup_s", "load_s", "build_s"),
    *("max_abs_error", "relative_l2", "cosine", "eager_max_abs_error", "eager_relative_l2"),
    *("user_cpu_s", "system_cpu_s", "pressure_sync_s", "dispatch_floor_small_s", "dispatch_s", "busy_s"),
}


def _least(kind: pa.DataType) -> object:
    if pa.types.is_list(kind):
        return [_least(kind.value_type)]
    if pa.types.is_struct(kind):
        return {field.name: _least(field.type) for field in kind}
    if pa.types.is_string(kind):
        return "a"
    return (
        1 if pa.types.is_integer(kind) or pa.types.is_timestamp(kind) else 0.5 if pa.types.is_floating(kind) else True
    )

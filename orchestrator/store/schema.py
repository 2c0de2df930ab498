"""Columns of the result store, with their units.

History of the `trials` schema. Columns are only ever added, always nullable; none is renamed or retyped, so
that a reader of today reads the parts of yesterday.

1   first version
2   options of workloads; the series dispatch, graph, floor and legacy; pressure; tax, regime and cost; memory, energy
    and utilisation passes; why a series ended
3   cores and memory of the container or process; what a row reproduces; `environments`: layers and settings of the
    image
"""

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

SCHEMA_VERSION: Final = 3

_TEXT = pa.string()
_INTEGER = pa.int64()
_SMALL = pa.int32()
_NUMBER = pa.float64()
_TRUTH = pa.bool_()
_TIME = pa.timestamp("us", "UTC")
_SERIES = pa.list_(pa.field("element", pa.float64()))
_TEXTS = pa.list_(pa.field("element", pa.string()))


@dataclass(frozen=True)
class _Column:
    name: str
    type: pa.DataType
    unit: str | None = None
    better: str | None = None
    required: bool = False

    def field(self) -> pa.Field:
        metadata = {"unit": self.unit, "better": self.better}
        present = {key: value for key, value in metadata.items() if value is not None}
        return pa.field(self.name, self.type, nullable=not self.required, metadata=present or None)


def _texts(*names: str) -> list[_Column]:
    return [_Column(name, _TEXT) for name in names]


def _seconds(*names: str, better: str | None = None) -> list[_Column]:
    return [_Column(name, _NUMBER, "s", better) for name in names]


_IDENTITY = [
    _Column("trial_id", _TEXT, required=True),
    _Column("trial_key", _TEXT, required=True),
    _Column("campaign_id", _TEXT, required=True),
    _Column("task_id", _TEXT),
    _Column("round", _SMALL, required=True),
    _Column("order", _SMALL, required=True),
    _Column("replicate", _SMALL, required=True),
    _Column("attempt", _SMALL, required=True),
    *_texts("reproduces", "reproduces_trial_key", "reproduction_differs"),
]
_OUTCOME = [
    _Column("status", _TEXT, required=True),
    *_texts("reason", "log_tail"),
    _Column("exit_code", _SMALL),
    _Column("started_at", _TIME, required=True),
    _Column("finished_at", _TIME),
]
_SPECIFICATION = [
    _Column("workload", _TEXT, required=True),
    _Column("batch", _SMALL, "examples", required=True),
    _Column("sequence_length", _SMALL, "tokens"),
    _Column("image_size", _SMALL, "pixels"),
    _Column("workload_options", _TEXT),
    _Column("backend", _TEXT, required=True),
    _Column("backend_options", _TEXT, required=True),
    _Column("dtype", _TEXT, required=True),
    _Column("device", _TEXT, required=True),
    _Column("threads", _SMALL, "threads", required=True),
    _Column("seed", _INTEGER, required=True),
    _Column("protocol", _TEXT, required=True),
    _Column("timeout_s", _NUMBER, "s"),
    _Column("method_version", _SMALL, required=True),
    _Column("contract_version", _SMALL, required=True),
]
_STACK = [
    _Column("environment", _TEXT, required=True),
    *_texts("environment_id", "image_digest", "image_id", "lock_sha256", "runner_sha256"),
    *_texts("isolation", "executor_reason", "trial_cores"),
    _Column("memory_limit_bytes", _INTEGER, "bytes"),
    *_texts("torch_version", "transformers_version", "onnxruntime_version", "python_version"),
]
HOT_SYSTEM: Final = (
    _Column("cpu_model", _TEXT),
    _Column("cpu_cores", _SMALL, "cores"),
    _Column("cpu_threads", _SMALL, "threads"),
    _Column("memory_bytes", _INTEGER, "bytes"),
    _Column("kernel", _TEXT),
    _Column("virtualisation", _TEXT),
    _Column("gpu_name", _TEXT),
    _Column("gpu_count", _SMALL, "devices"),
    _Column("driver_version", _TEXT),
)
"""Stable facts of a system that are copied into every trial, because people filter by them."""

_SYSTEM = [*_texts("host", "hw_id", "system_id"), *HOT_SYSTEM]
_PHASES = [
    *_seconds("build_s", "load_s", "artifact_s"),
    _Column("artifact_cached", _TRUTH),
    *_seconds("reference_s", "first_call_s", "warmup_s", "examine_s", "floor_s"),
]
_LATENCY = [
    *_seconds(
        "latency_sync_min_s",
        "latency_sync_p10_s",
        "latency_sync_p25_s",
        "latency_sync_median_s",
        "latency_sync_p75_s",
        "latency_sync_p90_s",
        "latency_sync_mean_s",
        better="lower",
    ),
    _Column("latency_sync_samples", _SMALL, "samples"),
    *_seconds("latency_pipelined_median_s", "latency_pipelined_mean_s", better="lower"),
    _Column("latency_pipelined_samples", _SMALL, "samples"),
    _Column("pipelined_calls_per_sample", _SMALL, "calls"),
    *_seconds("cpu_time_per_call_s", better="lower"),
    _Column("cpu_wall_ratio", _NUMBER, "1"),
    _Column("throughput_examples_per_s", _NUMBER, "examples/s", "higher"),
    _Column("steady", _TRUTH),
    *_texts("sync_stopped", "pipelined_stopped"),
    *_seconds("latency_legacy_s", better="lower"),
    *_seconds("pressure_sync_s", "pressure_pipelined_s"),
]
_TAX = [
    *_seconds("dispatch_floor_s", better="lower"),
    _Column("dispatch_floor_valid", _TRUTH),
    _Column("dispatch_floor_problem", _TEXT),
    *_seconds("dispatch_s", "graph_s", "busy_s", better="lower"),
    *_seconds("exposed_overhead_s", "exposed_overhead_graph_s", better="lower"),
    _Column("overhead_estimates_agree", _TRUTH),
    _Column("framework_fraction", _NUMBER, "1", "lower"),
    _Column("boundedness", _NUMBER, "1", "lower"),
    _Column("tax_ratio", _NUMBER, "1", "lower"),
    _Column("regime", _TEXT),
]
_COST = [
    _Column("flops", _INTEGER, "operations per call"),
    _Column("macs", _INTEGER, "multiply-adds per call"),
    _Column("achieved_flops_per_s", _NUMBER, "operations/s", "higher"),
]
PASSES: Final = (
    _Column("operations", _INTEGER, "operations per call", "lower"),
    _Column("kernels", _NUMBER, "kernels per call", "lower"),
    _Column("launches", _NUMBER, "launches per call", "lower"),
    _Column("kernel_sum_s", _NUMBER, "s", "lower"),
    _Column("dtype_native", _TRUTH),
    _Column("memory_peak_rss_bytes", _INTEGER, "bytes", "lower"),
    _Column("memory_uss_bytes", _INTEGER, "bytes", "lower"),
    _Column("memory_pss_bytes", _INTEGER, "bytes", "lower"),
    _Column("memory_device_allocated_peak_bytes", _INTEGER, "bytes", "lower"),
    _Column("memory_device_reserved_peak_bytes", _INTEGER, "bytes", "lower"),
    _Column("memory_device_process_bytes", _INTEGER, "bytes", "lower"),
    _Column("utilisation_sm_active_share", _NUMBER, "1", "higher"),
    _Column("utilisation_sm_occupancy_share", _NUMBER, "1", "higher"),
    _Column("utilisation_dram_bandwidth_share", _NUMBER, "1"),
    _Column("clock_sm_mean_mhz", _NUMBER, "MHz"),
    _Column("clock_throttled_share", _NUMBER, "1", "lower"),
    _Column("energy_per_call_j", _NUMBER, "J", "lower"),
    _Column("energy_power_mean_w", _NUMBER, "W"),
    _Column("energy_valid", _TRUTH),
)
"""Facts of the passes after timing that are columns; all others stay in `facts`."""

_VERIFICATION = [
    _Column("verified", _TRUTH),
    _Column("verified_after_timing", _TRUTH),
    _Column("inputs_distinguished", _TRUTH),
    _Column("max_abs_error", _NUMBER, "1", "lower"),
    _Column("relative_l2", _NUMBER, "1", "lower"),
    _Column("cosine", _NUMBER, "1", "higher"),
    _Column("eager_max_abs_error", _NUMBER, "1", "lower"),
    _Column("eager_relative_l2", _NUMBER, "1", "lower"),
]
_RESOURCES = [
    _Column("parameters", _INTEGER, "parameters"),
    _Column("weight_bytes", _INTEGER, "bytes"),
    _Column("max_rss_bytes", _INTEGER, "bytes", "lower"),
    *_seconds("user_cpu_s", "system_cpu_s"),
    _Column("voluntary_context_switches", _INTEGER, "switches"),
    _Column("involuntary_context_switches", _INTEGER, "switches"),
    _Column("major_page_faults", _INTEGER, "faults"),
]
_SAMPLES = [
    _Column(f"samples_{mode}_{clock}", _SERIES, "s")
    for clock in ("s", "cpu_s")
    for mode in ("warmup", "sync", "pipelined", "dispatch", "graph", "floor", "legacy")
]
_PRESSURES = [_Column(f"samples_{mode}_pressure_s", _SERIES, "s") for mode in ("sync", "pipelined")]
_TRIAL_COLUMNS = [
    *_IDENTITY,
    *_OUTCOME,
    *_SPECIFICATION,
    *_STACK,
    *_SYSTEM,
    *_PHASES,
    *_LATENCY,
    *_TAX,
    *_COST,
    *_VERIFICATION,
    *_RESOURCES,
    *PASSES,
    *_SAMPLES,
    *_PRESSURES,
    *_texts("facts", "conditions_before", "conditions_after"),
]


def _schema(columns: list[_Column]) -> pa.Schema:
    return pa.schema([column.field() for column in columns], metadata={"schema_version": str(SCHEMA_VERSION)})


TRIALS: Final = _schema(_TRIAL_COLUMNS)
SYSTEMS: Final = _schema(
    [
        _Column("system_id", _TEXT, required=True),
        _Column("hw_id", _TEXT, required=True),
        *HOT_SYSTEM,
        _Column("fingerprint", _TEXT, required=True),
    ]
)
ENVIRONMENTS: Final = _schema(
    [
        _Column("environment_id", _TEXT, required=True),
        _Column("environment", _TEXT, required=True),
        *_texts("image_digest", "lock_sha256"),
        _Column("versions", _TEXT, required=True),
        _Column("facts", _TEXT, required=True),
        _Column("image_layers", _TEXTS),
        _Column("image_config_sha256", _TEXT),
    ]
)
CAMPAIGNS: Final = _schema(
    [
        _Column("campaign_id", _TEXT, required=True),
        _Column("started_at", _TIME, required=True),
        _Column("sweep", _TEXT, required=True),
        _Column("sweep_document", _TEXT, required=True),
        _Column("inventory_document", _TEXT, required=True),
        _Column("plan_digest", _TEXT, required=True),
        _Column("planned_trials", _INTEGER, "trials", required=True),
        _Column("taxmeter_version", _TEXT, required=True),
        _Column("git_commit", _TEXT),
    ]
)

ROW_KEY: Final = ("trial_id", "attempt")
"""What makes a row of `trials` unique."""

SORT_ORDER: Final = ("workload", "backend", "batch", "started_at")
"""Order of the rows in a part: what people select by comes first, so that statistics prune well."""

# Nearly constant within a part; a dictionary of anything else costs more than it saves.
_DISTINCT_TEXT = {"trial_id", "reason", "log_tail", "facts", "dispatch_floor_problem"}
_DISTINCT_TEXT |= {"conditions_before", "conditions_after"}
DICTIONARY_COLUMNS: Final = [f.name for f in TRIALS if f.type == _TEXT and f.name not in _DISTINCT_TEXT]
SPLIT_COLUMNS: Final = [
    f.name + (".list.element" if f.type == _SERIES else "") for f in TRIALS if f.type in (_NUMBER, _SERIES)
]
"""Parquet paths of the floating-point columns, stored as BYTE_STREAM_SPLIT."""

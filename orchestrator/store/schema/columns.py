"""Columns of the tables, in groups, with their units, and what of them an anonymised export shows."""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

import pyarrow as pa

TEXT = pa.string()
INTEGER = pa.int64()
_SMALL = pa.int32()
NUMBER = pa.float64()
_TRUTH = pa.bool_()
TIME = pa.timestamp("us", "UTC")
SERIES = pa.list_(pa.field("element", pa.float64()))
COUNTS = pa.list_(pa.field("element", pa.int32()))
TEXTS = pa.list_(pa.field("element", pa.string()))
_GUARD_RESULT = (
    *((name, TEXT) for name in ("guard", "moment", "policy", "outcome")),
    *(("observed", NUMBER), ("limit", NUMBER), ("unit", TEXT), ("detail", TEXT)),
    pa.field("waited_s", NUMBER, metadata={"unit": "s"}),
)
GUARD_RESULTS = pa.list_(pa.field("element", pa.struct(_GUARD_RESULT)))
"""Fields of `runners.contract.GuardResult`."""


class Origin(Enum):
    """How a campaign came into the store."""

    MEASURED = "measured"
    """By a sweep that wrote here."""
    IMPORTED = "imported"
    """From a directory that another machine ran by hand."""
    MERGED = "merged"
    """From another store, whoever wrote that."""


class Stage(Enum):
    """What a campaign spends its time on; the values are columns of `campaigns`. It is in one stage at a time."""

    LOOKING = "looking_s"
    """At hosts: what they are, and what they have."""
    PLANNING = "planning_s"
    """And choosing the campaign to go on with."""
    IMAGES = "images_s"
    """Building them."""
    SETUP = "setup_s"
    """Of hosts: images and environments go there, a cluster starts, what waits there is fetched."""
    RUNNING = "running_s"
    """A task is on some host."""
    WAITING = "waiting_s"
    """None is, and hosts are waited for."""
    TEARDOWN = "teardown_s"
    """Hosts are cleared, and what runs there of ours ends."""


class Sharing(Enum):
    """What an anonymised export shows of a column."""

    PRIVATE = "nothing"
    PUBLIC = "its values"
    DOCUMENT = "of its JSON or structs the numbers, and texts under the keys of `SHARED_KEYS`"
    HOST = "host"
    SWEEP = "sweep"
    CAMPAIGN = "campaign"
    TASK = "task"
    """The last four: another name, the same wherever the name stands."""


SHARED_KEYS: Final = frozenset(
    {
        # fingerprints
        *("vendor", "model_name", "name", "type", "flags", "microcode", "product", "board", "firmware", "architecture"),
        *("frequency_driver", "governor", "energy_preference", "idle_driver", "idle_governor", "clocksource"),
        *("mitigations", "distribution", "libc", "hypervisor", "container", "transparent_huge_pages"),
        *("gpu_driver_version", "gpu_cuda_version", "gpu_reason", "compute_capability", "vbios", "cpus"),
        # facts of trials
        *("attention_operators", "attn_implementation", "dtype_isa", "input_mask", "sdpa_kernel", "matmul_precision"),
        *("operations_by_name", "ort_operators", "ort_fused", "onnx_batch", "onnx_exporter", "onnx_provider"),
        *("library_model", "memory_format", "torch_cpu_capability", "artifact_sha256"),
        *("counted_by", "floor_measured_by", "floor_structure"),
        # facts of environments
        *("onnxruntime_build", "onnxruntime_providers", "onnxruntime_version", "python_implementation"),
        *("torch_git_version", "torch_version", "torch_config_sha256"),
        # guards
        *("guard", "moment", "policy", "outcome", "unit"),
    }
)
"""Keys whose texts are words of ours, of frameworks or of vendors. A key that is not here is left out of an export."""


@dataclass(frozen=True)
class Column:
    """A column of a table of the store."""

    name: str
    type: pa.DataType
    unit: str | None = None
    better: str | None = None
    """`lower` or `higher`; null where neither is."""
    required: bool = False
    sharing: Sharing = Sharing.PRIVATE

    def field(self) -> pa.Field:
        """The column as Arrow has it: unit and direction are metadata."""
        metadata = {"unit": self.unit, "better": self.better}
        present = {key: value for key, value in metadata.items() if value is not None}
        return pa.field(self.name, self.type, nullable=not self.required, metadata=present or None)


def texts(*names: str, sharing: Sharing = Sharing.PRIVATE) -> list[Column]:
    """Text columns that may be null."""
    return [Column(name, TEXT, sharing=sharing) for name in names]


def public(*columns: Column) -> list[Column]:
    """The columns, all of whose values an anonymised export shows."""
    return [replace(column, sharing=Sharing.PUBLIC) for column in columns]


def _seconds(*names: str, better: str | None = None) -> list[Column]:
    return [Column(name, NUMBER, "s", better) for name in names]


_IDENTITY = [
    *public(Column("trial_id", TEXT, required=True), Column("trial_key", TEXT, required=True)),
    Column("campaign_id", TEXT, required=True, sharing=Sharing.CAMPAIGN),
    Column("task_id", TEXT, sharing=Sharing.TASK),
    *public(
        Column("round", _SMALL, required=True),
        Column("order", _SMALL, required=True),
        Column("replicate", _SMALL, required=True),
        Column("attempt", _SMALL, required=True),
    ),
    Column("reproduces", TEXT, sharing=Sharing.CAMPAIGN),
    *public(*texts("reproduces_trial_key")),
    *texts("reproduction_differs"),
    *public(*texts("session_id", "interleaving"), Column("session_processes", _SMALL, "processes")),
    *texts("session_reason"),
]
_OUTCOME = [
    *public(Column("status", TEXT, required=True)),
    *texts("reason", "log_tail"),
    *public(Column("exit_code", _SMALL), Column("started_at", TIME, required=True), Column("finished_at", TIME)),
]
_SPECIFICATION = public(
    Column("workload", TEXT, required=True),
    Column("batch", _SMALL, "examples", required=True),
    Column("sequence_length", _SMALL, "tokens"),
    Column("image_size", _SMALL, "pixels"),
    Column("workload_options", TEXT),
    Column("backend", TEXT, required=True),
    Column("backend_options", TEXT, required=True),
    Column("dtype", TEXT, required=True),
    Column("device", TEXT, required=True),
    Column("threads", _SMALL, "threads", required=True),
    Column("seed", INTEGER, required=True),
    Column("protocol", TEXT, required=True),
    Column("timeout_s", NUMBER, "s"),
    Column("method_version", _SMALL, required=True),
    Column("contract_version", _SMALL, required=True),
)
_STACK = [
    *public(
        Column("environment", TEXT, required=True),
        *texts("environment_id", "image_digest", "image_id", "lock_sha256", "runner_sha256", "isolation"),
    ),
    *texts("executor_reason"),
    *public(*texts("trial_cores"), Column("memory_limit_bytes", INTEGER, "bytes")),
    *texts("gpu_uuid"),
    *public(
        *texts("exclusive"),
        Column("slot", _SMALL),
        *texts("torch_version", "transformers_version", "onnxruntime_version", "python_version"),
    ),
]
HOT_SYSTEM: Final = (
    *public(
        Column("cpu_model", TEXT),
        Column("cpu_cores", _SMALL, "cores"),
        Column("cpu_threads", _SMALL, "threads"),
        Column("memory_bytes", INTEGER, "bytes"),
    ),
    # A kernel that somebody built has a name that somebody chose.
    *texts("kernel"),
    *public(
        Column("virtualisation", TEXT),
        Column("gpu_name", TEXT),
        Column("gpu_count", _SMALL, "devices"),
        Column("driver_version", TEXT),
    ),
)
"""Stable facts of a system that are copied into every trial, because people filter by them."""

_SYSTEM = [Column("host", TEXT, sharing=Sharing.HOST), *public(*texts("hw_id", "system_id")), *HOT_SYSTEM]
_PHASES = public(
    *_seconds("reference_s", "artifact_s"),
    *texts("reference_cache", "artifact_cache"),
    *_seconds("build_s", "load_s", "inputs_s", "first_call_s", "verify_s", "warmup_s", "timed_s", "facts_s"),
    *_seconds("examine_s", "floor_s", "process_s", "others_s", "session_s"),
)
_LATENCY = public(
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
    Column("latency_sync_samples", _SMALL, "samples"),
    *_seconds("latency_pipelined_median_s", "latency_pipelined_mean_s", better="lower"),
    Column("latency_pipelined_samples", _SMALL, "samples"),
    Column("pipelined_calls_per_sample", _SMALL, "calls"),
    *_seconds("cpu_time_per_call_s", better="lower"),
    Column("cpu_wall_ratio", NUMBER, "1"),
    Column("throughput_examples_per_s", NUMBER, "examples/s", "higher"),
    Column("steady", _TRUTH),
    Column("short_series", _TRUTH),
    *texts("sync_stopped", "pipelined_stopped"),
    *_seconds("latency_legacy_s", better="lower"),
    *_seconds("pressure_sync_s", "pressure_pipelined_s"),
)
_FRAMEWORK = public(
    *_seconds("dispatch_floor_small_s", "dispatch_floor_large_s", "dispatch_floor_threads_s", better="lower"),
    Column("dispatch_floor_valid", _TRUTH),
    *texts("dispatch_floor_structure"),
    *_seconds("dispatch_s", "graph_s", "busy_s", better="lower"),
)
_COST = public(
    Column("flops", INTEGER, "operations per call"),
    Column("macs", INTEGER, "multiply-adds per call"),
    Column("achieved_flops_per_s", NUMBER, "operations/s", "higher"),
)
PASSES: Final = (
    *public(
        Column("operations", INTEGER, "operations per call", "lower"),
        Column("kernels", NUMBER, "kernels per call", "lower"),
        Column("launches", NUMBER, "launches per call", "lower"),
        Column("kernel_sum_s", NUMBER, "s", "lower"),
        Column("dtype_native", _TRUTH),
        Column("memory_peak_rss_bytes", INTEGER, "bytes", "lower"),
        Column("memory_uss_bytes", INTEGER, "bytes", "lower"),
        Column("memory_pss_bytes", INTEGER, "bytes", "lower"),
        Column("memory_device_allocated_peak_bytes", INTEGER, "bytes", "lower"),
        Column("memory_device_reserved_peak_bytes", INTEGER, "bytes", "lower"),
        Column("memory_device_process_bytes", INTEGER, "bytes", "lower"),
        Column("utilisation_sm_active_share", NUMBER, "1", "higher"),
        Column("utilisation_sm_occupancy_share", NUMBER, "1", "higher"),
        Column("utilisation_dram_bandwidth_share", NUMBER, "1"),
        Column("clock_sm_mean_mhz", NUMBER, "MHz"),
        Column("clock_throttled_share", NUMBER, "1", "lower"),
        Column("energy_per_call_j", NUMBER, "J", "lower"),
        Column("energy_power_mean_w", NUMBER, "W"),
        Column("energy_valid", _TRUTH),
    ),
)
"""Facts of the passes after timing that are columns; all others stay in `facts`."""

_VERIFICATION = public(
    Column("verified", _TRUTH),
    Column("verified_after_timing", _TRUTH),
    Column("inputs_distinguished", _TRUTH),
    Column("max_abs_error", NUMBER, "1", "lower"),
    Column("relative_l2", NUMBER, "1", "lower"),
    Column("cosine", NUMBER, "1", "higher"),
    Column("eager_max_abs_error", NUMBER, "1", "lower"),
    Column("eager_relative_l2", NUMBER, "1", "lower"),
)
_RESOURCES = public(
    Column("parameters", INTEGER, "parameters"),
    Column("weight_bytes", INTEGER, "bytes"),
    Column("max_rss_bytes", INTEGER, "bytes", "lower"),
    *_seconds("user_cpu_s", "system_cpu_s"),
    Column("voluntary_context_switches", INTEGER, "switches"),
    Column("involuntary_context_switches", INTEGER, "switches"),
    Column("major_page_faults", INTEGER, "faults"),
)
_MODES = ("warmup", "sync", "pipelined", "dispatch", "graph", "floor", "floor_large", "floor_threads", "legacy")
_SAMPLES = public(
    *(Column(f"samples_{mode}_{clock}", SERIES, "s") for clock in ("s", "cpu_s") for mode in _MODES),
    Column("turn_samples", COUNTS, "samples"),
    *(Column(f"samples_{mode}_pressure_s", SERIES, "s") for mode in ("sync", "pipelined")),
)
TRIAL_COLUMNS: Final = (
    *_IDENTITY,
    *_OUTCOME,
    *_SPECIFICATION,
    *_STACK,
    *_SYSTEM,
    *_PHASES,
    *_LATENCY,
    *_FRAMEWORK,
    *_COST,
    *_VERIFICATION,
    *_RESOURCES,
    *PASSES,
    *texts("dispatch_floor_problem"),
    *_SAMPLES,
    *texts("facts", "conditions_before", "conditions_after", sharing=Sharing.DOCUMENT),
    Column("guards", GUARD_RESULTS, sharing=Sharing.DOCUMENT),
    *public(Column("guard_flags", TEXTS)),
)

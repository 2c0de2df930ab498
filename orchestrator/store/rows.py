"""From what a runner said to the rows of the store. Pure: no clock, no files."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np

from orchestrator.errors import StoreError
from orchestrator.store.schema.columns import HOT_SYSTEM, PASSES
from runners.contract import (
    CONTRACT_VERSION,
    METHOD_VERSION,
    GuardOutcome,
    Series,
    Session,
    Stop,
    Trial,
    TrialRecord,
    encode,
)
from runners.contract.record import FactValue

Row = dict[str, object]

P90_MIN_SAMPLES = 64
"""Below this number of samples the 90th percentile is mostly chance."""

_NS_PER_S = 1e9
FLOOR_QUANTILE = 0.1
"""Of a twin's calls: the median of few, or of a disturbed moment, was up to 400 times as long."""
_TWINS = {"dispatch_floor_small_s": "floor", "dispatch_floor_large_s": "floor_large"}
_MODES_WITH_PRESSURE = ("sync", "pipelined")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class RowContext:
    """What a trial shares with the other trials of its task. Unknown is null."""

    campaign_id: str
    environment: str
    task_id: str | None = None
    host: str | None = None
    isolation: str | None = None
    """`docker` or `process`."""
    executor_reason: str | None = None
    """Why this executor was taken."""
    environment_id: str | None = None
    image_digest: str | None = None
    image_id: str | None = None
    lock_sha256: str | None = None
    runner_sha256: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    """Installed distributions as seen inside, `python` included; empty if nothing was seen."""
    hw_id: str | None = None
    system_id: str | None = None
    hot: Mapping[str, FactValue] = field(default_factory=dict)
    """Values of the columns of `columns.HOT_SYSTEM`; a missing one is null."""
    trial_cores: str | None = None
    """Processors that the container or process may use, as the kernel lists them: `0-3,8`."""
    memory_limit_bytes: int | None = None
    """Limit of the container, or of a process's own data."""
    gpu_uuid: str | None = None
    """The GPU that the task was given; null on processors, and where it saw all GPUs."""
    exclusive: str | None = None
    """What ran one task at a time: `host`, or `gpu`."""
    slot: int | None = None
    """Which of the host's slots the task had, counted from 0."""
    reproduces: str | None = None
    """The campaign whose trials are run again; null for all that is new."""
    reproduces_trial_key: str | None = None
    """The key there of what this trial runs again."""
    reproduction_differs: str | None = None
    """In what the trial is known to differ from the one that it reproduces before it runs; null if in nothing."""


def trial_row(context: RowContext, trial: Trial, record: TrialRecord) -> Row:
    """One row of `trials`, whatever became of the trial. What is unknown is null, never 0.

    Raises:
        StoreError: the record belongs to another trial, or repeats a timing mode.
    """
    if (record.trial_id, record.attempt) != (trial.trial_id, trial.attempt):
        raise StoreError(f"record of {record.trial_id}/{record.attempt} for trial {trial.trial_id}/{trial.attempt}")
    series = _by_mode(record.series)
    return {
        **_identity(context, trial),
        **_specification(trial),
        **_stack(context),
        **_outcome(record),
        **_session(record.session),
        **_sync(series.get("sync")),
        **_pipelined(series.get("pipelined"), trial.spec.workload.batch),
        **_legacy(series.get("legacy")),
        **_framework(trial, series, record.facts),
        **_cost(trial.spec.workload.batch, series, record.facts),
        **_samples(series),
        **_verification(record),
        **_resources(record),
        **_guards(record),
    }


def _identity(context: RowContext, trial: Trial) -> Row:
    return {
        "trial_id": trial.trial_id,
        "trial_key": trial.trial_key,
        "campaign_id": context.campaign_id,
        "task_id": context.task_id,
        "round": trial.round,
        "order": trial.order,
        "replicate": trial.replicate,
        "attempt": trial.attempt,
        "reproduces": context.reproduces,
        "reproduces_trial_key": context.reproduces_trial_key,
        "reproduction_differs": context.reproduction_differs,
        "timeout_s": float(trial.timeout_s),
    }


def _specification(trial: Trial) -> Row:
    spec = trial.spec
    return {
        "workload": spec.workload.name,
        "batch": spec.workload.batch,
        "sequence_length": spec.workload.sequence_length,
        "image_size": spec.workload.image_size,
        "workload_options": json_text(spec.workload.options),
        "backend": spec.backend.name,
        "backend_options": json_text(spec.backend.options),
        "dtype": spec.dtype,
        "device": spec.device,
        "threads": spec.threads,
        "seed": spec.seed,
        "protocol": json_text(encode(spec.protocol)),
        "method_version": METHOD_VERSION,
        "contract_version": CONTRACT_VERSION,
    }


def _stack(context: RowContext) -> Row:
    return {
        "environment": context.environment,
        "environment_id": context.environment_id,
        "image_digest": context.image_digest,
        "image_id": context.image_id,
        "lock_sha256": context.lock_sha256,
        "runner_sha256": context.runner_sha256,
        "isolation": context.isolation,
        "executor_reason": context.executor_reason,
        "trial_cores": context.trial_cores,
        "memory_limit_bytes": context.memory_limit_bytes,
        "gpu_uuid": context.gpu_uuid,
        "exclusive": context.exclusive,
        "slot": context.slot,
        "torch_version": context.versions.get("torch"),
        "transformers_version": context.versions.get("transformers"),
        "onnxruntime_version": context.versions.get("onnxruntime") or context.versions.get("onnxruntime-gpu"),
        "python_version": context.versions.get("python"),
        "host": context.host,
        "hw_id": context.hw_id,
        "system_id": context.system_id,
        **hot_system(context.hot),
    }


def _outcome(record: TrialRecord) -> Row:
    return {
        "status": record.status.value,
        "reason": record.reason,
        "log_tail": record.log_tail or None,
        "exit_code": record.exit_code,
        "started_at": _time(record.started_at_ns),
        "finished_at": _time(record.finished_at_ns),
        "steady": record.steady,
        "facts": json_text(record.facts),
        "conditions_before": json_text(record.conditions_before),
        "conditions_after": json_text(record.conditions_after),
        **encode(record.phases),
    }


def _session(session: Session | None) -> Row:
    if session is None:
        return {}
    return {
        "session_id": session.session_id,
        "interleaving": session.interleaving.value,
        "session_processes": session.processes,
        "session_reason": session.reason,
    }


def _sync(series: Series | None) -> Row:
    if series is None or not series.durations_ns:
        return {}
    wall_s = np.asarray(series.durations_ns) / _NS_PER_S
    p10, p25, median, p75, p90 = (float(q) for q in np.quantile(wall_s, [0.1, 0.25, 0.5, 0.75, 0.9]))
    wall_ns, cpu_ns = sum(series.durations_ns), sum(series.cpu_ns)
    has_cpu = len(series.cpu_ns) == len(series.durations_ns)
    return {
        "latency_sync_min_s": float(wall_s.min()),
        "latency_sync_p10_s": p10,
        "latency_sync_p25_s": p25,
        "latency_sync_median_s": median,
        "latency_sync_p75_s": p75,
        "latency_sync_p90_s": p90 if len(wall_s) >= P90_MIN_SAMPLES else None,
        "latency_sync_mean_s": float(wall_s.mean()),
        "latency_sync_samples": len(wall_s),
        "cpu_time_per_call_s": cpu_ns / _NS_PER_S / len(wall_s) if has_cpu else None,
        "cpu_wall_ratio": cpu_ns / wall_ns if has_cpu and wall_ns else None,
        "sync_stopped": series.stopped.value if series.stopped else None,
        "short_series": series.stopped is Stop.SHORT if series.turns else None,
        "turn_samples": list(series.turns) or None,
        "pressure_sync_s": _optional_seconds(series.pressure_total_ns),
    }


def _pipelined(series: Series | None, batch: int) -> Row:
    if series is None or not series.durations_ns:
        return {}
    wall_s = np.asarray(series.durations_ns) / _NS_PER_S
    mean_s = float(wall_s.mean())
    return {
        "latency_pipelined_median_s": float(np.median(wall_s)),
        "latency_pipelined_mean_s": mean_s,
        "latency_pipelined_samples": len(wall_s),
        "pipelined_calls_per_sample": series.calls_per_sample,
        "throughput_examples_per_s": batch / mean_s if mean_s else None,
        "pipelined_stopped": series.stopped.value if series.stopped else None,
        "pressure_pipelined_s": _optional_seconds(series.pressure_total_ns),
    }


def _legacy(series: Series | None) -> Row:
    if series is None or not series.durations_ns:
        return {}
    # One sample: the mean of all its passes
    return {"latency_legacy_s": series.durations_ns[0] / _NS_PER_S}


def _framework(trial: Trial, series: Mapping[str, Series], facts: Mapping[str, FactValue]) -> Row:
    """What the tax is derived from. On a CPU the floor's twins, on a GPU dispatch and what the device does."""
    if trial.spec.device != "cpu":
        return {
            # A call that waits for the device returns when its work is done: that is no dispatch.
            "dispatch_s": _quantile_s(series.get("dispatch"), 0.5) if facts.get("dispatch_problem") is None else None,
            "graph_s": _quantile_s(series.get("graph"), 0.5),
            "busy_s": facts.get("busy_s") if facts.get("profiler_valid") is True else None,
        }
    # Of twins that waited for processors the time on many threads says nothing.
    threads = series.get("floor_threads") if facts.get("floor_threads_problem") is None else None
    return {
        **{name: _quantile_s(series.get(mode), FLOOR_QUANTILE) for name, mode in _TWINS.items()},
        "dispatch_floor_threads_s": _quantile_s(threads, FLOOR_QUANTILE),
        "dispatch_floor_valid": facts.get("floor_valid"),
        "dispatch_floor_problem": facts.get("floor_problem"),
        "dispatch_floor_structure": facts.get("floor_structure"),
    }


def _cost(batch: int, series: Mapping[str, Series], facts: Mapping[str, FactValue]) -> Row:
    """Arithmetic of a call, and how fast it was done: by the pipelined latency where there is one."""
    pace_s = _quantile_s(series.get("pipelined"), 0.5) or _quantile_s(series.get("sync"), 0.5)
    per_example = facts.get("flops_per_example"), facts.get("macs_per_example")
    flops, macs = (value * batch if isinstance(value, int) else None for value in per_example)
    return {
        "flops": flops,
        "macs": macs,
        "achieved_flops_per_s": flops / pace_s if flops is not None and pace_s else None,
    }


def _quantile_s(series: Series | None, share: float) -> float | None:
    if series is None or not series.durations_ns:
        return None
    return float(np.quantile(series.durations_ns, share)) / _NS_PER_S


def _optional_seconds(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / _NS_PER_S


def _samples(series: Mapping[str, Series]) -> Row:
    row: Row = {}
    for mode, one in series.items():
        row[f"samples_{mode}_s"] = [ns / _NS_PER_S for ns in one.durations_ns]
        row[f"samples_{mode}_cpu_s"] = [ns / _NS_PER_S for ns in one.cpu_ns]
        if one.pressure_ns and mode in _MODES_WITH_PRESSURE:
            row[f"samples_{mode}_pressure_s"] = [ns / _NS_PER_S for ns in one.pressure_ns]
    return row


def _verification(record: TrialRecord) -> Row:
    seen = record.verification
    if seen is None:
        return {}
    return {
        "verified": seen.passed,
        "verified_after_timing": seen.after_timing,
        "inputs_distinguished": seen.inputs_distinguished,
        "max_abs_error": seen.max_abs_error,
        "relative_l2": seen.relative_l2,
        "cosine": seen.cosine,
        "eager_max_abs_error": seen.eager_max_abs_error,
        "eager_relative_l2": seen.eager_relative_l2,
    }


def _resources(record: TrialRecord) -> Row:
    names = ("parameters", "weight_bytes", *(column.name for column in PASSES))
    known = {name: record.facts.get(name) for name in names}
    return {**known, **(encode(record.usage) if record.usage is not None else {})}


def _guards(record: TrialRecord) -> Row:
    """Null where nothing was watched; then nobody knows whether the trial was disturbed."""
    if not record.guards:
        return {}
    flags = {one.guard for one in record.guards if one.outcome is GuardOutcome.FLAGGED}
    return {"guards": encode(record.guards), "guard_flags": sorted(flags)}


def hot_system(hot: Mapping[str, FactValue]) -> Row:
    """The columns of `columns.HOT_SYSTEM`.

    Raises:
        StoreError: a name is not one of them.
    """
    names = [column.name for column in HOT_SYSTEM]
    unknown = sorted(set(hot) - set(names))
    if unknown:
        raise StoreError(f"no such system column: {', '.join(unknown)}")
    return {name: hot.get(name) for name in names}


def _by_mode(series: Sequence[Series]) -> dict[str, Series]:
    by_mode = {one.mode: one for one in series}
    if len(by_mode) != len(series):
        raise StoreError("a record repeats a timing mode")
    return by_mode


def _time(nanoseconds: int) -> datetime:
    # Through whole microseconds: a float of this size has lost them.
    return _EPOCH + timedelta(microseconds=nanoseconds // 1000)


def json_text(value: object) -> str:
    """The one way in which JSON stands in the store: sorted, without blanks."""
    return json.dumps(value, sort_keys=True, allow_nan=False, separators=(",", ":"))

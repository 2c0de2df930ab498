"""The one row builder: from what a runner said to rows of `trials` and of what they refer to. No clock, no files.

It serves records that come from a running task, are left of a dead one, or are imported. Unknown is null, never 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta

import numpy as np

from orchestrator.errors import StoreError
from orchestrator.store.origin import RowContext, TaskOrigin, environment_id
from orchestrator.store.schema.columns import PASSES
from orchestrator.store.schema.tables import Row, environment_row, hot_system, json_text, system_row
from runners.contract import (
    CONTRACT_VERSION,
    METHOD_VERSION,
    Environment,
    GuardOutcome,
    Series,
    Stop,
    Trial,
    TrialRecord,
    encode,
)
from runners.contract.record import FactValue
from runners.system import Fingerprint, hot_columns, hw_id, system_id

P90_MIN_SAMPLES = 64
"""Below this number of samples the 90th percentile is mostly chance."""
FLOOR_QUANTILE = 0.1
"""Of a twin's calls: the median of few, or of a disturbed moment, was up to 400 times as long."""

_NS_PER_S = 1e9
_TWINS = {"dispatch_floor_small_s": "floor", "dispatch_floor_large_s": "floor_large"}
_MODES_WITH_PRESSURE = ("sync", "pipelined")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Rows:
    """Rows that belong together. Systems and environments that are there already do no harm."""

    trials: Sequence[Row] = ()
    systems: Sequence[Row] = ()
    environments: Sequence[Row] = ()
    size: int = 0
    """Bytes that they were made of, for who bounds what waits."""


class RowBuilder:
    """Makes rows of a task's trials. A `StoreError` tells what no row can hold."""

    def __init__(self, origin: TaskOrigin) -> None:
        self.origin = origin
        self.context = origin.context
        self._observed: dict[str, FactValue] = {}
        self._system: Row | None = None
        # Until somebody has looked into it, an environment is what it was declared to be.
        self._environment = self._is_in({}, {})

    def runs_on(self, fingerprint: Fingerprint) -> None:
        """Takes what the host is made of."""
        try:
            identity, hardware, hot = system_id(fingerprint), hw_id(fingerprint), hot_columns(fingerprint)
        except ValueError as error:
            raise StoreError(f"its host: {error}") from error
        self._system = system_row(identity, hardware, hot, encode(replace(fingerprint, private=None)))
        uuids = fingerprint.private.gpu_uuids if fingerprint.private is not None else ()
        named = dict(zip(uuids, (gpu.name for gpu in fingerprint.gpus), strict=False))
        if self.context.gpu_uuid in named:
            # A row of a host with GPUs of several kinds tells the one that it is about.
            hot = {**hot, "gpu_name": named[self.context.gpu_uuid]}
        self.context = replace(self.context, hw_id=hardware, system_id=identity, hot=hot)

    def saw(self, seen: Environment) -> None:
        """Takes what was seen inside the environment. Limits and the like belong to the trials of this task alone."""
        self._observed = {name: value for name, value in seen.facts.items() if is_of_this_run(name)}
        facts = {name: value for name, value in seen.facts.items() if not is_of_this_run(name)}
        try:
            self._environment = self._is_in(seen.versions, facts)
        except ValueError as error:
            raise StoreError(f"its environment: {error}") from error
        visible = str(seen.facts.get("env_CUDA_VISIBLE_DEVICES", ""))
        # What the runner was left with is what it measured
        gpu_uuid = visible if visible.startswith(("GPU-", "MIG-")) else self.context.gpu_uuid
        name = seen.facts.get("driver_visible_gpu")
        self.context = replace(
            self.context,
            runner_sha256=seen.runner_sha256,
            versions=seen.versions,
            gpu_uuid=gpu_uuid,
            hot={**self.context.hot, "gpu_name": name} if name else self.context.hot,
        )

    def rows(self, trials: Sequence[tuple[Trial, TrialRecord]], size: int = 0) -> Rows:
        """Rows of trials, and of what they refer to."""
        return Rows(
            [self._row(trial, record) for trial, record in trials],
            [self._system] if self._system else [],
            [self._environment],
            size,
        )

    def _row(self, trial: Trial, record: TrialRecord) -> Row:
        context = self.context
        if self.origin.reproduces is not None:
            counterpart = self.origin.counterparts[trial.trial_key]
            context = replace(
                context,
                reproduces=self.origin.reproduces,
                reproduces_trial_key=counterpart.trial_key,
                reproduction_differs=counterpart.differs,
            )
        try:
            return trial_row(context, trial, replace(record, facts={**self._observed, **record.facts}))
        except (ValueError, OverflowError) as error:
            raise StoreError(" ".join(str(error).split())) from error

    def _is_in(self, versions: Mapping[str, str], facts: Mapping[str, FactValue]) -> Row:
        pin = self.origin.pin
        identity = environment_id(pin, versions)
        self.context = replace(self.context, environment_id=identity)
        return environment_row(
            identity,
            self.context.environment,
            versions,
            facts,
            image_digest=pin.image_digest,
            lock_sha256=self.context.lock_sha256,
            image_layers=pin.image_layers,
            image_config_sha256=pin.image_config_sha256,
        )


def is_of_this_run(fact: str) -> bool:
    """Whether a fact about an environment is true on this host and in this container only."""
    return fact.startswith(("limit_", "env_", "driver_")) or fact in ("python_executable", "torch_cpu_capability")


def trial_row(context: RowContext, trial: Trial, record: TrialRecord) -> Row:
    """One row of `trials`, whatever became of the trial."""
    if (record.trial_id, record.attempt) != (trial.trial_id, trial.attempt):
        raise StoreError(f"record of {record.trial_id}/{record.attempt} for trial {trial.trial_id}/{trial.attempt}")
    series = {timed.mode: timed for timed in record.series}
    if len(series) != len(record.series):
        raise StoreError("a record repeats a timing mode")
    return {
        **_stack(context),
        **_specification(trial),
        **_outcome(record),
        **_sync(series.get("sync")),
        **_pipelined(series.get("pipelined"), trial.spec.workload.batch),
        # One sample: the mean of all its passes
        "latency_legacy_s": _quantile_s(series.get("legacy"), 0.5),
        **_framework(trial, series, record.facts),
        **_cost(trial.spec.workload.batch, series, record.facts),
        **_samples(series),
    }


def _stack(context: RowContext) -> Row:
    columns = [column.name for column in fields(context) if column.name not in ("versions", "hot")]
    versions = context.versions
    return {
        **{name: getattr(context, name) for name in columns},
        "torch_version": versions.get("torch"),
        "transformers_version": versions.get("transformers"),
        "onnxruntime_version": versions.get("onnxruntime") or versions.get("onnxruntime-gpu"),
        "python_version": versions.get("python"),
        **hot_system(context.hot),
    }


def _specification(trial: Trial) -> Row:
    spec = trial.spec
    return {
        "trial_id": trial.trial_id,
        "trial_key": trial.trial_key,
        "round": trial.round,
        "order": trial.order,
        "replicate": trial.replicate,
        "attempt": trial.attempt,
        "timeout_s": float(trial.timeout_s),
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


def _outcome(record: TrialRecord) -> Row:
    """What needs no arithmetic. Columns of parts that were not reached, or where no guard looked, are missing."""
    row: Row = {
        "status": record.status.value,
        "reason": record.reason,
        "log_tail": record.log_tail or None,
        "exit_code": record.exit_code,
        "started_at": time_of(record.started_at_ns),
        "finished_at": time_of(record.finished_at_ns),
        "steady": record.steady,
        "facts": json_text(record.facts),
        "conditions_before": json_text(record.conditions_before),
        "conditions_after": json_text(record.conditions_after),
        **{name: record.facts.get(name) for name in ("parameters", "weight_bytes", *(pass_.name for pass_ in PASSES))},
        **encode(record.phases),
        **(encode(record.usage) if record.usage is not None else {}),
    }
    if record.session is not None:
        row |= {
            "session_id": record.session.session_id,
            "interleaving": record.session.interleaving.value,
            "session_processes": record.session.processes,
            "session_reason": record.session.reason,
        }
    if record.verification is not None:
        errors = encode(record.verification)
        row |= {"verified": errors.pop("passed"), "verified_after_timing": errors.pop("after_timing"), **errors}
    if record.guards:
        flags = {result.guard for result in record.guards if result.outcome is GuardOutcome.FLAGGED}
        row |= {"guards": encode(record.guards), "guard_flags": sorted(flags)}
    return row


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


def _samples(series: Mapping[str, Series]) -> Row:
    row: Row = {}
    for mode, timed in series.items():
        row[f"samples_{mode}_s"] = [ns / _NS_PER_S for ns in timed.durations_ns]
        row[f"samples_{mode}_cpu_s"] = [ns / _NS_PER_S for ns in timed.cpu_ns]
        if timed.pressure_ns and mode in _MODES_WITH_PRESSURE:
            row[f"samples_{mode}_pressure_s"] = [ns / _NS_PER_S for ns in timed.pressure_ns]
    return row


def _quantile_s(series: Series | None, share: float) -> float | None:
    if series is None or not series.durations_ns:
        return None
    return float(np.quantile(series.durations_ns, share)) / _NS_PER_S


def _optional_seconds(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / _NS_PER_S


def time_of(nanoseconds: int) -> datetime:
    """Nanoseconds since the epoch as a time of the store."""
    # Through whole microseconds: a float of this size has lost them.
    return _EPOCH + timedelta(microseconds=nanoseconds // 1000)

"""What runners of the made-up lab say: records with samples around the truth of `tests.world`."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np

from orchestrator.store.rows import FLOOR_QUANTILE
from runners.contract import Phases, Series, Status, Stop, Trial, TrialRecord, TrialSpec, Usage, Verification, digest
from runners.contract.catalogue import weights_bytes
from tests.machines import GIB, System
from tests.world import Effect, Times, flops, model_of, needed_bytes, times

SAMPLES = 12
"""Of the synchronous series; half of it of the pipelined one."""


@dataclass(frozen=True)
class Noise:
    """Standard deviations of logarithms."""

    of_round: float = 0.01
    """Shared by all trials of a host and round: pairing takes it out."""
    of_process: float = 0.01
    of_sample: float = 0.02


Facts = dict[str, bool | int | float | str | None]
USUAL = Noise()
"""Of a quiet lab."""


@dataclass(frozen=True)
class Visit:
    """One visit of a trial: when, and how lucky its round was."""

    trial: Trial
    start: datetime
    end: datetime
    of_round: float = 1.0
    """Factor on all times of the round."""


def measured(
    system: System, one: Visit, noise: Noise, effects: Sequence[Effect], random: np.random.Generator
) -> TrialRecord:
    """The record of a trial that ended well."""
    spec, of_round = one.trial.spec, one.of_round
    truth = times(system, spec, effects)
    ours = of_round * float(np.exp(random.normal(0, noise.of_process)))
    samples = np.exp(random.normal(0, noise.of_sample, (4, SAMPLES)))
    taken = [
        _series("sync", truth.sync_s * ours * samples[0], 1),
        _series("pipelined", truth.pipelined_s * ours * samples[1][:6], max(1, int(0.1 / truth.pipelined_s))),
    ]
    if system.is_gpu:
        taken.append(_series("dispatch", truth.dispatch_s * ours * samples[2], 1))
        taken.append(_series("graph", truth.busy_s * 1.01 * of_round * samples[3][:6], max(1, int(0.1 / truth.busy_s))))
    else:
        # A tenth of arithmetic in the small twin, four tenths in the large one
        calls_s = truth.dispatch_s * ours * samples[2] / np.quantile(samples[2], FLOOR_QUANTILE)
        taken += [_series("floor", 1.1 * calls_s, 1), _series("floor_large", 1.4 * calls_s, 1)]
    facts = _facts(system, spec, truth, float(samples[3][0]) * of_round)
    examine_s = 2.0 if system.is_gpu else None
    return _record(
        one, Status.OK, None, series=tuple(taken), steady=True, facts=facts, exit_code=0,
        phases=Phases(build_s=0.8, load_s=0.3, first_call_s=0.2, warmup_s=1.0, examine_s=examine_s, session_s=0.1),
        verification=Verification(True, 2.1e-6, 3.4e-6, 0.9999999, 2.0e-6, 3.2e-6, True, True),
        conditions_before=_conditions(system, float(samples[2][0])),
        conditions_after=_conditions(system, float(samples[2][1])),
        usage=Usage(1_400_000_000, 5.1, 0.6, 120, 14, 0),
    )  # fmt: skip


def ended(one: Visit, status: Status, reason: str) -> TrialRecord:
    """The record of a trial that did not end well."""
    return _record(one, status, reason, log_tail="" if status is Status.SKIPPED else f"…\n{reason}\n")


def _record(one: Visit, status: Status, reason: str | None, **more: Any) -> TrialRecord:
    began_ns, ended_ns = (int(moment.timestamp()) * 10**9 for moment in (one.start, one.end))
    return TrialRecord(one.trial.trial_id, one.trial.attempt, status, reason, began_ns, ended_ns, **more)


def _series(mode: str, seconds: np.ndarray, calls: int) -> Series:
    durations = tuple(np.rint(seconds * 1e9).astype(int).tolist())
    stopped = Stop.BUDGET if mode in ("sync", "pipelined") else None
    return Series(mode, calls, durations, tuple(int(one * 0.98) for one in durations), stopped=stopped)


def _facts(system: System, one: TrialSpec, truth: Times, noise: float) -> Facts:
    operations, weights = model_of(one.workload).operations, weights_bytes(one) or 0
    shared: Facts = {
        "operations": operations, "flops_per_example": flops(one.workload),
        "macs_per_example": flops(one.workload) // 2, "weight_bytes": weights, "dtype_native": True,
        "parameters": weights // (2 if one.dtype == "float16" else 4), "limit_cpus": "0-7", "env_PYTHONHASHSEED": "0",
        "memory_peak_rss_bytes": 1_400_000_000,
    }  # fmt: skip
    if not system.is_gpu:
        structure = digest([one.workload.name, one.workload.options, one.backend, one.dtype])
        proven = {"floor_valid": True, "floor_problem": None, "floor_structure": structure}
        return {**shared, **proven, "floor_operations": operations}
    watts = 90 + 140 * min(1.0, truth.busy_s / truth.pipelined_s)
    return {
        **shared, "busy_s": truth.busy_s * noise, "kernel_sum_s": truth.busy_s * noise * 1.004, "profiler_valid": True,
        "kernels": float(operations), "launches": 1.0 if one.backend.name == "cuda_graphs" else float(operations),
        "memory_device_allocated_peak_bytes": needed_bytes(one),
        "memory_device_process_bytes": needed_bytes(one) + GIB // 2,
        "utilisation_sm_active_share": min(0.99, truth.busy_s / truth.pipelined_s), "clock_sm_mean_mhz": 1350.0,
        "clock_throttled_share": 0.0, "energy_per_call_j": watts * truth.pipelined_s, "energy_power_mean_w": watts,
        "energy_valid": True, "driver_libcuda": system.fingerprint.gpu_driver_version,
    }  # fmt: skip


def _conditions(system: System, noise: float) -> Facts:
    shared = {"load_1m": round(0.4 * noise, 2), "memory_available_bytes": 50 * GIB, "cpu_throttled_us": 0}
    gpu = {"gpu_temperature_c": int(55 * noise), "gpu_clock_sm_mhz": 1350, "gpu_throttle_reasons": 0}
    return {**shared, **(gpu if system.is_gpu else {})}

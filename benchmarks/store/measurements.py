"""What a synthetic trial measured: times that hang together, and what else a trial on a GPU says in numbers."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.store.fleet import BATCHES, Campaign

SAMPLES = 100
"""Of the synchronous series, as the real clock gives them: whole nanoseconds, stored in seconds."""

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Values = dict[str, pa.Array | Sequence[object] | NDArray[np.generic]]

_PHASES = {
    "reference": 0.5,
    "artifact": 1.5,
    "build": 0.0,
    "load": 1.0,
    "inputs": -3.0,
    "first_call": -2.0,
    "verify": -2.0,
    "warmup": -0.6,
    "timed": 1.0,
    "facts": -2.0,
    "examine": 1.2,
    "process": -1.5,
    "others": 2.5,
    "session": -2.5,
}


def latencies(
    random: np.random.Generator,
    campaign: Campaign,
    host: Integers,
    workload: Integers,
    backend: Integers,
    batch: Integers,
) -> Floats:
    """Seconds per call of each process: a floor of the framework and arithmetic that grows with the batch."""
    speed = np.array([1 + 0.35 * (host.number % 12) for host in campaign.hosts])[host]
    floor = 2e-3 * (1 + 0.3 * (workload % 7)) / np.array([1, 1.6, 2.3, 6, 3.1, 5, 2.8, 4.4])[backend]
    arithmetic = 4e-4 * (1 + workload % 5) * np.asarray(BATCHES)[batch] ** 0.8 * speed
    return np.asarray(np.maximum(floor, arithmetic) * random.lognormal(0, 0.02, len(host)))


def samples_of(random: np.random.Generator, latency: Floats) -> Floats:
    scattered = latency[:, None] * random.lognormal(0, 0.03, (len(latency), SAMPLES))
    return np.asarray(np.rint(scattered * 1e9) / 1e9)


def durations(random: np.random.Generator, latency: Floats, samples: Floats, batch: Integers) -> Values:
    n = len(latency)
    ordered = np.sort(samples, axis=1)
    quantiles = dict(
        zip(
            ("p10", "p25", "median", "p75", "p90"),
            np.quantile(ordered, (0.1, 0.25, 0.5, 0.75, 0.9), axis=1),
            strict=True,
        )
    )
    pipelined = _ns(latency * random.lognormal(-0.05, 0.01, n))
    floor = _ns(np.minimum(latency, 2e-3) * random.lognormal(-0.1, 0.05, n))
    busy = _ns(pipelined * random.uniform(0.3, 0.98, n))
    dispatch = _ns(floor * random.lognormal(-0.2, 0.02, n))
    graph = _ns(busy * random.lognormal(0.01, 0.005, n))
    return {
        **{f"{phase}_s": _ns(random.lognormal(mean, 0.3, n)) for phase, mean in _PHASES.items()},
        "artifact_cache": np.where(random.random(n) < 0.8, "hit", "miss"),
        "latency_sync_min_s": ordered[:, 0],
        **{f"latency_sync_{name}_s": some for name, some in quantiles.items()},
        "latency_sync_mean_s": samples.mean(axis=1),
        "latency_sync_samples": np.full(n, SAMPLES),
        "latency_pipelined_median_s": pipelined,
        "latency_pipelined_mean_s": _ns(pipelined * 1.004),
        "latency_pipelined_samples": random.integers(5, 12, n),
        "pipelined_calls_per_sample": random.integers(2, 60, n),
        "cpu_time_per_call_s": _ns(floor * 0.9),
        "cpu_wall_ratio": random.uniform(0.9, 1.02, n),
        "throughput_examples_per_s": batch / pipelined,
        "steady": random.random(n) < 0.97,
        "sync_stopped": pa.array(["cycles", "budget"]).take(pa.array((random.random(n) < 0.4).astype(np.int64))),
        "pipelined_stopped": pa.repeat("budget", n),
        "pressure_sync_s": random.integers(0, 9000, n) / 1e6,
        "pressure_pipelined_s": random.integers(0, 9000, n) / 1e6,
        "dispatch_s": dispatch,
        "graph_s": graph,
        "busy_s": busy,
    }


def costs(random: np.random.Generator, latency: Floats, workload: Integers, backend: Integers) -> Values:
    n = len(latency)
    parameters = 1_000_000 * (5 + 11 * workload)
    flops = parameters * 2 * 128
    rss = 900_000_000 + random.integers(0, 400_000, n) * 4096
    joules = latency * random.uniform(150, 400, n)
    return {
        "flops": flops,
        "macs": flops // 2,
        "achieved_flops_per_s": flops / latency,
        "verified": np.ones(n, bool),
        "verified_after_timing": np.ones(n, bool),
        "inputs_distinguished": np.ones(n, bool),
        # Seeds and kernels are the same in every round, and with them the errors.
        "max_abs_error": 1e-6 * (1 + workload) * (1 + backend / 8),
        "relative_l2": 1e-7 * (1 + workload) * (1 + backend / 8),
        "cosine": 1 - 1e-13 * (1 + workload),
        "eager_max_abs_error": 2e-6 * (1 + workload),
        "eager_relative_l2": 2e-7 * (1 + workload),
        "parameters": parameters,
        "weight_bytes": 4 * parameters,
        "max_rss_bytes": rss,
        "user_cpu_s": random.integers(2_000_000, 9_000_000, n) / 1e6,
        "system_cpu_s": random.integers(200_000, 900_000, n) / 1e6,
        "voluntary_context_switches": random.integers(10, 900, n),
        "involuntary_context_switches": random.integers(10, 900, n),
        "major_page_faults": random.integers(0, 3, n),
        "operations": 200 + 7 * workload,
        "kernels": 150.0 + 7 * workload,
        "launches": np.where(backend == 3, 1.0, 150.0 + 7 * workload),
        "kernel_sum_s": _ns(latency * 0.8),
        "dtype_native": np.ones(n, bool),
        "memory_peak_rss_bytes": rss + 4096 * random.integers(0, 1000, n),
        "memory_uss_bytes": rss - 4096 * random.integers(40_000, 60_000, n),
        "memory_pss_bytes": rss - 4096 * random.integers(20_000, 40_000, n),
        "memory_device_allocated_peak_bytes": 4 * parameters + 512 * 1000 * (1 + workload),
        "memory_device_reserved_peak_bytes": (4 * parameters // 2**21 + 20) * 2**21,
        "memory_device_process_bytes": (4 * parameters // 2**21 + 220) * 2**21,
        "utilisation_sm_active_share": random.integers(20, 100, n) / 100,
        "utilisation_sm_occupancy_share": random.integers(10, 60, n) / 100,
        "utilisation_dram_bandwidth_share": random.integers(10, 90, n) / 100,
        "clock_sm_mean_mhz": random.integers(1200, 1980, n) * 1.0,
        "clock_throttled_share": np.zeros(n),
        "energy_per_call_j": joules,
        "energy_power_mean_w": joules / latency,
        "energy_valid": np.ones(n, bool),
    }


def _ns(seconds: Floats) -> Floats:
    return np.asarray(np.rint(seconds * 1e9) / 1e9)

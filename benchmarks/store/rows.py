"""Rows of `trials` in batches: all columns that a trial on a GPU fills, one campaign at a time, always the same."""

import json
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.store.fleet import (
    BACKENDS,
    BATCHES,
    CONTRACT_VERSION,
    FIRST_VISION,
    HOSTS_PER_CAMPAIGN,
    METHOD_VERSION,
    ROUNDS,
    ROWS_PER_CAMPAIGN,
    WORKLOADS,
    Campaign,
    digest,
)
from benchmarks.store.measurements import Floats, Integers, Values, costs, durations, latencies, samples_of
from orchestrator.store import TRIALS

_PROTOCOL = json.dumps(
    {
        "dispatch_budget_ms": 1000, "energy_window_ms": 500, "floor_budget_ms": 200, "graph_budget_ms": 1000,
        "legacy_passes": 100, "legacy_warmups": 10, "max_samples": 1000, "pipelined_block_ms": 100,
        "pipelined_budget_ms": 1000, "pipelined_min_samples": 5, "sync_budget_ms": 600, "turn_ms": 120,
        "sync_min_samples": 20, "verify": True, "warmup_max_ms": 5000, "warmup_min_calls": 5, "warmup_min_ms": 500,
    },
    sort_keys=True,
    separators=(",", ":"),
)  # fmt: skip
_FACTS = {
    "allow_tf32": False, "attention_implementation": "sdpa", "compile_backend": "inductor", "convolution_tf32": True,
    "cudnn_benchmark": False, "deterministic": False, "exporter": "dynamo", "inter_op_threads": 1,
    "intra_op_threads": 8, "matmul_precision": "highest", "memory_format": "contiguous_format", "opset": 20,
    "profiler_valid": True, "providers": "CUDAExecutionProvider,CPUExecutionProvider",
    "weights": "initialised from a seed",
}  # fmt: skip


def campaigns(rows: int) -> tuple[Campaign, ...]:
    """As many campaigns as make at least so many rows."""
    total = -(-rows // ROWS_PER_CAMPAIGN)
    return tuple(Campaign(number, total) for number in range(total))


def batches(campaign: Campaign, rows: int) -> Iterator[pa.RecordBatch]:
    """The rows of a campaign in the order in which they arrive, so many at a time."""
    whole = campaign_rows(campaign)
    for start in range(0, whole.num_rows, rows):
        yield whole.slice(start, rows)


def campaign_rows(campaign: Campaign) -> pa.RecordBatch:
    """All rows of a campaign."""
    random = np.random.default_rng(campaign.number)
    n = ROWS_PER_CAMPAIGN
    keys = n // (ROUNDS * HOSTS_PER_CAMPAIGN)
    host = np.tile(np.repeat(np.arange(HOSTS_PER_CAMPAIGN), keys), ROUNDS)
    rounds = np.repeat(np.arange(1, ROUNDS + 1), keys * HOSTS_PER_CAMPAIGN)
    # Each round and host visits every key in an order of its own.
    key = np.concatenate([random.permutation(keys) for _ in range(ROUNDS * HOSTS_PER_CAMPAIGN)])
    batch, backend = key % len(BATCHES), key // len(BATCHES) % len(BACKENDS)
    workload = key // (len(BATCHES) * len(BACKENDS)) + campaign.workloads.start
    latency = latencies(random, campaign, host, workload, backend, batch)
    samples = samples_of(random, latency)
    values: Values = {
        **_identity(campaign, host, rounds, key, random),
        **_specification(campaign, workload, backend, batch),
        **_stack(campaign, host),
        **durations(random, latency, samples, np.asarray(BATCHES)[batch]),
        **costs(random, latency, workload, backend),
        "samples_sync_s": _lists(samples),
        "facts": _facts(workload, backend),
        "conditions_before": _conditions(random, n),
        "conditions_after": _conditions(random, n),
    }
    ok = _ok(random, campaign, workload, backend)
    return _in_schema(values, ok)


def _identity(
    campaign: Campaign, host: Integers, rounds: Integers, key: Integers, random: np.random.Generator
) -> Values:
    n = len(key)
    keys = [digest("key", campaign.block, number) for number in range(int(key.max()) + 1)]
    campaign_id = campaign.campaign_id
    start_us = int(campaign.started_at.timestamp()) * 1_000_000
    # About two seconds per trial on each of the hosts, which work side by side.
    started = start_us + np.cumsum(random.integers(1_200_000, 2_600_000, n)) // HOSTS_PER_CAMPAIGN
    names = [host.name for host in campaign.hosts]
    tasks = [f"{campaign_id}-{names[h]}-{campaign.environment}-r{r}" for h, r in zip(host, rounds, strict=True)]
    return {
        "trial_id": _hexadecimal(random, n),
        "trial_key": pa.array(keys).take(pa.array(key)),
        "campaign_id": pa.repeat(campaign_id, n),
        "task_id": tasks,
        "round": rounds,
        "order": np.arange(n) % (n // ROUNDS),
        "replicate": np.zeros(n, np.int64),
        "attempt": np.ones(n, np.int64),
        "started_at": started,
        "finished_at": started + random.integers(900_000, 1_190_000, n),
        "exit_code": np.zeros(n, np.int64),
    }


def _specification(campaign: Campaign, workload: Integers, backend: Integers, batch: Integers) -> Values:
    n = len(workload)
    vision = workload >= FIRST_VISION
    options = [
        json.dumps({"attention": "sdpa", "cuda_graph": name == "cuda_graphs", "mode": name, "optimization": 3})
        for name in BACKENDS
    ]
    return {
        "workload": pa.array(WORKLOADS).take(pa.array(workload)),
        "batch": np.asarray(BATCHES)[batch],
        "sequence_length": pa.array(np.full(n, 128), mask=vision),
        "image_size": pa.array(np.full(n, 224), mask=~vision),
        "workload_options": pa.repeat('{"channels_last":false,"size":"full"}', n),
        "backend": pa.array(BACKENDS).take(pa.array(backend)),
        "backend_options": pa.array(options).take(pa.array(backend)),
        "dtype": pa.repeat(campaign.dtype, n),
        "device": pa.repeat("cuda", n),
        "threads": np.full(n, 8),
        "seed": np.full(n, 2023),
        "protocol": pa.repeat(_PROTOCOL, n),
        "timeout_s": np.full(n, 600.0),
        "method_version": np.full(n, METHOD_VERSION),
        "contract_version": np.full(n, CONTRACT_VERSION),
    }


def _stack(campaign: Campaign, host: Integers) -> Values:
    n, day, environment = len(host), campaign.day, campaign.environment
    constant = {
        "environment": environment,
        "environment_id": digest("environment", environment),
        "image_digest": f"sha256:{digest('image', environment) * 2}",
        "image_id": f"sha256:{digest('image id', environment) * 2}",
        "lock_sha256": digest("lock", environment) * 2,
        "runner_sha256": digest("runner", int(day / 30)) * 2,
        "isolation": "docker",
        "executor_reason": "an engine answers",
        "trial_cores": "0-7",
        "torch_version": f"2.{4 + int(day / 91)}.0",
        "transformers_version": f"5.{int(day / 45)}.0",
        "onnxruntime_version": f"1.{20 + int(day / 91)}.0",
        "python_version": "3.11.9",
        "virtualisation": "none",
    }
    of_hosts = {
        "host": [host.name for host in campaign.hosts],
        "hw_id": [host.hw_id for host in campaign.hosts],
        "system_id": [host.system_id(day) for host in campaign.hosts],
        "cpu_model": [host.cpu_model for host in campaign.hosts],
        "cpu_cores": [host.cores for host in campaign.hosts],
        "cpu_threads": [2 * host.cores for host in campaign.hosts],
        "memory_bytes": [host.memory_bytes for host in campaign.hosts],
        "memory_limit_bytes": [host.memory_bytes * 9 // 10 for host in campaign.hosts],
        "kernel": [host.kernel(day) for host in campaign.hosts],
        "gpu_name": [host.gpu for host in campaign.hosts],
        "gpu_count": [host.gpu_count for host in campaign.hosts],
        "driver_version": [host.driver(day) for host in campaign.hosts],
    }
    places = pa.array(host)
    return {
        **{name: pa.repeat(value, n) for name, value in constant.items()},
        **{name: pa.array(some).take(places) for name, some in of_hosts.items()},
    }


def _facts(workload: Integers, backend: Integers) -> pa.Array:
    """The long text of what backend and workload say; the same whenever a key is run again, as in reality."""
    texts = [
        json.dumps(
            {**_FACTS, "artifact_sha256": digest("artifact", one, other) * 2, "backend": name, "workload": model}
        )
        for one, model in enumerate(WORKLOADS)
        for other, name in enumerate(BACKENDS)
    ]
    return pa.array(texts).take(pa.array(workload * len(BACKENDS) + backend))


def _conditions(random: np.random.Generator, n: int) -> list[str]:
    load, memory = random.integers(0, 400, n) / 100, random.integers(50_000_000, 60_000_000, n) * 4096
    temperature, power = random.integers(40, 80, n), random.integers(60, 90, n)
    return [
        f'{{"cpu_throttled_us":0,"gpu_clock_sm_mhz":1980,"gpu_power_w":{p},"gpu_temperature_c":{t},"gpu_throttle_reasons":0,'
        f'"load_1m":{a},"memory_available_bytes":{m},"swap_used_bytes":0,"thermal_throttle_count":0}}'
        for a, m, t, p in zip(load, memory, temperature, power, strict=True)
    ]


def _ok(random: np.random.Generator, campaign: Campaign, workload: Integers, backend: Integers) -> NDArray[np.bool_]:
    """Some combinations never run, and now and then a trial dies."""
    unsupported = (workload + backend + campaign.block) % 29 == 0
    return np.asarray(~unsupported & (random.random(len(workload)) > 0.005))


def _in_schema(values: Values, ok: NDArray[np.bool_]) -> pa.RecordBatch:
    """All columns of the schema; of a trial that did not end well only what every row has."""
    n = len(ok)
    mask = pa.array(ok)
    unmeasured = set(_measured())
    columns = []
    for field in TRIALS:
        if field.name == "status":
            column = pa.array(["unsupported", "ok"]).take(mask.cast(pa.int8()))
        elif field.name == "reason":
            column = pa.array([None if good else "the backend has no operator for it" for good in ok], pa.string())
        elif field.name not in values:
            column = pa.nulls(n, field.type)
        else:
            some = values[field.name]
            column = some if isinstance(some, pa.Array) else pa.array(some)
            if field.name in unmeasured:
                column = pa.compute.if_else(mask, column, pa.scalar(None, column.type))
        columns.append(column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=TRIALS)


def _measured() -> list[str]:
    """Columns that only a trial has that ended well."""
    names = TRIALS.names
    return [
        name
        for name in names[names.index("reference_s") :]
        if name not in {"facts", "conditions_before", "conditions_after"}
    ]


def _lists(samples: Floats) -> pa.Array:
    offsets = np.arange(len(samples) + 1, dtype=np.int32) * samples.shape[1]
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(samples.ravel())).cast(
        TRIALS.field("samples_sync_s").type
    )


def _hexadecimal(random: np.random.Generator, n: int) -> list[str]:
    return [random.bytes(16).hex() for _ in range(n)]

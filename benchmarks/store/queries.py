"""Questions that people ask of a store, through the product's own reader: `open_store`, its views, its selections."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from orchestrator.analysis.statistics import Estimate, mean_ratio
from orchestrator.store import TRIALS, open_store
from orchestrator.store.storage.layout import Layout

MODEL, DRIVER = "bert-base", "550.127.08"
NUMERATOR, DENOMINATOR, BATCH = "eager", "onnxruntime", 8
_IS_DRIVER = f"driver_version = '{DRIVER}'"
REPEATS = 7
HEADLINES = (
    *("trial_id", "trial_key", "campaign_id", "round", "status", "started_at", "workload", "batch", "backend", "dtype"),
    *("environment", "host", "system_id", "kernel", "gpu_name", "driver_version", "latency_sync_median_s"),
    *("latency_pipelined_median_s", "throughput_examples_per_s", "dispatch_s", "busy_s", "dispatch_floor_small_s"),
)
"""What a person fetches to look at: what was run, where, and the headline of its result."""

SCALARS = tuple(
    field.name for field in TRIALS if not pa.types.is_list(field.type) and field.name not in {"facts", "protocol"}
)
"""Every column but the raw samples and the two long JSON texts."""


Question = Callable[[Path], int]
"""Answers from the store in a directory, and returns the number of rows."""


@dataclass(frozen=True)
class Asked:
    """A question, and how long its answer took."""

    cold_s: float
    """The first time, with nothing of the store in the page cache."""
    median_s: float
    """Of some repeats, each of which opens the store anew."""
    rows: int


def ask(directory: Path, question: Question) -> Asked:
    """Times a question, once cold and then warm."""
    forget(directory)
    durations = []
    rows = 0
    for _ in range(1 + REPEATS):
        start = time.perf_counter()
        rows = question(directory)
        durations.append(time.perf_counter() - start)
    return Asked(durations[0], float(np.median(durations[1:])), rows)


def forget(directory: Path) -> None:
    """Drops the store's files from the page cache; they are synchronised, so that nothing is lost."""
    for files in Layout(directory).snapshot().files.values():
        for path in files:
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def opening(directory: Path) -> int:
    """Nothing but a connection with its views: a part of every other answer."""
    return len(open_store(directory).connect().execute("SELECT 1").fetchall())


def median_latencies(directory: Path) -> int:
    """The exact median latency by GPU, backend and batch of one model."""
    answer = open_store(directory).sql(
        "SELECT gpu_name, backend, batch, median(latency_sync_median_s) AS latency_s, count(*) AS trials "
        f"FROM trials WHERE workload = '{MODEL}' AND status = 'ok' GROUP BY ALL ORDER BY ALL"
    )
    return len(answer.fetchall())


def of_one_driver(directory: Path) -> int:
    """All trials of one driver version, with their headlines, as an Arrow table."""
    return len(open_store(directory).trials(_IS_DRIVER, columns=HEADLINES).arrow())


def of_one_driver_whole(directory: Path) -> int:
    """The same with every scalar column."""
    return len(open_store(directory).trials(_IS_DRIVER, columns=SCALARS).arrow())


def latest(directory: Path) -> int:
    """The newest row of each trial key, on whatever system."""
    answer = open_store(directory).sql(
        "SELECT trial_key, max_by(struct_pack(trial_id, attempt, status, latency_sync_median_s), started_at) "
        "FROM trials GROUP BY trial_key"
    )
    return len(answer.to_arrow_table())


def latest_by_system(directory: Path) -> int:
    """The view `latest`: the newest row of each trial key on each system."""
    columns = "trial_key, system_id, started_at, status, latency_sync_median_s"
    return len(open_store(directory).sql(f"SELECT {columns} FROM latest").to_arrow_table())


def paired_ratios(directory: Path) -> int:
    """For each GPU the ratio of two backends of one model, paired by round, from the raw samples."""
    return len(ratios(directory))


def ratios(directory: Path) -> dict[str, Estimate]:
    """The answer of `paired_ratios`."""
    pairs = (
        open_store(directory)
        .sql(
            f"""
            WITH chosen AS (
                SELECT gpu_name, campaign_id, system_id, environment_id, dtype, round, backend, samples_sync_s
                FROM trials
                WHERE workload = '{MODEL}' AND batch = {BATCH} AND backend IN ('{NUMERATOR}', '{DENOMINATOR}')
                      AND status = 'ok'
            )
            SELECT gpu_name, up.samples_sync_s AS up, down.samples_sync_s AS down
            FROM chosen AS up JOIN chosen AS down
                 USING (gpu_name, campaign_id, system_id, environment_id, dtype, round)
            WHERE up.backend = '{NUMERATOR}' AND down.backend = '{DENOMINATOR}'
            ORDER BY gpu_name
            """
        )
        .to_arrow_table()
    )
    answers = {}
    for gpu in pairs["gpu_name"].unique().to_pylist():
        here = pairs.filter(pa.compute.equal(pairs["gpu_name"], gpu))
        answers[gpu] = mean_ratio(np.log(_medians(here["up"]) / _medians(here["down"])), len(here))
    return answers


def _medians(lists: pa.ChunkedArray) -> np.ndarray:
    return np.array([np.median(row.values) for row in lists])

"""What this machine can do at best: every figure of the store is set against one of these, taken in the same run."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_APPENDS = 1000
_WRITTEN_BYTES = 256 * 2**20
_SCANNED_BYTES = 512 * 2**20


@dataclass(frozen=True)
class Sync:
    """How long it takes to append some bytes to a file and wait for the disk."""

    median_s: float
    p99_s: float


def append_and_sync(directory: Path, size_bytes: int) -> Sync:
    """Appends as many bytes as the journal takes for one trial, `_APPENDS` times."""
    path = directory / "limit"
    durations = []
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        content = os.urandom(size_bytes)
        for _ in range(_APPENDS):
            start = time.perf_counter()
            os.write(descriptor, content)
            os.fdatasync(descriptor)
            durations.append(time.perf_counter() - start)
    finally:
        os.close(descriptor)
        path.unlink()
    return Sync(float(np.median(durations)), float(np.quantile(durations, 0.99)))


def write_rate(directory: Path) -> float:
    """Bytes per second of one long write that ends on the disk."""
    path = directory / "limit"
    content = os.urandom(2**22)
    start = time.perf_counter()
    with path.open("wb") as file:
        for _ in range(_WRITTEN_BYTES // len(content)):
            file.write(content)
        file.flush()
        os.fsync(file.fileno())
    duration = time.perf_counter() - start
    path.unlink()
    return _WRITTEN_BYTES / duration


def scan_rate() -> float:
    """Bytes per second of a sum over memory, on one core; the best of five."""
    values = np.ones(_SCANNED_BYTES // 8)
    durations = []
    for _ in range(5):
        start = time.perf_counter()
        values.sum()
        durations.append(time.perf_counter() - start)
    return _SCANNED_BYTES / min(durations)

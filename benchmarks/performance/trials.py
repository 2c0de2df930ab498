"""What a trial costs beside its timed calls: against programs written by hand, in turns with them."""

import math
import statistics
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from ruamel.yaml import YAML

from benchmarks.performance import commands
from benchmarks.performance.sweeping import Swept, contained, swept
from benchmarks.store import report
from benchmarks.store.report import Figure
from runners.statistics.student import t_quantile

NULL_S = 0.040
WARM_S = 8.0
SHARE = 0.9
"""Of that of one process written by hand."""
APART = 0.01
QUICKSTART = Path(__file__).parents[2] / "sweeps/quickstart.yaml"
QUICKSTART_SHARE = 0.6

_NULLS = {
    "name": "null",
    "workloads": [{"name": "synthetic-null", "batch": list(range(1, 21))}],
    "backends": ["python"],
    "rounds": 5,
    "protocol": {"warmup_min_calls": 1, "warmup_min_ms": 1, "turn_ms": 1, "cycles": 2, "min_cycles": 2}
    | {"floor_budget_ms": 0},
}
_MODELS, _BACKENDS, _BATCHES = ("bert-base", "distilbert", "resnet50"), ("eager", "onnxruntime"), (1, 4)
_CALLS = {
    "name": "calls",
    "workloads": [
        {"name": ["bert-base", "distilbert"], "batch": list(_BATCHES), "sequence_length": 128},
        {"name": "resnet50", "batch": list(_BATCHES), "image_size": 224},
    ],
    "backends": list(_BACKENDS),
    "threads": [1],
    "rounds": 1,
    # Ten calls to warm up, and thirty that are timed, in three turns
    "protocol": {"warmup_min_calls": 10, "warmup_min_ms": 1, "warmup_max_ms": 1000, "turn_ms": 600_000}
    | {"cycles": 3, "min_cycles": 3, "max_samples": 30, "sync_budget_ms": 600_000, "floor_budget_ms": 0},
}
_WARM = {
    "name": "warm",
    "workloads": [{"name": "tiny-bert", "batch": 1, "sequence_length": 16}],
    "backends": list(_BACKENDS),
    "threads": [1],
    "rounds": 1,
    "protocol": {"warmup_min_calls": 1, "warmup_min_ms": 10, "turn_ms": 20, "cycles": 3, "min_cycles": 2}
    | {"floor_budget_ms": 0},
}
_CACHES = ("reference_cache", "artifact_cache")
_BESIDE = tuple(product(("bert-base", "resnet50"), _BACKENDS))


def null(repeats: int, directory: Path) -> Iterator[Figure]:
    """A trial that computes nothing, in a container through Ray."""
    runs = [sorted(swept(_NULLS, directory / "null").gaps_s) for _ in range(repeats)]
    middle, late = (statistics.median(statistics.quantiles(gaps, n=100)[at - 1] for gaps in runs) for at in (50, 99))
    bare_s = commands.bare(repeats, directory).wall_s
    limit = f"a bare interpreter: × {middle / bare_s:.1f}"
    yield report.at_most("a null trial, p50", middle, NULL_S, report.milliseconds, limit)
    yield report.told("a null trial, p99", report.milliseconds(late))


def share(repeats: int, directory: Path) -> Iterator[Figure]:
    """The share of timed calls in the time of a warm sweep, and of programs written by hand with the same calls."""
    shares: list[tuple[float, float, float]] = []
    for _ in range(repeats):
        ours = swept(_CALLS, directory / "calls")
        wanted = [f"{name}:{backend}:{batch}" for name, backend, batch in product(_MODELS, _BACKENDS, _BATCHES)]
        shares.append((ours.timed_s / ours.running_s, _by_hand(ours, [wanted]), _by_hand(ours, [[w] for w in wanted])))
    ours_, one, fresh = (statistics.median(column) for column in zip(*shares, strict=True))
    limit = f"one process by hand {one:.2f}, a fresh one of each {fresh:.2f}"
    yield report.at_least("timed calls, share of a sweep's time", ours_, SHARE * one, "{:.2f}".format, limit)


def warm(repeats: int, directory: Path) -> Iterator[Figure]:
    """Sweeps that find what one before them made."""
    swept(_WARM, directory / "warm", "process")
    later = [swept(_WARM, directory / "warm", "process") for _ in range(repeats)]
    states = {row[name] for sweep in later for row in sweep.trials for name in _CACHES} - {None}
    yield report.at_most(
        "a second sweep, to its first timed call",
        statistics.median(sweep.until_timed_s for sweep in later),
        WARM_S,
        "{:.1f} s".format,
        note=f" (cache: {', '.join(sorted(states))})",
    )


def quickstart(repeats: int, directory: Path) -> Iterator[Figure]:
    """The share of timed calls in the whole time of the sweep that users run first."""
    document = YAML(typ="safe").load(QUICKSTART)
    runs = [swept(document, directory / "quickstart") for _ in range(repeats)]
    middle = statistics.median(run.timed_s / run.wall_s for run in runs)
    yield report.at_least("timed calls, share of the quickstart's time", middle, QUICKSTART_SHARE, "{:.2f}".format)


def bare(repeats: int, image: str) -> Iterator[Figure]:
    """A trial's process beside a loop written by hand, in turns with each other."""
    for workload, backend in _BESIDE:
        logs = [math.log(contained(image, "performance/beside.py", workload, backend)) for _ in range(repeats)]
        mean = statistics.mean(logs)
        half = t_quantile(0.975, repeats - 1) * statistics.stdev(logs) / math.sqrt(repeats)
        yield Figure(
            f"{workload} {backend}, a trial over a bare loop",
            f"× {math.exp(mean):.3f} ±{100 * half:.1f} %",
            f"× 1 ±{100 * APART:.0f} % and the interval",
            holds=abs(mean) <= APART + half,
        )


def image_of_this_machine(directory: Path) -> str:
    """The image of the environment `cpu`; it is built where it is missing."""
    nulls = dict(_NULLS, rounds=1, workloads=[{"name": "synthetic-null", "batch": 1}])
    return swept(nulls, directory / "image").image


def _by_hand(ours: Swept, processes: list[list[str]]) -> float:
    """The share of timed calls in the time of containers, with one program in each."""
    start = time.monotonic()
    timed_s = sum(contained(ours.image, "performance/by_hand.py", *wanted) for wanted in processes)
    return float(timed_s / (time.monotonic() - start))

"""Metrics: what of a trial can be compared, with its unit and the direction that is better.

Unit and direction stand in the schema of the store and nowhere else. Only metrics with a direction are here: a ratio
is always written so that above 1 is better, and of a clock frequency nobody can say which way that is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.analysis.ratios import Reading
from orchestrator.analysis.tax import DERIVED
from orchestrator.errors import ConfigurationError, near_names, some_names
from orchestrator.store import TRIALS
from runners.statistics.moderation import BETWEEN_CAMPAIGNS


@dataclass(frozen=True)
class Metric:
    """One number per trial, that is per process."""

    name: str
    column: str
    """Of `trials`."""
    meaning: str
    ratio_column: str | None = None
    """What ratios are taken of, where it is not `column`: of lone calls the 10th percentile. A neighbour may prolong
    most calls of one backend and few of another: medians agree less between campaigns (docs/measured/turns.md)."""
    witness: str | None = None
    """The column with the CPU time of the same calls."""
    count: str | None = None
    """The column with the number of samples; null where each process gives one value."""
    valid: str | None = None
    """The column that must be true for the number to count."""
    problem: str | None = None
    """The column that says why there is none."""
    by_device: tuple["Metric", "Metric"] | None = None
    """That of CPUs and that of GPUs, where trials of both stand in one table; see `resolved`."""

    @property
    def unit(self) -> str:
        """Such as `s`; `1` of a plain ratio."""
        return self._metadata("unit")

    @property
    def higher_is_better(self) -> bool:
        return self._metadata("better") == "higher"

    @property
    def columns(self) -> tuple[str, ...]:
        """Those of rows that it is read from."""
        if self.by_device is not None:
            return ("device", *(name for device_metric in self.by_device for name in device_metric.columns))
        found = (self.column, self.ratio_column, self.witness, self.count, self.valid, self.problem)
        return tuple(name for name in found if name is not None)

    @property
    def reading(self) -> Reading:
        """Where in rows it stands, for ratios."""
        # What depends on the speed of the machine depends on the state that the machine is in.
        between = BETWEEN_CAMPAIGNS if self.unit == "s" or self.unit.endswith("/s") else 0.0
        return Reading(self.ratio_column or self.column, self.higher_is_better, self.count, between, self.witness)

    def on(self, device: object) -> "Metric":
        """What it is on a device."""
        return self if self.by_device is None else self.by_device[device != "cpu"]

    def _metadata(self, key: str) -> str:
        name = self.on("cpu").column
        field = DERIVED.field(name) if name in DERIVED.names else TRIALS.field(name)
        return str(field.metadata[key.encode()].decode())


def metric(name: str) -> Metric:
    """The metric of a name.

    Raises:
        ConfigurationError: there is no such metric.
    """
    if name == USUAL_LATENCY.name:
        return USUAL_LATENCY
    try:
        return METRICS[name]
    except KeyError:
        hint = near_names(name, METRICS) or f"; metrics: {some_names(METRICS)}"
        raise ConfigurationError(f"no metric is called {name}{hint}", key="--metric") from None


def default_metric(devices: set[str]) -> Metric:
    """The latency that a comparison on these devices is about: that of lone calls on a CPU, pipelined on a GPU.

    A call on a GPU returns before its work is done; back-to-back calls are what the paper timed there. Where trials of
    both are chosen, each has its own (`USUAL_LATENCY`).
    """
    found = {USUAL_LATENCY.on(device) for device in devices}
    return found.pop() if len(found) == 1 else USUAL_LATENCY


def resolved(rows: Sequence[Mapping[str, Any]], metric: Metric) -> list[Any]:
    """Rows in whose columns the metric stands, whichever device a trial ran on."""
    if metric.by_device is None:
        return list(rows)
    found = []
    for row in rows:
        here = metric.on(row["device"])
        pairs = (
            *((metric.column, here.column), (metric.ratio_column, here.ratio_column or here.column)),
            *((metric.witness, here.witness), (metric.count, here.count)),
        )
        found.append({**row, **{ours: row[theirs] if theirs else None for ours, theirs in pairs if ours}})
    return found


_CPU_TIME: Final = "cpu_time_per_call_s"
_PERCENTILES: Final = tuple((f"p{number}", f"{number}th percentile") for number in (10, 25, 75, 90))
_ALL: Final = (
    Metric(
        *("latency_sync", "latency_sync_median_s", "one call at a time, median"),
        ratio_column="latency_sync_p10_s",
        witness=_CPU_TIME,
        count="latency_sync_samples",
    ),
    Metric(
        *("latency_pipelined", "latency_pipelined_median_s", "one of many back-to-back calls, median"),
        count="latency_pipelined_samples",
    ),
    Metric("latency_legacy", "latency_legacy_s", "the paper's procedure: mean of 100 passes"),
    *(
        Metric(
            *(f"latency_sync_{name}", f"latency_sync_{name}_s", f"one call at a time, {meaning}"),
            count="latency_sync_samples",
        )
        for name, meaning in (("min", "minimum"), *_PERCENTILES, ("mean", "mean"))
    ),
    Metric(
        *("latency_pipelined_mean", "latency_pipelined_mean_s", "one of many back-to-back calls, mean"),
        count="latency_pipelined_samples",
    ),
    Metric(
        *("throughput", "throughput_examples_per_s", "batch over the mean pipelined latency"),
        count="latency_pipelined_samples",
    ),
    Metric(
        *("floor", "dispatch_floor_s", "CPU: what the framework takes at least"),
        valid="dispatch_floor_valid",
        problem="dispatch_floor_problem",
    ),
    Metric("dispatch", "dispatch_s", "GPU: until a call returns, median"),
    Metric("graph", "graph_s", "GPU: a replay as one CUDA graph, median"),
    Metric("busy", "busy_s", "GPU: time in which the device works, per call"),
    Metric("kernel_sum", "kernel_sum_s", "GPU: sum of the kernels' times, per call"),
    Metric(
        *("overhead", "exposed_overhead_s", "the tax: CPU at least, the floor; GPU pipelined less busy time"),
    ),
    Metric("overhead_graph", "exposed_overhead_graph_s", "GPU: pipelined less graph time"),
    Metric("framework_fraction", "framework_fraction", "exposed overhead over latency; CPU: at least"),
    Metric("boundedness", "boundedness", "GPU: dispatch over busy time"),
    Metric("tax_ratio", "tax_ratio", "GPU: pipelined over graph time"),
    Metric("operations", "operations", "that the framework dispatches, per call"),
    Metric("kernels", "kernels", "GPU: kernels per call"),
    Metric("launches", "launches", "GPU: launches per call"),
    Metric("achieved_flops", "achieved_flops_per_s", "arithmetic over the pipelined latency"),
    Metric("energy", "energy_per_call_j", "of the GPU or, on a CPU, of the package", valid="energy_valid"),
    Metric("memory_peak", "memory_peak_rss_bytes", "resident peak of one call"),
    Metric("memory_private", "memory_uss_bytes", "private part of the resident memory"),
    Metric("memory_device_peak", "memory_device_allocated_peak_bytes", "GPU: peak of torch's allocator"),
    Metric("memory_device", "memory_device_process_bytes", "GPU: of the process, by the driver"),
    Metric("sm_active", "utilisation_sm_active_share", "GPU: share of multiprocessors at work"),
    Metric("sm_occupancy", "utilisation_sm_occupancy_share", "GPU: warps of those that fit"),
    Metric("cpu_time", _CPU_TIME, "time of processors per call, one call at a time"),
)
METRICS: Final[Mapping[str, Metric]] = {known.name: known for known in _ALL}
"""By name; the first two are the headlines."""
USUAL_LATENCY: Final = Metric(
    *("latency", "usual_latency_s", "one call at a time on CPUs, back-to-back calls on GPUs, median"),
    ratio_column="usual_ratio_s",
    witness="usual_cpu_s",
    count="usual_samples",
    by_device=(METRICS["latency_sync"], METRICS["latency_pipelined"]),
)
"""Of a table with trials of both, or where it is asked for. Its columns are in no store; `resolved` makes them."""

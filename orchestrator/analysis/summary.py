"""What one campaign found: medians, ratios to eager, A/A pairs, and what failed.

Nothing is pooled over hosts, systems, environments, isolation or versions of the method.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa

from orchestrator.analysis.floors import common_floors, floor_key
from orchestrator.analysis.ratios import (
    BASELINE,
    CPU_TIME_COLUMNS,
    RATIO_COLUMNS,
    Priors,
    Ratio,
    Reading,
    Twin,
    judged,
    ratio_of,
    twins_of,
)
from orchestrator.analysis.shape import Shape, backend_name, shape_of
from orchestrator.analysis.statistics import Estimate, Floats, median_of_values, median_over_processes
from orchestrator.analysis.transition import Transition, transition
from orchestrator.analysis.turns import WALL, stored, with_turns
from runners.contract import Status
from runners.contract.catalogue.entries import CPU


class Latency(Enum):
    """Which timing mode is summarised; the value is the column of its samples."""

    SYNC = "samples_sync_s"
    PIPELINED = "samples_pipelined_s"


@dataclass(frozen=True, order=True)
class Setting:
    """Where and in what trials ran: only trials of one setting are compared."""

    host: str
    environment: str
    isolation: str
    environment_id: str
    image_digest: str
    system_id: str
    method_version: int
    runner_sha256: str
    """The code that measured."""


@dataclass(frozen=True)
class Cell:
    """One backend at one shape and batch."""

    backend: str
    """Name, with its options if it has any."""
    latency: Estimate | None
    """Seconds per call; null if no trial was ok."""
    fastest: Estimate | None
    """The same of the 10th percentiles of its processes."""
    ratio: Ratio | None
    """Latency of eager over this latency: above 1 is faster than eager. Null for eager itself."""
    floor: Estimate | None
    """Dispatch floor in seconds, of all trials of its structure in the setting: what the framework takes at least.

    Null where it was not measured."""
    floor_proven: bool
    """It is of twins that dispatched the operations of the trial, and were undisturbed."""
    unsteady: int
    """Processes whose warm-up ended by its cap."""
    failures: Mapping[Status, int]


@dataclass(frozen=True)
class Line:
    """All backends at one shape and batch; eager first, then by name."""

    shape: Shape
    batch: int
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Turning:
    """Where framework and arithmetic of one backend take equally long."""

    shape: Shape
    backend: str
    transition: Transition
    """On a CPU, where the floor is a lower bound, at this batch or a larger one."""


@dataclass(frozen=True)
class AaPair:
    """The same trial twice in each session: nothing differs, and how often that is called different is looked at."""

    backend: str
    shape: Shape
    batch: int
    ratio: Ratio


@dataclass(frozen=True)
class SettingSummary:
    """One setting."""

    setting: Setting
    executor_reason: str | None
    cpu_model: str | None
    gpu_name: str | None
    lines: tuple[Line, ...]
    aa_pairs: tuple[AaPair, ...]
    """Judged together, as the ratios of all settings are."""
    turnings: tuple[Turning, ...] = ()
    """On a CPU, of the backends with a proven floor at two batches or more."""

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Of all lines."""
        return tuple(cell for line in self.lines for cell in line.cells)


@dataclass(frozen=True)
class FailureGroup:
    """Trials that ended alike for the same reason."""

    host: str
    environment: str
    isolation: str
    status: Status
    reason: str | None
    count: int
    trials: tuple[str, ...]
    """What they were, one text per workload and backend, with the batches."""


@dataclass(frozen=True)
class Flagged:
    """Trials whose guards found that something disturbed them. They count in every number of a summary."""

    trials: int
    watched: int
    """Trials that had guards at all."""
    by_guard: Mapping[str, int]
    """A trial that several guards flag counts for each."""


@dataclass(frozen=True)
class Summary:
    """One campaign."""

    latency: Latency
    settings: tuple[SettingSummary, ...]
    failures: tuple[FailureGroup, ...]
    totals: Mapping[Status, int]
    """Trials by the status of their last attempt."""
    retried: int
    """Earlier attempts, which ended as infrastructure errors."""
    flagged: Flagged = Flagged(0, 0, {})
    apart: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Trials that counted and had no turns with all others of their session, by how they were measured and why."""
    short: int = 0
    """Trials that counted and had fewer turns than they should."""


_Row = dict[str, Any]
_Floors = Mapping[Any, float]
_VALUE, _COUNT = "value", "count"
_COLUMNS = (
    *("trial_id", "attempt", "reason", "order", "steady", "dispatch_floor_valid", "dispatch_floor_structure"),
    *("dispatch_floor_small_s", "dispatch_floor_large_s"),
    *("session_reason", "short_series"),
    *("environment", "image_digest", "executor_reason", "cpu_model", "gpu_name", "guard_flags"),
    *RATIO_COLUMNS,
)
_PERCENTILE = 10


def summarise(trials: pa.Table, latency: Latency = Latency.SYNC) -> Summary:
    """Summarises the trials of one campaign, as the store returns them.

    Args:
        trials: at least the columns of `columns(latency)`.
        latency: the timing mode.

    Raises:
        ValueError: the trials are of several campaigns, whose rounds do not pair.
    """
    if len(trials["campaign_id"].unique()) > 1:
        raise ValueError("a summary is of one campaign")
    needed = columns(latency)
    everything: list[_Row] = with_turns(trials.select(needed)).to_pylist()
    rows = last_attempts(everything)
    for row in rows:
        samples = row[latency.value] if row["status"] == Status.OK.value else None
        row[_VALUE], row[_COUNT] = (float(np.median(samples)), len(samples)) if samples else (None, 0)
    reading = Reading(_VALUE, WALL if latency is Latency.SYNC else None, count=_COUNT)
    priors = Priors(rows)
    by_setting = _grouped(rows, _setting)
    pairs = _grouped(twins_of(priors, reading), lambda twin: _setting(dict(twin.row)))
    settings = [
        _summarise_setting(one, by_setting[one], latency, reading, priors, pairs.get(one, ()))
        for one in sorted(by_setting)
    ]
    ok = [row for row in rows if row["status"] == Status.OK.value]
    return Summary(
        latency=latency,
        settings=tuple(_judged([one for one in settings if any(cell.latency for cell in one.cells)])),
        failures=_failures(rows),
        totals=Counter(Status(row["status"]) for row in rows),
        retried=len(everything) - len(rows),
        flagged=_flagged(rows),
        apart=Counter((row["interleaving"], row["session_reason"]) for row in ok if row["session_reason"]),
        short=sum(row["short_series"] is True for row in ok),
    )


def columns(latency: Latency = Latency.SYNC) -> list[str]:
    """The columns that a summary needs."""
    return stored([*_COLUMNS, latency.value, WALL, *CPU_TIME_COLUMNS])


def _summarise_setting(
    setting: Setting,
    rows: Sequence[_Row],
    latency: Latency,
    reading: Reading,
    priors: Priors,
    twins: Sequence[Twin],
) -> SettingSummary:
    by_line = _grouped(rows, lambda row: (shape_of(row), row["batch"]))
    floors = common_floors(rows)
    lines = tuple(
        _line(shape, batch, by_line[shape, batch], latency, reading, priors, floors) for shape, batch in sorted(by_line)
    )
    pairs = tuple(
        AaPair(backend_name(dict(one.row)), shape_of(dict(one.row)), one.row["batch"], one.ratio) for one in twins
    )
    first = rows[0]
    machine = first["executor_reason"], first["cpu_model"], first["gpu_name"]
    return SettingSummary(setting, *machine, lines, pairs, _turnings(rows, floors))


def _turnings(rows: Sequence[_Row], floors: _Floors) -> tuple[Turning, ...]:
    proven = [
        row
        for row in _measured(rows)
        if row["device"] == CPU and row["dispatch_floor_valid"] is True and floor_key(row) in floors
    ]
    found = []
    for (shape, _, backend), some in sorted(_grouped(proven, _series).items()):
        loads: dict[int, dict[int, float]] = {}
        for row in some:
            loads.setdefault(row["batch"], {})[row["round"]] = row[_VALUE] / (2 * floors[floor_key(row)])
        if len(loads) > 1:
            found.append(Turning(shape, backend, transition(loads)))
    return tuple(found)


def _series(row: _Row) -> tuple[Shape, bool, str]:
    """What differs in the batch alone; eager first."""
    return shape_of(row), row["backend"] != BASELINE, backend_name(row)


def _line(
    shape: Shape,
    batch: int,
    rows: Sequence[_Row],
    latency: Latency,
    reading: Reading,
    priors: Priors,
    floors: _Floors,
) -> Line:
    # The key too: whatever else a later version lets differ must not be pooled by accident.
    by_backend = _grouped(rows, lambda row: (row["backend"] != BASELINE, backend_name(row), row["trial_key"]))
    baselines = [group for (_, backend, _), group in sorted(by_backend.items()) if backend == BASELINE]
    baseline = _measured(baselines[0]) if len(baselines) == 1 else []
    cells = []
    for order, backend, key in sorted(by_backend):
        group = by_backend[order, backend, key]
        ratio = ratio_of(_measured(group), baseline, reading, priors) if backend != BASELINE else None
        cells.append(_cell(backend, group, ratio, latency, floors))
    return Line(shape, batch, tuple(cells))


def _cell(backend: str, rows: Sequence[_Row], ratio: Ratio | None, latency: Latency, floors: _Floors) -> Cell:
    measured = sorted(_measured(rows), key=lambda row: row["round"])
    processes = [np.array(row[latency.value], dtype=np.float64) for row in measured]
    failures = Counter(Status(row["status"]) for row in rows if row["status"] != Status.OK.value)
    unsteady = sum(1 for row in rows if row["status"] == Status.OK.value and row["steady"] is False)
    estimate = median_over_processes(processes) if processes else None
    return Cell(backend, estimate, _fastest(processes), ratio, *_floor(rows, floors), unsteady, failures)


def _fastest(processes: Sequence[Floats]) -> Estimate | None:
    if not processes:
        return None
    values = np.array([np.percentile(samples, _PERCENTILE) for samples in processes])
    return median_of_values(values, sum(map(len, processes)))


def _floor(rows: Sequence[_Row], floors: _Floors) -> tuple[Estimate | None, bool]:
    taken = [row for row in rows if row["replicate"] == 0 and floor_key(row) in floors]
    if not taken:
        return None, False
    seconds = min(floors[floor_key(row)] for row in taken)
    # A bound has no interval
    floor = Estimate(seconds, None, None, len(taken), len(taken))
    return floor, any(row["dispatch_floor_valid"] is True for row in taken)


def _measured(rows: Sequence[_Row]) -> list[_Row]:
    """Those that count. Replicate 1 exists for the A/A control only: a ratio has one process per side and round."""
    return [row for row in rows if row["replicate"] == 0 and row[_VALUE] is not None]


def _judged(settings: Sequence[SettingSummary]) -> list[SettingSummary]:
    """All ratios of a summary are looked at together."""
    found = iter(judged([cell.ratio for one in settings for cell in one.cells if cell.ratio is not None]))

    def line(one: Line) -> Line:
        cells = (cell if cell.ratio is None else replace(cell, ratio=next(found)) for cell in one.cells)
        return replace(one, cells=tuple(cells))

    return [replace(one, lines=tuple(map(line, one.lines))) for one in settings]


def _failures(rows: Sequence[_Row]) -> tuple[FailureGroup, ...]:
    failed = [row for row in rows if row["status"] != Status.OK.value]
    groups = _grouped(
        failed,
        lambda row: (
            *(row[name] or "" for name in ("host", "environment", "isolation", "status")),
            row["reason"] or "",
        ),
    )
    return tuple(
        FailureGroup(
            host=host,
            environment=environment,
            isolation=isolation,
            status=Status(status),
            reason=reason or None,
            count=len(group),
            trials=_names(group),
        )
        for (host, environment, isolation, status, reason), group in sorted(groups.items())
    )


def _flagged(rows: Sequence[_Row]) -> Flagged:
    watched = [row["guard_flags"] for row in rows if row["guard_flags"] is not None]
    counts = Counter(name for flags in watched for name in flags)
    return Flagged(sum(map(bool, watched)), len(watched), dict(sorted(counts.items())))


def _names(rows: Sequence[_Row]) -> tuple[str, ...]:
    by_name = _grouped(rows, lambda row: f"{row['workload']} {backend_name(row)}")
    batches = {name: sorted({row["batch"] for row in group}) for name, group in by_name.items()}
    return tuple(f"{name} batch {', '.join(map(str, batches[name]))}" for name in sorted(by_name))


def last_attempts(rows: Iterable[_Row]) -> list[_Row]:
    """Of each trial the attempt that counts."""
    last: dict[str, _Row] = {}
    for row in rows:
        known = last.get(row["trial_id"])
        if known is None or known["attempt"] < row["attempt"]:
            last[row["trial_id"]] = row
    return list(last.values())


def _grouped(rows: Iterable[Any], key: Any) -> dict[Any, list[Any]]:
    groups: dict[Any, list[Any]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def _setting(row: _Row) -> Setting:
    return Setting(
        host=row["host"] or "",
        environment=row["environment"] or "",
        isolation=row["isolation"] or "",
        environment_id=row["environment_id"] or "",
        image_digest=row["image_digest"] or "",
        system_id=row["system_id"] or "",
        method_version=row["method_version"],
        runner_sha256=row["runner_sha256"] or "",
    )

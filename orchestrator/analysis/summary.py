"""What one campaign found: medians, ratios to eager, A/A pairs, and what failed.

Nothing is pooled over hosts, systems, environments, isolation or versions of the method.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from orchestrator.analysis.axes import Shape, backend_name, grouped, shape_of
from orchestrator.analysis.frame import FLAGS, Frame, cell_of, estimate_of, last_attempts
from orchestrator.analysis.metrics import METRICS
from orchestrator.analysis.ratios import BASELINE, RATIO_COLUMNS, Ratio, Row, Twin, is_ok
from orchestrator.analysis.statistics import Estimate
from orchestrator.analysis.tax import complete, stored
from orchestrator.analysis.transition import Transition, transition_of
from runners.contract import Status
from runners.contract.catalogue.entries import CPU


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
    """Dispatch floor in seconds, of all trials of its structure in the campaign: what the framework takes at least.

    Null where it was not measured."""
    floor_proven: bool
    """It is of twins that dispatched the operations of the trial, and were undisturbed."""
    unsteady: int
    """Processes whose warm-up ended by its cap."""
    failures: Mapping[Status, int]
    floor_problem: str | None = None
    """Why there is no floor, where one was asked for."""


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
    """One campaign: the latency of lone calls."""

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


_LATENCY: Final = METRICS["latency_sync"]
_FASTEST: Final = METRICS["latency_sync_p10"]
_COLUMNS: Final = tuple(
    dict.fromkeys(
        (
            *(
                "trial_id",
                "attempt",
                "reason",
                "order",
                "steady",
                "interleaving",
                "session_reason",
                "short_series",
                FLAGS,
            ),
            *("short_series", FLAGS, "environment", "image_digest", "executor_reason", "cpu_model", "gpu_name"),
            *("dispatch_floor_s", "dispatch_floor_valid", "dispatch_floor_problem", "latency_floor_log_ratio"),
            *(*_LATENCY.columns, *_FASTEST.columns, *RATIO_COLUMNS),
        )
    )
)


def summarise(trials: pa.Table) -> Summary:
    """Summarises the trials of one campaign, as the store returns them.

    Args:
        trials: at least the columns of `columns()`.

    Raises:
        ValueError: the trials are of several campaigns, whose rounds do not pair.
    """
    if len(trials["campaign_id"].unique()) > 1:
        raise ValueError("a summary is of one campaign")
    everything = complete(trials, _COLUMNS).to_pylist()
    rows = last_attempts(everything)
    frame = Frame(rows, _LATENCY, campaigns=rows)
    twins = grouped(frame.twins, lambda twin: _setting(twin.row))
    by_setting = grouped(rows, _setting)
    settings = [_setting_summary(name, by_setting[name], frame, twins.get(name, ())) for name in sorted(by_setting)]
    ok = [row for row in rows if is_ok(row)]
    return Summary(
        settings=_judged([found for found in settings if any(cell.latency for cell in found.cells)], frame),
        failures=failure_groups(rows, lambda row: f"{row['workload']} {backend_name(row)}"),
        totals=Counter(Status(row["status"]) for row in rows),
        retried=len(everything) - len(rows),
        flagged=_flagged(rows),
        apart=Counter((row["interleaving"], row["session_reason"]) for row in ok if row["session_reason"]),
        short=sum(row["short_series"] is True for row in ok),
    )


def columns() -> list[str]:
    """The columns that a summary needs."""
    return stored(_COLUMNS)


def _setting_summary(setting: Setting, rows: Sequence[Row], frame: Frame, twins: Sequence[Twin]) -> SettingSummary:
    by_line = grouped(rows, lambda row: (shape_of(row), row["batch"]))
    lines = tuple(_line(shape, batch, by_line[shape, batch], frame) for shape, batch in sorted(by_line))
    pairs = tuple(AaPair(backend_name(twin.row), shape_of(twin.row), twin.row["batch"], twin.ratio) for twin in twins)
    first = rows[0]
    machine = first["executor_reason"], first["cpu_model"], first["gpu_name"]
    return SettingSummary(setting, *machine, lines, pairs, _turnings(rows))


def _line(shape: Shape, batch: int, rows: Sequence[Row], frame: Frame) -> Line:
    # The key too: whatever else a later version lets differ must not be pooled by accident.
    by_backend = grouped(rows, lambda row: (row["backend"] != BASELINE, backend_name(row), row["trial_key"]))
    counted = {key: [row for row in group if row["replicate"] == 0] for key, group in by_backend.items()}
    measured = {key: cell_of((), group, _LATENCY).measured for key, group in counted.items()}
    baselines = [key for key in sorted(by_backend) if key[1] == BASELINE]
    baseline = measured[baselines[0]] if len(baselines) == 1 else ()
    cells = []
    for key in sorted(by_backend):
        ok = [row for row in by_backend[key] if is_ok(row)]
        floor = estimate_of(counted[key], "dispatch_floor_s")
        cells.append(
            Cell(
                backend=key[1],
                latency=estimate_of(measured[key], _LATENCY.column, _LATENCY.count),
                fastest=estimate_of(measured[key], _FASTEST.column, _FASTEST.count),
                ratio=frame.ratio(measured[key], baseline) if key[1] != BASELINE else None,
                floor=floor,
                floor_proven=any(row["dispatch_floor_valid"] is True for row in ok),
                unsteady=sum(row["steady"] is False for row in ok),
                failures=Counter(Status(row["status"]) for row in by_backend[key] if not is_ok(row)),
                floor_problem=None
                if floor
                else next(filter(None, (row["dispatch_floor_problem"] for row in ok)), None),
            )
        )
    return Line(shape, batch, tuple(cells))


def _turnings(rows: Sequence[Row]) -> tuple[Turning, ...]:
    on_cpu = [row for row in rows if row["device"] == CPU and row["replicate"] == 0]
    series = grouped(on_cpu, lambda row: (shape_of(row), row["backend"] != BASELINE, backend_name(row)))
    found = []
    for (shape, _, backend), some in sorted(series.items()):
        change = transition_of(grouped(some, lambda row: row["batch"]), CPU)
        if change is not None:
            found.append(Turning(shape, backend, change))
    return tuple(found)


def _judged(settings: Sequence[SettingSummary], frame: Frame) -> tuple[SettingSummary, ...]:
    """All ratios of a summary are looked at together."""
    found = iter(frame.judged(cell.ratio for setting in settings for cell in setting.cells))

    def line(bare: Line) -> Line:
        return replace(bare, cells=tuple(replace(cell, ratio=next(found)) for cell in bare.cells))

    return tuple(replace(setting, lines=tuple(map(line, setting.lines))) for setting in settings)


def failure_groups(rows: Iterable[Row], name: Callable[[Row], str]) -> tuple[FailureGroup, ...]:
    """Trials that did not end ok, those that ended alike for the same reason together.

    Args:
        rows: of each trial the attempt that counts.
        name: what a trial is but for its batch.
    """
    names = ("host", "environment", "isolation", "status", "reason")
    groups = grouped((row for row in rows if not is_ok(row)), lambda row: tuple(row[column] or "" for column in names))
    return tuple(
        FailureGroup(
            host, environment, isolation, Status(status), reason or None, len(group), named_batches(group, name)
        )
        for (host, environment, isolation, status, reason), group in sorted(groups.items())
    )


def _flagged(rows: Sequence[Row]) -> Flagged:
    watched = [row[FLAGS] for row in rows if row[FLAGS] is not None]
    counts = Counter(name for flags in watched for name in flags)
    return Flagged(sum(map(bool, watched)), len(watched), dict(sorted(counts.items())))


def named_batches(rows: Iterable[Row], name: Callable[[Row], str]) -> tuple[str, ...]:
    """What some trials are, each with its batches."""
    by_name = grouped(rows, name)
    batches = {text: sorted({row["batch"] for row in group}) for text, group in sorted(by_name.items())}
    return tuple(f"{text} batch {', '.join(map(str, some))}" for text, some in batches.items())


def _setting(row: Row) -> Setting:
    known: dict[str, Any] = {name: row[name] or "" for name in Setting.__dataclass_fields__}
    return Setting(**known)

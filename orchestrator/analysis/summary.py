"""What one campaign found: medians, ratios to eager, A/A pairs, and what failed.

Nothing is pooled over hosts, systems, environments, isolation or versions of the method.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pyarrow as pa

from orchestrator.analysis.axes import Row, Shape, backend_name, grouped, shape_of
from orchestrator.analysis.frame import FLAGS, Cell, Frame, cell_of, last_attempts
from orchestrator.analysis.metrics import METRICS
from orchestrator.analysis.ratios import BASELINE, RATIO_COLUMNS, Ratio, Twin, is_ok
from orchestrator.analysis.statistics import Estimate
from orchestrator.analysis.tax import complete, estimate_of, stored
from orchestrator.analysis.transition import Transition, transition_of
from runners.contract import Status
from runners.contract.catalogue.entries import CPU


@dataclass(frozen=True)
class SummaryCell:
    """One backend at one shape and batch."""

    shape: Shape
    batch: int
    backend: str
    """Name, with its options if it has any."""
    latency: Estimate | None
    """Seconds per call; null if no trial was ok."""
    fastest: Estimate | None = None
    """The same of the 10th percentiles of its processes."""
    ratio: Ratio | None = None
    """Latency of eager over this latency: above 1 is faster than eager. Null for eager itself."""
    floor: Estimate | None = None
    """Dispatch floor in seconds, of all trials of its structure in the campaign: what the framework takes at least.

    Null where it was not measured."""
    floor_proven: bool = False
    """It is of twins that dispatched the operations of the trial, and were undisturbed."""
    floor_problem: str | None = None
    """Why there is no floor, where one was asked for."""
    unsteady: int = 0
    """Processes whose warm-up ended by its cap."""
    failures: Mapping[Status, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Turning:
    """Where framework and arithmetic of one backend take equally long."""

    shape: Shape
    backend: str
    transition: Transition
    """On a CPU, where the floor is a lower bound, at this batch or a larger one."""


@dataclass(frozen=True)
class SettingSummary:
    """Where and in what trials ran: only trials of one setting are compared."""

    row: Row
    """One of its trials, for what all of them share."""
    cells: tuple[SummaryCell, ...]
    """By shape and batch; eager first, then by name. Ratios are judged together, as those of all settings are."""
    twins: tuple[Twin, ...] = ()
    """The A/A pairs, the same trial twice in each session: judged together."""
    turnings: tuple[Turning, ...] = ()
    """On a CPU, of the backends with a proven floor at two batches or more."""


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


class _Key(NamedTuple):
    """What tells cells apart, in the order in which they are shown."""

    setting: tuple[Any, ...]
    shape: Shape
    batch: int
    is_compared: bool
    backend: str
    trial_key: str
    """Whatever else a later version lets differ must not be pooled by accident."""

    @classmethod
    def of(cls, row: Row) -> "_Key":
        backend = row["backend"] != BASELINE, backend_name(row)
        return cls(_setting(row), shape_of(row), row["batch"], *backend, row["trial_key"])


_LATENCY: Final = METRICS["latency_sync"]
_FASTEST: Final = METRICS["latency_sync_p10"]
_SETTING: Final = (
    *("host", "environment", "isolation", "environment_id", "image_digest", "system_id", "method_version"),
    "runner_sha256",
)
_COLUMNS: Final = tuple(
    dict.fromkeys(
        (
            *("trial_id", "attempt", "reason", "order", "steady", "session_reason", "short_series", FLAGS, *_SETTING),
            *("executor_reason", "cpu_model", "gpu_name", "dispatch_floor_s", "dispatch_floor_valid"),
            *("dispatch_floor_problem", "latency_floor_log_ratio"),
            *(*_LATENCY.columns, *_FASTEST.columns, *RATIO_COLUMNS),
        )
    )
)


def summarise(trials: pa.Table) -> Summary:
    """Summarises the trials of one campaign, as the store returns them.

    Raises:
        ValueError: the trials are of several campaigns, whose rounds do not pair.
    """
    if len(trials["campaign_id"].unique()) > 1:
        raise ValueError("a summary is of one campaign")
    everything = complete(trials, _COLUMNS).to_pylist()
    rows = last_attempts(everything)
    ok = [row for row in rows if is_ok(row)]
    return Summary(
        settings=_settings(rows),
        failures=failure_groups(rows, lambda row: f"{row['workload']} {backend_name(row)}"),
        totals=Counter(Status(row["status"]) for row in rows),
        retried=len(everything) - len(rows),
        flagged=_flagged(rows),
        apart=Counter((row["interleaving"], row["session_reason"]) for row in ok if row["session_reason"]),
        short=sum(row["short_series"] is True for row in ok),
    )


def columns() -> list[str]:
    return stored(_COLUMNS)


def _settings(rows: Sequence[Row]) -> tuple[SettingSummary, ...]:
    """Those in which something was measured; all ratios are looked at together."""
    frame = Frame(rows, _LATENCY, campaigns=rows)
    groups = grouped(rows, _Key.of)
    cells = {
        key: cell_of(key, [row for row in groups[key] if row["replicate"] == 0], _LATENCY) for key in sorted(groups)
    }
    eager = grouped((key for key in cells if key.backend == BASELINE), lambda key: key[:3])
    only = {work: cells[found[0]] for work, found in eager.items() if len(found) == 1}
    pairs = ((cell, None if key.backend == BASELINE else only.get(key[:3])) for key, cell in cells.items())
    ratios = dict(zip(cells, frame.compared(pairs), strict=True))
    twins = grouped(frame.twins, lambda twin: _setting(twin.row))
    found = []
    for setting, keys in grouped(cells, lambda key: key.setting).items():
        shown = tuple(_cell(key, groups[key], cells[key], ratios[key]) for key in keys)
        here = [row for key in keys for row in groups[key]]
        if any(cell.latency for cell in shown):
            found.append(SettingSummary(here[0], shown, tuple(twins.get(setting, ())), _turnings(here)))
    return tuple(found)


def _cell(key: _Key, rows: Sequence[Row], cell: Cell, ratio: Ratio | None) -> SummaryCell:
    """The second halves of A/A pairs count where it is about how trials ended."""
    ok = [row for row in rows if is_ok(row)]
    floor = estimate_of((row for row in ok if row["replicate"] == 0), "dispatch_floor_s")
    problems = (row["dispatch_floor_problem"] for row in ok)
    return SummaryCell(
        *(key.shape, key.batch, key.backend),
        latency=cell.estimate,
        fastest=estimate_of(cell.measured, _FASTEST.column, _FASTEST.count),
        ratio=ratio,
        floor=floor,
        floor_proven=any(row["dispatch_floor_valid"] is True for row in ok),
        floor_problem=None if floor else next(filter(None, problems), None),
        unsteady=sum(row["steady"] is False for row in ok),
        failures=Counter(Status(row["status"]) for row in rows if not is_ok(row)),
    )


def _turnings(rows: Sequence[Row]) -> tuple[Turning, ...]:
    on_cpu = [row for row in rows if row["device"] == CPU and row["replicate"] == 0]
    series = grouped(on_cpu, lambda row: (shape_of(row), row["backend"] != BASELINE, backend_name(row)))
    found = []
    for (shape, _, backend), some in sorted(series.items()):
        change = transition_of(grouped(some, lambda row: row["batch"]), CPU)
        if change is not None:
            found.append(Turning(shape, backend, change))
    return tuple(found)


def failure_groups(rows: Iterable[Row], name: Callable[[Row], str]) -> tuple[FailureGroup, ...]:
    """Trials that did not end ok, those that ended alike for the same reason together."""
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


def _setting(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] or "" for name in _SETTING)

"""What a page says, as frozen values. Times are in seconds, rates in operations per second."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from orchestrator.analysis import Ratio
from orchestrator.analysis.axes import Value
from orchestrator.analysis.explanation import ExecutionTax, FreeBatch, Transition
from orchestrator.analysis.metrics import METRICS, Metric
from orchestrator.analysis.ratios import Twin
from orchestrator.analysis.statistics import Estimate
from orchestrator.analysis.tax import Regime
from orchestrator.report.page.roofs import Roof
from runners.contract import Status


class Mode(Enum):
    """Which latency a chart is about; the two are never in one chart."""

    SYNC = "latency_sync"
    PIPELINED = "latency_pipelined"

    @property
    def metric(self) -> Metric:
        """The metric of the same name."""
        return METRICS[self.value]

    @property
    def samples(self) -> str:
        """The column of its samples."""
        return {"latency_sync": "samples_sync_s", "latency_pipelined": "samples_pipelined_s"}[self.value]


@dataclass(frozen=True)
class Choice:
    """A value of an axis on the page: what a filter shows, and what asks the store for it."""

    label: str
    sql: str
    """A condition on `trials`."""


@dataclass(frozen=True)
class Place:
    """Where and in what software trials ran: cells of one place may be compared by backend and batch."""

    choice: Choice
    system: int
    """Position in `Page.systems`."""
    device: str
    """`cpu`, `cuda`, or both with a blank between them."""


@dataclass(frozen=True)
class Shape:
    """What is computed, but for the batch."""

    choice: Choice
    values: Mapping[str, Value]
    """By the names of axes."""


@dataclass(frozen=True)
class PageSystem:
    """A system, as people call it."""

    label: str
    system_id: str
    hosts: tuple[str, ...]
    hardware: str
    """Models of processor and GPU."""


@dataclass(frozen=True)
class Timing:
    """A latency of a cell, and how it compares."""

    latency: Estimate | None
    against_backend: Ratio | None
    """Above 1 is faster than the baseline backend in the same place."""
    against_system: Ratio | None
    """Above 1 is faster than the same work and backend on the baseline system."""


@dataclass(frozen=True)
class Parts:
    """What a call consists of: medians over processes, null where it was not measured."""

    overhead: Estimate | None
    """GPU: pipelined latency less busy time; CPU: the dispatch floor, if it is proven, which is a lower bound."""
    busy: Estimate | None
    """GPU only."""
    dispatch: Estimate | None
    """GPU only."""
    fraction: Estimate | None
    regime: Regime | None
    is_by_lower_bound: bool
    """The regime follows from a floor, of which the framework may take more: it may be further on its side."""
    is_decided: bool


@dataclass(frozen=True)
class PageCell:
    """All processes of one configuration in one place."""

    place: int
    shape: int
    backend: int
    batch: int
    device: str
    timings: Mapping[Mode, Timing]
    parts: Parts
    execution: ExecutionTax | None
    """Null where no other backend of its work shares a round with it."""
    flops: float | None
    """Per call."""
    weight_bytes: float | None
    statuses: Mapping[Status, int]
    reason: str | None
    flagged: int
    """Processes that a guard flags."""
    unsteady: int
    rows: tuple[Mapping[str, Any], ...]
    """Its trials; not on the page, but its samples are found by them."""


@dataclass(frozen=True)
class Series:
    """One backend over the batches of a shape in a place: where its regime changes, and what is free."""

    place: int
    shape: int
    backend: int
    transition: Transition | None
    is_lower_bound: bool
    """The transition may lie at a larger batch: on a CPU it follows from a floor."""
    free: FreeBatch | None


@dataclass(frozen=True)
class Failures:
    """Trials that ended alike, for the same reason, in the same place."""

    status: Status
    reason: str | None
    host: str
    environment: str
    count: int
    what: tuple[str, ...]


@dataclass(frozen=True)
class FlaggedGroup:
    """Trials that a guard flags, of one host."""

    guard: str
    host: str
    count: int
    watched: int
    """Trials of that host that had guards at all."""
    what: tuple[str, ...]
    seen: str
    """What the guard saw of one of them."""


@dataclass(frozen=True)
class Field:
    """One fact of all systems or environments."""

    name: str
    values: tuple[str, ...]
    """One per column; empty where it is unknown."""

    @property
    def differs(self) -> bool:
        """Whether the columns are not all alike."""
        return len(set(self.values)) > 1


@dataclass(frozen=True)
class FactTable:
    """Facts of systems or environments, side by side."""

    columns: tuple[str, ...]
    fields: tuple[Field, ...]


@dataclass(frozen=True)
class Baselines:
    """What ratios are against."""

    backend: int | None
    """Position in `Page.backends`; null if it was not measured."""
    system: int | None
    """Position in `Page.systems`; null with a single system."""


@dataclass(frozen=True)
class Difference:
    """A field that differs between the sides of ratios, though it is not what is compared."""

    ratios: str
    """`backends` or `systems`."""
    field: str
    before: str
    after: str
    count: int
    """In how many ratios."""


@dataclass(frozen=True)
class CampaignInfo:
    """A campaign of the selection."""

    campaign_id: str
    sweep: str
    started_at: datetime | None
    finished_at: datetime | None
    planned: int | None


@dataclass(frozen=True)
class Page:
    """Everything that the page shows, but for the samples."""

    title: str
    store: str
    """Its place, as it was given."""
    selection: str
    """What was chosen, in words."""
    made_at: datetime
    without_flagged: bool
    """Whether trials that guards flagged are left out of all numbers."""
    sql: str
    """The condition of the trials that numbers are from, for SQL."""
    sql_of_all: str
    """The condition of the selection, with those that are left out of the numbers."""
    commands: Mapping[str, str]
    """What answers with the ratios of a chart, by its name; `{mode}` stands for the latency that is shown."""
    campaigns: tuple[CampaignInfo, ...]
    statuses: Mapping[Status, int]
    mode: Mode
    """That is shown first."""
    systems: tuple[PageSystem, ...]
    places: tuple[Place, ...]
    shapes: tuple[Shape, ...]
    backends: tuple[Choice, ...]
    axes: Mapping[str, Mapping[Value, Choice]]
    """Values of the axes of shapes that have several, by name."""
    cells: tuple[PageCell, ...]
    series: tuple[Series, ...]
    roofs: tuple[Roof, ...]
    """Of its systems, from the whole store."""
    baselines: Baselines
    twins: Mapping[Mode, tuple[Twin, ...]]
    """The A/A pairs of the campaigns of the selection, judged together."""
    differences: tuple[Difference, ...]
    hardware: FactTable
    software: FactTable
    failures: tuple[Failures, ...]
    flagged: tuple[FlaggedGroup, ...]
    flagged_trials: int
    watched_trials: int
    is_running: bool
    """A campaign of the selection has no end yet."""

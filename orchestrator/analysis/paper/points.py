"""The points of one figure in one setting: what was measured, what failed and why, and what was never tried."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from functools import cached_property
from statistics import mode
from typing import Any

from orchestrator.analysis.frame import column_estimate
from orchestrator.analysis.paper.settings import Cells, Setting
from orchestrator.analysis.paper.wanted import Configuration, Wanted, impossible
from orchestrator.analysis.ratios import Visit, by_visit
from orchestrator.analysis.statistics import Estimate
from orchestrator.analysis.tax import Regime, pace, proven

Row = dict[str, Any]


class State(Enum):
    """What the store knows of a point."""

    MEASURED = "measured"
    FAILED = "failed"
    ABSENT = "not measured"
    IMPOSSIBLE = "impossible here"
    """On this kind of device; on others it may be had."""


@dataclass(frozen=True)
class Point:
    """One configuration in one setting."""

    configuration: Configuration
    state: State
    rows: tuple[Row, ...]
    """Of one protocol: those that were measured, or those that failed."""
    reason: str | None = None
    """Why it was not measured."""

    def estimate(self, column: str) -> Estimate | None:
        """The median of a column over processes, of a bound the least; null where no process has it."""
        return column_estimate(self.rows, column) if self.state is State.MEASURED else None

    def visits(self, column: str) -> dict[Visit, float]:
        """A column by visit: what is paired in ratios."""
        return by_visit(self.rows, column) if self.state is State.MEASURED else {}

    @property
    def regime(self) -> str | None:
        """That of most of its processes; on a processor where its floor is proven."""
        known = [row["regime"] for row in proven(self.rows) if row["regime"] is not None]
        return mode(known) if known else None

    @property
    def is_framework_bound(self) -> bool:
        """Whether the framework decides its latency."""
        return self.regime == Regime.FRAMEWORK_BOUND.value


@dataclass(frozen=True)
class Gathered:
    """The points of a figure."""

    setting: Setting | None
    """Null if there is none at all."""
    points: Mapping[Configuration, Point]
    others: tuple[Setting, ...]
    """Settings that have points of it, too, and are not drawn."""
    latency: str
    """The column of the latency."""

    @property
    def device(self) -> str:
        """`cpu` or `cuda`; of nothing at all the paper's."""
        return self.setting.device if self.setting else "cuda"

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """All trials that are drawn."""
        return tuple(row for one in self.points.values() if one.state is State.MEASURED for row in one.rows)

    def count(self, state: State) -> int:
        """How many points have a state."""
        return sum(one.state is state for one in self.points.values())

    def select(self, where: Mapping[str, Any]) -> list[Point]:
        """The points with these values."""
        return [one for configuration, one in self.points.items() if configuration.meets(where)]


def gather(
    setting: Setting | None,
    settings: Mapping[Setting, Cells],
    wanted: Wanted,
    started: Mapping[str, datetime],
    others: Iterable[Setting] = (),
    column: str | None = None,
) -> Gathered:
    """The points of a figure in a setting.

    Args:
        setting: to draw; null: all is missing.
        settings: trials by setting and configuration.
        wanted: the points of the figure.
        started: when each campaign started.
        others: settings to mention.
        column: of the latency; by default that of lone calls on a processor and of back-to-back calls on a GPU.
    """
    device = setting.device if setting else "cuda"
    column = column or pace(device)
    cells = settings.get(setting, {}) if setting else {}
    points = {one: _point(one, cells.get(one, ()), device, column, started) for one in wanted.on(device)}
    return Gathered(setting, points, tuple(others), column)


def _point(one: Configuration, rows: Sequence[Row], device: str, column: str, started: Mapping[str, datetime]) -> Point:
    measured = [row for row in rows if row["status"] == "ok" and row[column] is not None]
    if measured:
        return Point(one, State.MEASURED, _one_protocol(measured, started))
    reason = impossible(one, device)
    if reason is not None:
        return Point(one, State.IMPOSSIBLE, (), reason)
    failed = [row for row in rows if row["status"] not in ("ok", "skipped")]
    if failed:
        last = failed[-1]
        return Point(one, State.FAILED, tuple(failed), f"{last['status']}: {last['reason'] or 'no reason'}")
    skipped = [row for row in rows if row["status"] == "skipped"]
    return Point(one, State.ABSENT, (), skipped[-1]["reason"] if skipped else None)


def _one_protocol(rows: Sequence[Row], started: Mapping[str, datetime]) -> tuple[Row, ...]:
    """The trials with protocol and seed of the newest campaign: a longer look and a shorter one are not pooled."""
    newest = max(rows, key=lambda row: (started[row["campaign_id"]], row["campaign_id"]))
    return tuple(row for row in rows if (row["protocol"], row["seed"]) == (newest["protocol"], newest["seed"]))

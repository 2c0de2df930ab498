"""The trials that figures are drawn from, by setting and configuration, and the points of one figure in one setting.

A setting is the machine and the software that the numbers of a figure come from, never a mixture.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple

from orchestrator.analysis.axes import AXES, axes, columns_of, grouped, values_of
from orchestrator.analysis.conditions import parse_conditions
from orchestrator.analysis.frame import Frame, Frames, context_columns
from orchestrator.analysis.metrics import METRICS, USUAL_LATENCY, Metric
from orchestrator.analysis.paper.wanted import Wanted, Work, configuration_of, impossible
from orchestrator.analysis.snapshot import Snapshot
from orchestrator.analysis.statistics import Estimate
from orchestrator.analysis.tax import Regime, estimate_of, load_of
from orchestrator.store import Results, Selection
from runners.contract import LEGACY

Row = dict[str, Any]
Cells = Mapping[Work, Sequence[Row]]
"""Trials by what they measure."""

TIMED_AS_THE_PAPER: Final = METRICS["latency_legacy"]
_LATENCIES: Final = tuple(USUAL_LATENCY.on(device) for device in ("cpu", "cuda"))
_NUMBERS: Final = (
    *("trial_id", "attempt", "reason", TIMED_AS_THE_PAPER.column),
    *("exposed_overhead_s", "framework_fraction", "dispatch_floor_valid", "latency_floor_log_ratio", "boundedness"),
    *("macs", "achieved_flops_per_s", "utilisation_sm_active_share", "utilisation_sm_occupancy_share"),
)
_ENOUGH: Final = 0.5
"""The paper's own GPU is drawn if it has at least this share of the points of the one that has most."""


class Setting(NamedTuple):
    """What all points of a figure share: values of the axes of these names."""

    device: str
    gpu: str
    cpu: str
    hw: str
    system: str
    """Hardware, kernel, driver and settings: another driver is another setting."""
    environment: str
    environment_id: str
    isolation: str
    method: int
    threads: int

    @property
    def machine(self) -> str:
        return self.cpu if self.device == "cpu" else self.gpu

    @property
    def text(self) -> str:
        threads = f"{self.threads} thread{'' if self.threads == 1 else 's'}"
        return f"{self.machine}, {self.environment}, {self.isolation}, {threads}"


_AXES: Final = axes(Setting._fields)


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

    configuration: Work
    state: State
    rows: tuple[Row, ...]
    """Of one protocol: those that were measured, or those that failed."""
    reason: str | None = None
    """Why it was not measured."""

    def estimate(self, column: str) -> Estimate | None:
        """The median of a column over processes, of a bound the least; null where no process has it."""
        return estimate_of(self.rows, column) if self.state is State.MEASURED else None

    @property
    def regime(self) -> Regime | None:
        """With the interval of its load; null if nothing tells it."""
        load = load_of(self.rows, self.rows[0]["device"]) if self.rows else None
        return None if load is None else load.regime


@dataclass(frozen=True)
class Gathered:
    """The points of a figure."""

    setting: Setting | None
    """Null if there is none at all."""
    points: Mapping[Work, Point]
    others: tuple[Setting, ...]
    """Settings that have points of it, too, and are not drawn."""
    frame: Frame
    """By the latency that is drawn."""

    @property
    def device(self) -> str:
        """`cpu` or `cuda`; of nothing at all the paper's."""
        return self.setting.device if self.setting else "cuda"

    @property
    def latency(self) -> str:
        return self.frame.metric.column

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """All trials that are drawn."""
        return tuple(row for point in self.points.values() if point.state is State.MEASURED for row in point.rows)

    def count(self, state: State) -> int:
        return sum(point.state is state for point in self.points.values())

    def select(self, where: Mapping[str, Any]) -> list[Point]:
        return [point for configuration, point in self.points.items() if configuration.meets(where)]


@dataclass(frozen=True)
class Trials:
    """What a store has for the paper's figures."""

    settings: Mapping[Setting, Cells]
    """Trials by setting and configuration: of each the attempt that counts, without the second halves of A/A pairs."""
    legacy: Mapping[Setting, Cells]
    """The same of the paper's own procedure, which is never mixed with the standard one."""
    frames: Frames
    """Of their whole campaigns."""
    started: Mapping[str, datetime]
    """When each campaign started."""
    sweeps: Mapping[str, str]
    """The sweep of each campaign."""
    systems: Sequence[Row]
    """Rows of the table of systems."""

    def choose(self, wanted: Wanted, gpu: str | None) -> Setting | None:
        """The setting that a figure is drawn from; null if none has any of its points.

        GPUs come before processors, because the paper is about them. Among them the paper's own comes first if it has
        at least half the points of the one that has most; then the one with most points; then the newest.
        """
        return self._best(self.settings, wanted, gpu)

    def newest_by_gpu(self, wanted: Wanted) -> dict[str, Setting]:
        """Of each model of GPU the setting that a figure of generations is drawn from."""
        models = grouped((setting for setting in self.settings if setting.device != "cpu"), lambda setting: setting.gpu)
        found = {model: self._best(models[model], wanted, None) for model in sorted(models)}
        return {model: setting for model, setting in found.items() if setting is not None}

    def points_measured(self, setting: Setting, wanted: Wanted) -> int:
        """How many points of a figure were measured in a setting."""
        cells = self.settings[setting]
        measured = (cells.get(configuration, ()) for configuration in wanted.on(setting.device))
        return sum(any(row["status"] == "ok" for row in rows) for rows in measured)

    def newest(self, cells: Cells) -> datetime:
        """When the last campaign of trials started."""
        return max(self.started[row["campaign_id"]] for rows in cells.values() for row in rows)

    def gather(
        self, setting: Setting | None, wanted: Wanted, others: Iterable[Setting] = (), metric: Metric | None = None
    ) -> Gathered:
        """The points of a figure in a setting."""
        device = setting.device if setting else "cuda"
        known = self.legacy if metric is TIMED_AS_THE_PAPER else self.settings
        frame = self.frames.by(metric or USUAL_LATENCY.on(device))
        cells = known.get(setting, {}) if setting else {}
        points = {
            point: _point(point, cells.get(point, ()), device, frame.metric.column, self.started)
            for point in wanted.on(device)
        }
        return Gathered(setting, points, tuple(others), frame)

    def _best(self, settings: Iterable[Setting], wanted: Wanted, gpu: str | None) -> Setting | None:
        counts = {setting: count for setting in settings if (count := self.points_measured(setting, wanted))}
        candidates = [setting for setting in counts if setting.device != "cpu"] or list(counts)
        if not candidates:
            return None
        most = max(counts[setting] for setting in candidates)

        def rank(setting: Setting) -> tuple[bool, int, datetime, str]:
            is_the_papers = gpu is not None and names_model(gpu, setting.gpu) and counts[setting] >= _ENOUGH * most
            return is_the_papers, counts[setting], self.newest(self.settings[setting]), setting.system

        return max(candidates, key=rank)


def read_trials(results: Results, where: Sequence[str] = ()) -> Trials:
    """Reads what figures need.

    Raises:
        ConfigurationError: a condition is wrong, or no trial meets it.
    """
    snapshot = Snapshot.of(results)
    context = [name for metric in _LATENCIES for name in context_columns(metric)]
    columns = [*columns_of(AXES.values()), *_NUMBERS, *context]
    found = snapshot.rows(columns, snapshot.condition(parse_conditions(where, "--where")))
    whole = snapshot.whole(found, context) if where else found
    procedures = grouped(
        (row for row in found if row["replicate"] == 0), lambda row: _procedure(row["protocol"]) == LEGACY
    )
    systems = Selection(snapshot.view, "systems", None, ("system_id", "cpu_model", "gpu_name", "fingerprint")).arrow()
    sweeps = {row["campaign_id"]: row["sweep"] for row in snapshot.campaigns}
    standard, legacy = (by_setting(procedures.get(is_legacy, [])) for is_legacy in (False, True))
    return Trials(standard, legacy, Frames(whole), snapshot.started, sweeps, systems.to_pylist())


def by_setting(rows: Iterable[Row]) -> dict[Setting, dict[Work, list[Row]]]:
    """Trials by setting, and by configuration within it."""
    settings = grouped(rows, lambda row: values_of(row, _AXES))
    return {Setting._make(key): grouped(some, configuration_of) for key, some in settings.items()}


def names_model(word: str, model: str) -> bool:
    """Whether a word names a model: `A100` is in `NVIDIA A100-PCIE-40GB`, and not in `NVIDIA A1000`."""
    letters, wanted = (
        "".join(letter if letter.isalnum() else " " for letter in text.lower()).split() for text in (model, word)
    )
    length = len(wanted)
    return any(letters[start : start + length] == wanted for start in range(len(letters) - length + 1))


@lru_cache(maxsize=1024)
def _procedure(protocol: str | None) -> str | None:
    return None if protocol is None else json.loads(protocol).get("procedure")


def _point(
    configuration: Work, rows: Sequence[Row], device: str, column: str, started: Mapping[str, datetime]
) -> Point:
    measured = [row for row in rows if row["status"] == "ok" and row[column] is not None]
    if measured:
        # Not pooled: a longer look and a shorter one
        newest = max(measured, key=lambda row: (started[row["campaign_id"]], row["campaign_id"]))
        how = newest["protocol"], newest["seed"]
        return Point(
            configuration, State.MEASURED, tuple(row for row in measured if (row["protocol"], row["seed"]) == how)
        )
    reason = impossible(configuration, device)
    if reason is not None:
        return Point(configuration, State.IMPOSSIBLE, (), reason)
    failed = [row for row in rows if row["status"] not in ("ok", "skipped")]
    if failed:
        last = failed[-1]
        return Point(configuration, State.FAILED, tuple(failed), f"{last['status']}: {last['reason'] or 'no reason'}")
    skipped = [row for row in rows if row["status"] == "skipped"]
    return Point(configuration, State.ABSENT, (), skipped[-1]["reason"] if skipped else None)

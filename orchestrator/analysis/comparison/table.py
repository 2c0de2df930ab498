"""What a comparison returns: frozen values, and the same as rows with stable columns for other programs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import pyarrow as pa

from orchestrator.analysis.axes import AXES, Axis, Key, Value, key_text
from orchestrator.analysis.confounders import Difference
from orchestrator.analysis.frame import Cell
from orchestrator.analysis.metrics import Metric
from orchestrator.analysis.pooling import Policy
from orchestrator.analysis.ratios import Pairing, Ratio, Twin
from orchestrator.errors import ConfigurationError

SIDE: Final = "side"
"""The axis of a comparison of two selections; its values are the selections as they were written."""


@dataclass(frozen=True)
class Entry:
    """One cell of a table, and how it compares with its baseline."""

    cell: Cell
    baseline: Cell | None
    """Null for baselines themselves, without a baseline, and where it was not run."""
    ratio: Ratio | None
    """Null where one of the two has no measurement."""
    is_baseline: bool
    problem: str | None
    """Why there is no ratio though there should be."""

    @property
    def key(self) -> Key:
        """The values of the table's axes, in their order."""
        return self.cell.key


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How trials become a table."""

    axes: tuple[Axis, ...]
    """Of the keys: those of the rows, then those of the columns."""
    columns: int
    """How many of `axes` are columns."""
    baseline: Mapping[str, Value]
    """The values of the axes that make a cell a baseline; empty without one."""
    compared: tuple[str, ...]
    """Names of the axes on which the sides of a ratio are meant to differ."""
    added: tuple[str, ...]
    """Names of those of `axes` that nobody asked for: trials differ in them, and are not pooled."""


@dataclass(frozen=True, kw_only=True)
class ComparisonTable(Layout):
    """Cells by axes, with ratios to a baseline."""

    metric: Metric
    policy: Policy
    fixed: Mapping[Axis, Value]
    """Axes on which all trials are equal."""
    entries: tuple[Entry, ...]
    """Ordered by key."""
    twins: tuple[Twin, ...]
    """The A/A pairs of the campaigns of the ratios: nothing differs between the two sides of one."""
    differences: tuple[Difference, ...]
    """What else differs between the sides of ratios, the axes that are compared left out."""

    @cached_property
    def ratios(self) -> tuple[Entry, ...]:
        return tuple(entry for entry in self.entries if entry.ratio is not None)

    @cached_property
    def pairings(self) -> tuple[Pairing, ...]:
        """The ways in which the sides of ratios pair, the usual one first."""
        there = {entry.ratio.pairing for entry in self.entries if entry.ratio is not None}
        return tuple(kind for kind in Pairing if kind in there)

    def entry(self, **values: Value) -> Entry:
        """The one entry with these values on its axes: `table.entry(gpu="NVIDIA A100", backend="eager")`.

        Raises:
            KeyError: there is none, or more than one.
        """
        names = [where.name for where in self.axes]
        found = [
            entry
            for entry in self.entries
            if all(entry.key[names.index(name)] == value for name, value in values.items() if name in names)
        ]
        unknown = sorted(values.keys() - set(names))
        if unknown or len(found) != 1:
            raise KeyError(f"{len(found)} entries for {values}; axes of the table: {', '.join(names)}")
        return found[0]

    def text(self, entry: Entry) -> str:
        return key_text(entry.key, self.axes)

    def arrow(self) -> pa.Table:
        """A row per cell, in the columns of `COLUMNS`, then axes of the table that are options of workloads.

        Units of values stand in the column `unit`.
        """
        differs: dict[int, list[str]] = {}
        for difference in self.differences:
            change = difference.change
            for position in difference.entries:
                differs.setdefault(position, []).append(f"{change.field}: {change.then} → {change.now}")
        rows = [self._row(entry, differs.get(number, [])) for number, entry in enumerate(self.entries)]
        options = [_axis_field(where) for where in self.axes if where.name not in COLUMNS.names]
        return pa.Table.from_pylist(rows, schema=pa.schema([*COLUMNS, *options]))

    def pandas(self) -> Any:
        """As a pandas DataFrame.

        Raises:
            ConfigurationError: pandas is not installed.
        """
        try:
            return self.arrow().to_pandas()
        except ImportError:
            raise ConfigurationError("pandas is not installed; `pip install pandas` does it") from None

    def _row(self, entry: Entry, differs: Sequence[str]) -> dict[str, Any]:
        cell, ratio = entry.cell, entry.ratio
        named = {where.name: value for where, value in zip(self.axes, cell.key, strict=True)}
        estimate, other = cell.estimate, entry.baseline.estimate if entry.baseline else None
        return {
            **{where.name: cell.value(where) for where in AXES.values()},
            **named,
            "metric": self.metric.on(cell.value(AXES["device"])).name,
            "unit": self.metric.unit,
            "better": "higher" if self.metric.higher_is_better else "lower",
            "value": estimate and estimate.value,
            "value_low": estimate and estimate.low,
            "value_high": estimate and estimate.high,
            "processes": len(cell.measured),
            "samples": estimate.samples if estimate else 0,
            "is_baseline": entry.is_baseline,
            "baseline": key_text(entry.baseline.key, self.axes) if entry.baseline else None,
            "baseline_value": other and other.value,
            "baseline_processes": len(entry.baseline.measured) if entry.baseline else None,
            **_ratio_columns(ratio),
            "status": " ".join(f"{status.value}:{count}" for status, count in sorted(cell.statuses.items())),
            "reason": "; ".join(dict.fromkeys([*([entry.problem] if entry.problem else []), *cell.reasons])) or None,
            "unsteady": cell.unsteady,
            "flagged": cell.flagged,
            "campaigns": " ".join(cell.campaigns),
            "hosts": " ".join(cell.hosts),
            "differs": "; ".join(differs) or None,
        }


def _ratio_columns(ratio: Ratio | None) -> dict[str, Any]:
    if ratio is None:
        return {}
    estimate, cpu = ratio.estimate, ratio.cpu
    return {
        "ratio": estimate.value,
        "ratio_low": estimate.low,
        "ratio_high": estimate.high,
        "pairing": ratio.pairing.value,
        "pairs": estimate.processes if ratio.pairing is not Pairing.UNPAIRED else None,
        "degrees": estimate.degrees,
        "verdict": ratio.verdict.value,
        "least_difference": ratio.judgement.least,
        "sessions_more": ratio.sessions,
        "seconds_more": ratio.more_s,
        "cpu_ratio": cpu and cpu.estimate.value,
        "cpu_ratio_low": cpu and cpu.estimate.low,
        "cpu_ratio_high": cpu and cpu.estimate.high,
        "cpu_verdict": cpu and cpu.verdict.value,
    }


def _axis_field(where: Axis) -> pa.Field:
    metadata = {"unit": where.unit} if where.unit else None
    return pa.field(where.name, pa.int64() if where.is_number else pa.string(), metadata=metadata)


COLUMNS: Final = pa.schema(
    [
        *(_axis_field(where) for where in AXES.values()),
        pa.field(SIDE, pa.string()),
        *(pa.field(name, pa.string()) for name in ("metric", "unit", "better")),
        *(pa.field(name, pa.float64()) for name in ("value", "value_low", "value_high")),
        pa.field("processes", pa.int64(), metadata={"unit": "processes"}),
        pa.field("samples", pa.int64(), metadata={"unit": "samples"}),
        pa.field("is_baseline", pa.bool_()),
        pa.field("baseline", pa.string()),
        pa.field("baseline_value", pa.float64()),
        pa.field("baseline_processes", pa.int64(), metadata={"unit": "processes"}),
        *(
            pa.field(name, pa.float64(), metadata={"unit": "1", "better": "higher"})
            for name in ("ratio", "ratio_low", "ratio_high")
        ),
        pa.field("pairing", pa.string()),
        pa.field("pairs", pa.int64(), metadata={"unit": "sessions"}),
        pa.field("degrees", pa.float64(), metadata={"unit": "1"}),
        pa.field("verdict", pa.string()),
        pa.field("least_difference", pa.float64(), metadata={"unit": "1"}),
        pa.field("sessions_more", pa.int64(), metadata={"unit": "sessions"}),
        pa.field("seconds_more", pa.float64(), metadata={"unit": "s"}),
        *(
            pa.field(name, pa.float64(), metadata={"unit": "1", "better": "higher"})
            for name in ("cpu_ratio", "cpu_ratio_low", "cpu_ratio_high")
        ),
        pa.field("cpu_verdict", pa.string()),
        *(pa.field(name, pa.string()) for name in ("status", "reason")),
        *(pa.field(name, pa.int64(), metadata={"unit": "processes"}) for name in ("unsteady", "flagged")),
        *(pa.field(name, pa.string()) for name in ("campaigns", "hosts", "differs")),
    ]
)
"""Of `ComparisonTable.arrow`, of files and of `--format`: an axis on which the trials of a cell differ is null."""

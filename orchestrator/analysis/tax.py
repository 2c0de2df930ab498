"""The framework tax of trials, derived from what was measured: a better formula needs no new measurement.

On a GPU the framework runs beside the kernels, so that the slower of both decides; on a CPU it runs before and
after them, and times add up. The formulae are therefore different and never mixed. Definitions: Fernandez et
al., The Framework Tax (EMNLP 2023), and docs/measurement.md.

The formulae stand once, in SQL: `derived` applies them to tables, and `VIEWS` gives them to queries of users.

A dispatch floor belongs to a structure. Each task measures it anew, and a disturbance can only make a twin slower, so
that of a campaign's measurements in one place the least counts: of the small twin and of the large one each, before
the line is drawn through both.
"""

# ruff: noqa: S608 -- all of these queries is ours

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np
import pyarrow as pa

from orchestrator.analysis.axes import Row
from orchestrator.analysis.ratios import Visit, by_visit, is_ok, samples_of
from orchestrator.analysis.statistics import Estimate, median_of_values, over_processes
from orchestrator.store import PLACE
from runners.contract import TWIN_GROWTH

_BOUNDS: Final = frozenset({"dispatch_floor_s", "exposed_overhead_s"})
"""Derived columns that are bounds on CPUs: of several the least counts, and there is no interval."""
UPPER, LOWER = 1.1, 0.9
"""One side over the other: above the first it decides, below the second the other does; between them it is mixed."""
AGREEMENT: Final = 0.1
"""Largest difference between the two estimates of the exposed overhead, as a share of the latency."""


GPU_PARTS: Final = (
    *("latency_sync_median_s", "latency_pipelined_median_s", "dispatch_s", "busy_s", "graph_s"),
    *("exposed_overhead_s", "exposed_overhead_graph_s", "framework_fraction", "boundedness", "tax_ratio"),
)
CPU_PARTS: Final = (
    *("latency_sync_median_s", "latency_pipelined_median_s", "dispatch_floor_s"),
    *("parallel_region_tax_s", "framework_fraction"),
)
_OF_A_PROVEN_FLOOR: Final = ("framework_fraction", "parallel_region_tax_s")


class Regime(Enum):
    """What a trial's latency follows."""

    FRAMEWORK_BOUND = "framework-bound"
    MIXED = "mixed"
    COMPUTE_BOUND = "compute-bound"


BANDS: Final = {
    # Floor over the rest of the latency is 1.1 where the latency is 2.1 / 1.1 floors.
    "cpu": ((1 + UPPER) / (2 * UPPER), (1 + LOWER) / (2 * LOWER)),
    "cuda": (1 / UPPER, 1 / LOWER),
}
"""The loads between which a trial is mixed, by device. The load is 1 where the regime changes: on a GPU busy over
dispatch, on a CPU latency over two floors."""

_FLOOR_KEY: Final = ("campaign_id", *PLACE, "dispatch_floor_structure")
_MEASURED: Final = (
    *("trial_id", "attempt", "status", "device", "latency_sync_median_s", "latency_pipelined_median_s"),
    *("dispatch_s", "graph_s", "busy_s", "dispatch_floor_small_s", "dispatch_floor_large_s"),
    *("dispatch_floor_threads_s", "dispatch_floor_valid", "dispatch_floor_problem"),
)
SOURCES: Final = (*_FLOOR_KEY, *_MEASURED)
"""The columns of `trials` that the tax is derived from."""


def _field(name: str, kind: pa.DataType, **metadata: str) -> pa.Field:
    return pa.field(name, kind, metadata=metadata or None)


_SECONDS: Final = {"unit": "s", "better": "lower"}
_SHARE: Final = {"unit": "1", "better": "lower"}
DERIVED: Final = pa.schema(
    [
        _field("dispatch_floor_valid", pa.bool_()),
        _field("dispatch_floor_problem", pa.string()),
        _field("dispatch_floor_s", pa.float64(), **_SECONDS),
        _field("parallel_region_tax_s", pa.float64(), **_SECONDS),
        _field("exposed_overhead_s", pa.float64(), **_SECONDS),
        _field("exposed_overhead_graph_s", pa.float64(), **_SECONDS),
        _field("overhead_estimates_agree", pa.bool_()),
        _field("framework_fraction", pa.float64(), **_SHARE),
        _field("latency_floor_log_ratio", pa.float64(), unit="1"),
        _field("boundedness", pa.float64(), **_SHARE),
        _field("tax_ratio", pa.float64(), **_SHARE),
        _field("regime", pa.string()),
    ]
)
"""The derived columns, with units and the direction that is better; the first two are stored, too, as the runner said
them, and false or told here where a floor comes out at nothing."""

_FLOORS: Final = f"""
    SELECT {", ".join(_FLOOR_KEY)},
        CASE WHEN bool_or(dispatch_floor_valid) THEN min(dispatch_floor_small_s) FILTER (dispatch_floor_valid)
             ELSE min(dispatch_floor_small_s) END AS small_s,
        CASE WHEN bool_or(dispatch_floor_valid) THEN min(dispatch_floor_large_s) FILTER (dispatch_floor_valid)
             ELSE min(dispatch_floor_large_s) END AS large_s,
        -- the intercept of the line through both twins, at no elements at all: what grows with the size is arithmetic
        CASE WHEN large_s IS NULL THEN small_s
             ELSE least(small_s, ({TWIN_GROWTH} * small_s - large_s) / {TWIN_GROWTH - 1}) END AS floor_s
    FROM {{campaigns}}
    WHERE status = 'ok' AND dispatch_floor_structure IS NOT NULL AND dispatch_floor_small_s IS NOT NULL
    GROUP BY {", ".join(_FLOOR_KEY)}
"""
_ALL_ARITHMETIC: Final = "the twins' time is in proportion to their size: it is all arithmetic"
_LOAD: Final = "CASE device WHEN 'cpu' THEN exp(latency_floor_log_ratio) / 2 ELSE 1 / boundedness END"
_BAND: Final = "CASE device WHEN 'cpu' THEN {} ELSE {} END"
_NAMES: Final = ", ".join(DERIVED.names)
_QUERY: Final = f"""
    WITH floors AS ({_FLOORS}), floored AS (
        SELECT t.* EXCLUDE (dispatch_floor_valid, dispatch_floor_problem),
            device = 'cpu' AS on_cpu, busy_s > 0 AS has_busy, latency_pipelined_median_s AS pipelined_s,
            CASE WHEN on_cpu AND f.floor_s > 0 THEN f.floor_s END AS dispatch_floor_s,
            t.dispatch_floor_valid AND NOT coalesce(f.floor_s <= 0, false) AS dispatch_floor_valid,
            coalesce(t.dispatch_floor_problem, CASE WHEN f.floor_s <= 0 THEN $${_ALL_ARITHMETIC}$$ END)
                AS dispatch_floor_problem
        FROM {{trials}} AS t LEFT JOIN floors AS f
        ON {" AND ".join(f"t.{name} IS NOT DISTINCT FROM f.{name}" for name in _FLOOR_KEY)}
    ), taxed AS (
        SELECT *,
            CASE WHEN dispatch_floor_valid AND latency_sync_median_s > 0 THEN dispatch_floor_s END AS proven_s,
            CASE WHEN on_cpu AND dispatch_floor_valid THEN dispatch_floor_threads_s - dispatch_floor_small_s END
                AS parallel_region_tax_s,
            CASE WHEN on_cpu THEN proven_s WHEN has_busy THEN pipelined_s - busy_s END AS exposed_overhead_s,
            CASE WHEN NOT on_cpu THEN pipelined_s - graph_s END AS exposed_overhead_graph_s,
            abs(exposed_overhead_s - exposed_overhead_graph_s) <= {AGREEMENT} * pipelined_s AS overhead_estimates_agree,
            CASE WHEN on_cpu THEN proven_s / latency_sync_median_s ELSE exposed_overhead_s / nullif(pipelined_s, 0) END
                AS share,
            CASE WHEN share < 0 THEN 0.0 WHEN share > 1 THEN 1.0 ELSE share END AS framework_fraction,
            ln(latency_sync_median_s / proven_s) AS latency_floor_log_ratio,
            CASE WHEN NOT on_cpu AND has_busy THEN nullif(dispatch_s, 0) / busy_s END AS boundedness,
            CASE WHEN NOT on_cpu THEN pipelined_s / nullif(graph_s, 0) END AS tax_ratio
        FROM floored
    )
    SELECT *, CASE
        WHEN {_LOAD} < {_BAND.format(BANDS["cpu"][0], BANDS["cuda"][0])} THEN '{Regime.FRAMEWORK_BOUND.value}'
        WHEN {_LOAD} > {_BAND.format(BANDS["cpu"][1], BANDS["cuda"][1])} THEN '{Regime.COMPUTE_BOUND.value}'
        WHEN {_LOAD} IS NOT NULL THEN '{Regime.MIXED.value}' END AS regime
    FROM taxed
"""
VIEWS: Final[Mapping[str, str]] = {
    "tax": "SELECT * EXCLUDE (on_cpu, has_busy, pipelined_s, proven_s, share) FROM ("
    + _QUERY.format(trials="trials", campaigns="trials")
    + ")"
}
"""For queries of users: `tax` has all columns of `trials` and the derived ones."""


def stored(columns: Collection[str]) -> list[str]:
    """The columns of `trials` that must be read to have some columns of rows."""
    if not needs_tax(columns):
        return list(dict.fromkeys(columns))
    made = {*DERIVED.names} - {*SOURCES}
    return [name for name in dict.fromkeys([*columns, *SOURCES]) if name not in made]


def needs_tax(columns: Collection[str]) -> bool:
    """Whether some columns of rows follow from floors, which are those of whole campaigns."""
    return not {*DERIVED.names}.isdisjoint(columns)


def complete(trials: pa.Table, columns: Sequence[str], campaigns: pa.Table | None = None) -> pa.Table:
    """Trials with the columns of rows, derived ones among them.

    Args:
        trials: with `stored(columns)`.
        columns: of rows, in their order.
        campaigns: all trials of their campaigns, with `SOURCES`; null if `trials` is that.
    """
    if needs_tax(columns):
        found = _derived(trials, campaigns)
        trials = trials.drop_columns([name for name in found.column_names if name in trials.column_names])
        for name in found.column_names:
            trials = trials.append_column(name, found[name])
    return trials.select(columns)


def _derived(trials: pa.Table, campaigns: pa.Table | None) -> pa.Table:
    import duckdb  # who compares latencies does not wait for it

    with duckdb.connect() as connection:
        numbers = pa.array(range(len(trials)), pa.int64())
        connection.register("chosen", trials.select(SOURCES).append_column("row_number", numbers))
        connection.register("whole", (trials if campaigns is None else campaigns).select(SOURCES))
        query = _QUERY.format(trials="chosen", campaigns="whole")
        return connection.sql(f"SELECT {_NAMES} FROM ({query}) ORDER BY row_number").to_arrow_table().cast(DERIVED)


@dataclass(frozen=True)
class Load:
    """How much the device's side weighs against the framework's over the processes of a configuration."""

    device: str
    """`cpu` or `cuda`."""
    estimate: Estimate
    """On a GPU busy over dispatch; on a CPU latency over two floors, at most."""

    @property
    def regime(self) -> Regime:
        """The whole interval must lie beyond the band; without an interval the value itself decides."""
        found, (least, most) = self.estimate, BANDS[self.device]
        if (found.value if found.high is None else found.high) < least:
            return Regime.FRAMEWORK_BOUND
        low = found.value if found.low is None else found.low
        return Regime.COMPUTE_BOUND if low > most else Regime.MIXED

    @property
    def is_decided(self) -> bool:
        """False where a single process leaves the regime without an interval."""
        return self.estimate.low is not None

    @property
    def is_by_lower_bound(self) -> bool:
        """CPU: the framework may take more than its floor, so that only framework-bound is proven."""
        return self.device == "cpu" and self.regime is not Regime.FRAMEWORK_BOUND

    @property
    def proven(self) -> Regime | None:
        """The regime, where its rounds prove it."""
        return self.regime if self.is_decided and not self.is_by_lower_bound else None


def load_of(rows: Iterable[Row], device: str) -> Load | None:
    """The load of the trials of one configuration; null if nothing tells it."""
    found = over_processes(loads(rows, device).values())
    return None if found is None else Load(device, found)


def proven(rows: Iterable[Row]) -> list[Row]:
    """The trials whose tax counts: on a CPU those whose floor is that of their own operations, undisturbed."""
    return [row for row in rows if row["device"] != "cpu" or row["dispatch_floor_valid"] is True]


def loads(rows: Iterable[Row], device: str) -> dict[Visit, float]:
    """How much the device's side weighs against the framework's, by visit: 1 where the regime changes.

    On a GPU busy over dispatch; on a CPU the latency over two of its floors, where that is proven. As the floor is a
    lower bound, a CPU's load is an upper one.
    """
    if device == "cpu":
        return {
            visit: math.exp(value) / 2 for visit, value in by_visit(proven(rows), "latency_floor_log_ratio").items()
        }
    return {visit: 1 / value for visit, value in by_visit(rows, "boundedness").items() if value > 0}


@dataclass(frozen=True)
class Tax:
    """Of one configuration."""

    parts: Mapping[str, Estimate]
    """By column: medians over processes, with intervals over them. What was not measured is not in it."""
    load: Load | None
    """Null if nothing tells the regime."""
    floor_problem: str | None
    """CPU: why the floor proves nothing."""
    estimates_disagree: int
    """GPU: processes in which profiler and CUDA graph give exposed overheads that differ by a tenth of the latency."""
    processes: int
    unsteady: int
    """Processes whose warm-up ended by its cap."""


def tax_of(rows: Sequence[Row], device: str) -> Tax:
    """The parts of a call, over the processes of a configuration.

    Args:
        rows: its trials, without the second halves of A/A pairs.
        device: `cpu` or `cuda`.
    """
    ok = [row for row in rows if is_ok(row)]
    valid = proven(ok)
    parts: dict[str, Estimate] = {}
    for column in CPU_PARTS if device == "cpu" else GPU_PARTS:
        # Of a floor that is not proven nothing follows, but it is shown.
        source = valid if column in _OF_A_PROVEN_FLOOR or (column == "dispatch_floor_s" and valid) else ok
        found = estimate_of(source, column)
        if found is not None:
            parts[column] = found
    problems = [row["dispatch_floor_problem"] for row in ok if row["dispatch_floor_valid"] is False]
    return Tax(
        parts=parts,
        load=load_of(ok, device),
        floor_problem=problems[0] if problems else None,
        estimates_disagree=sum(row["overhead_estimates_agree"] is False for row in ok),
        processes=len(ok),
        unsteady=sum(row["steady"] is False for row in ok),
    )


def estimate_of(rows: Iterable[Row], column: str, count: str | None = None) -> Estimate | None:
    """The median of a column over the processes that ended well and have it, of a bound the least; null without any."""
    known = [row for row in rows if is_ok(row) and row[column] is not None]
    if not known:
        return None
    values = np.array([row[column] for row in known], dtype=np.float64)
    if is_bound(known, column):
        return Estimate(float(values.min()), None, None, len(known), len(known))
    return median_of_values(values, sum(samples_of(row, count) for row in known))


def is_bound(rows: Iterable[Row], column: str) -> bool:
    """Whether a column is a bound in some trials: of several the least counts, and there is no interval."""
    return column in _BOUNDS and all(row["device"] == "cpu" for row in rows)

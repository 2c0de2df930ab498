"""Cells: the trials that are one thing measured several times, and the refusal to pool what is not one thing."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import numpy as np

from orchestrator.analysis.axes import AXES, DEFAULTS, Axis, Group, Value, axes, columns_of
from orchestrator.analysis.comparing.policies import POOLED_AXES, Policy
from orchestrator.analysis.metrics import Metric
from orchestrator.analysis.ratios import RATIO_COLUMNS, samples_of
from orchestrator.analysis.statistics import Estimate, median_of_values
from orchestrator.errors import ConfigurationError
from runners.contract import Status

Row = dict[str, Any]
FLAGS: Final = "guard_flags"
Key = tuple[Value, ...]

_GUARDS: Final = (
    *(one for one in AXES.values() if one.group in (Group.WORK, Group.BACKEND)),
    *axes(("environment", "environment_id", "isolation", "method", "protocol", "gpu", "cpu", "hw", "driver", "system")),
)
"""A cell has one value of each, unless it is pooled or a coarser one differs anyway."""
_POOLABLE_AS: Final = {name: pool.value for pool, names in reversed(list(POOLED_AXES.items())) for name in names}
_CELLS_SHOWN: Final = 1
_VALUES_SHOWN: Final = 6
_ID_SHOWN: Final = 12
_TEXT_SHOWN: Final = 60


@dataclass(frozen=True)
class Cell:
    """Trials of one key."""

    key: Key
    rows: tuple[Row, ...]
    """Of each trial the last attempt, without the second halves of A/A pairs."""
    measured: tuple[Row, ...]
    """Those of `rows` that ended ok and have the metric."""
    estimate: Estimate | None
    """In the unit of the metric; null if nothing was measured."""

    @property
    def statuses(self) -> Mapping[Status, int]:
        """How its trials ended."""
        return Counter(Status(row["status"]) for row in self.rows)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why trials did not end ok, each text once."""
        return _texts(row["reason"] for row in self.rows if row["status"] != Status.OK.value)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Where it was measured."""
        return tuple(sorted(_texts(row["host"] for row in self.measured)))

    @property
    def campaigns(self) -> tuple[str, ...]:
        """In which campaigns, the names sorted."""
        return tuple(sorted(_texts(row["campaign_id"] for row in self.measured)))

    @property
    def unsteady(self) -> int:
        """Processes whose warm-up ended by its cap."""
        return sum(row["steady"] is False for row in self.measured)

    @property
    def flagged(self) -> int:
        """Processes whose guards found that something disturbed them."""
        return sum(bool(row[FLAGS]) for row in self.measured)

    def value(self, where: Axis) -> Value:
        """The one value on an axis; null if there are several."""
        found = {where.read(row) for row in self.measured or self.rows}
        return found.pop() if len(found) == 1 else None

    def missing(self, metric: Metric) -> str:
        """Why nothing was measured, in a line."""
        problems = list(self.reasons)
        if metric.problem is not None:
            problems += _texts(row[metric.problem] for row in self.rows)
        return problems[0] if problems else f"{metric.name} was not measured"


def cell_columns(metric: Metric, key: Sequence[Axis]) -> list[str]:
    """The columns that cells are made from."""
    wanted = [*AXES.values(), *key]
    return [*columns_of(wanted), *metric.columns, *RATIO_COLUMNS, "reason", "steady", FLAGS]


def make_cells(
    rows: Sequence[Row],
    key_of: Callable[[Row], Key],
    key: Sequence[Axis],
    metric: Metric,
    policy: Policy,
    started: Mapping[str, datetime],
) -> dict[Key, Cell]:
    """Groups trials into cells, ordered by key.

    Args:
        rows: trials, with `cell_columns`.
        key_of: the key of a trial.
        key: the axes that keys are made of.
        metric: what is compared.
        policy: what may be pooled.
        started: when each campaign started.

    Raises:
        ConfigurationError: trials of one cell must not be pooled.
    """
    groups: dict[Key, list[Row]] = {}
    for row in rows:
        # The second half of an A/A pair exists to show the noise; a cell has one process per round.
        if row["replicate"] == 0 and not (policy.without_flagged and row[FLAGS]):
            groups.setdefault(key_of(row), []).append(row)
    if policy.latest:
        groups = {name: _newest(group, started) for name, group in groups.items()}
    cells = {name: _cell(name, groups[name], metric) for name in sorted(groups, key=sorting)}
    _refuse_mixtures(list(cells.values()), key, policy)
    return cells


def key_text(key: Key, of: Sequence[Axis]) -> str:
    """A key in words: `gpu=A100 batch=1`, without the sizes and options that it does not have."""
    named = zip(of, key, strict=True)
    return " ".join(f"{where.name}={value}" for where, value in named if value not in (None, DEFAULTS))


def sorting(key: Key) -> tuple[tuple[bool, int, str], ...]:
    """Numbers by size, texts by alphabet, null first."""
    return tuple(
        (value is not None, value if isinstance(value, int) else 0, value if isinstance(value, str) else "")
        for value in key
    )


def is_measured(row: Row, metric: Metric) -> bool:
    """Whether a trial has the metric, and its number counts."""
    if row["status"] != Status.OK.value or row[metric.column] is None:
        return False
    return metric.valid is None or row[metric.valid] is True


def _cell(key: Key, rows: Sequence[Row], metric: Metric) -> Cell:
    measured = tuple(row for row in rows if is_measured(row, metric))
    estimate = None
    if measured:
        values = np.array([row[metric.column] for row in measured], dtype=np.float64)
        estimate = median_of_values(values, sum(samples_of(row, metric.count) for row in measured))
    return Cell(key, tuple(rows), measured, estimate)


def _newest(rows: Sequence[Row], started: Mapping[str, datetime]) -> list[Row]:
    newest = max({row["campaign_id"] for row in rows}, key=lambda one: (started[one], one))
    return [row for row in rows if row["campaign_id"] == newest]


def _refuse_mixtures(cells: Sequence[Cell], key: Sequence[Axis], policy: Policy) -> None:
    free = policy.pooled_axes | {where.name for where in key}
    mixed: dict[Axis, list[Cell]] = {}
    for cell in cells:
        for where in _GUARDS:
            if where.name not in free and len({where.read(row) for row in cell.measured}) > 1:
                mixed.setdefault(where, []).append(cell)
    if not mixed:
        return
    # The first is the coarsest: what differs in its environment differs in the identity of it, too.
    where, found = next(iter(mixed.items()))
    values = sorted({where.read(row) for row in found[0].measured}, key=lambda value: sorting((value,)))
    firsts = {one.group: one for one in reversed(mixed)}
    also = [one.name for one in mixed if one is not where and (one.group is Group.WORK or one is firsts[one.group])]
    place = key_text(found[0].key, key)
    raise ConfigurationError(
        f"trials that differ in {where.name} would be pooled: {', '.join(_brief(where, values))}"
        + (f", in {place}" if place else "")
        + (f" and {len(found) - _CELLS_SHOWN} other cells" if len(found) > _CELLS_SHOWN else "")
        + f"; {_remedy(where, values)}"
        + (f" (they differ in {', '.join(also)}, too)" if also else "")
    )


def _remedy(where: Axis, values: Sequence[Value]) -> str:
    ways = [f"make {where.name} one of the axes of the table"]
    if where.name != "protocol":
        ways.append(
            f"choose with --where {where.name}={where.shown(values[-1])[: _ID_SHOWN if where.is_identity else None]}"
        )
    if where.name in _POOLABLE_AS:
        ways += ["take --latest", f"say --pool {_POOLABLE_AS[where.name]}"]
    return f"{', '.join(ways[:-1])} or {ways[-1]}"


def _brief(where: Axis, values: Sequence[Value]) -> list[str]:
    shown = [where.shown(value) for value in values[:_VALUES_SHOWN]]
    if where.is_identity:
        shown = [one[:_ID_SHOWN] for one in shown]
    shown = [one if len(one) <= _TEXT_SHOWN else f"{one[:_TEXT_SHOWN]}…" for one in shown]
    return [*shown, *([f"and {len(values) - _VALUES_SHOWN} more"] if len(values) > _VALUES_SHOWN else [])]


def _texts(found: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one for one in found if one))

"""The trials that a page is about: chosen by conditions, read once, with the same choice as SQL."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow.compute as pc

from orchestrator.analysis.axes import AXES, Axis, Value, columns_of
from orchestrator.analysis.conditions import Condition, accepted
from orchestrator.analysis.explanation import explain_columns
from orchestrator.analysis.ratios import RATIO_COLUMNS
from orchestrator.analysis.snapshot import Snapshot
from orchestrator.errors import ConfigurationError
from orchestrator.report.page.model import Mode
from orchestrator.store import Results

Row = dict[str, Any]

_MORE: Final = (
    *("reason", "replicate", "host", "flops", "weight_bytes", "guard_flags", "hw_id"),
    *("isolation", "environment", "environment_id", "driver_version", "kernel"),
)


@dataclass(frozen=True)
class Chosen:
    """A selection of one moment."""

    moment: Snapshot
    condition: pc.Expression | None
    rows: tuple[Row, ...]
    """Of each trial the attempt that counts, the second halves of A/A pairs too."""
    sql: str
    """A condition on `trials`, such as `campaign_id IN ('a')`; `true` for all."""
    where: tuple[str, ...]


AND: Final = "\n  AND "
"""Between conditions: one on each line."""
UNFLAGGED: Final = "coalesce(len(guard_flags), 0) = 0"
"""Trials that no guard flagged, those among them that none watched."""


def choose(results: Results, conditions: Sequence[Condition]) -> Chosen:
    """The trials that meet conditions.

    Raises:
        ConfigurationError: a value is unknown, or no trial meets all conditions.
        StoreError: a file cannot be read.
    """
    moment = Snapshot.of(results)
    condition = moment.condition(conditions)
    rows = moment.rows(trial_columns(), condition)
    if not rows:
        chosen = " ".join(one.text for one in conditions)
        raise ConfigurationError(
            f"there is nothing to report: no trial meets {chosen}"
            if chosen
            else "there is nothing to report: no trial yet; run `make cluster-sweep`"
        )
    return Chosen(moment, condition, tuple(rows), _sql(moment, conditions, rows), tuple(one.text for one in conditions))


def trial_columns() -> list[str]:
    """The columns of `trials` that pages are made from; samples are read for themselves."""
    metrics = [name for mode in Mode for name in mode.metric.columns]
    return list(dict.fromkeys([*explain_columns(), *columns_of(AXES.values()), *metrics, *RATIO_COLUMNS, *_MORE]))


def sql_values(columns: Sequence[str], tuples: Collection[tuple[Any, ...]]) -> str:
    """A condition in SQL: these columns have one of these combinations of values.

    Args:
        columns: names of columns.
        tuples: values, one of each column; null is unknown.
    """
    branches: list[list[str]] = []
    for values in sorted(set(tuples), key=repr):
        branches.append([_equal(name, value) for name, value in zip(columns, values, strict=True)])
    if len(branches) == 1:
        return AND.join(branches[0])
    if len(columns) == 1 and not any(value is None for (value,) in tuples):
        listed = ", ".join(sorted({sql_literal(one[0]) for one in tuples}))
        return f"{columns[0]} IN ({listed})"
    return "(" + " OR ".join(f"({' AND '.join(one)})" if len(one) > 1 else one[0] for one in branches) + ")"


def sql_literal(value: Any) -> str:
    """A text or a number, as SQL has it."""
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


def _sql(moment: Snapshot, conditions: Sequence[Condition], rows: Sequence[Row]) -> str:
    parts = []
    for one in conditions:
        if one.is_recent:
            found = {(row["campaign_id"],) for row in rows}
            parts.append(sql_values(["campaign_id"], found))
            continue
        known: dict[Value, list[tuple[Any, ...]]] = moment.values(one.axis)
        raw = [values for value in accepted(one, known.keys()) for values in known[value]]
        parts.append(sql_values(one.axis.columns, raw))
    return AND.join(dict.fromkeys(parts)) or "true"


def _equal(name: str, value: Any) -> str:
    return f"{name} IS NULL" if value is None else f"{name} = {sql_literal(value)}"


def raw_values(where: Axis, rows: Iterable[Row]) -> dict[Value, set[tuple[Any, ...]]]:
    """What stands in the columns of an axis, by its values."""
    found: dict[Value, set[tuple[Any, ...]]] = {}
    for row in rows:
        found.setdefault(where.read(row), set()).add(tuple(row[name] for name in where.columns))
    return found

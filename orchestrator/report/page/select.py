"""The trials that a page is about: chosen by conditions, read once, with the same choice as SQL."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow.compute as pc

from orchestrator.analysis.axes import AXES, Value, columns_of
from orchestrator.analysis.conditions import Condition, accepted
from orchestrator.analysis.explanation import explain_columns
from orchestrator.analysis.ratios import RATIO_COLUMNS
from orchestrator.analysis.snapshot import Snapshot
from orchestrator.errors import ConfigurationError
from orchestrator.report.page.cells import Mode
from orchestrator.report.page.sql import AND, sql_values
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
        chosen = " ".join(condition.text for condition in conditions)
        raise ConfigurationError(
            f"there is nothing to report: no trial meets {chosen}"
            if chosen
            else "there is nothing to report: no trial yet; run `make cluster-sweep`"
        )
    return Chosen(
        moment, condition, tuple(rows), _sql(moment, conditions, rows), tuple(asked.text for asked in conditions)
    )


def trial_columns() -> list[str]:
    """The columns of `trials` that pages are made from; samples are read for themselves."""
    metrics = [name for mode in Mode for name in mode.metric.columns]
    return list(dict.fromkeys([*explain_columns(), *columns_of(AXES.values()), *metrics, *RATIO_COLUMNS, *_MORE]))


def _sql(moment: Snapshot, conditions: Sequence[Condition], rows: Sequence[Row]) -> str:
    parts = []
    for condition in conditions:
        if condition.is_recent:
            found = {(row["campaign_id"],) for row in rows}
            parts.append(sql_values(["campaign_id"], found))
            continue
        known: dict[Value, list[tuple[Any, ...]]] = moment.values(condition.axis)
        raw = [values for value in accepted(condition, known.keys()) for values in known[value]]
        parts.append(sql_values(condition.axis.columns, raw))
    return AND.join(dict.fromkeys(parts)) or "true"

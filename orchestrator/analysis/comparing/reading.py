"""Rows of one moment of the store, chosen by conditions on axes. No more columns are read than are asked for."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.analysis.axes import AXES, Axis, Value, with_sweeps
from orchestrator.analysis.changes import Dimensions
from orchestrator.analysis.comparing.cells import FLAGS, is_measured
from orchestrator.analysis.conditions import NEWEST, Condition, accepted
from orchestrator.analysis.metrics import Metric, resolved
from orchestrator.analysis.ratios import RATIO_COLUMNS
from orchestrator.analysis.summary import last_attempts
from orchestrator.analysis.turns import stored, with_turns
from orchestrator.errors import ConfigurationError
from orchestrator.store import Results, Selection
from orchestrator.store.query.reading import View

Row = dict[str, Any]
_IDENTITY = ("campaign_id", "trial_id", "attempt")


@dataclass(frozen=True)
class Moment:
    """A store as it is at one moment: what is read in several steps fits together though a sweep is running."""

    view: View
    campaigns: tuple[Row, ...]
    """With `campaign_id`, `sweep` and `started_at`."""

    @classmethod
    def of(cls, results: Results) -> Self:
        """The store as it is now.

        Raises:
            StoreError: a file cannot be read.
        """
        view = results.view()
        columns = ("campaign_id", "sweep", "started_at")
        return cls(view, tuple(Selection(view, "campaigns", None, columns).arrow().to_pylist()))

    @property
    def started(self) -> Mapping[str, datetime]:
        """When each campaign started."""
        return {row["campaign_id"]: row["started_at"] for row in self.campaigns}

    def dimensions(self) -> Dimensions:
        """What trials refer to."""
        tables = [
            Selection(self.view, "systems", None, ("system_id", "fingerprint")),
            Selection(
                *(self.view, "environments", None, ("environment_id", "versions", "facts", "image_config_sha256"))
            ),
            Selection(self.view, "campaigns", None, ("campaign_id", "taxmeter_version", "git_commit")),
        ]
        return Dimensions.of(*(one.arrow() for one in tables))

    def condition(self, conditions: Sequence[Condition]) -> pc.Expression | None:
        """Conditions as the store takes them; null if there are none.

        Raises:
            ConfigurationError: no trial meets one of them.
        """
        ordinary = [one for one in conditions if not one.is_recent]
        expressions = [self._expression(one) for one in ordinary]
        chosen = _all(expressions)
        for one in conditions:
            if one.is_recent:
                expressions.append(pc.field("campaign_id").isin(self._recent(one, chosen)))
        return _all(expressions)

    def rows(self, columns: Iterable[str], condition: pc.Expression | None) -> list[Row]:
        """Trials, of each the attempt that counts, with the sweep of their campaign.

        Raises:
            StoreError: a file cannot be read.
        """
        return last_attempts(self._joined(self._table(list(dict.fromkeys([*_IDENTITY, *columns])), condition)))

    def whole(self, campaigns: Collection[str], metric: Metric, *, without_flagged: bool) -> list[Row]:
        """All trials of campaigns, both halves of A/A pairs: what is chosen of a campaign scatters as the rest does.

        Args:
            campaigns: by name.
            metric: whose columns are read.
            without_flagged: leaves out those that guards flagged.

        Raises:
            StoreError: a file cannot be read.
        """
        if not campaigns:
            return []
        columns = [*RATIO_COLUMNS, *metric.columns, FLAGS]
        rows = resolved(self.rows(columns, pc.field("campaign_id").isin(sorted(campaigns))), metric)
        return [row for row in rows if is_measured(row, metric) and not (without_flagged and row[FLAGS])]

    def values(self, axis: Axis, condition: pc.Expression | None = None) -> dict[Value, list[tuple[Any, ...]]]:
        """The values that trials have on an axis, each with what stands in its columns."""
        distinct = self._table(list(axis.columns), condition).group_by(list(axis.columns)).aggregate([])
        found: dict[Value, list[tuple[Any, ...]]] = {}
        for row in self._joined(distinct):
            found.setdefault(axis.read(row), []).append(tuple(row[name] for name in axis.columns))
        return found

    def _joined(self, table: pa.Table) -> list[Row]:
        return with_sweeps(table.to_pylist(), {row["campaign_id"]: row["sweep"] for row in self.campaigns})

    def _table(self, columns: Sequence[str], condition: pc.Expression | None) -> pa.Table:
        needed = stored(columns)
        table = Selection(self.view, "trials", condition, tuple(needed)).arrow()
        return table if needed == list(columns) else with_turns(table).select(columns)

    def _expression(self, condition: Condition) -> pc.Expression:
        known = self.values(condition.axis)
        raw = [values for one in accepted(condition, known.keys()) for values in known[one]]
        columns = condition.axis.columns
        if len(columns) == 1:
            return _within(columns[0], [values[0] for values in raw])
        return reduce(
            pc.Expression.__or__,
            [_all([_within(*pair) for pair in zip(columns, ([one] for one in values), strict=True)]) for values in raw],
        )

    def _recent(self, condition: Condition, chosen: pc.Expression | None) -> list[str]:
        started = self.started
        there = [str(one) for one in self.values(AXES["campaign"], chosen)]
        ordered = sorted(there, key=lambda one: (started[one], one), reverse=True)
        found = []
        for value in condition.values:
            position = 0 if value == NEWEST else 1
            if len(ordered) <= position:
                count = "no campaign" if not ordered else f"one campaign only, {ordered[0]}"
                raise ConfigurationError(f"campaign={value}: the other conditions leave {count}", key=condition.option)
            found.append(ordered[position])
        return found


def _within(column: str, values: Collection[Any]) -> pc.Expression:
    known = [one for one in values if one is not None]
    field = pc.field(column)
    if len(known) == len(values):
        return field.isin(known)
    return field.isin(known) | field.is_null() if known else field.is_null()


def _all(expressions: Sequence[pc.Expression]) -> Any:
    return reduce(pc.Expression.__and__, expressions) if expressions else None

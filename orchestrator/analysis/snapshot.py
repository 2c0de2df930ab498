"""Trials of one moment of the store, chosen by conditions on axes. No more columns are read than are asked for."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.analysis.axes import AXES, Axis, Value, grouped, with_sweeps
from orchestrator.analysis.conditions import NEWEST, Condition, accepted
from orchestrator.analysis.confounders import Confounders, Dimensions, change_columns, facts_of_a_run, row_id
from orchestrator.analysis.frame import IDENTITY, Frame, context_columns, frame_columns, last_attempts
from orchestrator.analysis.metrics import Metric, default_metric, resolved
from orchestrator.analysis.pooling import Policy
from orchestrator.analysis.tax import SOURCES, complete, needs_tax, stored
from orchestrator.errors import ConfigurationError
from orchestrator.store import Results, Selection, Stage
from orchestrator.store.query.view import View

Row = dict[str, Any]
CAMPAIGN_COLUMNS: Final = (
    *("campaign_id", "sweep", "started_at", "finished_at", "planned_trials"),
    *(stage.value for stage in Stage),
)


@dataclass(frozen=True)
class Snapshot:
    """A store as it is at one moment: what is read in several steps fits together though a sweep is running."""

    view: View
    campaigns: tuple[Row, ...]
    """With `CAMPAIGN_COLUMNS`."""

    @classmethod
    def of(cls, results: Results) -> Self:
        view = results.view()
        return cls(view, tuple(Selection(view, "campaigns", None, CAMPAIGN_COLUMNS).arrow().to_pylist()))

    @property
    def started(self) -> Mapping[str, datetime]:
        return {row["campaign_id"]: row["started_at"] for row in self.campaigns}

    def of_campaigns(self, campaigns: Collection[str]) -> Self:
        """The same without the files that hold nothing of some campaigns."""
        return replace(self, view=self.view.of_campaigns(campaigns))

    def dimensions(self, rows: Collection[Mapping[str, Any]]) -> Dimensions:
        """What some trials refer to."""

        def of(table: str, key: str, *columns: str) -> pa.Table:
            return Selection(self.view, table, _within(key, used[key]), (key, *columns)).arrow()

        used = {key: {row[key] for row in rows} for key in ("system_id", "environment_id", "campaign_id")}
        return Dimensions.of(
            of("systems", "system_id", "fingerprint"),
            of("environments", "environment_id", "versions", "facts", "image_config_sha256"),
            of("campaigns", "campaign_id", "taxmeter_version", "git_commit"),
        )

    def confounders(self, rows: Iterable[Mapping[str, Any]], *, conditions: bool) -> Confounders:
        """What tells the differences between some trials.

        Of their facts it keeps as little as tells where they ran, for there may be very many trials; load, clocks and
        the like only if `conditions` are asked for.
        """
        trials = grouped(rows, lambda row: row["campaign_id"])
        found: list[Row] = []
        texts: dict[str, str] = {}
        for campaign in sorted(trials):
            here = _within("trial_id", [row["trial_id"] for row in trials[campaign]])
            of_campaign = self.of_campaigns([campaign])
            for row in of_campaign.rows(change_columns(), here & (pc.field("campaign_id") == campaign)):
                lean = {"facts": json.dumps(facts_of_a_run(row)), "protocol": row["protocol"]}
                row |= {name: texts.setdefault(text, text) for name, text in lean.items()}
                row["conditions_before"] = row["conditions_before"] if conditions else None
                found.append(row)
        return Confounders(self.dimensions(found), {row_id(row): row for row in found})

    def condition(self, conditions: Sequence[Condition]) -> pc.Expression | None:
        """Conditions as the store takes them; null if there are none.

        Raises:
            ConfigurationError: no trial meets one of them.
        """
        return self._resolved(conditions)[0]

    def chosen(self, conditions: Sequence[Condition]) -> tuple[Collection[str], pc.Expression | None]:
        """The campaigns of the trials that meet conditions, and these as `condition` has them."""
        condition, recent = self._resolved(conditions)
        near = self if recent is None else self.of_campaigns(recent)
        return near._campaigns(condition), condition

    def rows(self, columns: Iterable[str], condition: pc.Expression | None) -> list[Row]:
        """Trials, of each the attempt that counts, with the sweep of their campaign."""
        return last_attempts(self._joined(self._table(list(dict.fromkeys([*IDENTITY, *columns])), condition)))

    def metric(self, condition: pc.Expression | None, policy: Policy) -> Metric:
        """The metric that was asked for, or the usual one of the devices of the chosen trials."""
        if policy.metric is not None:
            return policy.metric
        return default_metric({str(device) for device in self.values(AXES["device"], condition)} or {"cpu"})

    def trials(self, metric: Metric, key: Sequence[Axis], condition: pc.Expression | None) -> list[Row]:
        """Chosen trials with the columns of frames, the metric resolved."""
        return resolved(self.rows(frame_columns(metric, key), condition), metric)

    def frame(
        self,
        rows: Sequence[Row],
        condition: pc.Expression | None,
        metric: Metric,
        policy: Policy,
        *,
        compared: bool = True,
    ) -> Frame:
        """The frame of some trials."""
        campaigns = sorted({row["campaign_id"] for row in rows}) if compared else []
        rest: list[Row] = []
        if campaigns and condition is not None:
            others = ~pc.coalesce(condition, pc.scalar(value=False))
            rest = self.rows(context_columns(metric), pc.field("campaign_id").isin(campaigns) & others)
        return Frame(rows, metric, policy, [*rows, *rest] if compared else [], self.started)

    def whole(self, rows: Iterable[Mapping[str, Any]], columns: Iterable[str]) -> list[Row]:
        """All trials of the campaigns of some, both halves of A/A pairs, as `Frame` needs them."""
        return self.rows(columns, _within("campaign_id", {row["campaign_id"] for row in rows}))

    def raw_values(self, condition: Condition) -> list[tuple[Any, ...]]:
        """What stands in the columns of its axis where a condition is met.

        Raises:
            ConfigurationError: no trial meets it.
        """
        known = self.values(condition.axis)
        return [values for value in accepted(condition, known.keys()) for values in known[value]]

    def values(self, axis: Axis, condition: pc.Expression | None = None) -> dict[Value, list[tuple[Any, ...]]]:
        """The values that trials have on an axis, each with what stands in its columns."""
        distinct = self._table(list(axis.columns), condition).group_by(list(axis.columns)).aggregate([])
        found: dict[Value, list[tuple[Any, ...]]] = {}
        for row in self._joined(distinct):
            found.setdefault(axis.read(row), []).append(tuple(row[name] for name in axis.columns))
        return found

    def _campaigns(self, condition: pc.Expression | None) -> Collection[str]:
        """Those that have trials."""
        if condition is None:
            return self.view.files_by_campaign
        return [str(campaign) for campaign in self.values(AXES["campaign"], condition)]

    def _resolved(self, conditions: Sequence[Condition]) -> tuple[pc.Expression | None, Collection[str] | None]:
        """Conditions as the store takes them, and the campaigns that recent ones name; null without one of these."""
        expressions = [self._expression(condition) for condition in conditions if not condition.is_recent]
        lasting = _all(expressions)
        recent = [self._recent(condition, lasting) for condition in conditions if condition.is_recent]
        expressions += [_within("campaign_id", campaigns) for campaigns in recent]
        return _all(expressions), {name for campaigns in recent for name in campaigns} if recent else None

    def _joined(self, table: pa.Table) -> list[Row]:
        return with_sweeps(table.to_pylist(), {row["campaign_id"]: row["sweep"] for row in self.campaigns})

    def _table(self, columns: Sequence[str], condition: pc.Expression | None) -> pa.Table:
        table = Selection(self.view, "trials", condition, tuple(stored(columns))).arrow()
        whole = None
        if needs_tax(columns) and condition is not None:
            # A floor is that of all trials of a campaign, whichever of them are chosen.
            here = pc.field("campaign_id").isin(table["campaign_id"].unique())
            whole = Selection(self.view, "trials", here, SOURCES).arrow()
        return complete(table, columns, whole)

    def _expression(self, condition: Condition) -> pc.Expression:
        raw, columns = self.raw_values(condition), condition.axis.columns
        if len(columns) == 1:
            return _within(columns[0], [values[0] for values in raw])
        pairs = [zip(columns, ([value] for value in values), strict=True) for values in raw]
        return reduce(pc.Expression.__or__, [_all([_within(*pair) for pair in some]) for some in pairs])

    def _recent(self, condition: Condition, chosen: pc.Expression | None) -> list[str]:
        started = self.started
        ordered = sorted(self._campaigns(chosen), key=lambda campaign: (started[campaign], campaign), reverse=True)
        found = []
        for value in condition.values:
            position = 0 if value == NEWEST else 1
            if len(ordered) <= position:
                count = "no campaign" if not ordered else f"one campaign only, {ordered[0]}"
                raise ConfigurationError(f"campaign={value}: the other conditions leave {count}", key=condition.option)
            found.append(ordered[position])
        return found


def _within(column: str, values: Collection[Any]) -> pc.Expression:
    if not values:
        # An empty list has no type that a column could be compared with
        return pc.scalar(value=False)
    known = [value for value in values if value is not None]
    field = pc.field(column)
    if len(known) == len(values):
        return field.isin(known)
    return field.isin(known) | field.is_null() if known else field.is_null()


def _all(expressions: Sequence[pc.Expression]) -> Any:
    return reduce(pc.Expression.__and__, expressions) if expressions else None

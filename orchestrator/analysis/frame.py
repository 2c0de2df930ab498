"""The frame: trials → cells → ratios → verdicts, for all that shows measurements.

A cell is the trials of one key: one thing measured several times. What is not one thing is never pooled, unless the
user says so (`pooling`). The ratio of two cells takes its scatter from the whole campaigns of both, so that it does not
depend on what else is asked; ratios that are shown together are judged together.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Final

from orchestrator.analysis.axes import AXES, Axis, Key, Row, Value, columns_of, grouped, sorting, values_of
from orchestrator.analysis.metrics import Metric, resolved
from orchestrator.analysis.pooling import Policy, refuse_mixtures
from orchestrator.analysis.ratios import RATIO_COLUMNS, Priors, Ratio, Twin, is_ok, judged, ratio_of, twins_of
from orchestrator.analysis.statistics import Estimate
from orchestrator.analysis.tax import estimate_of, is_bound
from runners.contract import Status

FLAGS: Final = "guard_flags"
IDENTITY: Final = ("campaign_id", "trial_id", "attempt")
"""The columns that tell a row from all others."""


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
        return Counter(Status(row["status"]) for row in self.rows)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why trials did not end ok, each text once."""
        return _texts(row["reason"] for row in self.rows if not is_ok(row))

    @property
    def hosts(self) -> tuple[str, ...]:
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


@dataclass(frozen=True)
class Frame:
    """The trials of a question by one metric, with the whole campaigns that they are from."""

    rows: Sequence[Row]
    """Trials that were chosen, of each the attempt that counts, with `frame_columns`."""
    metric: Metric
    policy: Policy = field(default_factory=Policy)
    campaigns: Sequence[Row] = ()
    """All trials of their campaigns, both halves of A/A pairs: what is chosen of a campaign scatters as the rest does.
    None where nothing is compared."""
    started: Mapping[str, datetime] = field(default_factory=dict)
    """When each campaign started; needed for `Policy.latest`."""

    def cells(self, key: Sequence[Axis]) -> dict[Key, Cell]:
        """The cells by some axes, ordered by key.

        Raises:
            ConfigurationError: trials of one cell must not be pooled.
        """
        columns, known = columns_of(key), dict[tuple[Any, ...], Key]()

        def key_of(row: Row) -> Key:
            # Most trials say the same as many others
            raw = tuple(row[name] for name in columns)
            if raw not in known:
                known[raw] = values_of(row, key)
            return known[raw]

        # The second half of an A/A pair exists to show the noise; a cell has one process per round.
        skipped = FLAGS if self.policy.without_flagged else "replicate"
        groups = grouped((row for row in self.rows if row["replicate"] == 0 and not row[skipped]), key_of)
        if self.policy.latest:
            groups = {name: _newest(group, self.started) for name, group in groups.items()}
        cells = {name: cell_of(name, groups[name], self.metric) for name in sorted(groups, key=sorting)}
        refuse_mixtures({name: cell.measured for name, cell in cells.items()}, key, self.policy)
        return cells

    @cached_property
    def priors(self) -> Priors:
        """What the cells of the campaigns say of their scatter."""
        rows = measured(resolved(self.campaigns, self.metric), self.metric)
        return Priors([row for row in rows if not (self.policy.without_flagged and row[FLAGS])])

    def ratio(self, ours: Sequence[Row], theirs: Sequence[Row]) -> Ratio | None:
        """How many times better measured trials are than those of a baseline; null where there is no ratio."""
        found = ratio_of(ours, theirs, self.metric.reading, self.priors)
        if found is None or not is_bound((*ours, *theirs), self.metric.column):
            return found
        return Ratio(found.estimate.bare, found.pairing, found.session_s)

    def judged(self, ratios: Iterable[Ratio | None]) -> list[Ratio | None]:
        """Ratios that are shown together, so that chance does not find a difference among many; in their order."""
        every = list(ratios)
        found = iter(judged([ratio for ratio in every if ratio is not None], self.policy.margin))
        return [None if ratio is None else next(found) for ratio in every]

    def compared(self, pairs: Iterable[tuple[Cell | None, Cell | None]]) -> list[Ratio | None]:
        """How many times better cells are than their baselines, judged together; null where a side is missing."""
        return self.judged(
            self.ratio(cell.measured, baseline.measured) if cell and baseline else None for cell, baseline in pairs
        )

    @cached_property
    def twins(self) -> tuple[Twin, ...]:
        """The A/A pairs of the campaigns, judged together: nothing differs between the two sides of one."""
        return twins_of(self.priors, self.metric.reading, self.policy.margin)


@dataclass(frozen=True)
class Frames:
    """Frames of the same campaigns, one by metric."""

    campaigns: Sequence[Row]
    """As `Frame` has them."""
    _known: dict[Metric, Frame] = field(default_factory=dict, compare=False, repr=False)

    def by(self, metric: Metric) -> Frame:
        return self._known.setdefault(metric, Frame((), metric, campaigns=self.campaigns))


def frame_columns(metric: Metric, key: Sequence[Axis] = ()) -> list[str]:
    wanted = [*AXES.values(), *key]
    return list(dict.fromkeys([*columns_of(wanted), *metric.columns, *RATIO_COLUMNS, "reason", "steady", FLAGS]))


def context_columns(metric: Metric) -> list[str]:
    """The columns of the other trials of their campaigns, for `Frame.campaigns`."""
    return list(dict.fromkeys([*RATIO_COLUMNS, *metric.columns, FLAGS]))


def cell_of(key: Key, rows: Sequence[Row], metric: Metric) -> Cell:
    """One cell of trials, whatever they differ in."""
    found = measured(rows, metric)
    return Cell(key, tuple(rows), tuple(found), estimate_of(found, metric.column, metric.count))


def measured(rows: Iterable[Row], metric: Metric) -> list[Row]:
    """The trials that have a metric whose number counts."""
    return [
        row
        for row in rows
        if is_ok(row) and row[metric.column] is not None and (metric.valid is None or row[metric.valid] is True)
    ]


def last_attempts(rows: Iterable[Row]) -> list[Any]:
    """Of each trial the attempt that counts, in the order in which trials appear."""
    last: dict[tuple[str, str], Row] = {}
    for row in rows:
        name = row["campaign_id"], row["trial_id"]
        known = last.get(name)
        if known is None or known["attempt"] < row["attempt"]:
            last[name] = row
    return list(last.values())


def _newest(rows: Sequence[Row], started: Mapping[str, datetime]) -> list[Row]:
    newest = max({row["campaign_id"] for row in rows}, key=lambda name: (started[name], name))
    return [row for row in rows if row["campaign_id"] == newest]


def _texts(found: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for text in found if text))

"""From chosen trials to a table: cells, ratios judged together, and what else differs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow.compute as pc

from orchestrator.analysis.axes import AXES, Axis, Group, Value, axes
from orchestrator.analysis.changes import WORK, Change, change_columns
from orchestrator.analysis.comparing.apart import of_work
from orchestrator.analysis.comparing.cells import Cell, Key, key_text, make_cells
from orchestrator.analysis.comparing.confounders import Confounders, gathered, row_id
from orchestrator.analysis.comparing.policies import Policy
from orchestrator.analysis.comparing.reading import Moment
from orchestrator.analysis.comparing.table import ComparisonTable, Entry
from orchestrator.analysis.metrics import Metric, default_metric
from orchestrator.analysis.ratios import Pairing, Priors, judged, ratio_of, twins_of
from orchestrator.errors import ConfigurationError

Row = dict[str, Any]

NEVER_COMPARED = ("isolation", "method")
"""Unless they are axes of the table, or pooled: the numbers of the two sides mean different things."""
_FIXED = (
    *(one for one in AXES.values() if one.group in (Group.WORK, Group.BACKEND)),
    *axes(("gpu", "cpu", "driver", "environment", "isolation", "method", "campaign")),
)


@dataclass(frozen=True)
class Layout:
    """How trials become a table."""

    axes: tuple[Axis, ...]
    columns: int
    """How many of `axes`, the last ones, are columns."""
    baseline: Mapping[str, Value]
    """The values on some of `axes` that make a cell a baseline."""
    compared: tuple[str, ...]
    """Names of the axes on which the sides are meant to differ."""
    added: tuple[str, ...] = ()
    """Names of the axes that nobody asked for, but on which trials differ."""


def tabulate(
    moment: Moment,
    rows: Sequence[Row],
    key_of: Callable[[Row], Key],
    layout: Layout,
    metric: Metric,
    policy: Policy,
) -> ComparisonTable:
    """The table of trials.

    Args:
        moment: where they are from.
        rows: with the columns of `cell_columns`.
        key_of: the key of a trial: its values on the axes of the layout.
        layout: of the table.
        metric: what is compared.
        policy: how.

    Raises:
        ConfigurationError: trials would be pooled or compared that must not be.
        StoreError: a file cannot be read.
    """
    cells = make_cells(rows, key_of, layout.axes, metric, policy, moment.started)
    pairs = {key: _baseline_key(key, layout) for key in cells} if layout.baseline else {}
    entries = [_entry(cell, cells, pairs.get(cell.key), metric, policy, layout) for cell in cells.values()]
    compared = [entry for entry in entries if entry.problem is None and entry.baseline is not None]
    campaigns = {row["campaign_id"] for entry in compared for row in _both(entry)}
    whole = moment.whole(campaigns, metric, without_flagged=policy.without_flagged)
    priors = Priors(whole)
    shown = _judged([_with_ratio(entry, metric, priors) for entry in entries], policy.margin)
    return ComparisonTable(
        metric=metric,
        policy=policy,
        axes=layout.axes,
        columns=layout.columns,
        baseline=layout.baseline,
        compared=layout.compared,
        added=layout.added,
        fixed=_fixed(list(cells.values()), layout),
        entries=tuple(shown),
        twins=twins_of(priors, metric.reading, policy.margin),
        differences=gathered(_differences(moment, shown, layout)),
    )


def metric_of(moment: Moment, condition: pc.Expression | None, policy: Policy) -> Metric:
    """The metric that was asked for, or the usual one of the devices of the chosen trials."""
    if policy.metric is not None:
        return policy.metric
    devices = {str(one) for one in moment.values(AXES["device"], condition)}
    return default_metric(devices or {"cpu"})


def _baseline_key(key: Key, layout: Layout) -> Key:
    return tuple(layout.baseline.get(where.name, value) for where, value in zip(layout.axes, key, strict=True))


def _entry(
    cell: Cell, cells: Mapping[Key, Cell], against: Key | None, metric: Metric, policy: Policy, layout: Layout
) -> Entry:
    if against is None or against == cell.key:
        problem = None if cell.measured else cell.missing(metric)
        return Entry(cell, None, None, is_baseline=against is not None, problem=problem)
    baseline = cells.get(against)
    entry = Entry(cell, baseline, None, is_baseline=False, problem=None)
    if not cell.measured:
        return replace(entry, problem=cell.missing(metric))
    if baseline is None or not baseline.measured:
        why = f": {baseline.missing(metric)}" if baseline else ""
        return replace(entry, problem=f"no baseline{why}")
    _refuse_incomparable(cell, baseline, metric, policy, layout)
    return entry


def _with_ratio(entry: Entry, metric: Metric, priors: Priors) -> Entry:
    if entry.problem is not None or entry.baseline is None:
        return entry
    ratio = ratio_of(entry.cell.measured, entry.baseline.measured, metric.reading, priors)
    problem = f"{metric.name} is not above 0 everywhere, so there is no ratio" if ratio is None else None
    return replace(entry, ratio=ratio, problem=problem)


def _refuse_incomparable(cell: Cell, baseline: Cell, metric: Metric, policy: Policy, layout: Layout) -> None:
    if len({metric.on(row["device"]).name for one in (cell, baseline) for row in one.measured}) > 1:
        raise ConfigurationError(
            f"{key_text(cell.key, layout.axes)} and its baseline ran on a CPU and on a GPU, whose usual latencies are "
            "different things; say --metric latency_sync or --metric latency_pipelined",
            key="--metric",
        )
    free = policy.pooled_axes | {where.name for where in layout.axes} | set(layout.compared)
    for name in NEVER_COMPARED:
        sides = [{AXES[name].read(row) for row in one.measured} for one in (baseline, cell)]
        if name not in free and sides[0] != sides[1]:
            shown = [" and ".join(sorted(map(str, side))) for side in sides]
            raise ConfigurationError(
                f"{key_text(cell.key, layout.axes)} was measured with {name} {shown[1]}, its baseline with {shown[0]}, "
                f"which are not compared; choose with --where {name}={shown[0]}, or say --pool {name}"
            )


def _judged(entries: Sequence[Entry], margin: float) -> list[Entry]:
    """All ratios of a table are looked at together, so chance must not find a difference among many."""
    found = iter(judged([entry.ratio for entry in entries if entry.ratio is not None], margin))
    return [entry if entry.ratio is None else replace(entry, ratio=next(found)) for entry in entries]


def _differences(moment: Moment, entries: Sequence[Entry], layout: Layout) -> dict[int, tuple[Change, ...]]:
    compared = [(number, entry) for number, entry in enumerate(entries) if entry.ratio is not None]
    if not compared:
        return {}
    used = {row_id(row) for _, entry in compared for row in _both(entry)}
    condition = pc.field("campaign_id").isin(sorted({one[0] for one in used}))
    condition &= pc.field("trial_id").isin(sorted({one[1] for one in used}))
    rows = {row_id(row): row for row in moment.rows(change_columns(), condition)}
    finder = Confounders(moment.dimensions(), rows)
    found = {}
    for number, entry in compared:
        assert entry.baseline is not None
        assert entry.ratio is not None
        # Within shared rounds load and clocks are as random as the order; elsewhere they may explain a difference.
        apart = entry.ratio.pairing is Pairing.UNPAIRED
        found[number] = (
            *_of_work(entry.baseline, entry.cell, layout),
            *finder.between(entry.baseline.measured, entry.cell.measured, layout.compared, conditions=apart),
        )
    return found


def _of_work(baseline: Cell, cell: Cell, layout: Layout) -> Iterator[Change]:
    """What follows from what is compared, such as the threads of a processor that has more."""
    for where in of_work(layout.compared):
        then, now = ({where.shown(where.read(row)) for row in side.measured} for side in (baseline, cell))
        if then != now:
            yield Change(WORK, where.name, *(", ".join(sorted(side)) for side in (then, now)))


def _both(entry: Entry) -> tuple[Row, ...]:
    return (*entry.cell.measured, *(entry.baseline.measured if entry.baseline else ()))


def _fixed(cells: Sequence[Cell], layout: Layout) -> dict[Axis, Value]:
    named = {where.name for where in layout.axes}
    found = {}
    for where in _FIXED:
        values = {where.read(row) for cell in cells for row in cell.rows}
        if where.name not in named and len(values) == 1:
            found[where] = values.pop()
    return found

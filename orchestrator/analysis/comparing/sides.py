"""Two selections side by side: their trials, the axes on which they are matched, and what they have in common."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.analysis.axes import SWEEP, Axis, Group, Row, Value, axes, axis, values_of
from orchestrator.analysis.comparing.apart import followers, of_work, unnamed
from orchestrator.analysis.comparing.cells import Key, cell_columns, is_measured
from orchestrator.analysis.comparing.engine import Layout, metric_of, tabulate
from orchestrator.analysis.comparing.policies import Policy
from orchestrator.analysis.comparing.reading import Moment
from orchestrator.analysis.comparing.table import SIDE, ComparisonTable
from orchestrator.analysis.conditions import Condition
from orchestrator.analysis.metrics import Metric, resolved
from orchestrator.errors import ConfigurationError

_MATCHED: Final = axes(("seed", "environment", "gpu", "cpu"))
"""Unless the user says otherwise, beside work and backend: equal hardware, and the environment of one name."""
_SHOWN: Final = 4


def _side_of(row: Row) -> Value:
    return str(row[SIDE])


SIDE_AXIS: Final = Axis(SIDE, Group.CAMPAIGN, "which of the two selections", (SIDE,), _side_of)


@dataclass(frozen=True)
class Side:
    """A selection."""

    conditions: tuple[Condition, ...]
    name: str
    """As tables call it."""


def named_side(conditions: tuple[Condition, ...], name: str | None = None) -> Side:
    """A selection, by default under the name by which the user wrote it.

    Raises:
        ConfigurationError: it has no condition.
    """
    if not conditions:
        raise ConfigurationError("a selection needs a condition, such as gpu=A100")
    return Side(conditions, name or " ".join(one.text for one in conditions))


def tabulate_sides(
    moment: Moment,
    left: Side,
    right: Side,
    where: tuple[Condition, ...],
    match: Sequence[str] | None,
    policy: Policy,
    *,
    without_overlap: bool = False,
) -> ComparisonTable:
    """Compares the right selection with the left one, cell by cell.

    Args:
        moment: of the store.
        left: the baseline.
        right: what is compared with it.
        where: holds for both.
        match: names of the axes on which cells correspond; by default what makes a configuration, without the axes on
            which the two selections differ.
        policy: how to compare.
        without_overlap: whether trials of the right side are taken out of the left one; else they are an error.

    Raises:
        ConfigurationError: a selection is empty, the two overlap, or have nothing in common.
        StoreError: a file cannot be read.
    """
    first, second = (moment.condition((*where, *side.conditions)) for side in (left, right))
    assert first is not None
    assert second is not None
    metric = metric_of(moment, first | second, policy)
    named = None if match is None else axes(match, "--match")
    columns = cell_columns(metric, named or ())
    found = [resolved(moment.rows(columns, one), metric) for one in (first, second)]
    found[0] = _without_overlap(found[0], found[1], without_overlap=without_overlap)
    for side, rows in zip((left, right), found, strict=True):
        if not rows:
            conditions = " ".join(one.text for one in (*where, *side.conditions))
            raise ConfigurationError(f"there is nothing to compare: no trial meets {conditions}", key=_option(side))
    differing = _differing(left, right)
    rows = [{**row, SIDE: side.name} for side, rows in zip((left, right), found, strict=True) for row in rows]
    matched = named or _matched(differing, found)
    added = unnamed(rows, (*matched, SIDE_AXIS), (*differing, SIDE))
    matched = (*matched, *added)
    layout = Layout((*matched, SIDE_AXIS), 1, {SIDE: left.name}, differing, tuple(one.name for one in added))
    _require_common(found, matched, metric, (left, right))

    def key_of(row: Row) -> Key:
        return values_of(row, layout.axes)

    return tabulate(moment, rows, key_of, layout, metric, policy)


def _differing(left: Side, right: Side) -> tuple[str, ...]:
    """The axes on which the sides are meant to differ."""
    texts = [{(one.axis.name, one.text) for one in side.conditions} for side in (left, right)]
    return tuple(dict.fromkeys(name for name, _ in sorted(texts[0] ^ texts[1])))


def _matched(differing: Sequence[str], found: Sequence[Sequence[dict[str, Any]]]) -> tuple[Axis, ...]:
    # Who compares two GPUs expects other processors, too, and finds them below the table.
    groups = {axis(name).group for name in differing} & {Group.SYSTEM, Group.SOFTWARE}
    work = [one for one in of_work(differing) if one.name not in followers(differing)]
    kept = [*work, *(one for one in _MATCHED if one.name not in differing and one.group not in groups)]
    varying = [one for one in kept if len({one.read(row) for rows in found for row in rows}) > 1]
    return tuple(varying)


def _without_overlap(
    left: list[dict[str, Any]], right: list[dict[str, Any]], *, without_overlap: bool
) -> list[dict[str, Any]]:
    theirs = {(row["campaign_id"], row["trial_id"]) for row in right}
    rest = [row for row in left if (row["campaign_id"], row["trial_id"]) not in theirs]
    if len(rest) < len(left) and not without_overlap:
        raise ConfigurationError(
            f"the two selections have {len(left) - len(rest)} trials in common; choose them so that they have none"
        )
    return rest


def _require_common(
    found: Sequence[Sequence[dict[str, Any]]], matched: Sequence[Axis], metric: Metric, sides: tuple[Side, Side]
) -> None:
    measured = [[row for row in rows if is_measured(row, metric) and row["replicate"] == 0] for rows in found]
    for side, rows in zip(sides, measured, strict=True):
        if not rows:
            raise ConfigurationError(
                f"there is nothing to compare: no trial of {side.name} has {metric.name}; "
                "`taxmeter results show` says what failed, --metric chooses another"
            )
    keys = [{values_of(row, matched) for row in rows} for rows in measured]
    if keys[0] & keys[1]:
        return
    apart = []
    for where in matched:
        values = [{where.read(row) for row in rows} for rows in measured]
        if not values[0] & values[1]:
            shown = [", ".join(sorted(map(where.shown, one))[:_SHOWN]) for one in values]
            apart.append(f"{where.name} is {shown[0]} against {shown[1]}")
    why = "; ".join(apart) or "no cell was measured on both sides"
    raise ConfigurationError(f"there is nothing to compare: {why}; {_remedy(measured, matched, sides)}")


def _remedy(measured: Sequence[Sequence[dict[str, Any]]], matched: Sequence[Axis], sides: tuple[Side, Side]) -> str:
    sweeps = [{str(axis(SWEEP).read(row)) for row in rows} for rows in measured]
    is_recent = any(one.is_recent for side in sides for one in side.conditions)
    if is_recent and not sweeps[0] & sweeps[1]:
        theirs, ours = (",".join(sorted(one)) for one in sweeps)
        return f"the campaigns are of different sweeps, {theirs} and {ours}: add --where sweep={ours}"
    return f"--match chooses on which axes cells correspond (here {', '.join(one.name for one in matched)})"


def _option(side: Side) -> str | None:
    return side.conditions[0].option if side.conditions else None

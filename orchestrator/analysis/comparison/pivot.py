"""The two questions: a table by named axes, and two selections side by side."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from orchestrator.analysis.axes import (
    AXES,
    SWEEP,
    Axis,
    Group,
    Key,
    Row,
    Value,
    added_axes,
    axes,
    axis,
    followers,
    key_text,
    values_of,
    work_axes,
)
from orchestrator.analysis.comparison.table import SIDE, ComparisonTable, Entry, Layout
from orchestrator.analysis.conditions import Condition, Operator, accepted, parse_conditions
from orchestrator.analysis.confounders import WORK, Change, Difference, gathered, row_id
from orchestrator.analysis.frame import Cell, Frame, measured
from orchestrator.analysis.metrics import Metric
from orchestrator.analysis.pooling import Policy, refuse_to_compare
from orchestrator.analysis.ratios import Pairing
from orchestrator.analysis.snapshot import Snapshot
from orchestrator.errors import ConfigurationError
from orchestrator.store import Results

Texts = str | Sequence[str]
"""Conditions: one text or several."""

_FIXED: Final = (
    *(where for where in AXES.values() if where.group in (Group.WORK, Group.BACKEND)),
    *axes(("gpu", "cpu", "driver", "environment", "isolation", "method", "campaign")),
)
_MATCHED: Final = axes(("seed", "environment", "gpu", "cpu"))
"""Unless the user says otherwise, beside work and backend: equal hardware, and the environment of one name."""
_SHOWN: Final = 4
SIDE_AXIS: Final = Axis(SIDE, Group.CAMPAIGN, "which of the two selections", (SIDE,), lambda row: str(row[SIDE]))


@dataclass(frozen=True)
class ComparedSide:
    """A selection."""

    conditions: tuple[Condition, ...]
    name: str
    """As tables call it."""

    @classmethod
    def of(cls, conditions: tuple[Condition, ...], name: str | None = None) -> "ComparedSide":
        """A selection, by default under the name by which the user wrote it.

        Raises:
            ConfigurationError: it has no condition.
        """
        if not conditions:
            raise ConfigurationError("a selection needs a condition, such as gpu=A100")
        return cls(conditions, name or " ".join(condition.text for condition in conditions))


def compare(
    results: Results,
    rows: Sequence[str],
    cols: Sequence[str] = (),
    baseline: Texts | None = None,
    where: Texts = (),
    policy: Policy | None = None,
) -> ComparisonTable:
    """A table by named axes, with ratios to a baseline.

    Args:
        results: of `open_store`.
        rows: names of axes, such as `gpu` and `workload`. Those of work and backend on which trials differ that would
            be pooled or compared with each other are added.
        cols: names of axes.
        baseline: which value of one or several of these axes is the baseline, as `backend=eager`; without it there
            are medians and no ratios.
        where: conditions that all trials meet.
        policy: the metric, and what may be pooled.

    Raises:
        ConfigurationError: an axis or a value is unknown, nothing is chosen, or trials would be pooled that differ.
    """
    policy = policy or Policy()
    key = axes((*rows, *cols), "--rows and --cols")
    if not key:
        raise ConfigurationError("name at least one axis, such as --rows workload", key="--rows")
    snapshot = Snapshot.of(results)
    conditions = parse_conditions(where, "--where")
    campaigns, condition = snapshot.chosen(conditions)
    snapshot = snapshot.of_campaigns(campaigns)
    metric = snapshot.metric(condition, policy)
    found = snapshot.trials(metric, key, condition)
    if not found:
        chosen = " ".join(condition.text for condition in conditions)
        raise ConfigurationError(
            "there is nothing to compare: " + (f"no trial meets {chosen}" if chosen else "the store has no trial")
        )
    fixed = _baseline(() if baseline is None else parse_conditions(baseline, "--baseline"), key, found)
    added = added_axes(found, key, fixed)
    split = len(key) - len(cols)
    every = (*key[:split], *added, *key[split:])
    names = tuple(where.name for where in added)
    layout = Layout(axes=every, columns=len(cols), baseline=fixed, compared=tuple(fixed), added=names)
    return pivot(snapshot, snapshot.frame(found, condition, metric, policy, compared=bool(fixed)), layout)


def compare_selections(
    results: Results,
    left: Texts,
    right: Texts,
    match: Sequence[str] | None = None,
    where: Texts = (),
    policy: Policy | None = None,
) -> ComparisonTable:
    """Two selections side by side; a ratio above 1 says that the right one is better.

    Args:
        results: of `open_store`.
        left: conditions of the baseline, as `gpu=A100`.
        right: conditions of what is compared with it.
        match: names of the axes on which cells correspond; by default all that makes a configuration and differs
            within the selections.
        where: conditions that all trials meet.
        policy: the metric, and what may be pooled.

    Raises:
        ConfigurationError: an axis or a value is unknown, the two overlap or have nothing in common, or trials would be
            pooled that differ.
    """
    sides = [ComparedSide.of(parse_conditions(texts, "SELECTION")) for texts in (left, right)]
    if sides[0].name == sides[1].name:
        raise ConfigurationError(f"both selections are {sides[0].name}; choose two different ones", key="SELECTION")
    conditions = parse_conditions(where, "--where")
    return pivot_sides(Snapshot.of(results), (sides[0], sides[1]), conditions, match, policy or Policy())


def pivot_sides(
    snapshot: Snapshot,
    sides: tuple[ComparedSide, ComparedSide],
    where: tuple[Condition, ...],
    match: Sequence[str] | None,
    policy: Policy,
    *,
    without_overlap: bool = False,
) -> ComparisonTable:
    """Compares the second of two selections with the first, cell by cell.

    Trials of both are an error, or taken out of the first (`without_overlap`).

    Raises:
        ConfigurationError: a selection is empty, the two overlap, or have nothing in common.
    """
    campaigns, chosen = zip(*(snapshot.chosen((*where, *side.conditions)) for side in sides), strict=True)
    snapshot = snapshot.of_campaigns({*campaigns[0], *campaigns[1]})
    metric = snapshot.metric(chosen[0] | chosen[1], policy)
    named = None if match is None else axes(match, "--match")
    found = [snapshot.trials(metric, named or (), condition) for condition in chosen]
    found[0] = _without_overlap(*found, without_overlap=without_overlap)
    for side, some in zip(sides, found, strict=True):
        if not some:
            texts = " ".join(condition.text for condition in (*where, *side.conditions))
            raise ConfigurationError(
                f"there is nothing to compare: no trial meets {texts}", key=side.conditions[0].option
            )
    differing = _differing(*sides)
    rows = [{**row, SIDE: side.name} for side, some in zip(sides, found, strict=True) for row in some]
    matched = named or _matched(differing, rows)
    added = added_axes(rows, (*matched, SIDE_AXIS), (*differing, SIDE))
    matched = (*matched, *added)
    _require_common(found, matched, metric, sides)
    every, names = (*matched, SIDE_AXIS), tuple(where.name for where in added)
    layout = Layout(axes=every, columns=1, baseline={SIDE: sides[0].name}, compared=differing, added=names)
    return pivot(snapshot, snapshot.frame(rows, chosen[0] | chosen[1], metric, policy), layout)


def pivot(snapshot: Snapshot, frame: Frame, layout: Layout) -> ComparisonTable:
    """The table of a frame.

    Raises:
        ConfigurationError: trials would be pooled or compared that must not be.
    """
    cells = frame.cells(layout.axes)
    bare = [_entry(cell, cells, frame, layout) for cell in cells.values()]
    ratios = frame.compared((entry.cell, None if entry.problem else entry.baseline) for entry in bare)
    undefined = f"{frame.metric.name} is not above 0 everywhere, so there is no ratio"
    entries = [
        replace(entry, ratio=ratio, problem=entry.problem or (undefined if entry.baseline and ratio is None else None))
        for entry, ratio in zip(bare, ratios, strict=True)
    ]
    return ComparisonTable(
        **vars(layout),
        metric=frame.metric,
        policy=frame.policy,
        fixed=_fixed([row for cell in cells.values() for row in cell.rows], layout),
        entries=tuple(entries),
        twins=frame.twins,
        differences=_differences(snapshot, entries, layout),
    )


def _baseline(conditions: Sequence[Condition], key: Sequence[Axis], rows: Sequence[Row]) -> dict[str, Value]:
    names = [where.name for where in key]
    found: dict[str, Value] = {}
    for condition in conditions:
        name = condition.axis.name
        if name not in names:
            raise ConfigurationError(
                f"{name} is no axis of the table; add it to --rows or --cols, or choose one of {', '.join(names)}",
                key=condition.option,
            )
        if condition.operator is not Operator.EQUAL or len(condition.values) != 1 or name in found:
            raise ConfigurationError(f"{condition.text}: expected one value, as {name}=VALUE", key=condition.option)
        (found[name],) = accepted(condition, {condition.axis.read(row) for row in rows})
    if found and all(where.read(row) == found.get(where.name, where) for row in rows for where in key):
        raise ConfigurationError("every trial is the baseline, and nothing is compared with it", key="--baseline")
    return found


def _entry(cell: Cell, cells: Mapping[Key, Cell], frame: Frame, layout: Layout) -> Entry:
    pairs = zip(layout.axes, cell.key, strict=True)
    against = tuple(layout.baseline.get(where.name, value) for where, value in pairs)
    missing = None if cell.measured else cell.missing(frame.metric)
    if not layout.baseline or against == cell.key:
        return Entry(cell, None, None, is_baseline=bool(layout.baseline), problem=missing)
    baseline = cells.get(against)
    entry = Entry(cell, baseline, None, is_baseline=False, problem=missing)
    if missing is not None:
        return entry
    if baseline is None or not baseline.measured:
        why = f": {baseline.missing(frame.metric)}" if baseline else ""
        return replace(entry, problem=f"no baseline{why}")
    free = (*frame.policy.pooled_axes, *layout.compared, *(where.name for where in layout.axes))
    refuse_to_compare((cell.measured, baseline.measured), key_text(cell.key, layout.axes), frame.metric, free)
    return entry


def _differences(snapshot: Snapshot, entries: Sequence[Entry], layout: Layout) -> tuple[Difference, ...]:
    """What else differs between the sides of the ratios."""
    compared = [
        (number, entry.baseline, entry.cell, entry.ratio.pairing)
        for number, entry in enumerate(entries)
        if entry.baseline is not None and entry.ratio is not None
    ]
    if not compared:
        return ()
    used = [row for _, *sides, _ in compared for side in sides for row in side.measured]
    finder = snapshot.confounders(used, conditions=any(pairing is Pairing.UNPAIRED for *_, pairing in compared))
    found = {}
    for number, baseline, cell, pairing in compared:
        # Within shared rounds load and clocks are as random as the order; elsewhere they may explain a difference.
        apart = pairing is Pairing.UNPAIRED
        changes = finder.between(baseline.measured, cell.measured, layout.compared, conditions=apart)
        found[number] = (*_changes_of_work(baseline, cell, layout), *changes)
    return gathered(found)


def _changes_of_work(baseline: Cell, cell: Cell, layout: Layout) -> Iterator[Change]:
    """What follows from what is compared, such as the threads of a processor that has more."""
    for where in work_axes(layout.compared):
        then, now = ({where.shown(where.read(row)) for row in side.measured} for side in (baseline, cell))
        if then != now:
            yield Change(WORK, where.name, *(", ".join(sorted(side)) for side in (then, now)))


def _fixed(rows: Sequence[Row], layout: Layout) -> dict[Axis, Value]:
    named = {where.name for where in layout.axes}
    values = {where: {where.read(row) for row in rows} for where in _FIXED if where.name not in named}
    return {where: next(iter(found)) for where, found in values.items() if len(found) == 1}


def _differing(left: ComparedSide, right: ComparedSide) -> tuple[str, ...]:
    """The axes on which the sides are meant to differ."""
    texts = [{(condition.axis.name, condition.text) for condition in side.conditions} for side in (left, right)]
    return tuple(dict.fromkeys(name for name, _ in sorted(texts[0] ^ texts[1])))


def _matched(differing: Sequence[str], rows: Sequence[Row]) -> tuple[Axis, ...]:
    # Who compares two GPUs expects other processors, too, and finds them below the table.
    groups = {axis(name).group for name in differing} & {Group.SYSTEM, Group.SOFTWARE}
    work = [where for where in work_axes(differing) if where.name not in followers(differing)]
    kept = [*work, *(where for where in _MATCHED if where.name not in differing and where.group not in groups)]
    return tuple(where for where in kept if len({where.read(row) for row in rows}) > 1)


def _without_overlap(
    left: list[dict[str, Any]], right: list[dict[str, Any]], *, without_overlap: bool
) -> list[dict[str, Any]]:
    theirs = {row_id(row) for row in right}
    rest = [row for row in left if row_id(row) not in theirs]
    if len(rest) < len(left) and not without_overlap:
        raise ConfigurationError(
            f"the two selections have {len(left) - len(rest)} trials in common; choose them so that they have none"
        )
    return rest


def _require_common(
    found: Sequence[Sequence[Row]], matched: Sequence[Axis], metric: Metric, sides: tuple[ComparedSide, ComparedSide]
) -> None:
    there = [[row for row in measured(rows, metric) if row["replicate"] == 0] for rows in found]
    for side, rows in zip(sides, there, strict=True):
        if not rows:
            raise ConfigurationError(
                f"there is nothing to compare: no trial of {side.name} has {metric.name}; "
                "`taxmeter results show` says what failed, --metric chooses another"
            )
    keys = [{values_of(row, matched) for row in rows} for rows in there]
    if keys[0] & keys[1]:
        return
    apart = []
    for where in matched:
        values = [{where.read(row) for row in rows} for rows in there]
        if not values[0] & values[1]:
            shown = [", ".join(sorted(map(where.shown, some))[:_SHOWN]) for some in values]
            apart.append(f"{where.name} is {shown[0]} against {shown[1]}")
    why = "; ".join(apart) or "no cell was measured on both sides"
    raise ConfigurationError(f"there is nothing to compare: {why}; {_remedy(there, matched, sides)}")


def _remedy(there: Sequence[Sequence[Row]], matched: Sequence[Axis], sides: tuple[ComparedSide, ComparedSide]) -> str:
    sweeps = [{str(axis(SWEEP).read(row)) for row in rows} for rows in there]
    is_recent = any(condition.is_recent for side in sides for condition in side.conditions)
    if is_recent and not sweeps[0] & sweeps[1]:
        theirs, ours = (",".join(sorted(some)) for some in sweeps)
        return f"the campaigns are of different sweeps, {theirs} and {ours}: add --where sweep={ours}"
    names = ", ".join(where.name for where in matched)
    return f"--match chooses on which axes cells correspond (here {names})"

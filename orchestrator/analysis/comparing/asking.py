"""The two questions: a table by named axes, and two selections side by side."""

from collections.abc import Sequence

from orchestrator.analysis.axes import Axis, Row, Value, axes, values_of
from orchestrator.analysis.comparing.apart import unnamed
from orchestrator.analysis.comparing.cells import Key, cell_columns
from orchestrator.analysis.comparing.engine import Layout, metric_of, tabulate
from orchestrator.analysis.comparing.policies import Policy
from orchestrator.analysis.comparing.reading import Moment
from orchestrator.analysis.comparing.sides import named_side, tabulate_sides
from orchestrator.analysis.comparing.table import ComparisonTable
from orchestrator.analysis.conditions import Condition, Operator, accepted, parse_conditions
from orchestrator.analysis.metrics import resolved
from orchestrator.errors import ConfigurationError
from orchestrator.store import Results

Texts = str | Sequence[str]
"""Conditions: one text or several."""


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
        StoreError: a file cannot be read.
    """
    policy = policy or Policy()
    key = axes((*rows, *cols), "--rows and --cols")
    if not key:
        raise ConfigurationError("name at least one axis, such as --rows workload", key="--rows")
    moment = Moment.of(results)
    conditions = parse_conditions(where, "--where")
    condition = moment.condition(conditions)
    metric = metric_of(moment, condition, policy)
    found = resolved(moment.rows(cell_columns(metric, key), condition), metric)
    if not found:
        chosen = " ".join(one.text for one in conditions)
        raise ConfigurationError(
            "there is nothing to compare: " + (f"no trial meets {chosen}" if chosen else "the store has no trial")
        )
    fixed = _baseline(() if baseline is None else parse_conditions(baseline, "--baseline"), key, found)
    added = unnamed(found, key, fixed)
    split = len(key) - len(cols)
    layout = Layout(
        (*key[:split], *added, *key[split:]), len(cols), fixed, tuple(fixed), tuple(one.name for one in added)
    )

    def key_of(row: Row) -> Key:
        return values_of(row, layout.axes)

    return tabulate(moment, found, key_of, layout, metric, policy)


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
        StoreError: a file cannot be read.
    """
    sides = [named_side(parse_conditions(one, "SELECTION")) for one in (left, right)]
    if sides[0].name == sides[1].name:
        raise ConfigurationError(f"both selections are {sides[0].name}; choose two different ones", key="SELECTION")
    conditions = parse_conditions(where, "--where")
    return tabulate_sides(Moment.of(results), sides[0], sides[1], conditions, match, policy or Policy())


def _baseline(conditions: Sequence[Condition], key: Sequence[Axis], rows: Sequence[Row]) -> dict[str, Value]:
    names = [where.name for where in key]
    found: dict[str, Value] = {}
    for one in conditions:
        if one.axis.name not in names:
            raise ConfigurationError(
                f"{one.axis.name} is no axis of the table; add it to --rows or --cols, or choose one of "
                f"{', '.join(names)}",
                key=one.option,
            )
        if one.operator is not Operator.EQUAL or len(one.values) != 1 or one.axis.name in found:
            raise ConfigurationError(f"{one.text}: expected one value, as {one.axis.name}=VALUE", key=one.option)
        (found[one.axis.name],) = accepted(one, {one.axis.read(row) for row in rows})
    if found and all(all(one.read(row) == found.get(one.name, one) for one in key) for row in rows):
        raise ConfigurationError("every trial is the baseline, and nothing is compared with it", key="--baseline")
    return found

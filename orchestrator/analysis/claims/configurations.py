"""Configurations: the trials of one specification on one system, and which of them differ in one thing alone."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.analysis.axes import (
    AXES,
    OPTION_AXES,
    Axis,
    Group,
    Key,
    Row,
    Value,
    axes,
    columns_of,
    grouped,
    other_options,
    values_of,
)
from orchestrator.analysis.conditions import Condition, Operator, accepted
from orchestrator.analysis.frame import Frames, last_attempts, measured
from orchestrator.analysis.metrics import METRICS, USUAL_LATENCY, Metric
from orchestrator.analysis.metrics import metric as metric_of
from orchestrator.analysis.ratios import RATIO_COLUMNS, Visit, by_visit
from orchestrator.analysis.statistics import Estimate
from orchestrator.analysis.tax import Regime, estimate_of, load_of
from orchestrator.errors import ConfigurationError, near_names, some_names
from runners.contract import Status

_SIZES: Final = ("sequence_length", "image_size")
_TELLING: Final = (
    *("gpu", "workload", "options", "sequence_length", "image_size", "batch", "backend", "dtype", "cpu", "device"),
    *("driver", "threads", "environment", "isolation", "method", "seed", "hw", "system", "environment_id", "protocol"),
)
"""Axes by which cases are told apart, the most telling first: all that a configuration is."""
_IDENTITY: Final = axes(_TELLING)
_COLUMNS: Final = columns_of(_IDENTITY)
_WRITTEN_OUT: Final = frozenset({"workload", "backend", "options"})
"""Of these a word is not enough: `bert` is a workload, and `bert-base` another that a store may have without it."""
_FOR_GOOD: Final = frozenset(
    status.value for status in (Status.SKIPPED, Status.UNSUPPORTED, Status.OOM, Status.WRONG_OUTPUT)
)


class _Work(Metric):
    """The size of the work: no metric of comparisons, and fewer is better."""

    @property
    def higher_is_better(self) -> bool:
        return False


_WORK: Final = {
    name: _Work(name, name, meaning)
    for name, meaning in (
        ("macs", "multiply-adds per call"),
        ("flops", "operations per call"),
        ("parameters", "of the model"),
    )
}


@dataclass(frozen=True)
class Configuration:
    """Trials that measure the same on the same system, in whatever campaigns."""

    rows: tuple[Row, ...]
    """Of each visit the attempt that counts, failed ones too."""
    frames: Frames
    """Of the campaigns that were read."""

    @property
    def row(self) -> Row:
        """One of them, for what all share."""
        return self.rows[0]

    @property
    def device(self) -> str:
        return str(self.row["device"])

    def metric(self, name: str | None) -> Metric:
        """The metric of a name; without a name the latency that the regime is about."""
        return USUAL_LATENCY.on(self.device) if name is None else known_metric(name)

    def measured(self, metric: Metric) -> list[Row]:
        """The trials in which a metric counts."""
        return measured(self.rows, metric)

    def values(self, metric: Metric) -> dict[Visit, float]:
        """A metric by visit."""
        return by_visit(self.measured(metric), metric.column)

    def estimate(self, name: str | None) -> Estimate | None:
        """A metric over its processes; of a bound the least, which has no interval."""
        metric = self.metric(name)
        return estimate_of(self.measured(metric), metric.column, metric.count)

    @property
    def regime(self) -> Regime | None:
        """As its rounds prove it; null if they do not."""
        load = load_of(self.rows, self.device)
        return None if load is None else load.proven

    @property
    def is_impossible(self) -> bool:
        """Whether it cannot run at all, however often it is tried: then nothing is missing."""
        return all(row["status"] in _FOR_GOOD for row in self.rows)


def known_metric(name: str) -> Metric:
    """The metric of a name; also `macs`, `flops` and `parameters`.

    Raises:
        ConfigurationError: there is none.
    """
    if name not in METRICS and name not in _WORK:
        hint = near_names(name, [*METRICS, *_WORK]) or f"; metrics: {some_names([*METRICS, *_WORK])}"
        raise ConfigurationError(f"no metric is called {name}{hint}")
    return _WORK.get(name) or metric_of(name)


def claim_columns() -> list[str]:
    identity = ("trial_id", "attempt", "reason")
    named = columns_of([*AXES.values(), *OPTION_AXES.values()])
    metrics = (name for metric in (*METRICS.values(), *_WORK.values()) for name in metric.columns)
    regime = ("boundedness", "latency_floor_log_ratio", "dispatch_floor_valid")
    return list(dict.fromkeys([*identity, *named, *metrics, *regime, *RATIO_COLUMNS]))


def configurations(rows: Iterable[Row], whole: Sequence[Row] | None = None) -> list[Configuration]:
    """Rows by what they measure and where.

    Args:
        rows: trials with `claim_columns`.
        whole: all trials of their campaigns, whose scatter is the prior; the same without it.
    """
    rows = list(rows)
    frames = Frames(rows if whole is None else whole)
    counted = (row for row in last_attempts(rows) if row["replicate"] == 0)
    groups = grouped(counted, lambda row: tuple(row[name] for name in _COLUMNS))
    return [Configuration(tuple(group), frames) for group in groups.values()]


def chosen(
    every: Sequence[Configuration], conditions: Iterable[Condition], known: Sequence[Configuration]
) -> tuple[list[Configuration], list[str]]:
    """Those that meet conditions, and what the conditions ask for and no trial has: no error here but missing data."""
    left, missing = list(every), []
    for condition in conditions:
        axis = condition.axis
        is_shared = axis in _IDENTITY or axis.name in OPTION_AXES
        read = {axis.read(row) for configuration in known for row in configuration.rows[: 1 if is_shared else None]}
        values, lost = _accepted(condition, read)
        missing += lost
        if is_shared:
            left = [configuration for configuration in left if axis.read(configuration.row) in values]
        else:
            # Such as a campaign, of which a configuration may have several
            rows = [tuple(row for row in configuration.rows if axis.read(row) in values) for configuration in left]
            left = [replace(configuration, rows=some) for configuration, some in zip(left, rows, strict=True) if some]
    return left, missing


def identity_without(without: Iterable[Axis]) -> Callable[[Configuration], Key]:
    """What gives all that a configuration is, but for some axes and what necessarily differs with them."""
    without = list(without)
    names = {axis.name for axis in without}
    # Another processor, GPU or driver is another system; which other things differ, `taxmeter compare` tells.
    groups = {axis.group for axis in without} & {Group.SYSTEM, Group.SOFTWARE}
    # An image has no length of a text
    freed = names | ({"options", *_SIZES} if "workload" in names else set())
    kept = [axis for axis in _IDENTITY if axis.name not in freed and axis.group not in groups]
    options = names & OPTION_AXES.keys()
    kept = [other_options(options) if axis.name == "options" and options else axis for axis in kept]
    return lambda configuration: values_of(configuration.row, kept)


def alike(every: Iterable[Configuration], without: Iterable[Axis]) -> list[list[Configuration]]:
    """Configurations by all that they are, but for some axes and what necessarily differs with them."""
    return list(grouped(every, identity_without(without)).values())


def pairs_of_groups(
    ours: Sequence[Configuration],
    theirs: Sequence[Configuration],
    compared: Sequence[Axis],
    within: Sequence[Axis] = (),
) -> list[tuple[list[Configuration], list[Configuration]]]:
    """Groups of two sides that differ in nothing but some axes, each with each."""
    identity = identity_without([*compared, *within])
    sides = [grouped(side, identity) for side in (ours, theirs)]
    return [
        (group, other)
        for key in sides[0]
        if key in sides[1]
        for group in alike(sides[0][key], within)
        for other in alike(sides[1][key], within)
        if _alike_in_size(group[0].row, other[0].row, compared)
    ]


def labels(every: Sequence[Sequence[Configuration]], beside: Sequence[str] = ()) -> list[str]:
    """What tells groups of configurations apart, in words: as few axes as do it.

    Axes on which each group has one value come first; others only tell of the groups that have one.
    """
    texts = [""] * len(every)
    told = beside or texts
    named = [(name, [_shown(group, AXES[name]) for group in every]) for name in _TELLING]
    for name, values in sorted(named, key=lambda pair: None in pair[1]):
        parts = ["" if value is None else f" {name}={value}" for value in values]
        refined = [f"{text}{part}".strip() for text, part in zip(texts, parts, strict=True)]
        if len({*zip(told, refined, strict=True)}) > len({*zip(told, texts, strict=True)}):
            texts = refined
    return texts


def pair_labels(pairs: Sequence[tuple[Sequence[Configuration], Sequence[Configuration]]]) -> list[str]:
    """What tells pairs of groups apart: the first of each, and what it is against where the first is not enough."""
    ours = labels([of for of, _ in pairs])
    theirs = labels([against for _, against in pairs], ours)
    return [f"{text} against {other}".strip() if other else text for text, other in zip(ours, theirs, strict=True)]


def failures(every: Iterable[Configuration]) -> list[str]:
    """Why configurations have no number, each reason once."""
    rows = (row for configuration in every for row in configuration.rows if row["status"] != Status.OK.value)
    return list(dict.fromkeys(f"{row['status']}: {row['reason']}" if row["reason"] else row["status"] for row in rows))


def _accepted(condition: Condition, known: Collection[Value]) -> tuple[frozenset[Value], list[str]]:
    """The values that a condition leaves, and what it asks for and no trial has."""
    is_named = condition.operator in (Operator.EQUAL, Operator.UNEQUAL)
    parts = [replace(condition, operator=Operator.EQUAL, values=(text,)) for text in condition.values]
    found: set[Value] = set()
    missing = []
    for part in parts if is_named else [condition]:
        if is_named and part.axis.name in _WRITTEN_OUT and part.values[0] not in known:
            missing.append(f"no trial has {part.text}")
            continue
        try:
            found |= accepted(part, known)
        except ConfigurationError as error:
            missing.append(str(error).partition(";")[0])
    if condition.operator is Operator.UNEQUAL:
        return frozenset(known) - found, []
    return frozenset(found), missing


def _alike_in_size(row: Row, other: Row, compared: Iterable[Axis]) -> bool:
    """Whether two have the same length of text and size of image, where they have one and it is not compared."""
    names = {axis.name for axis in compared}
    return all(name in names or None in (row[name], other[name]) or row[name] == other[name] for name in _SIZES)


def _shown(group: Sequence[Configuration], axis: Axis) -> str | None:
    """The one value of a group on an axis, in words; null if there are several."""
    values = {axis.read(configuration.row) for configuration in group}
    return axis.brief(values.pop()) if len(values) == 1 else None

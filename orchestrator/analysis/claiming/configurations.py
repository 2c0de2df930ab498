"""Configurations: the trials of one specification on one system, and which of them differ in one thing alone."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from orchestrator.analysis.axes import AXES, OPTION_AXES, Axis, Group, columns_of, options_of
from orchestrator.analysis.claiming.allowing import Allowed, allowed
from orchestrator.analysis.claiming.quantities import Quantity, quantity_columns
from orchestrator.analysis.conditions import Condition
from orchestrator.analysis.frame import last_attempts, over_processes
from orchestrator.analysis.ratios import RATIO_COLUMNS, Priors, Row, Visit, by_visit, is_ok
from orchestrator.analysis.tax import Regime, loads, regime_of
from orchestrator.store import CONFIGURATION
from runners.contract import Status

Identity: TypeAlias = tuple[Any, ...]

_COLUMNS: Final = (*CONFIGURATION, "environment", "cpu_model", "gpu_name", "driver_version", "hw_id")
_OF_GROUPS: Final[Mapping[Group, tuple[str, ...]]] = {
    # Another processor, GPU or driver is another system; which other things differ, `taxmeter compare` tells.
    Group.SYSTEM: ("system_id", "cpu_model", "gpu_name", "driver_version", "hw_id"),
    Group.SOFTWARE: ("environment", "environment_id"),
}
_TELLING: Final = (
    *("gpu", "workload", "options", "sequence_length", "image_size", "batch", "backend", "dtype", "cpu", "device"),
    *("driver", "threads", "environment", "isolation", "method", "seed", "hw", "system", "environment_id", "protocol"),
)
"""Axes by which cases are told apart, the most telling first."""
_ID_SHOWN: Final = 12
_FOR_GOOD: Final = frozenset(one.value for one in (Status.SKIPPED, Status.UNSUPPORTED, Status.OOM, Status.WRONG_OUTPUT))


@dataclass(frozen=True)
class Configuration:
    """Trials that measure the same on the same system, in whatever campaigns."""

    rows: tuple[Row, ...]
    """Of each visit the attempt that counts, failed ones too."""
    priors: Priors
    """Of all trials that were read."""

    @property
    def row(self) -> Row:
        """One of them, for what all share."""
        return self.rows[0]

    @property
    def device(self) -> str:
        """`cpu` or `cuda`."""
        return str(self.row["device"])

    def measured(self, one: Quantity) -> list[Row]:
        """The trials in which a quantity counts and is above 0."""
        rows = (row for row in self.rows if one.valid is None or row[one.valid] is True)
        return [row for row in rows if is_ok(row) and (row[one.column] or 0) > 0]

    def values(self, one: Quantity) -> dict[Visit, float]:
        """A quantity by visit, where it counts and is above 0."""
        return by_visit(self.measured(one), one.column)

    @property
    def loads(self) -> dict[Visit, float]:
        """The load by visit; on a CPU where the floor is proven."""
        return loads(self.rows, self.device)

    @property
    def regime(self) -> Regime | None:
        """As its rounds prove it; null if they do not. A floor is a lower bound: it proves framework-bound alone."""
        found = over_processes(list(self.loads.values()))
        if found is None or found.low is None:
            return None
        proven = regime_of(found, self.device)
        return None if self.device == "cpu" and proven is not Regime.FRAMEWORK_BOUND else proven


def claim_columns() -> list[str]:
    """The columns of `trials` that claims need."""
    identity = ("trial_id", "trial_key", "campaign_id", "round", "replicate", "attempt", "status", "reason", "host")
    axes = columns_of([*AXES.values(), *OPTION_AXES.values()])
    regime = ("boundedness", "latency_floor_log_ratio", "dispatch_floor_valid")
    return list(dict.fromkeys([*identity, *_COLUMNS, *axes, *quantity_columns(), *regime, *RATIO_COLUMNS]))


def configurations(rows: Iterable[Row]) -> list[Configuration]:
    """Rows by what they measure and where."""
    counted = last_attempts(dict(row) for row in rows)
    priors = Priors(counted)
    groups: dict[Identity, list[Row]] = {}
    for row in (row for row in counted if row["replicate"] == 0):
        groups.setdefault(tuple(row[name] for name in _COLUMNS), []).append(row)
    return [Configuration(tuple(group), priors) for group in groups.values()]


def chosen(
    every: Sequence[Configuration], conditions: Iterable[Condition], known: Sequence[Configuration]
) -> tuple[list[Configuration], list[str]]:
    """Those that meet conditions, and what the conditions ask for and no trial has.

    Args:
        every: to choose from.
        conditions: to be met.
        known: where words such as `A100` get their meaning from.
    """
    left = list(every)
    missing: list[str] = []
    for condition in conditions:
        found: Allowed = allowed(condition, {condition.axis.read(one.row) for one in known})
        left = [one for one in left if condition.axis.read(one.row) in found.values]
        missing += found.missing
    return left, missing


def identity_without(without: Iterable[Axis]) -> Callable[[Configuration], Identity]:
    """What gives all that a configuration is, but for some axes and what necessarily differs with them."""
    axes = list(without)
    options = {one.name for one in axes if one.name in OPTION_AXES}
    freed = {name for one in axes for name in _freed_by(one)}
    kept = [name for name in _COLUMNS if name not in freed]

    def identity(one: Configuration) -> Identity:
        others = {name: value for name, value in options_of(one.row).items() if name not in options} if options else {}
        return (*(one.row[name] for name in kept), *sorted(others.items()))

    return identity


def grouped(every: Iterable[Configuration], without: Iterable[Axis]) -> dict[Identity, list[Configuration]]:
    """Configurations by all that they are, but for some axes and what necessarily differs with them."""
    identity = identity_without(without)
    groups: dict[Identity, list[Configuration]] = {}
    for one in every:
        groups.setdefault(identity(one), []).append(one)
    return groups


def _freed_by(one: Axis) -> tuple[str, ...]:
    """The columns that differ where an axis does."""
    if one.name in OPTION_AXES:
        return ("workload_options",)
    # Another backend or workload comes with other options.
    with_options = {"backend": ("backend_options",), "workload": ("workload_options",)}.get(one.name, ())
    return (*one.columns, *_OF_GROUPS.get(one.group, ()), *with_options)


def labels(every: Sequence[Sequence[Configuration]], beside: Sequence[str] = ()) -> list[str]:
    """What tells groups of configurations apart, in words: as few axes as do it.

    Axes on which each group has one value come first; others only tell of the groups that have one.

    Args:
        every: the groups.
        beside: what tells them apart already, one for each.
    """
    texts = [""] * len(every)
    told = beside or texts
    named = [(name, [_value(group, AXES[name]) for group in every]) for name in _TELLING]
    for name, values in sorted(named, key=lambda one: None in one[1]):
        parts = ["" if value is None else f" {name}={value}" for value in values]
        refined = [f"{text}{part}".strip() for text, part in zip(texts, parts, strict=True)]
        if len({*zip(told, refined, strict=True)}) > len({*zip(told, texts, strict=True)}):
            texts = refined
    return texts


def pair_labels(of: Sequence[Sequence[Configuration]], against: Sequence[Sequence[Configuration]]) -> list[str]:
    """What tells pairs of groups apart: the first of each, and what it is against where the first is not enough."""
    ours = labels(of)
    theirs = labels(against, ours)
    return [f"{one} against {other}".strip() if other else one for one, other in zip(ours, theirs, strict=True)]


def _value(group: Sequence[Configuration], one: Axis) -> str | None:
    values = {one.shown(one.read(configuration.row)) for configuration in group}
    if len(values) > 1:
        return None
    return values.pop()[: _ID_SHOWN if one.is_identity else None]


def is_impossible(every: Iterable[Configuration]) -> bool:
    """Whether one of them cannot run at all, however often it is tried: then nothing is missing."""
    return any(all(row["status"] in _FOR_GOOD for row in one.rows) for one in every)


def failures(every: Iterable[Configuration]) -> list[str]:
    """Why configurations have no number, each reason once."""
    reasons = [
        f"{row['status']}: {row['reason']}" if row["reason"] else str(row["status"])
        for one in every
        for row in one.rows
        if not is_ok(row)
    ]
    return list(dict.fromkeys(reasons))

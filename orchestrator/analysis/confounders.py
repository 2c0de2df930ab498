"""What else differs between two sets of trials: field by field, from the rows and what they refer to."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final, Self

import pyarrow as pa

from orchestrator.analysis.axes import Row

RowId = tuple[str, str, int]
Fields = Mapping[tuple[str, str], frozenset[str]]
"""What one side says: all values of each field, by group and name."""

WORK: Final = "work"
"""The group of what follows from what is compared, such as the threads of a processor that has more."""
_FACTS_OF_A_RUN: Final = ("limit_", "env_", "driver_")
"""How their names begin."""
_TRIAL: Final = {
    "environment": (
        *("isolation", "environment", "lock_sha256", "image_digest", "image_id", "trial_cores", "memory_limit_bytes"),
        *("exclusive", "torch_version", "onnxruntime_version", "python_version"),
    ),
    "code": ("runner_sha256", "method_version", "contract_version"),
    "protocol": ("timeout_s",),
}
_PROTOCOL: Final = "protocol"
"""The column, and the group that its keys come into."""
_CAMPAIGN: Final = ("taxmeter_version", "git_commit")
_NEEDED: Final = ("campaign_id", "host", "system_id", "environment_id", "facts", "conditions_before", _PROTOCOL)
_VARYING: Final = frozenset({"facts", "conditions_before", "trial_id", "attempt", "sweep"})
_CLOSE: Final = 0.05
"""Conditions whose medians are closer than that, relative to the larger, are not worth a line."""

_MODEL_OF_CPU: Final = (
    *("cpu.vendor", "cpu.model_name", "cpu.family", "cpu.model", "cpu.stepping", "cpu.sockets", "cpu.cores"),
    *("cpu.threads", "cpu.numa_nodes", "cpu.caches", "cpu.flags", "cpu.max_frequency_hz"),
)
_SAME_AS: Final[Mapping[str, tuple[str, ...]]] = {
    "gpu": ("gpus",),
    "cpu": _MODEL_OF_CPU,
    "hw": (*_MODEL_OF_CPU, "gpus", "memory.total_bytes", "machine"),
    "driver": ("gpu_driver_version", "gpu_cuda_version", "driver_"),
    "host": ("host",),
    "torch": ("torch", "torch_version"),
    "onnxruntime": ("onnxruntime", "onnxruntime-gpu", "onnxruntime_version"),
    "isolation": ("isolation",),
    "method": ("method_version", "runner_sha256"),
}
_STACK: Final = ("environment", "lock_sha256", "image_digest", "image_id", "image_config_sha256")
"""That one environment is not the other; which versions differ is told."""
_WHOLE_GROUP: Final = {"system": "system", "protocol": "protocol"}


@dataclass(frozen=True)
class Change:
    """One field that is not the same."""

    group: str
    """`work`, `system`, `environment`, `code`, `protocol` or `conditions`."""
    field: str
    then: str
    now: str


@dataclass(frozen=True)
class Difference:
    """A field that differs, and in which ratios of a table."""

    change: Change
    """`then` is the baseline's side."""
    entries: tuple[int, ...]
    """Positions of the ratios in the table."""


@dataclass(frozen=True)
class Dimensions:
    """What trials refer to, as fields, by id."""

    systems: Mapping[str, Fields]
    environments: Mapping[str, Fields]
    campaigns: Mapping[str, Fields]

    @classmethod
    def of(cls, systems: pa.Table, environments: pa.Table, campaigns: pa.Table) -> Self:
        of_environments = ["environment_id", "image_config_sha256", "facts", "versions"]
        return cls(
            {row["system_id"]: _of_system(row) for row in systems.select(["system_id", "fingerprint"]).to_pylist()},
            {row["environment_id"]: _of_environment(row) for row in environments.select(of_environments).to_pylist()},
            {
                row["campaign_id"]: _fields("code", {name: row[name] for name in _CAMPAIGN})
                for row in campaigns.select(["campaign_id", *_CAMPAIGN]).to_pylist()
            },
        )


@dataclass
class Confounders:
    """Finds what differs, and remembers what equal trials say: most rows of a campaign say the same."""

    dimensions: Dimensions
    rows: Mapping[RowId, Row]
    """The columns of `change_columns`, by campaign, trial and attempt."""
    _known: dict[tuple[Any, ...], Fields] = field(default_factory=dict)
    _sides: dict[tuple[int, ...], Fields] = field(default_factory=dict)

    def between(
        self, baseline: Sequence[Row], cell: Sequence[Row], compared: Sequence[str] = (), *, conditions: bool
    ) -> tuple[Change, ...]:
        """The fields that differ, those of the system first; one with several values on a side has them all.

        Args:
            baseline: trials.
            cell: trials of the other side.
            compared: names of the axes on which the two are meant to differ.
            conditions: whether load, clocks and the like are told: where rounds are shared they fall out of the ratio.
        """
        before, after = (self._side(rows) for rows in (baseline, cell))
        found = () if before is after else differing(before, after)
        if conditions:
            found += tuple(changed_conditions(*([self.rows[row_id(row)] for row in rows] for rows in (baseline, cell))))
        return tuple(change for change in found if not is_left_out(change, compared))

    def _side(self, rows: Sequence[Row]) -> Fields:
        every = {id(fields): fields for fields in (self._fields(self.rows[row_id(row)]) for row in rows)}
        key = tuple(sorted(every))
        if key not in self._sides:
            self._sides[key] = joined(every.values())
        return self._sides[key]

    def _fields(self, row: Row) -> Fields:
        # Not of the whole facts: those count operations and bytes of this trial.
        facts = tuple(sorted(facts_of_a_run(row).items()))
        key = (facts, *(value for name, value in row.items() if name not in _VARYING))
        if key not in self._known:
            self._known[key] = fields_of(row, self.dimensions)
        return self._known[key]


def change_columns() -> list[str]:
    """The columns of `trials` from which differences are found, with those that tell a row from all others."""
    return list(
        dict.fromkeys([*_NEEDED, "trial_id", "attempt", *(name for names in _TRIAL.values() for name in names)])
    )


def changes(
    then: pa.Table, now: pa.Table, systems: pa.Table, environments: pa.Table, campaigns: pa.Table
) -> tuple[Change, ...]:
    """The fields that differ between the trials of then and now."""
    before, after = (table.select(change_columns()).to_pylist() for table in (then, now))
    rows = {row_id(row): row for row in (*before, *after)}
    finder = Confounders(Dimensions.of(systems, environments, campaigns), rows)
    return finder.between(before, after, conditions=True)


def row_id(row: Row) -> RowId:
    """What tells a row from all others."""
    return row["campaign_id"], row["trial_id"], row["attempt"]


def fields_of(row: Row, dimensions: Dimensions) -> Fields:
    """What one trial says, with what it refers to; without its conditions, which change by themselves."""
    found = {
        **dimensions.systems.get(row["system_id"], {}),
        **dimensions.environments.get(row["environment_id"], {}),
        **dimensions.campaigns.get(row["campaign_id"], {}),
        **_fields("system", {"host": row["host"]}),
        **_fields("environment", facts_of_a_run(row)),
        **_fields("protocol", dict(_flat(json.loads(row[_PROTOCOL] or "{}")))),
    }
    for group, names in _TRIAL.items():
        found.update(_fields(group, {name: row[name] for name in names}))
    return found


def joined(sides: Iterable[Fields]) -> Fields:
    """What several trials say together."""
    found: dict[tuple[str, str], frozenset[str]] = {}
    for fields in sides:
        for key, values in fields.items():
            known = found.get(key)
            found[key] = values if known is None or known == values else known | values
    return found


def differing(before: Fields, after: Fields) -> tuple[Change, ...]:
    """The fields that are not the same, those of the system first."""
    found = [
        Change(*key, _shown(before.get(key)), _shown(after.get(key)))
        for key in dict.fromkeys([*before, *after])
        if before.get(key) != after.get(key)
    ]
    return tuple(sorted(found, key=lambda change: change.group != "system"))


def changed_conditions(then: Sequence[Row], now: Sequence[Row]) -> list[Change]:
    """What changes by itself: the medians before the trials, without the counters, which only ever rise."""
    before, after = _medians(then), _medians(now)
    return [
        Change("conditions", name, _number(before.get(name)), _number(after.get(name)))
        for name in sorted(before.keys() | after.keys())
        if not _is_close(before.get(name), after.get(name))
    ]


def is_left_out(change: Change, compared: Sequence[str]) -> bool:
    """Whether a field says nothing but what is compared."""
    for name in compared:
        if _WHOLE_GROUP.get(name) == change.group:
            return True
        if name.startswith("environment") and change.field in _STACK:
            return True
        if any(_is_part(change.field, same) for same in _SAME_AS.get(name, ())):
            return True
    return False


def gathered(found: Mapping[int, Sequence[Change]]) -> tuple[Difference, ...]:
    """Each difference once, with the ratios that have it; those of most ratios first within their group."""
    positions: dict[Change, list[int]] = {}
    for position, some in found.items():
        for change in some:
            positions.setdefault(change, []).append(position)
    groups = list(dict.fromkeys(change.group for change in positions))
    ordered = sorted(positions, key=lambda change: (groups.index(change.group), -len(positions[change])))
    return tuple(Difference(change, tuple(positions[change])) for change in ordered)


def _of_system(row: Row) -> Fields:
    fingerprint = json.loads(row["fingerprint"])
    return _fields("system", {name: value for name, value in _flat(fingerprint) if not name.startswith("private")})


def _of_environment(row: Row) -> Fields:
    values = {"image_config_sha256": row["image_config_sha256"]}
    return _fields("environment", values | json.loads(row["facts"]) | json.loads(row["versions"]))


def _fields(group: str, values: Mapping[str, Any]) -> Fields:
    return {(group, name): frozenset([_text(value)]) for name, value in values.items() if value is not None}


def facts_of_a_run(row: Row) -> dict[str, str]:
    """Those of the facts of a trial that are about where it ran, not about its model."""
    facts: dict[str, Any] = json.loads(row["facts"] or "{}")
    known = ((name, value) for name, value in facts.items() if value is not None and name.startswith(_FACTS_OF_A_RUN))
    return {name: _text(value) for name, value in known}


def _medians(rows: Sequence[Row]) -> dict[str, float]:
    series: dict[str, list[float]] = {}
    for row in rows:
        for name, value in json.loads(row["conditions_before"] or "{}").items():
            is_counter = name.endswith(("_us", "_jiffies"))
            if isinstance(value, int | float) and not isinstance(value, bool) and not is_counter:
                series.setdefault(name, []).append(float(value))
    return {name: median(values) for name, values in series.items()}


def _is_close(before: float | None, after: float | None) -> bool:
    if before is None or after is None:
        return before is after
    return abs(before - after) <= _CLOSE * max(abs(before), abs(after))


def _is_part(name: str, of: str) -> bool:
    if of.endswith("_"):
        return name.startswith(of)
    return name == of or name.startswith((f"{of}.", f"{of}["))


def _flat(document: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for name, value in document.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, list) and value and all(isinstance(device, Mapping) for device in value):
            # Devices of one machine: alike, or numbered
            alike = all(device == value[0] for device in value)
            for number, device in enumerate(value[:1] if alike else value):
                yield from _flat(device, f"{prefix}{name}." if alike else f"{prefix}{name}[{number}].")
            yield f"{prefix}{name}.count", len(value)
        else:
            yield f"{prefix}{name}", value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _shown(values: frozenset[str] | None) -> str:
    return " / ".join(sorted(values)) if values else "unknown"


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.6g}"

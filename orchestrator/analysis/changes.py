"""What else differs between two sets of trials: field by field, from the rows and what they refer to."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Self

import pyarrow as pa

_TRIAL = {
    "environment": (
        *("isolation", "environment", "lock_sha256", "image_digest", "image_id", "trial_cores", "memory_limit_bytes"),
        "exclusive",
        *("torch_version", "onnxruntime_version", "python_version"),
    ),
    "code": ("runner_sha256", "method_version", "contract_version"),
    "protocol": ("timeout_s",),
}
_PROTOCOL = "protocol"
"""The column, and the group that its keys come into."""
_ENVIRONMENT = ("image_config_sha256",)
_CAMPAIGN = ("taxmeter_version", "git_commit")
_NEEDED = ("campaign_id", "host", "system_id", "environment_id", "facts", "conditions_before", _PROTOCOL)
_OF_THE_DRIVER = "driver_"
FACTS_OF_A_RUN = ("limit_", "env_", _OF_THE_DRIVER)
"""How the names of those facts begin that are about where a trial ran, not about its model."""
_NOT_IN_OLDER = frozenset({"trial_cores", "memory_limit_bytes", "image_config_sha256", "exclusive"})
"""Older rows do not have them, nor the files of the driver: there unknown is no difference."""
_JSON = frozenset({"versions", "facts"})
WORK = "work"
_CLOSE = 0.05
"""Conditions whose medians are closer than that, relative to the larger, are not worth a line."""

Row = Mapping[str, Any]
Fields = Mapping[tuple[str, str], frozenset[str]]
"""What one side says: all values of each field, by group and name."""


@dataclass(frozen=True)
class Change:
    """One field that is not the same."""

    group: str
    """`work`, `system`, `environment`, `code`, `protocol` or `conditions`."""
    field: str
    then: str
    now: str


def change_columns() -> list[str]:
    """The columns of `trials` that `changes` needs."""
    return list(dict.fromkeys([*_NEEDED, *(name for names in _TRIAL.values() for name in names)]))


def changes(
    then: pa.Table, now: pa.Table, systems: pa.Table, environments: pa.Table, campaigns: pa.Table
) -> tuple[Change, ...]:
    """The fields that differ between the trials of then and now; a field with several values on a side has them all.

    Args:
        then: trials, with at least `change_columns`.
        now: the trials that are compared with them.
        systems: where the fingerprints are.
        environments: where versions and builds are.
        campaigns: where the versions of taxmeter are.
    """
    sides = [table.select(change_columns()).to_pylist() for table in (then, now)]
    dimensions = Dimensions.of(systems, environments, campaigns)
    before, after = (joined(fields_of(row, dimensions) for row in rows) for rows in sides)
    return (*differing(before, after), *changed_conditions(*sides))


@dataclass(frozen=True)
class Dimensions:
    """What trials refer to, as fields, by id."""

    systems: Mapping[str, Fields]
    environments: Mapping[str, Fields]
    campaigns: Mapping[str, Fields]

    @classmethod
    def of(cls, systems: pa.Table, environments: pa.Table, campaigns: pa.Table) -> Self:
        """From the tables of the store."""
        columns = ["system_id", "fingerprint"]
        of_environments = ["environment_id", *_ENVIRONMENT, *sorted(_JSON)]
        return cls(
            {row["system_id"]: _of_system(row) for row in systems.select(columns).to_pylist()},
            {row["environment_id"]: _of_environment(row) for row in environments.select(of_environments).to_pylist()},
            {
                row["campaign_id"]: _fields("code", {name: row[name] for name in _CAMPAIGN})
                for row in campaigns.select(["campaign_id", *_CAMPAIGN]).to_pylist()
            },
        )


def fields_of(row: Row, dimensions: Dimensions) -> Fields:
    """What one trial says, with what it refers to; without its conditions, which change by themselves."""
    facts = json.loads(row["facts"] or "{}")
    found = {
        **dimensions.systems.get(row["system_id"], {}),
        **dimensions.environments.get(row["environment_id"], {}),
        **dimensions.campaigns.get(row["campaign_id"], {}),
        **_fields("system", {"host": row["host"]}),
        **_fields("environment", {name: value for name, value in facts.items() if name.startswith(FACTS_OF_A_RUN)}),
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
    knew_driver = any(name.startswith(_OF_THE_DRIVER) for _, name in before)
    found = [
        Change(*key, _shown(before.get(key)), _shown(after.get(key)))
        for key in dict.fromkeys([*before, *after])
        if before.get(key) != after.get(key)
        and not (key[1] in _NOT_IN_OLDER and not (before.get(key) and after.get(key)))
        and not (key[1].startswith(_OF_THE_DRIVER) and not knew_driver)
    ]
    return tuple(sorted(found, key=lambda one: one.group != "system"))


def _of_system(row: Row) -> Fields:
    fingerprint = json.loads(row["fingerprint"])
    return _fields("system", {name: value for name, value in _flat(fingerprint) if not name.startswith("private")})


def _of_environment(row: Row) -> Fields:
    found = dict(_fields("environment", {name: row[name] for name in _ENVIRONMENT}))
    for column in sorted(_JSON):
        found.update(_fields("environment", json.loads(row[column])))
    return found


def _fields(group: str, values: Mapping[str, Any]) -> Fields:
    return {(group, name): frozenset([_text(value)]) for name, value in values.items() if value is not None}


def changed_conditions(then: Sequence[Row], now: Sequence[Row]) -> list[Change]:
    """What changes by itself: the medians before the trials, without the counters, which only ever rise."""
    before, after = _medians(then), _medians(now)
    return [
        Change("conditions", name, _number(before.get(name)), _number(after.get(name)))
        for name in sorted(before.keys() | after.keys())
        if not _is_close(before.get(name), after.get(name))
    ]


def _medians(rows: Sequence[Row]) -> dict[str, float]:
    series: dict[str, list[float]] = {}
    for row in rows:
        for name, value in json.loads(row["conditions_before"] or "{}").items():
            is_counter = name.endswith(("_us", "_jiffies"))
            if isinstance(value, int | float) and not isinstance(value, bool) and not is_counter:
                series.setdefault(name, []).append(float(value))
    return {name: median(values) for name, values in series.items()}


def _is_close(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) <= _CLOSE * max(abs(one), abs(other))


def _flat(document: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for name, value in document.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value):
            # Devices of one machine: alike, or numbered
            alike = all(one == value[0] for one in value)
            for number, one in enumerate(value[:1] if alike else value):
                yield from _flat(one, f"{prefix}{name}." if alike else f"{prefix}{name}[{number}].")
            yield f"{prefix}{name}.count", len(value)
        else:
            yield f"{prefix}{name}", value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _shown(values: frozenset[str] | None) -> str:
    return " / ".join(sorted(values)) if values else "unknown"


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.6g}"

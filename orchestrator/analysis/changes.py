"""What else differs between two sets of trials: field by field, from the rows and what they refer to."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import pyarrow as pa

_TRIAL = {
    "environment": (
        *("isolation", "environment", "lock_sha256", "image_digest", "image_id", "trial_cores", "memory_limit_bytes"),
        *("torch_version", "onnxruntime_version", "python_version"),
    ),
    "code": ("runner_sha256", "method_version", "contract_version"),
    "protocol": ("timeout_s",),
}
_ENVIRONMENT = ("image_config_sha256",)
_CAMPAIGN = ("taxmeter_version", "git_commit")
_NEEDED = ("campaign_id", "host", "system_id", "environment_id", "facts", "conditions_before")
_OF_THE_DRIVER = "driver_"
_FACTS_OF_A_RUN = ("limit_", "env_", _OF_THE_DRIVER)
_SINCE_SCHEMA_3 = frozenset({"trial_cores", "memory_limit_bytes", "image_config_sha256"})
"""Older rows do not have them, nor the files of the driver: there unknown is no difference."""
_JSON = frozenset({"versions", "facts"})
_CLOSE = 0.05
"""Conditions whose medians are closer than that, relative to the larger, are not worth a line."""

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Change:
    """One field that is not the same."""

    group: str
    """`system`, `environment`, `code`, `protocol` or `conditions`."""
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
    dimensions = (
        {row["system_id"]: row for row in systems.to_pylist()},
        {row["environment_id"]: row for row in environments.to_pylist()},
        {row["campaign_id"]: row for row in campaigns.to_pylist()},
    )
    before, after = (_fields(rows, *dimensions) for rows in sides)
    keys = dict.fromkeys([*before, *after])
    knew_driver = any(name.startswith(_OF_THE_DRIVER) for _, name in before)
    found = [
        Change(*key, _shown(before.get(key)), _shown(after.get(key)))
        for key in keys
        if before.get(key) != after.get(key)
        and not (key[1] in _SINCE_SCHEMA_3 and not (before.get(key) and after.get(key)))
        and not (key[1].startswith(_OF_THE_DRIVER) and not knew_driver)
    ]
    return (*sorted(found, key=lambda one: one.group != "system"), *_conditions(*sides))


_Fields = dict[tuple[str, str], frozenset[str]]


def _fields(
    rows: Sequence[Row], systems: Mapping[str, Row], environments: Mapping[str, Row], campaigns: Mapping[str, Row]
) -> _Fields:
    found: dict[tuple[str, str], set[str]] = {}

    def add(group: str, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            if value is not None:
                found.setdefault((group, name), set()).add(_text(value))

    for system_id in _distinct(rows, "system_id"):
        fingerprint = json.loads(systems[system_id]["fingerprint"]) if system_id in systems else {}
        add("system", {name: value for name, value in _flat(fingerprint) if not name.startswith("private")})
    for environment_id in _distinct(rows, "environment_id"):
        seen = environments.get(environment_id, {})
        add("environment", {name: seen.get(name) for name in _ENVIRONMENT})
        for column in _JSON & seen.keys():
            add("environment", json.loads(seen[column]))
    for campaign_id in _distinct(rows, "campaign_id"):
        add("code", {name: campaigns.get(campaign_id, {}).get(name) for name in _CAMPAIGN})
    for row in rows:
        add("system", {"host": row["host"]})
        for group, names in _TRIAL.items():
            add(group, {name: row[name] for name in names})
        facts = json.loads(row["facts"] or "{}")
        add("environment", {name: value for name, value in facts.items() if name.startswith(_FACTS_OF_A_RUN)})
    return {key: frozenset(values) for key, values in found.items()}


def _conditions(then: Sequence[Row], now: Sequence[Row]) -> list[Change]:
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


def _distinct(rows: Sequence[Row], name: str) -> list[str]:
    return sorted({row[name] for row in rows if row[name] is not None})


def _flat(document: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for name, value in document.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _shown(values: frozenset[str] | None) -> str:
    return " / ".join(sorted(values)) if values else "unknown"


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.6g}"

"""What did not end ok, and what did while something disturbed it."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow.compute as pc

from orchestrator.analysis.axes import AXES
from orchestrator.analysis.snapshot import Snapshot
from orchestrator.report.page.model import Failures, FlaggedGroup
from orchestrator.report.page.places import SHAPE, shape_label
from runners.contract import Status

Row = dict[str, Any]

_TELLING: Final = ("permille", "MiB", "processes")
_NAMED: Final = 12
"""Configurations that are named; more are counted."""


def failures_of(rows: Sequence[Row]) -> tuple[Failures, ...]:
    """Trials that did not end ok, those that look alike together; the most frequent first."""
    groups: dict[tuple[str, str, str, str], list[Row]] = {}
    for row in rows:
        if row["status"] != Status.OK.value:
            key = (row["status"], row["reason"] or "", row["host"] or "", row["environment"] or "")
            groups.setdefault(key, []).append(row)
    found = [
        Failures(Status(status), reason or None, host, environment, len(some), _names(some))
        for (status, reason, host, environment), some in groups.items()
    ]
    return tuple(sorted(found, key=lambda one: (-one.count, one.status.value, one.reason or "")))


def flagged_of(rows: Sequence[Row], moment: Snapshot, condition: pc.Expression | None) -> tuple[FlaggedGroup, ...]:
    """Trials that guards flag, by guard and host.

    Raises:
        StoreError: a file cannot be read.
    """
    groups: dict[tuple[str, str], list[Row]] = {}
    watched: dict[str, int] = {}
    for row in rows:
        host = row["host"] or ""
        watched[host] = watched.get(host, 0) + (row["guard_flags"] is not None)
        for guard in row["guard_flags"] or ():
            groups.setdefault((guard, host), []).append(row)
    examples = {key: some[0] for key, some in groups.items()}
    seen = _seen(examples, moment, condition)
    found = [
        FlaggedGroup(guard, host, len(some), watched[host], _names(some), seen[guard, host])
        for (guard, host), some in groups.items()
    ]
    return tuple(sorted(found, key=lambda one: (-one.count, one.guard, one.host)))


def _seen(
    examples: Mapping[tuple[str, str], Row], moment: Snapshot, condition: pc.Expression | None
) -> dict[tuple[str, str], str]:
    if not examples:
        return {}
    here = pc.field("trial_id").isin(sorted({row["trial_id"] for row in examples.values()}))
    rows = moment.rows(["guards"], here if condition is None else here & condition)
    guards = {(row["campaign_id"], row["trial_id"]): row["guards"] for row in rows}
    return {
        (guard, host): next(
            (_found(one) for one in guards.get((row["campaign_id"], row["trial_id"])) or () if _is_of(one, guard)), ""
        )
        for (guard, host), row in examples.items()
    }


def _is_of(one: Mapping[str, Any], guard: str) -> bool:
    return bool(one["guard"] == guard and one["outcome"] == "flagged")


def _found(one: Mapping[str, Any]) -> str:
    """What a guard saw. Units that only count, such as `settings`, have all that was counted in the detail."""
    detail = str(one["detail"] or "")
    if one["observed"] is None or (detail and one["unit"] not in _TELLING):
        return detail
    limit = f", at most {_quantity(one['limit'], one['unit'])} passes" if one["limit"] else ""
    return ": ".join(part for part in (detail, _quantity(one["observed"], one["unit"]) + limit) if part)


def _quantity(value: float, unit: str) -> str:
    return f"{value / 10:.3g} %" if unit == "permille" else f"{value:,.0f} {unit}"


def _names(rows: Sequence[Row]) -> tuple[str, ...]:
    batches: dict[str, set[int]] = {}
    for row in rows:
        values = {one.name: one.read(row) for one in SHAPE}
        name = f"{shape_label(values)}, {row['dtype']}, {AXES['backend'].read(row)}"
        batches.setdefault(name, set()).add(row["batch"])
    named = [f"{name}, batch {', '.join(map(str, sorted(found)))}" for name, found in sorted(batches.items())]
    more = len(named) - _NAMED
    return (*named[:_NAMED], *([f"and {more} more"] if more > 0 else []))

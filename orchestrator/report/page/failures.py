"""What did not end ok, and what did while something disturbed it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow.compute as pc

from orchestrator.analysis.axes import AXES
from orchestrator.analysis.snapshot import Snapshot
from orchestrator.report.page.html import Content, Markup, element, joined, table
from orchestrator.report.page.places import SHAPE, shape_label
from orchestrator.report.text import count_text
from runners.contract import Status

Row = dict[str, Any]

_TELLING: Final = ("permille", "MiB", "processes")
_NAMED: Final = 12
"""Configurations that are named; more are counted."""


@dataclass(frozen=True)
class Failures:
    """Trials that ended alike, for the same reason, in the same place."""

    status: Status
    reason: str | None
    host: str
    environment: str
    count: int
    what: tuple[str, ...]


@dataclass(frozen=True)
class FlaggedGroup:
    """Trials that a guard flags, of one host."""

    guard: str
    host: str
    count: int
    watched: int
    """Trials of that host that had guards at all."""
    what: tuple[str, ...]
    seen: str
    """What the guard saw of one of them."""


@dataclass(frozen=True)
class Disturbed:
    """All that guards say of a selection."""

    groups: tuple[FlaggedGroup, ...]
    trials: int
    """That some guard flags."""
    watched: int
    """Trials that had guards at all."""


def failures_of(rows: Iterable[Row]) -> tuple[Failures, ...]:
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
    return tuple(sorted(found, key=lambda group: (-group.count, group.status.value, group.reason or "")))


def disturbed_of(rows: Sequence[Row], moment: Snapshot, condition: pc.Expression | None) -> Disturbed:
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
    seen = _seen({key: some[0] for key, some in groups.items()}, moment, condition)
    found = [
        FlaggedGroup(guard, host, len(some), watched[host], _names(some), seen[guard, host])
        for (guard, host), some in groups.items()
    ]
    ordered = sorted(found, key=lambda group: (-group.count, group.guard, group.host))
    return Disturbed(tuple(ordered), sum(bool(row["guard_flags"]) for row in rows), sum(watched.values()))


def failures_table(failures: Sequence[Failures]) -> Markup:
    """What did not end ok, and why."""
    if not failures:
        return element("p", "Every trial ended ok.")
    rows: list[Sequence[Content]] = [
        [
            *(group.status.value, group.count, group.reason or "no reason"),
            *(", ".join(filter(None, (group.host, group.environment))) or "nowhere", _list(group.what)),
        ]
        for group in failures
    ]
    return table("Trials that did not end ok", ["status", "trials", "why", "where", "what"], rows, class_="wide")


def disturbed_table(found: Disturbed, *, left_out: bool) -> Markup:
    """What was disturbed while it was measured.

    Args:
        found: of `disturbed_of`.
        left_out: whether flagged trials are in no number of the page.
    """
    if not found.watched:
        return element("p", "No trial had guards, so that nothing is known about disturbances.")
    if not found.groups:
        return element("p", f"Guards watched {count_text(found.watched, 'trial', 'trials')} and flagged none.")
    note = (
        "Flagged trials are left out of every number and chart of this page."
        if left_out
        else "Flagged trials count in every number of this page; what has some of them is marked ⚑. A page without "
        "them is made with "
    )
    option = None if left_out else element("code", "--without-flagged", class_="whole")
    rows: list[Sequence[Content]] = [
        [group.guard, group.host, f"{group.count:,} of {group.watched:,}", group.seen, _list(group.what)]
        for group in found.groups
    ]
    head = ["guard", "host", "trials", "seen, for example", "what"]
    return joined([element("p", note, option, class_="note"), table("Flagged by guards", head, rows, class_="wide")])


def _seen(
    examples: Mapping[tuple[str, str], Row], moment: Snapshot, condition: pc.Expression | None
) -> dict[tuple[str, str], str]:
    if not examples:
        return {}
    here = pc.field("trial_id").isin(sorted({row["trial_id"] for row in examples.values()}))
    rows = moment.rows(["guards"], here if condition is None else here & condition)
    guards = {(row["campaign_id"], row["trial_id"]): row["guards"] for row in rows}
    found = {}
    for (guard, host), row in examples.items():
        told = guards.get((row["campaign_id"], row["trial_id"])) or ()
        flags = (_found(check) for check in told if check["guard"] == guard and check["outcome"] == "flagged")
        found[guard, host] = next(flags, "")
    return found


def _found(check: Mapping[str, Any]) -> str:
    """What a guard saw. Units that only count, such as `settings`, have all that was counted in the detail."""
    detail = str(check["detail"] or "")
    if check["observed"] is None or (detail and check["unit"] not in _TELLING):
        return detail
    limit = f", at most {_quantity(check['limit'], check['unit'])} passes" if check["limit"] else ""
    return ": ".join(part for part in (detail, _quantity(check["observed"], check["unit"]) + limit) if part)


def _quantity(value: float, unit: str) -> str:
    return f"{value / 10:.3g} %" if unit == "permille" else f"{value:,.0f} {unit}"


def _names(rows: Iterable[Row]) -> tuple[str, ...]:
    batches: dict[str, set[int]] = {}
    for row in rows:
        values = {axis.name: axis.read(row) for axis in SHAPE}
        name = f"{shape_label(values)}, {row['dtype']}, {AXES['backend'].read(row)}"
        batches.setdefault(name, set()).add(row["batch"])
    named = [f"{name}, batch {', '.join(map(str, sorted(found)))}" for name, found in sorted(batches.items())]
    more = len(named) - _NAMED
    return (*named[:_NAMED], *([f"and {more} more"] if more > 0 else []))


def _list(parts: Sequence[str]) -> Markup:
    if len(parts) == 1:
        return joined(parts)
    items = element("ul", joined(element("li", part) for part in parts))
    return element("details", element("summary", f"{parts[0]} …"), items)

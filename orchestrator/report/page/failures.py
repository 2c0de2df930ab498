"""What did not end ok, and what did while something disturbed it."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow.compute as pc

from orchestrator.analysis.axes import AXES, Row, grouped
from orchestrator.analysis.snapshot import Snapshot
from orchestrator.analysis.summary import FailureGroup, failure_groups, named_batches
from orchestrator.report.page.html import Content, Markup, element, joined, table
from orchestrator.report.page.places import SHAPE, shape_label
from orchestrator.report.text import count_text

_TELLING: Final = ("permille", "MiB", "processes")
_NAMED: Final = 12
"""Configurations that are named; more are counted."""


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


def failures_of(rows: Iterable[Row]) -> tuple[FailureGroup, ...]:
    """Trials that did not end ok, those that look alike together; the most frequent first."""
    groups = failure_groups(rows, _name)
    return tuple(sorted(groups, key=lambda group: (-group.count, group.status.value, group.reason or "")))


def disturbed_of(rows: Sequence[Row], moment: Snapshot, condition: pc.Expression | None) -> Disturbed:
    """Trials that guards flag, by guard and host."""
    flags = [(guard, row) for row in rows for guard in row["guard_flags"] or ()]
    groups = {
        key: [row for _, row in some]
        for key, some in grouped(flags, lambda flag: (flag[0], flag[1]["host"] or "")).items()
    }
    watched = Counter(row["host"] or "" for row in rows if row["guard_flags"] is not None)
    seen = _seen({key: some[0] for key, some in groups.items()}, moment, condition)
    found = [
        FlaggedGroup(guard, host, len(some), watched[host], named_batches(some, _name), seen[guard, host])
        for (guard, host), some in groups.items()
    ]
    ordered = sorted(found, key=lambda group: (-group.count, group.guard, group.host))
    return Disturbed(tuple(ordered), sum(bool(row["guard_flags"]) for row in rows), watched.total())


def failures_table(failures: Sequence[FailureGroup]) -> Markup:
    """What did not end ok, and why."""
    if not failures:
        return element("p", "Every trial ended ok.")
    rows: list[Sequence[Content]] = [
        [
            *(group.status.value, group.count, group.reason or "no reason"),
            *(", ".join(filter(None, (group.host, group.environment))) or "nowhere", _list(group.trials)),
        ]
        for group in failures
    ]
    return table("Trials that did not end ok", ["status", "trials", "why", "where", "what"], rows, class_="wide")


def disturbed_table(found: Disturbed, *, left_out: bool) -> Markup:
    """What was disturbed while it was measured."""
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


def _name(row: Mapping[str, Any]) -> str:
    values = {axis.name: axis.read(row) for axis in SHAPE}
    return f"{shape_label(values)}, {row['dtype']}, {AXES['backend'].read(row)},"


def _list(parts: Sequence[str]) -> Markup:
    if len(parts) == 1:
        return joined(parts)
    more = [f"and {len(parts) - _NAMED} more"] if len(parts) > _NAMED else []
    items = element("ul", joined(element("li", part) for part in (*parts[:_NAMED], *more)))
    return element("details", element("summary", f"{parts[0]} …"), items)

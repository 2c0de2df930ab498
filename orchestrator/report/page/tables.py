"""The tables of a page about systems, software, what failed and what was disturbed. They need no script."""

from collections.abc import Sequence
from typing import Final

from orchestrator.report.page.html import Content, Markup, element, joined, table
from orchestrator.report.page.model import Difference, FactTable, Page
from orchestrator.report.wording import count_text

_CHANGES_SHOWN: Final = 3


def campaigns(page: Page) -> Markup:
    """The campaigns that the trials are from."""
    rows: list[Sequence[Content]] = [
        [
            one.campaign_id,
            one.sweep,
            "unknown" if one.started_at is None else f"{one.started_at:%Y-%m-%d %H:%M}",
            "running, or stopped" if one.finished_at is None else f"{one.finished_at:%Y-%m-%d %H:%M}",
            one.planned,
        ]
        for one in page.campaigns
    ]
    return table("Campaigns", ["campaign", "sweep", "started (UTC)", "ended (UTC)", "planned trials"], rows)


def systems(page: Page) -> Markup:
    """What people call the systems, and what they are."""
    rows: list[Sequence[Content]] = [[one.label, one.hardware, ", ".join(one.hosts)] for one in page.systems]
    return table("Systems", ["system", "hardware", "hosts"], rows)


def facts(found: FactTable, caption: str, kind: str) -> Markup:
    """Facts side by side. What differs comes first and is marked; the rest can be unfolded."""
    if not found.columns:
        return element("p", "Nothing is known about them.")
    differing = [one for one in found.fields if one.differs]
    same = [one for one in found.fields if not one.differs]
    parts: list[Content] = []
    if differing:
        rows: list[Sequence[Content]] = [[one.name, *_marked(one.values)] for one in differing]
        parts.append(table(f"{caption}: what differs", ["", *found.columns], rows, class_=f"facts {kind}"))
    elif len(found.columns) > 1:
        parts.append(element("p", "They do not differ in anything that is known."))
    if same:
        head = ["", found.columns[0] if len(found.columns) == 1 else "all of them"]
        plain = table(f"{caption}: what all have in common", head, [[one.name, one.values[0]] for one in same])
        number = count_text(len(same), "field", "fields")
        title = f"{found.columns[0]}: {number}" if len(found.columns) == 1 else f"{number} in which they do not differ"
        parts.append(element("details", element("summary", title), plain))
    return joined(parts)


def failures(page: Page) -> Markup:
    """What did not end ok, and why."""
    if not page.failures:
        return element("p", "Every trial ended ok.")
    rows: list[Sequence[Content]] = [
        [one.status.value, one.count, one.reason or "no reason", _place(one.host, one.environment), _list(one.what)]
        for one in page.failures
    ]
    return table("Trials that did not end ok", ["status", "trials", "why", "where", "what"], rows, class_="wide")


def flagged(page: Page) -> Markup:
    """What was disturbed while it was measured."""
    if not page.watched_trials:
        return element("p", "No trial had guards, so that nothing is known about disturbances.")
    if not page.flagged:
        trials = count_text(page.watched_trials, "trial", "trials")
        return element("p", f"Guards watched {trials} and flagged none.")
    note = (
        "Flagged trials are left out of every number and chart of this page."
        if page.without_flagged
        else "Flagged trials count in every number of this page; what has some of them is marked ⚑. A page without "
        "them is made with "
    )
    option = None if page.without_flagged else element("code", "--without-flagged", class_="whole")
    rows: list[Sequence[Content]] = [
        [one.guard, one.host, f"{one.count:,} of {one.watched:,}", one.seen, _list(one.what)] for one in page.flagged
    ]
    head = ["guard", "host", "trials", "seen, for example", "what"]
    return joined([element("p", note, option, class_="note"), table("Flagged by guards", head, rows, class_="wide")])


def differences(page: Page, kind: str) -> Markup:
    """What else differs between the sides of ratios.

    Args:
        page: what is shown.
        kind: `backends` or `systems`.
    """
    here = [one for one in page.differences if one.ratios == kind]
    against = "against_backend" if kind == "backends" else "against_system"
    if not any(getattr(cell.timings[page.mode], against) for cell in page.cells):
        return joined([])
    if not here:
        what = (
            "besides hardware and settings, which stand in the table of systems"
            if kind == "systems"
            else "that is known"
        )
        return element("p", f"Nothing else {what} differs between the sides of these ratios.", class_="note")
    by_field: dict[str, list[Difference]] = {}
    for one in here:
        by_field.setdefault(one.field, []).append(one)
    rows: list[Sequence[Content]] = [
        [name, _changes(some), sum(one.count for one in some)] for name, some in by_field.items()
    ]
    caption = "What else differs between the sides of these ratios"
    return element(
        "details",
        element("summary", f"{caption}: {count_text(len(by_field), 'field', 'fields')}"),
        table(caption, ["field", "baseline → other side", "ratios"], rows),
    )


def _marked(values: Sequence[str]) -> list[Markup]:
    """Cells; those that have not the most frequent value stand out."""
    usual = max(values, key=lambda one: (values.count(one), -values.index(one)))
    lone = values.count(usual) == 1
    return [element("td", one or "unknown", class_="differs" if lone or one != usual else None) for one in values]


def _changes(some: Sequence[Difference]) -> str:
    shown = "; ".join(f"{one.before} → {one.after}" for one in some[:_CHANGES_SHOWN])
    more = len(some) - _CHANGES_SHOWN
    return shown + (f"; and {more} more" if more > 0 else "")


def _place(host: str, environment: str) -> str:
    return ", ".join(one for one in (host, environment) if one) or "nowhere"


def _list(parts: Sequence[str]) -> Markup:
    if len(parts) == 1:
        return joined(parts)
    items = element("ul", joined(element("li", one) for one in parts))
    return element("details", element("summary", f"{parts[0]} …"), items)

"""The part of a page that is text: verdicts in words, counts, tables. It needs no script."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from orchestrator.analysis import MARGIN, Ratio, Verdict
from orchestrator.analysis.tax import Regime
from orchestrator.report.page.build import Page
from orchestrator.report.page.cells import Against, Mode
from orchestrator.report.page.html import Content, Markup, element, joined, table
from orchestrator.report.text import calibration_line, count_text, counts_text, ratio_text, rule_lines
from runners.contract import Status

MODE_NAMES: Final = {Mode.SYNC: "one call at a time", Mode.PIPELINED: "back-to-back calls"}
_VERDICTS: Final = (
    *(Verdict.FASTER, Verdict.SLIGHTLY_FASTER, Verdict.EQUIVALENT),
    *(Verdict.UNDECIDED, Verdict.SLIGHTLY_SLOWER, Verdict.SLOWER),
)
"""In the order of the bars."""
_TWINS_SHOWN: Final = 20


def tiles(page: Page) -> Markup:
    """The counts that one looks for first."""
    total = sum(page.statuses.values())
    ok = page.statuses.get(Status.OK, 0)
    flagged = f"of {page.disturbed.watched:,} watched" if page.disturbed.watched else "no trial had guards"
    found = (
        ("Trials", f"{total:,}", f"{ok:,} ok"),
        ("Configurations", f"{len(page.cells):,}", f"{sum(bool(cell.ok) for cell in page.cells):,} measured"),
        ("Systems", f"{len(page.at.systems):,}", count_text(len(page.campaigns), "campaign", "campaigns")),
        ("Not ok", f"{total - ok:,}", _statuses(page) or "nothing failed"),
        ("Flagged", f"{page.disturbed.trials:,}", flagged),
    )
    return joined(
        element(
            "div", element("dt", name), element("dd", element("b", value), " ", element("span", more)), class_="tile"
        )
        for name, value, more in found
    )


def verdicts(page: Page) -> Markup:
    """What the ratios say, in sentences and a table."""
    sentences = [sentence for against in Against for sentence in _sentences(page, against)]
    if not sentences:
        return element("p", _why_nothing(page))
    mode = f"Latency of {MODE_NAMES[page.mode]}; a ratio above 1 is faster."
    return joined(
        [
            element("p", mode, class_="note"),
            element("ul", joined(element("li", sentence) for sentence in sentences), class_="findings"),
            joined(element("p", line, class_="note") for line in _rule(page)),
            _verdict_table(page),
        ]
    )


def regimes(page: Page) -> Markup:
    """How many configurations follow the framework, by place."""
    rows: list[Sequence[Content]] = []
    for number, place in enumerate(page.at.places):
        here = [cell for cell in page.cells if cell.place == number and cell.ok]
        if not here:
            continue
        counts = Counter(cell.tax.load and cell.tax.load.regime for cell in here)
        shares = [(regime.value, counts[regime], f"r{position}") for position, regime in enumerate(Regime)]
        rows.append([place.label, *(counts[regime] or "–" for regime in (*Regime, None)), _bar(shares)])
    if not rows:
        return element("p", "Nothing was measured: no trial ended ok.")
    head = ["system", *(regime.value for regime in Regime), "unknown", "share"]
    found = table("What the latency follows: number of configurations", head, rows)
    if not any(cell.tax.load and cell.tax.load.is_by_lower_bound for cell in page.cells):
        return found
    note = "On a processor compute-bound and mixed follow from the floor, which the framework takes at least: "
    return joined([found, element("p", note + "it may take more.", class_="note")])


def calibration(page: Page) -> Markup:
    """How often equal things were called different."""
    twins = page.twins[page.mode]
    rows: list[Sequence[Content]] = [
        [
            *(twin.row[name] or "" for name in ("host", "campaign_id", "workload", "batch", "backend")),
            ratio_text(twin.ratio.estimate),
            twin.ratio.estimate.processes,
            twin.ratio.verdict.value,
        ]
        for twin in twins[:_TWINS_SHOWN]
    ]
    line = element("p", calibration_line([twin.ratio for twin in twins]), class_="note")
    if not rows:
        return line
    head = ["host", "campaign", "workload", "batch", "backend", "ratio", "sessions", "verdict"]
    more = len(twins) - len(rows)
    return joined(
        [
            line,
            element(
                "details",
                element("summary", "Each pair"),
                table("A/A pairs", head, rows),
                element("p", f"and {more} more", class_="note") if more > 0 else None,
            ),
        ]
    )


def campaigns(page: Page) -> Markup:
    """The campaigns that the trials are from."""
    rows: list[Sequence[Content]] = [
        [
            *(row["campaign_id"], row["sweep"], f"{row['started_at']:%Y-%m-%d %H:%M}"),
            f"{row['finished_at']:%Y-%m-%d %H:%M}" if row["finished_at"] else "running, or stopped",
            row["planned_trials"],
        ]
        for row in page.campaigns
    ]
    return table("Campaigns", ["campaign", "sweep", "started (UTC)", "ended (UTC)", "planned trials"], rows)


def _why_nothing(page: Page) -> str:
    measured = [cell for cell in page.cells if cell.ok]
    if not measured:
        return "Nothing was measured: no trial ended ok."
    if len({cell.backend for cell in measured}) == 1 and len(page.at.systems) == 1:
        return "Nothing was compared: a single backend on a single system was measured."
    if page.baselines[Against.BACKEND] is None:
        return "Nothing was compared: no trial has the backend eager; --baseline backend=NAME takes another baseline."
    return "Nothing was compared: nothing was measured beside a baseline."


def _statuses(page: Page) -> str:
    return ", ".join(
        f"{count:,} {status.value.replace('_', ' ')}"
        for status, count in sorted(page.statuses.items(), key=lambda item: -item[1])
        if status is not Status.OK and count
    )


def _sentences(page: Page, against: Against) -> Iterator[Markup]:
    """What each backend or system is to the baseline."""
    baseline, labels = page.baselines[against], page.labels(against)
    if baseline is None:
        return
    for number, label in enumerate(labels):
        ratios = page.ratios(against, (cell for cell in page.cells if page.position(cell, against) == number))
        if ratios:
            yield _sentence(label, labels[baseline], ratios)
        elif against is Against.SYSTEM and number != baseline:
            yield joined([element("b", label), f" has no configuration in common with {labels[baseline]}."])


def _sentence(name: str, base: str, ratios: Sequence[Ratio]) -> Markup:
    values = [ratio.estimate.value for ratio in ratios]
    centre = math.exp(sum(map(math.log, values)) / len(values))
    of = count_text(len(ratios), "comparison", "comparisons")
    spread = f"×{centre:.2f}"
    if len(values) > 1:
        spread = f"ratios ×{min(values):.2f} to ×{max(values):.2f}, geometric mean ×{centre:.2f}"
    said = f": {counts_text(ratios)} of {of}; {spread}."
    return joined([element("b", name), " against ", element("b", base), said])


def _rule(page: Page) -> Iterable[str]:
    """Of ratios of backends and of systems, which are judged apart from each other."""
    kinds = [(against.value, page.ratios(against)) for against in Against]
    shown = [(name, ratios) for name, ratios in kinds if ratios]
    for name, ratios in shown:
        head = f"Between {name}s: " if len(shown) > 1 else ""
        yield head + " ".join(rule_lines(ratios, MARGIN))
    contradicted = sum(ratio.is_contradicted for _, ratios in shown for ratio in ratios)
    if contradicted:
        yield f"CPU time calls {contradicted} of them otherwise; the labels of the charts say which."


def _verdict_table(page: Page) -> Markup:
    baseline = page.baselines[Against.BACKEND]
    rows: list[Sequence[Content]] = []
    for place_number, place in enumerate(page.at.places):
        for number, backend in enumerate(page.at.backends):
            here = (cell for cell in page.cells if cell.place == place_number and cell.backend == number)
            ratios = page.ratios(Against.BACKEND, here)
            if ratios:
                counts = Counter(ratio.verdict for ratio in ratios)
                shares = [(verdict.value, counts[verdict], verdict.value.split()[-1]) for verdict in _VERDICTS]
                rows.append(
                    [
                        place.label,
                        backend.label,
                        *(counts[verdict] or "–" for verdict in _VERDICTS),
                        _bar(shares),
                    ]
                )
    if baseline is None or not rows:
        return Markup("")
    base = page.at.backends[baseline].label
    head = ["system", "backend", *(verdict.value for verdict in _VERDICTS), "share"]
    return element(
        "details",
        element("summary", f"By system: comparisons with {base}"),
        table(f"Comparisons with {base}, by verdict", head, rows),
    )


def _bar(shares: Sequence[tuple[str, int, str]]) -> Markup:
    """A bar of shares; the numbers beside it say the same."""
    total = sum(count for _, count, _ in shares)
    if not total:
        return Markup("")
    parts = joined(
        element("i", class_=f"share {name}", style=f"flex-grow:{count}", title=f"{word}: {count}")
        for word, count, name in shares
        if count
    )
    return element("span", parts, class_="bar", aria_hidden="true")

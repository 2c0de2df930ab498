"""The part of a page that is text: verdicts in words, counts, tables. It needs no script."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from orchestrator.analysis.comparing import Ratio
from orchestrator.analysis.verdict import LARGEST_EQUIVALENCE, Verdict
from orchestrator.report.page.html import Content, Markup, element, joined, table
from orchestrator.report.page.model import Mode, Page, PageCell
from orchestrator.report.wording import count_text
from orchestrator.store.tax import Regime
from runners.contract import Status

MODE_NAMES: Final = {Mode.SYNC: "one call at a time", Mode.PIPELINED: "back-to-back calls"}
_VERDICTS: Final = (Verdict.FASTER, Verdict.EQUIVALENT, Verdict.INCONCLUSIVE, Verdict.SLOWER)
"""In the order of the bars."""
_REGIMES: Final = {
    Regime.FRAMEWORK_BOUND: "framework-bound",
    Regime.MIXED: "mixed",
    Regime.COMPUTE_BOUND: "compute-bound",
}
_NOISE_SHOWN: Final = 20


def tiles(page: Page) -> Markup:
    """The counts that one looks for first."""
    total = sum(page.statuses.values())
    ok = page.statuses.get(Status.OK, 0)
    flagged = f"of {page.watched_trials:,} watched" if page.watched_trials else "no trial had guards"
    found = (
        ("Trials", f"{total:,}", f"{ok:,} ok"),
        ("Configurations", f"{len(page.cells):,}", f"{sum(bool(cell.rows) for cell in page.cells):,} measured"),
        ("Systems", f"{len(page.systems):,}", count_text(len(page.campaigns), "campaign", "campaigns")),
        ("Not ok", f"{total - ok:,}", _statuses(page) or "nothing failed"),
        ("Flagged", f"{page.flagged_trials:,}", flagged),
    )
    return joined(
        element(
            "div", element("dt", name), element("dd", element("b", value), " ", element("span", more)), class_="tile"
        )
        for name, value, more in found
    )


def verdicts(page: Page) -> Markup:
    """What the ratios say, in sentences and a table."""
    sentences = [*_backend_sentences(page), *_system_sentences(page)]
    if not sentences:
        return element("p", _why_nothing(page))
    mode = f"Latency of {MODE_NAMES[page.mode]}; a ratio above 1 is faster."
    return joined(
        [
            element("p", mode, class_="note"),
            element("ul", joined(element("li", one) for one in sentences), class_="findings"),
            _verdict_table(page),
        ]
    )


def regimes(page: Page) -> Markup:
    """How many configurations follow the framework, by place."""
    rows: list[Sequence[Content]] = []
    for number, place in enumerate(page.places):
        here = [cell for cell in page.cells if cell.place == number and cell.rows]
        if not here:
            continue
        counts = Counter(cell.parts.regime for cell in here)
        shares = [(name, counts[regime], f"r{position}") for position, (regime, name) in enumerate(_REGIMES.items())]
        rows.append([place.choice.label, *(counts[one] or "–" for one in (*_REGIMES, None)), _bar(shares)])
    if not rows:
        return element("p", "Nothing was measured: no trial ended ok.")
    head = ["system", *_REGIMES.values(), "unknown", "share"]
    found = table("What the latency follows: number of configurations", head, rows)
    if not any(cell.parts.is_by_lower_bound for cell in page.cells):
        return found
    note = "On a processor compute-bound and mixed follow from the floor, which the framework takes at least: "
    return joined([found, element("p", note + "it may take more.", class_="note")])


def noise(page: Page) -> Markup:
    """What equal trials differ by."""
    here = [one for one in page.noise if one.mode is page.mode]
    if not here:
        return element("p", "No A/A pair ran, so that the noise floor is unknown; differences below 3 % count as none.")
    rows: list[Sequence[Content]] = [
        [one.host, one.campaign, one.pairs, "–" if one.half_width is None else f"±{100 * one.half_width:.1f} %"]
        for one in here[:_NOISE_SHOWN]
    ]
    more = len(here) - len(rows)
    known = [one.half_width for one in here if one.half_width is not None]
    parts = [
        element(
            "p",
            f"The same trial ran twice in each round (A/A): the ratio of the two has an interval of {_range(known)}. A "
            "difference counts from twice that of its hosts and campaigns, at least 3\u00a0%.",
            class_="note",
        ),
        element(
            "details",
            element("summary", "By host"),
            table("Noise floor", ["host", "campaign", "trials with a twin", "interval of equal trials"], rows),
            element("p", f"and {more} more", class_="note") if more > 0 else None,
        ),
    ]
    return joined(parts)


def _why_nothing(page: Page) -> str:
    measured = [cell for cell in page.cells if cell.rows]
    if not measured:
        return "Nothing was measured: no trial ended ok."
    if len({cell.backend for cell in measured}) == 1 and len(page.systems) == 1:
        return "Nothing was compared: a single backend on a single system was measured."
    if page.baselines.backend is None:
        return "Nothing was compared: no trial has the backend eager; --baseline backend=NAME takes another baseline."
    return "Nothing was compared: nothing was measured beside a baseline."


def _range(half_widths: Sequence[float]) -> str:
    if not half_widths:
        return "unknown width, for it needs two rounds"
    low, high = (f"±{100 * one:.1f}\u00a0%" for one in (min(half_widths), max(half_widths)))
    return low if low == high else f"{low} to {high}"


def _statuses(page: Page) -> str:
    return ", ".join(
        f"{count:,} {status.value.replace('_', ' ')}"
        for status, count in sorted(page.statuses.items(), key=lambda item: -item[1])
        if status is not Status.OK and count
    )


def _backend_sentences(page: Page) -> Iterable[Markup]:
    if page.baselines.backend is None:
        return
    base = page.backends[page.baselines.backend].label
    for number, backend in enumerate(page.backends):
        ratios = _ratios(page, (cell for cell in page.cells if cell.backend == number), against="backend")
        if ratios:
            yield _sentence(backend.label, base, ratios)


def _system_sentences(page: Page) -> Iterable[Markup]:
    if page.baselines.system is None:
        return
    base = page.systems[page.baselines.system].label
    for number, system in enumerate(page.systems):
        here = (cell for cell in page.cells if page.places[cell.place].system == number)
        ratios = _ratios(page, here, against="system")
        if ratios:
            yield _sentence(system.label, base, ratios)
        elif number != page.baselines.system:
            yield joined([element("b", system.label), f" has no configuration in common with {base}."])


def _sentence(name: str, base: str, ratios: Sequence[Ratio]) -> Markup:
    counts = Counter(one.verdict for one in ratios)
    parts = [f"{verdict.value} in {counts[verdict]}" for verdict in _VERDICTS if counts[verdict]]
    centre = math.exp(sum(math.log(one.estimate.value) for one in ratios) / len(ratios))
    low, high = min(one.estimate.value for one in ratios), max(one.estimate.value for one in ratios)
    of = count_text(len(ratios), "comparison", "comparisons")
    spread = f"ratios ×{low:.2f} to ×{high:.2f}, geometric mean ×{centre:.2f}" if len(ratios) > 1 else f"×{centre:.2f}"
    said = f": {', '.join(parts)} of {of}; {spread}. A difference counts from {_effects(ratios)}."
    return joined([element("b", name), " against ", element("b", base), said])


def _effects(ratios: Sequence[Ratio]) -> str:
    """What a ratio must exceed: on a machine that nobody keeps quiet it is much."""
    effects = [one.minimum_effect for one in ratios]
    low, high = (f"{100 * one:.0f}\u00a0%" for one in (min(effects), max(effects)))
    said = low if low == high else f"{low} to {high}, by host and campaign"
    is_noisy = any(one.margin < one.minimum_effect for one in ratios)
    return f"{said}; equivalent is within {100 * LARGEST_EQUIVALENCE:.0f}\u00a0% at most" if is_noisy else said


def _verdict_table(page: Page) -> Markup:
    rows: list[Sequence[Content]] = []
    for place_number, place in enumerate(page.places):
        for number, backend in enumerate(page.backends):
            here = [cell for cell in page.cells if cell.place == place_number and cell.backend == number]
            ratios = _ratios(page, here, against="backend")
            if ratios:
                counts = Counter(one.verdict for one in ratios)
                shares = [(one.value, counts[one], one.value) for one in _VERDICTS]
                rows.append(
                    [place.choice.label, backend.label, *(counts[one] or "–" for one in _VERDICTS), _bar(shares)]
                )
    if not rows:
        return Markup("")
    assert page.baselines.backend is not None
    base = page.backends[page.baselines.backend].label
    head = ["system", "backend", *(one.value for one in _VERDICTS), "share"]
    return element(
        "details",
        element("summary", f"By system: comparisons with {base}"),
        table(f"Comparisons with {base}, by verdict", head, rows),
    )


def _ratios(page: Page, cells: Iterable[PageCell], *, against: str) -> list[Ratio]:
    found = (getattr(cell.timings[page.mode], f"against_{against}") for cell in cells)
    return [one for one in found if one is not None]


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

"""The chart that a reader sees first: how many times as fast as the baseline each backend is, of every workload.

It is HTML and CSS alone, so that it is there before the script is, and without it. A lane is a cell: a dot with its
interval of 95 % on a logarithmic axis, in the colour of its verdict; what is undecided is grey.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.analysis import MARGIN, Ratio
from orchestrator.analysis.axes import grouped
from orchestrator.report.page.build import Page
from orchestrator.report.page.cells import Against, PageCell
from orchestrator.report.page.html import Content, Markup, element, joined
from orchestrator.report.page.summary import MODE_NAMES
from orchestrator.report.text import count_text, duration_text, is_vague, percent_text, ratio_text
from runners.contract import Status

_MOST: Final = 30
"""Workloads; a page with more says so."""
_DENSE: Final = 6
"""From so many on they are drawn without an axis each."""
_FARTHEST: Final = 4.0
"""Powers of two at which the axis ends, whatever else was measured: 16 times."""
_NEAREST: Final = 0.4
_TICKS: Final = (
    *((0.8, 0.9, 1, 1.1, 1.25), (0.5, 0.7, 1, 1.4, 2), (0.25, 0.5, 1, 2, 4)),
    (1 / 16, 1 / 4, 1, 4, 16),
)
_SIGNS: Final = {"equivalent": " ≈", "undecided": " ?"}
"""By the class of a verdict."""

Row = tuple[int, int]
"""Positions of a place and a shape."""


@dataclass(frozen=True)
class _Scale:
    """A logarithmic axis; its ends are powers of two."""

    low: float
    high: float

    @classmethod
    def over(cls, ratios: Iterable[Ratio]) -> "_Scale":
        """That on which ratios and their intervals have room, those that say nothing left out."""
        known = [ratio.estimate for ratio in ratios if not is_vague(ratio.estimate)]
        ends = [end for found in known for end in (found.value, found.low, found.high) if end is not None and end > 0]
        powers = [math.log2(end) for end in ends]
        low, high = min([-_NEAREST, *powers]), max([_NEAREST, *powers])
        return cls(max(low - 0.05, -_FARTHEST), min(high + 0.05, _FARTHEST))

    def at(self, ratio: float) -> float:
        """Where a ratio lies, in percent of the axis; what is beyond its ends lies at them."""
        share = (math.log2(ratio) - self.low) / (self.high - self.low) if ratio > 0 else 0.0
        return round(100 * min(1.0, max(0.0, share)), 1)

    @property
    def ticks(self) -> list[float]:
        """Numbers along it: the densest that reach both ends."""
        reaching = (ticks for ticks in _TICKS if ticks[0] <= 1.3 * 2**self.low and 2**self.high <= 1.3 * ticks[-1])
        return [tick for tick in next(reaching, _TICKS[-1]) if self.low <= math.log2(tick) <= self.high]


def overview(page: Page) -> Markup:
    """The section with the chart; nothing where nothing was compared with a baseline backend."""
    baseline = page.baselines[Against.BACKEND]
    ratios = page.ratios(Against.BACKEND)
    if baseline is None or not ratios:
        return Markup("")
    scale = _Scale.over(ratios)
    rows = _rows(page)
    shown = list(rows)[:_MOST]
    more = len(rows) - len(shown)
    lines = ", ".join(
        f"linear-gradient(var(--{colour}), var(--{colour})) {scale.at(tick)}% 0/1px 100% no-repeat"
        for colour, tick in (("muted", 1.0), *(("grid", tick) for tick in scale.ticks))
    )
    works = joined(_work(row, rows[row], page, baseline, scale) for row in shown)
    dense = " dense" if len(shown) >= _DENSE else ""
    note = (
        f"{MODE_NAMES[page.mode].capitalize()}: how many times as fast, with its 95 % interval; faster is on the "
        f"right of the line at 1. Grey: undecided (?), or within {percent_text(MARGIN)} (≈)."
    )
    rest = f"and {count_text(more, 'workload', 'workloads')} more, in the charts below"
    title = f"Times as fast as {page.at.backends[baseline].label}"
    return element(
        "section",
        element("h2", title, id="overview-title"),
        element("p", note, class_="note"),
        element("div", works, class_=f"overview{dense}", style=f"--lines: {lines}"),
        element("p", rest, class_="note") if more > 0 else None,
        id="overview",
        class_="card",
        aria_labelledby="overview-title",
    )


def _rows(page: Page) -> Mapping[Row, Sequence[PageCell]]:
    """The cells of each place and shape in which something is compared."""
    groups = grouped(page.cells, lambda cell: (cell.place, cell.shape))
    return {row: some for row, some in sorted(groups.items()) if page.ratios(Against.BACKEND, some)}


def _work(row: Row, cells: Sequence[PageCell], page: Page, baseline: int, scale: _Scale) -> Markup:
    """A workload: its least and its largest batch side by side, a lane per backend."""
    compared = sorted({cell.batch for cell in cells if (Against.BACKEND, page.mode) in cell.ratios})
    batches = compared if len(compared) < 2 else [compared[0], compared[-1]]
    by_position = {(cell.backend, cell.batch): cell for cell in cells}
    backends = sorted({cell.backend for cell in cells if cell.batch in batches} - {baseline})
    label = page.at.shapes[row[1]].label
    lanes: list[Content] = [element("span", class_="name")]
    for batch in batches:
        base = by_position[baseline, batch].of[page.mode].estimate
        latency = "" if base is None else f": {duration_text(base.bare)}"
        lanes.append(element("span", f"batch {batch}{latency}", class_="batch", title=page.at.backends[baseline].label))
    for backend in backends:
        name = page.at.backends[backend].label
        lanes.append(element("span", name, class_="name", title=name))
        lanes.extend(_lane(by_position.get((backend, batch)), name, page, scale) for batch in batches)
    ticks = joined(element("i", f"{tick:.2g}", style=f"left:{scale.at(tick)}%") for tick in scale.ticks)
    axis = element("span", element("span", ticks, class_="track"), element("b"), class_="axis", aria_hidden="true")
    lanes += [element("span", class_="axis name"), *(axis for _ in batches)]
    head = element(
        "h3",
        element("button", label, type="button", data_work=label, title="Show this workload in the charts below"),
        element("small", ", ".join(_details(row, page))),
    )
    return element("div", head, element("div", *lanes, class_=f"lanes of-{len(batches)}"), class_="work")


def _lane(cell: PageCell | None, name: str, page: Page, scale: _Scale) -> Markup:
    if cell is None:
        return element("span", element("em", "not measured"), class_="lane")
    ratio = cell.ratios.get((Against.BACKEND, page.mode))
    if ratio is None:
        failed = [status for status in cell.trials.statuses if status is not Status.OK]
        why = failed[0].value.replace("_", " ") if failed else "no latency"
        return element("span", element("em", why), class_="lane", title=next(iter(cell.trials.reasons), why))
    estimate, kind = ratio.estimate, "equivalent" if ratio.verdict.is_equivalent else ratio.verdict.value
    sign = _SIGNS.get(kind, "")
    parts: list[Content] = []
    if estimate.low is not None and estimate.high is not None:
        low, high = scale.at(estimate.low), scale.at(estimate.high)
        parts.append(element("i", class_=f"interval {kind}", style=f"left:{low}%;width:{high - low:.1f}%"))
    vague = is_vague(estimate)
    if not vague:
        parts.append(element("i", class_=f"dot {kind}", style=f"left:{scale.at(estimate.value)}%"))
    number = sign.strip() if vague else f"×{estimate.value:.2f}{sign}"
    words = f"{name}, batch {cell.batch}: {ratio_text(estimate).replace('x', '×', 1)}, {ratio.verdict.value}"
    return element("span", element("span", *parts, class_="track"), element("b", number), class_="lane", title=words)


def _details(row: Row, page: Page) -> Iterator[str]:
    """What tells a workload from others of its name: the place, and the axes in which they differ."""
    place, shape = page.at.places[row[0]], page.at.shapes[row[1]]
    if len(page.at.places) > 1:
        yield place.label
    alike = [other for other in page.at.shapes if other.label == shape.label]
    for name, choices in page.at.axes.items():
        if len({other.values[name] for other in alike}) > 1:
            value = shape.values[name]
            told = list(choices).index(value) + 1 if name == "protocol" else choices[value].label
            yield str(told) if name in ("dtype", "device") else f"{name} {told}"

"""Panels of lines: latencies, ratios or use of the device against batch or sequence length, put together and drawn."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from orchestrator.analysis import Estimate
from orchestrator.analysis.frame import measured
from orchestrator.analysis.paper import Gathered, Point, Published, State, Work, names_model
from orchestrator.report.figures.canvas import draw_intervals, draw_published, empty
from orchestrator.report.figures.catalogue import PanelSpec, Spec, Y
from orchestrator.report.figures.values import (
    Bound,
    Line,
    Panel,
    Value,
    latency_ms,
    names_of,
    panel_of,
    tflops,
    why_empty,
    workload_label,
)
from orchestrator.report.palette import BLACK, GREY, categorical, marker

_RUG: Final = 0.035
_NAMED: Final = 6
_NAME_LINE: Final = 0.055
"""Of the height of a panel, for a line of small print."""
_SUBDIVISIONS: Final = (
    (2.0, (1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0)),
    (5.0, (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)),
    (20.0, (1.0, 2.0, 3.0, 5.0)),
    (1000.0, (1.0, 2.0, 5.0)),
    (float("inf"), (1.0,)),
)
"""Numbers along a logarithmic axis whose ends are less than a factor apart."""
_FACES: Final[Mapping[Bound | None, str]] = {Bound.OTHER: "white", Bound.UNKNOWN: "#c4c4c4"}
"""Inside of marks; others have the colour of their line."""


Panels = list[list[Panel]]
"""Row by row."""


def line_panels(spec: Spec, gathered: Gathered, missing: str, ratio: Value | None = None) -> Panels:
    """The panels of a figure whose lines are all of one setting."""
    names = {
        series: names_of([panel for panel in spec.panels if panel.series == series], gathered, spec.baseline)
        for series in {panel.series for panel in spec.panels}
    }
    values = {Y.LATENCY: latency_ms(gathered), Y.FLOPS: tflops, Y.RATIO: ratio or latency_ms(gathered)}
    return [
        [panel_of(panel, gathered, names[panel.series], values[panel.y], spec.baseline, missing) for panel in row]
        for row in spec.rows
    ]


def pair_panels(spec: Spec, gathered: Gathered, missing: str) -> Panels:
    """The panels of a figure of several models: their latencies, and how many times as fast as a baseline each is.

    Ratios are those of `taxmeter compare`; above 1 is faster.
    """
    assert spec.baseline is not None
    metric = gathered.frame.metric
    baseline = {
        _but_for_the_model(where): point for where, point in gathered.points.items() if where.workload == spec.baseline
    }

    def ratio(point: Point) -> Estimate | None:
        other = baseline.get(_but_for_the_model(point.configuration))
        if other is None or other is point:
            return None
        found = gathered.frame.ratio(measured(point.rows, metric), measured(other.rows, metric))
        return None if found is None else found.estimate

    name = workload_label(spec.baseline)
    found = line_panels(spec, gathered, missing, ratio)
    for row, specs in zip(found, spec.rows, strict=True):
        for position, (panel, panel_spec) in enumerate(zip(row, specs, strict=True)):
            if panel_spec.y is Y.RATIO:
                others = tuple(line for line in panel.lines if line.label != name)
                row[position] = replace(panel, lines=others, y_label=f"{panel_spec.y.value} as {name}")
    return found


def _but_for_the_model(where: Work) -> Work:
    return replace(where, workload="", options=())


def generation_panels(spec: Spec, by_machine: Mapping[str, Gathered], published: Published, missing: str) -> Panels:
    """The panels of the figure of GPU generations: a line per model of GPU, in the order of the paper's table 2.

    GPUs of the paper that nobody measured are lines without a point.
    """
    machines = ordered(list(by_machine), published)
    return [[_generation_panel(panel, by_machine, machines, missing) for panel in row] for row in spec.rows]


def ordered(models: Sequence[str], published: Published) -> list[tuple[str, str | None]]:
    """The paper's GPUs in its order, each with the model that was measured or null; then all others."""
    found: list[tuple[str, str | None]] = []
    left = list(models)
    for row in published.table_2.rows:
        matching = [model for model in left if names_model(row.gpu, model)]
        found += [(row.gpu, model) for model in matching] or [(row.gpu, None)]
        left = [model for model in left if model not in matching]
    return [*found, *((model, model) for model in left)]


def _generation_panel(
    spec: PanelSpec, by_machine: Mapping[str, Gathered], machines: Sequence[tuple[str, str | None]], missing: str
) -> Panel:
    lines = []
    points = [point for gathered in by_machine.values() for point in gathered.select(spec.where)]
    for number, (name, model) in enumerate(machines):
        line = Line(name, categorical(number), marker(number), ())
        if model is not None:
            gathered = by_machine[model]
            # Within one machine the panel has a single line.
            panel = panel_of(replace(spec, series="backend"), gathered, ["eager"], latency_ms(gathered))
            marks = tuple(mark for found in panel.lines for mark in found.marks)
            line = Line(name, categorical(number), marker(number), marks)
        lines.append(line)
    is_empty = not any(line.drawn for line in lines)
    return Panel(
        spec.title, "batch", spec.y.value, tuple(lines), missing=why_empty(points, missing) if is_empty else None
    )


def draw_panel(axes: Axes, panel: Panel, elsewhere: Collection[str] = ()) -> None:
    """Draws a panel: lines with intervals, what failed and what was not measured along its lower edge.

    Args:
        axes: to draw on.
        panel: what to draw.
        elsewhere: labels of the lines that have points in some panel of the figure; those that have none in this one
            are named in it, and all others that have none in the legend.
    """
    axes.set_title(panel.title, loc="left")
    if panel.missing is not None:
        empty(axes, panel.missing)
        return
    ticks = sorted({mark.x for line in panel.lines for mark in line.marks})
    rug = [line for line in panel.lines if line.drawn or any(mark.state is State.FAILED for mark in line.marks)]
    for line in panel.lines:
        _draw_line(axes, line)
    for number, line in enumerate(rug):
        _draw_gaps(axes, line, number)
    named = _name_missing(axes, panel, elsewhere)
    draw_published(axes, panel.published)
    if panel.reference is not None:
        axes.axhline(panel.reference, color=GREY, linewidth=0.8, linestyle="--", zorder=1)
    axes.set(xlabel=panel.x_label, ylabel=panel.y_label)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    has_gaps = any(mark.state is not State.MEASURED for line in rug for mark in line.marks)
    _make_room(axes, below=_RUG * (len(rug) + 0.5) if has_gaps else 0.0, above=_NAME_LINE * named)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    plain_logarithms(axes)


def plain_logarithms(axes: Axes) -> None:
    """Numbers without exponents along a logarithmic axis, and enough of them."""
    low, high = axes.get_ylim()
    subs = next(subs for most, subs in _SUBDIVISIONS if high / low < most)
    axes.yaxis.set_major_locator(LogLocator(base=10, subs=subs))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def legend_of(panels: Sequence[Panel], *, published: str | None = None) -> list[Line2D]:
    """What the colours of several panels mean, and their marks; a line without any number is said to be missing."""
    lines: dict[str, Line] = {}
    for panel in panels:
        for line in panel.lines:
            if line.label not in lines or not lines[line.label].drawn:
                lines[line.label] = line
    handles = [
        Line2D(
            [], [], color=line.colour if line.drawn else GREY, marker=line.marker if line.drawn else "",
            linestyle="--" if line.dashed else "-" if line.drawn else ":", markersize=4, linewidth=1.2,
            label=line.label if line.drawn else f"{line.label} ({_fate(line)})",
        )
        for line in lines.values()
    ]  # fmt: skip
    marks = [mark for panel in panels for line in panel.lines for mark in line.marks]
    bounds = {mark.bound for mark in marks if mark.estimate}
    handles += [_only_marker("o", _FACES.get(bound, BLACK), bound.value) for bound in Bound if bound in bounds]
    if any(mark.state is State.FAILED for mark in marks):
        handles.append(_only_marker("x", BLACK, "failed"))
    if any(mark.state is State.ABSENT for mark in marks):
        handles.append(_only_marker("|", GREY, "not measured"))
    if published and any(panel.published for panel in panels):
        handles.append(_only_marker("d", "none", published))
    return handles


def _draw_line(axes: Axes, line: Line) -> None:
    drawn = line.drawn
    xs = [mark.x for mark in drawn]
    ys = [mark.estimate.value for mark in drawn if mark.estimate]
    faces = [_FACES.get(mark.bound, line.colour) for mark in drawn]
    # Across what is missing there is no line, only a hint of one.
    if len(drawn) < len(line.marks) and len(drawn) > 1:
        axes.plot(xs, ys, color=line.colour, linewidth=0.6, linestyle=":", alpha=0.6, gid="across")
    whole = [math.nan if mark.estimate is None else mark.estimate.value for mark in line.marks]
    axes.plot(
        [mark.x for mark in line.marks], whole,
        color=line.colour, linewidth=1.1, linestyle="--" if line.dashed else "-", label=line.label,
    )  # fmt: skip
    draw_intervals(axes, [(mark.x, mark.estimate) for mark in drawn if mark.estimate], line.colour)
    for x, y, face in zip(xs, ys, faces, strict=True):
        axes.plot(
            [x], [y], linestyle="none", marker=line.marker, markersize=4, color=line.colour,
            markerfacecolor=face, markeredgewidth=0.9, zorder=3, gid="mark",
        )  # fmt: skip


def _draw_gaps(axes: Axes, line: Line, number: int) -> None:
    """Of a line that has points, those that it lacks; lines that lack all are in the legend."""
    for mark in line.marks:
        if mark.state is State.MEASURED or (mark.state is not State.FAILED and not line.drawn):
            continue
        is_failure = mark.state is State.FAILED
        axes.plot(
            [mark.x], [_RUG * (number + 0.6)], transform=axes.get_xaxis_transform(), linestyle="none",
            marker="x" if is_failure else "|", markersize=3.5, color=line.colour if is_failure else GREY,
            clip_on=False, zorder=5, gid="failed" if is_failure else "absent",
        )  # fmt: skip


def _make_room(axes: Axes, below: float, above: float) -> None:
    """Lengthens a logarithmic axis, so that marks and names along its ends cover no point; both are shares of it."""
    low, high = map(math.log, axes.get_ylim())
    span = (high - low) / (1 - below - above)
    axes.set_ylim(math.exp(low - below * span), math.exp(high + above * span))


def _name_missing(axes: Axes, panel: Panel, elsewhere: Collection[str]) -> int:
    """Lines that have no point in this panel, which others would be taken for complete without; how many rows."""
    names = [f"{line.label}: {_fate(line)}" for line in panel.lines if not line.drawn and line.label in elsewhere]
    shown = names[:_NAMED] + ([f"and {len(names) - _NAMED} more"] if len(names) > _NAMED else [])
    if shown:
        text = "\n".join(shown)
        axes.text(
            *(0.03, 0.97, text), transform=axes.transAxes, va="top", fontsize=5.8, color=GREY, gid="missing", zorder=5
        )
    return len(shown)


def _fate(line: Line) -> str:
    states = {mark.state for mark in line.marks} - {State.MEASURED}
    if len(states) == 1:
        return states.pop().value
    return "failed or not measured" if State.FAILED in states else "not measured"


def _only_marker(shape: str, face: str, label: str) -> Line2D:
    colour = GREY if shape == "|" else BLACK
    return Line2D([], [], linestyle="none", marker=shape, color=colour, markerfacecolor=face, markersize=4, label=label)

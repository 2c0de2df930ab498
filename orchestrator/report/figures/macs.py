"""The figure of latency against multiply-adds: a point per model, a panel per batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter

from orchestrator.analysis import Estimate
from orchestrator.analysis.paper import Gathered, State
from orchestrator.report.figures.canvas import draw_intervals, empty
from orchestrator.report.figures.catalogue import Spec
from orchestrator.report.figures.lines import plain_logarithms
from orchestrator.report.figures.values import in_ms, workload_label
from orchestrator.report.palette import BLUE, GREY, ORANGE
from runners.contract.catalogue import WORKLOADS

_FAMILIES: Final = {"language": (BLUE, "o", "text"), "vision": (ORANGE, "s", "images")}
_OTHER: Final = (GREY, "^", "others")
_USERS: Final = "user"
"""The family of a model that is in no catalogue."""
_GIGA: Final = 1e-9
_MARKER: Final = 5.0
_HEIGHT: Final = 6.0
_CHARACTER: Final = 3.1
"""Sizes of marks and names, in points."""

Box = tuple[float, float, float, float]
"""Left, bottom, width and height in points."""


@dataclass(frozen=True)
class Model:
    """One model at one batch."""

    label: str
    family: str
    gmacs: float
    """Multiply-adds per call, in 10^9."""
    latency_ms: Estimate


@dataclass(frozen=True)
class MacsPanel:
    """One batch."""

    title: str
    models: tuple[Model, ...]
    missing: tuple[str, ...]
    """Models without a number, each with the reason."""
    text: str
    """What stands in the panel if it has no model at all."""


def macs_panels(spec: Spec, gathered: Gathered, missing: str) -> list[MacsPanel]:
    found = []
    for panel in spec.panels:
        models, without = [], []
        for point in gathered.select(panel.where):
            name = workload_label(point.configuration.workload)
            macs, latency = point.estimate("macs"), in_ms(point.estimate(gathered.latency))
            if macs is None or latency is None:
                without.append(name if point.state is not State.FAILED else f"{name} ({point.reason})")
                continue
            info = WORKLOADS.get(point.configuration.workload)
            models.append(Model(name, info.family if info else _USERS, macs.value * _GIGA, latency))
        found.append(MacsPanel(panel.title, tuple(models), tuple(without), missing))
    return found


def draw_macs(axes: Axes, panel: MacsPanel) -> None:
    """Draws a batch; each model has its name beside it."""
    axes.set_title(panel.title, loc="left")
    if not panel.models:
        empty(axes, panel.text)
        return
    for model in panel.models:
        colour, shape, _ = _FAMILIES.get(model.family, _OTHER)
        draw_intervals(axes, [(model.gmacs, model.latency_ms)], colour)
        place = [model.gmacs], [model.latency_ms.value]
        axes.plot(*place, linestyle="none", marker=shape, color=colour, markersize=4, gid="mark")
    axes.set(xlabel="multiply-adds per call, 10⁹", ylabel="latency, ms")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.margins(x=0.16, y=0.08)
    _spread(axes)
    plain_logarithms(axes)
    axes.xaxis.set_major_formatter(axes.yaxis.get_major_formatter())
    axes.xaxis.set_major_locator(LogLocator(base=10))
    axes.xaxis.set_minor_formatter(NullFormatter())
    _write_names(axes, panel.models)


def macs_legend(panels: Sequence[MacsPanel]) -> list[Line2D]:
    families = {model.family for panel in panels for model in panel.models}
    kinds = [kind for family, kind in _FAMILIES.items() if family in families]
    return [
        Line2D([], [], linestyle="none", marker=shape, color=colour, label=label, markersize=4)
        for colour, shape, label in (*kinds, *([_OTHER] if families - _FAMILIES.keys() else []))
    ]


def _spread(axes: Axes) -> None:
    """At least a decade along both axes, so that equal things look equal."""
    for get, put in ((axes.get_xlim, axes.set_xlim), (axes.get_ylim, axes.set_ylim)):
        low, high = get()
        middle = (low * high) ** 0.5
        if high / low < 10:
            put(middle / 10**0.5, middle * 10**0.5)


def _write_names(axes: Axes, models: Sequence[Model]) -> None:
    """Names beside their points: at the nearest place where they cover no point and no other name."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()
    scale = figure.dpi / 72
    frame = axes.get_window_extent()
    points = [axes.transData.transform((model.gmacs, model.latency_ms.value)) / scale for model in models]
    taken = [(float(x) - _MARKER / 2, float(y) - _MARKER / 2, _MARKER, _MARKER) for x, y in points]
    edges = frame.x0 / scale, frame.x1 / scale + 2, frame.y0 / scale, frame.y1 / scale + 6
    for model, (x, y) in sorted(zip(models, points, strict=True), key=lambda pair: float(pair[1][1])):
        width = _CHARACTER * len(model.label)
        dx, dy, on_the_left = _free_place(float(x), float(y), width, taken, edges)
        taken.append(_box(float(x) + dx, float(y) + dy, width, on_the_left=on_the_left))
        axes.annotate(
            model.label, (model.gmacs, model.latency_ms.value), textcoords="offset points", xytext=(dx, dy),
            ha="right" if on_the_left else "left", va="center", fontsize=5.2, color="#333333", gid="name",
            arrowprops={"arrowstyle": "-", "color": "#BBBBBB", "linewidth": 0.4, "shrinkA": 0, "shrinkB": 2}
            if abs(dy) > _HEIGHT else None,
        )  # fmt: skip


def _free_place(
    x: float, y: float, width: float, taken: Sequence[Box], edges: tuple[float, float, float, float]
) -> tuple[float, float, bool]:
    left, right, bottom, top = edges
    for distance in range(0, 80, 2):
        for dy in dict.fromkeys((distance, -distance)):
            for on_the_left in (False, True):
                dx = -5.0 if on_the_left else 5.0
                box = _box(x + dx, y + dy, width, on_the_left=on_the_left)
                inside = box[0] >= left and box[0] + width <= right and bottom <= box[1] and box[1] + _HEIGHT <= top
                if inside and not any(_meet(box, other) for other in taken):
                    return dx, float(dy), on_the_left
    return 5.0, 0.0, False


def _box(x: float, y: float, width: float, *, on_the_left: bool) -> Box:
    return x - width if on_the_left else x, y - _HEIGHT / 2, width, _HEIGHT


def _meet(box: Box, other: Box) -> bool:
    apart_x = box[0] + box[2] <= other[0] or other[0] + other[2] <= box[0]
    apart_y = box[1] + box[3] <= other[1] or other[1] + other[3] <= box[1]
    return not (apart_x or apart_y)

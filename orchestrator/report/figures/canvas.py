"""The sheet that a figure is drawn on: title, panels in a grid, what the paper prints, and the small print.

Sizes are in inches and points of a printed page; nothing here depends on a screen or on global settings of matplotlib.
"""

import itertools
import math
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from orchestrator.analysis import Estimate
from orchestrator.report.palette import BLACK, GREY, PALE
from orchestrator.report.text import is_useless

FORMATS: Final = ("png", "svg", "pdf")
_RC: Final[Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 7.5,
    "axes.titlesize": 8,
    "axes.labelsize": 7.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.fonttype": "none",
    "svg.hashsalt": "taxmeter",
    "pdf.fonttype": 42,
}
_METADATA: Final[dict[str, dict[str, Any]]] = {
    # Equal numbers give equal files.
    "png": {"Software": "taxmeter"},
    "svg": {"Date": None, "Creator": "taxmeter"},
    "pdf": {"CreationDate": None, "Creator": "taxmeter", "Producer": "taxmeter"},
}
_DPI: Final = 200
_WIDTH: Final = 7.2
_TITLE: Final = 0.34
_TITLE_CHARACTERS: Final = 78
_LEGEND_LINE: Final = 0.17
_SMALL: Final = 5.8
_SMALL_LINE: Final = 0.105
_SMALL_CHARACTERS: Final = 162
_PANEL_HEIGHT: Final = {1: 2.4, 2: 2.0, 3: 1.75}
_EMPTY_HEIGHT: Final = 0.6
_GAP: Final = 0.58
_LEFT, _RIGHT = 0.62, 0.12
_LEGEND_CHARACTERS: Final = 112


@contextmanager
def drawing() -> Iterator[None]:
    """Around all that draws: our style, and none of the user's."""
    with rc_context(_RC):
        yield


def sheet(
    title: str,
    missing: Sequence[bool],
    columns: int,
    legend: Sequence[Artist],
    notes: Sequence[str],
    small_print: Sequence[str],
    *,
    height: float | None = None,
    has_axes: bool = True,
) -> tuple[Figure, list[list[Axes]]]:
    """A figure with its panels, all else already on it.

    Args:
        title: in one line.
        missing: for each row of panels, whether all of them are empty; such rows are low.
        columns: of panels.
        legend: what colours and markers mean, for all panels.
        notes: lines in readable print below the panels, such as what the paper prints.
        small_print: where the numbers come from.
        height: of a panel in inches; by default what fits their number.
        has_axes: whether panels have titles and numbers around them.
    """
    usual = height or _PANEL_HEIGHT.get(columns, 1.75)
    heights = [_EMPTY_HEIGHT if empty and len(missing) > 1 else usual for empty in missing]
    rows, panel = len(heights), sum(heights) / len(heights)
    legend_columns = _legend_columns(legend)
    legend_height = _LEGEND_LINE * math.ceil(len(legend) / legend_columns) if legend else 0.0
    note_lines = [line for text in notes for line in textwrap.wrap(text, 128)]
    small_lines = [line for text in small_print for line in textwrap.wrap(text, _SMALL_CHARACTERS)]
    above, below, left = (0.28, 0.46, _LEFT) if has_axes else (0.04, 0.2, _RIGHT)
    top = _TITLE + legend_height + above
    bottom = below + 0.13 * len(note_lines) + _SMALL_LINE * len(small_lines) + 0.12
    whole = top + sum(heights) + (rows - 1) * _GAP + bottom
    figure = Figure(figsize=(_WIDTH, whole), dpi=_DPI)
    grid = figure.add_gridspec(
        *(rows, columns),
        left=left / _WIDTH,
        right=1 - _RIGHT / _WIDTH,
        top=1 - top / whole,
        bottom=bottom / whole,
        hspace=_GAP / panel,
        height_ratios=heights,
        wspace={1: 0, 2: 0.24}.get(columns, 0.34),
    )
    axes = [[figure.add_subplot(grid[row, column]) for column in range(columns)] for row in range(rows)]
    size = min(9.0, 9.0 * _TITLE_CHARACTERS / len(title))
    figure.text(0.12 / _WIDTH, 1 - 0.12 / whole, title, fontsize=size, fontweight="bold", va="top", gid="title")
    if legend:
        figure.legend(
            handles=list(legend),
            loc="upper left",
            bbox_to_anchor=(0.06 / _WIDTH, 1 - (_TITLE - 0.06) / whole),
            ncols=legend_columns,
            handlelength=2.2,
            columnspacing=1.4,
            borderaxespad=0,
            borderpad=0.2,
        )
    y = bottom - below
    for line in note_lines:
        figure.text(0.12 / _WIDTH, y / whole, line, fontsize=7, va="top", gid="note")
        y -= 0.13
    for line in small_lines:
        figure.text(*(0.12 / _WIDTH, y / whole, line), fontsize=_SMALL, va="top", color="#555555", gid="small-print")
        y -= _SMALL_LINE
    return figure, axes


def empty(axes: Axes, text: str) -> None:
    """Makes a panel say that it is empty, and why; nobody takes it for one without effect."""
    axes.set_facecolor("#F4F4F4")
    axes.grid(visible=False)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set(visible=True, color=PALE, linestyle="--")
    wrapped = textwrap.fill(text, 30)
    axes.text(
        *(0.5, 0.5, wrapped), transform=axes.transAxes, ha="center", va="center", fontsize=7, color=GREY, gid="missing"
    )


def save(figure: Figure, directory: Path, stem: str, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Writes a figure in several formats.

    Raises:
        OSError: a file cannot be written.
    """
    paths = []
    for form in formats:
        path = directory / f"{stem}.{form}"
        figure.savefig(path, format=form, dpi=_DPI, metadata=_METADATA[form])
        paths.append(path)
    return paths


def _legend_columns(legend: Sequence[Artist]) -> int:
    """The most columns that fit the page; each is as wide as its longest label."""
    lengths = [len(str(handle.get_label())) + 8 for handle in legend]
    for columns in range(len(legend), 1, -1):
        # matplotlib fills column after column, the first ones with one entry more where it does not come out even.
        rows, longer = divmod(len(legend), columns)
        starts = [number * rows + min(number, longer) for number in range(columns + 1)]
        if sum(max(lengths[a:b]) for a, b in itertools.pairwise(starts)) <= _LEGEND_CHARACTERS:
            return columns
    return 1


def draw_intervals(axes: Axes, points: Iterable[tuple[float, Estimate]], colour: str) -> None:
    """Bars of 95 % at places along x; none where there is no interval, or one that only says that it is too wide.

    An end below 0 has no place on a logarithmic axis; the bar reaches the edge.
    """
    bars = [
        (x, estimate.value, estimate.low, estimate.high)
        for x, estimate in points
        if estimate.low is not None and estimate.high is not None and not is_useless(estimate)
    ]
    if bars:
        axes.errorbar(
            [x for x, *_ in bars], [value for _, value, *_ in bars],
            yerr=[[value - max(low, 1e-9) for _, value, low, _ in bars], [high - value for _, value, _, high in bars]],
            fmt="none", ecolor=colour, elinewidth=0.9, capsize=1.8, capthick=0.9,
        )  # fmt: skip


def draw_published(axes: Axes, points: Sequence[tuple[float, float]]) -> None:
    if points:
        axes.plot(
            [x for x, _ in points], [y for _, y in points], linestyle="none", marker="d", markersize=8,
            markerfacecolor="none", color=BLACK, zorder=4, gid="published",
        )  # fmt: skip

"""Draws a table as papers print them: rules above, below and under the header, and no other lines."""

from collections.abc import Sequence
from typing import Final

from matplotlib.figure import Figure

from orchestrator.report.figures.canvas import sheet
from orchestrator.report.figures.tables import MISSING, Table
from orchestrator.report.palette import GREY

_CHARACTER: Final = 0.051
"""Width of an average character at the size of the cells, in inches."""
_PAD: Final = 0.13
_LINE: Final = 0.17
_SIZE: Final = 6.4
_SMALLEST: Final = 4.2


def draw_table(title: str, table: Table, notes: Sequence[str], small_print: Sequence[str]) -> Figure:
    """A sheet with a table; what is missing is a dash in grey."""
    lines = len(table.rows) + 2
    figure, axes = sheet(
        title, [False], 1, [], [*table.notes, *notes], small_print, height=_LINE * (lines + 0.2), has_axes=False
    )
    panel = axes[0][0]
    panel.axis("off")
    whole = panel.get_window_extent().width / figure.dpi
    widths = _widths(table)
    shrink = min(1.0, whole / sum(widths))
    size = max(_SMALLEST, _SIZE * shrink)
    widths = [one * shrink / whole for one in widths]
    starts = [sum(widths[:number]) for number in range(len(widths))]
    heights = [1 - (number + 0.5) / (lines + 0.2) for number in range(lines)]
    column = 0
    for name, span in table.groups:
        middle = starts[column] + sum(widths[column : column + span]) / 2
        panel.text(middle, heights[0], name, fontsize=size, ha="center", va="center", fontweight="bold")
        below = (heights[0] + heights[1]) / 2
        end = starts[column] + sum(widths[column : column + span])
        panel.plot([starts[column] + 0.004, end - 0.004], [below, below], color="black", linewidth=0.4)
        column += span
    for start, name in zip(starts, table.header, strict=True):
        panel.text(start + 0.004, heights[1], name, fontsize=size, va="center")
    for row, height in zip(table.rows, heights[2:], strict=True):
        for start, cell in zip(starts, row, strict=True):
            colour = GREY if cell == MISSING else "black"
            panel.text(start + 0.004, height, cell, fontsize=size, va="center", color=colour, gid="cell")
    for height, width in ((1.0, 0.9), ((heights[1] + heights[2]) / 2, 0.6), (0.0, 0.9)):
        panel.plot([0, 1], [height, height], color="black", linewidth=width, clip_on=False)
    panel.set(xlim=(0, 1), ylim=(0, 1))
    return figure


def _widths(table: Table) -> list[float]:
    """Of the columns in inches, at full size; those under a long title share it."""
    columns = list(zip(table.header, *table.rows, strict=True))
    widths = [_PAD + _CHARACTER * max(map(len, one)) for one in columns]
    first = 0
    for name, span in table.groups:
        lacking = _PAD + _CHARACTER * 1.1 * len(name) - sum(widths[first : first + span])
        for column in range(first, first + span):
            widths[column] += max(0.0, lacking) / span
        first += span
    return widths

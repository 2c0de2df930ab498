"""The paper's three tables beside what was measured: as values, as Markdown, as CSV, and drawn.

Drawn they are as papers print them: rules above, below and under the header, and no other lines.
"""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from matplotlib.figure import Figure

from orchestrator.analysis.paper import Gathered, Point, Published, State, names_model
from orchestrator.report import markdown
from orchestrator.report.figures.canvas import sheet
from orchestrator.report.figures.values import MILLI
from orchestrator.report.palette import GREY, backend_label
from orchestrator.report.text import estimate_text

MISSING: Final = "–"
_DTYPES: Final = ("float32", "float16")
_GIB: Final = 2**30
_CHARACTER: Final = 0.051
"""Width of an average character at the size of the cells of a drawn table, in inches."""
_PAD: Final = 0.13
_LINE: Final = 0.17
_SIZE: Final = 6.4
_SMALLEST: Final = 4.2


@dataclass(frozen=True)
class Table:
    """A table in words."""

    header: tuple[str, ...]
    groups: tuple[tuple[str, int], ...]
    """Titles above the header with the number of columns that each spans."""
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def sizes_table(published: Published, gathered: Gathered, legacy: Gathered) -> Table:
    """Table 1: the paper's latencies and what was measured, by dtype; the paper's own procedure apart."""
    sides = [(f"{dtype}", gathered, dtype) for dtype in _DTYPES]
    sides += [(f"{dtype}, as the paper timed", legacy, dtype) for dtype in _DTYPES]
    sides = [side for side in sides if _has_any(side[1], {"dtype": side[2]}) or side[1] is gathered]
    rows = []
    for row in published.table_1.rows:
        where = {
            "hidden_size": row.hidden_size, "batch": row.batch, "sequence_length": row.sequence_length,
            "intermediate_size": 0 if row.intermediate_size == 4 * row.hidden_size else row.intermediate_size,
        }  # fmt: skip
        cells = [str(number) for number in (row.hidden_size, row.intermediate_size, row.batch, row.sequence_length)]
        cells += [f"{row.latency_s * MILLI:.1f}", f"{row.per_example_s * MILLI:.1f}"]
        for _, side, dtype in sides:
            point = _one(side, {**where, "dtype": dtype})
            cells += [_milliseconds(point, side.latency), _milliseconds(point, side.latency, row.batch)]
        rows.append(tuple(cells))
    header = ["self-attention", "fully connected", "batch", "tokens", *(["latency", "per example"] * (len(sides) + 1))]
    groups = [("size and input", 4), (f"paper, {published.table_1.gpu}, ms", 2)]
    groups += [(f"{name}, ms", 2) for name, _, _ in sides]
    return Table(tuple(header), tuple(groups), tuple(rows), _failures(gathered, legacy))


def frameworks_table(published: Published, gathered: Gathered, legacy: Gathered) -> Table:
    """Table 3: latency, active multiprocessors and occupancy by framework."""
    sides = [dtype for dtype in _DTYPES if _has_any(gathered, {"dtype": dtype}) or dtype == _DTYPES[0]]
    timed = [dtype for dtype in _DTYPES if _has_any(legacy, {"dtype": dtype})]
    rows = []
    for row in published.table_3.rows:
        cells = [backend_label(row.backend), row.compilation, "yes" if row.serialisation else "none"]
        cells += [f"{row.latency_s * MILLI:.2f}", _percent(row.sm_active_share), _percent(row.occupancy_share)]
        for dtype in sides:
            point = _one(gathered, {"backend": row.backend, "dtype": dtype})
            cells += [_milliseconds(point, gathered.latency)]
            cells += [_share(point, "utilisation_sm_active_share"), _share(point, "utilisation_sm_occupancy_share")]
        cells += [
            _milliseconds(_one(legacy, {"backend": row.backend, "dtype": dtype}), legacy.latency) for dtype in timed
        ]
        rows.append(tuple(cells))
    header = ["framework", "compilation", "serialisation", *(["latency", "SMs", "warps"] * (len(sides) + 1))]
    groups = [("BERT-Base, batch 1", 3), ("paper, ms", 3), *((f"{dtype}, ms", 3) for dtype in sides)]
    if timed:
        header += list(timed)
        groups += [("as the paper timed", len(timed))]
    return Table(tuple(header), tuple(groups), tuple(rows), _failures(gathered, legacy))


def hardware_table(published: Published, systems: Sequence[Mapping[str, Any]]) -> Table:
    """Table 2: the paper's machines, and those in the store, each beside its like."""
    rows = []
    left = list(systems)
    for row in published.table_2.rows:
        tensor_cores = MISSING if row.tensor_cores is None else f"{row.tensor_cores:,}"
        cells = (
            row.cpu, row.gpu, row.architecture, f"{row.cores:,}", tensor_cores, f"{row.clock_ghz:g}",
            f"{row.memory_gb:g}", f"{row.bandwidth_gb_per_s:g}", f"{row.tflop_per_s:g}",
        )  # fmt: skip
        here = [system for system in left if system["gpu_name"] and names_model(row.gpu, system["gpu_name"])]
        left = [system for system in left if system not in here]
        described = list(dict.fromkeys(map(_described, here))) or [(MISSING,) * 5]
        rows.append((*cells, *described[0]))
        rows += [(*("",) * len(cells), *described_row) for described_row in described[1:]]
    rows += [(*(MISSING,) * 9, *described_row) for described_row in dict.fromkeys(map(_described, left))]
    header = (
        "CPU", "GPU", "architecture", "cores", "tensor", "GHz", "GB", "GB/s", "TFLOP/s",
        "CPU", "GPU", "GHz", "GB", "driver",
    )  # fmt: skip
    return Table(header, (("paper", 9), ("in this store", 5)), tuple(rows))


def markdown_page(table: Table, title: str, notes: Sequence[str]) -> str:
    titles = [f"{name}: " if name else "" for name, span in table.groups for _ in range(span)]
    header = [f"{group}{name}" for group, name in zip(titles, table.header, strict=True)]
    lines = [f"# {title}", "", *markdown.head(header), *map(markdown.row, table.rows)]
    lines += ["", *(f"- {text}" for text in (*table.notes, *notes))]
    return "\n".join(lines) + "\n"


def comma_separated(table: Table) -> str:
    """The table for other programs, without the notes."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    titles = [name for name, span in table.groups for _ in range(span)]
    writer.writerow([f"{group}: {name}" if group else name for group, name in zip(titles, table.header, strict=True)])
    writer.writerows(table.rows)
    return stream.getvalue()


def _described(system: Mapping[str, Any]) -> tuple[str, ...]:
    fingerprint = json.loads(system["fingerprint"])
    # Of strangers, too: the store knows only that it is an object.
    listed = fingerprint.get("gpus")
    gpus = [gpu for gpu in listed if isinstance(gpu, dict)] if isinstance(listed, list) else []
    cpu = str(system["cpu_model"] or "unknown").replace("(R)", "").replace(" CPU", "").partition(" @")[0]
    if not gpus:
        return cpu, "no GPU", MISSING, MISSING, MISSING
    clock, memory = (
        value if isinstance(value := gpus[0].get(name), int) else None for name in ("sm_clock_max_mhz", "memory_bytes")
    )
    return (
        cpu, str(gpus[0].get("name") or system["gpu_name"]), f"{clock / 1000:g}" if clock else MISSING,
        f"{memory / _GIB:.0f}" if memory else MISSING, str(fingerprint.get("gpu_driver_version") or MISSING),
    )  # fmt: skip


def _one(gathered: Gathered, where: Mapping[str, Any]) -> Point | None:
    found = gathered.select(where)
    return found[0] if len(found) == 1 else None


def _has_any(gathered: Gathered, where: Mapping[str, Any]) -> bool:
    return any(point.state is State.MEASURED for point in gathered.select(where))


def _milliseconds(point: Point | None, column: str, examples: int = 1) -> str:
    if point is None or point.state is State.ABSENT:
        return MISSING
    estimate = point.estimate(column)
    if estimate is None:
        return point.state.value if point.state is State.FAILED else MISSING
    found = estimate.scaled(MILLI / examples)
    return estimate_text(found, "{:.1f}".format if found.value >= 100 else "{:.2f}".format)


def _share(point: Point | None, column: str) -> str:
    estimate = point.estimate(column) if point is not None else None
    return MISSING if estimate is None else _percent(estimate.value)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _failures(*gathered: Gathered) -> tuple[str, ...]:
    points = [point for side in gathered for point in side.points.values() if point.state is State.FAILED]
    return tuple(
        f"{backend_label(what.backend)}, {what.dtype}, batch {what.batch}: {reason}"
        for what, reason in ((point.configuration, point.reason) for point in points)
    )


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
    widths = [width * shrink / whole for width in widths]
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
    widths = [_PAD + _CHARACTER * max(map(len, column)) for column in columns]
    first = 0
    for name, span in table.groups:
        lacking = _PAD + _CHARACTER * 1.1 * len(name) - sum(widths[first : first + span])
        for column in range(first, first + span):
            widths[column] += max(0.0, lacking) / span
        first += span
    return widths

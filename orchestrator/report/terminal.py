"""A summary as a table for the terminal. Nothing is printed here: `render` returns what rich can print.

The layout fits 80 columns, so that it stays readable in a file or a log, too.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from textwrap import shorten

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from orchestrator.analysis import MARGIN, Estimate, Ratio, Shape
from orchestrator.analysis.axes import Row, backend_name, grouped, shape_of
from orchestrator.analysis.ratios import BASELINE
from orchestrator.analysis.summary import FailureGroup, Flagged, SettingSummary, Summary, SummaryCell
from orchestrator.report.sentences import is_above_call, sentences
from orchestrator.report.text import (
    calibration_line,
    count_text,
    counts_text,
    cpu_text,
    decision_lines,
    duration_text,
    is_vague,
    least_lines,
    listed,
    margin_text,
    numerics_name,
    ratio_text,
    rule_line,
    shape_name,
    statuses_text,
    verdict_colour,
    verdict_mark,
    work_name,
)
from runners.contract import Interleaving

_Row = tuple[str, str, Sequence[Text]]
"""Batch, number of processes, and a cell for each backend."""
_COMPARED = 2
"""Backends beside the baseline in one table."""
_WIDTH = 80
_LABELS = (5, 2)
"""Widths of the columns of batch and n."""
_TOO_WIDE = "?"
_LEGEND = (
    "Median latency over n processes (10th percentile, where calls were disturbed), and times as fast as eager by 10th "
    "percentiles: + faster, - slower, = equal, ~ undecided; ±: 95 % interval, ?: too wide; floor: the framework alone. "
    "All: taxmeter results show --intervals"
)
_PROBLEM_WIDTH = 80
_TRIALS_NAMED = 3
_DISAGREEING_NAMED = 3
_APART = 1.1
"""How many times the 10th percentile the median must be for both to be shown: then calls were disturbed."""
_APART_HOW = {
    Interleaving.ALONE.value: "alone, not in turns with the others",
    Interleaving.PAIRS.value: "in turns with eager alone",
}


def render(summary: Summary, intervals: bool = False) -> RenderableType:
    """Sentences and a table per host and environment, the verdicts, what failed and why, and the totals."""
    ratios = list(_ratios(summary))
    parts: list[RenderableType] = [*_failures(summary.failures), *_flagged(summary.flagged), *_not_in_turns(summary)]
    parts.extend(_verdicts([ratio for _, ratio in ratios]))
    for setting in summary.settings:
        parts.extend(_setting(setting, intervals))
    parts.extend(Text(line) for line in _rule(ratios))
    parts.append(Text.assemble(("Total: ", "bold"), _totals(summary)))
    return Group(*parts)


def ruled_table(*names: str) -> Table:
    """A table for the terminal, with a rule below its head where it has names."""
    table = Table(box=box.SIMPLE_HEAD if any(names[1:]) else None, padding=(0, 1), pad_edge=False, show_edge=False)
    for name in names:
        table.add_column(name, overflow="fold")
    return table


def _setting(found: SettingSummary, intervals: bool) -> Iterator[RenderableType]:
    row = found.row
    numerics = list(dict.fromkeys(numerics_name(cell.shape) for cell in found.cells))
    hardware = [name for name in (row["cpu_model"], row["gpu_name"]) if name]
    where = [*hardware, *(numerics if len(numerics) == 1 else []), f"environment {row['environment'] or ''}"]
    yield Text.assemble((row["host"] or "", "bold"), f": {', '.join(where)}, {_isolation(row)}")
    name = _name(found)
    for sentence in sentences(found, MARGIN, name):
        yield Padding(Text(sentence), (0, 0, 0, 2))
    yield Text()
    yield from _tables(found, name, intervals)
    yield Text(_LEGEND, style="dim")
    yield from _pairs(found)


def _name(found: SettingSummary) -> Callable[[Shape], str]:
    """By which the shapes of a setting are told apart: what all have in common stands in its head."""
    return work_name if len({numerics_name(cell.shape) for cell in found.cells}) == 1 else shape_name


def _tables(found: SettingSummary, name: Callable[[Shape], str], intervals: bool) -> Iterator[RenderableType]:
    """The backends as columns; per work its name, a row for each batch, and one for the floors."""
    backends = sorted({cell.backend for cell in found.cells}, key=lambda backend: (backend != BASELINE, backend))
    baseline = [backend for backend in backends if backend == BASELINE]
    compared = [backend for backend in backends if backend != BASELINE]
    works = grouped(found.cells, lambda cell: cell.shape)
    for start in range(0, max(len(compared), 1), _COMPARED):
        shown = [*baseline, *compared[start : start + _COMPARED]]
        rows = {shape: [*_rows(cells, shown, intervals), *_floors(cells, shown)] for shape, cells in works.items()}
        widths = _widths(shown, [cells for work in rows.values() for *_, cells in work])
        yield _table([("batch", "n", [Text(backend, style="bold") for backend in shown])], widths)
        for shape in works:
            yield Text(name(shape), style="bold")
            yield _table(rows[shape], widths)
    for line in dict.fromkeys(line for cells in works.values() for line in _unknown_floors(cells, name)):
        yield Text(line)


def _table(rows: Iterable[_Row], widths: Sequence[int]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, show_header=False)
    for width in _LABELS:
        table.add_column(justify="right", width=width, no_wrap=True)
    for width in widths:
        table.add_column(overflow="fold", width=width)
    for batch, processes, cells in rows:
        table.add_row(batch, processes, *cells)
    return table


def _widths(names: Sequence[str], rows: Iterable[Sequence[Text]]) -> Sequence[int]:
    """Of the columns of all works the same; the widest narrower, where they do not fit the screen."""
    cells = list(rows)
    widths = [max(len(name), *(row[index].cell_len for row in cells)) for index, name in enumerate(names)]
    while sum(widths) + len(widths) - 1 + sum(_LABELS) + len(_LABELS) > _WIDTH:
        widths[widths.index(max(widths))] -= 1
    return widths


def _rows(cells: Sequence[SummaryCell], backends: Sequence[str], intervals: bool) -> Iterator[_Row]:
    for batch, line in grouped(cells, lambda cell: cell.batch).items():
        by_backend = [[cell for cell in line if cell.backend == backend] for backend in backends]
        most = max((cell.latency.processes for cell in line if cell.latency is not None), default=0)
        shown = [
            Text("\n").join(_cell(cell, most, intervals) for cell in some) if some else Text("-") for some in by_backend
        ]
        yield str(batch), str(most), shown


def _cell(cell: SummaryCell, most: int, intervals: bool) -> Text:
    parts = []
    if cell.latency is not None:
        parts.append(Text(_latency(cell.latency, cell.fastest, intervals)))
        if cell.ratio is None and not intervals and not is_vague(cell.latency):
            parts.append(Text(margin_text(cell.latency).replace(" ", "")))
    if cell.ratio is not None:
        ratio = cell.ratio
        number = ratio_text(ratio.estimate) if intervals else f"x{ratio.estimate.value:.2f}"
        mark = verdict_mark(ratio.verdict)
        shown = mark if is_vague(ratio.estimate) else f"{number} {mark}"
        parts.append(Text(shown, style=verdict_colour(ratio.verdict)))
    if cell.latency is not None and cell.latency.processes < most:
        parts.append(Text(f"n={cell.latency.processes}"))
    if cell.unsteady:
        parts.append(Text(f"{cell.unsteady} not steady", style="yellow"))
    parts.extend(Text(f"{count} {status.value}", style="red") for status, count in cell.failures.items())
    return Text(" ").join(part for part in parts if part)


def _latency(latency: Estimate, fastest: Estimate | None, intervals: bool) -> str:
    """The median, and the 10th percentile in brackets where calls were disturbed."""
    is_hidden = is_vague(latency) and not intervals
    text = _TOO_WIDE if is_hidden else duration_text(latency if intervals else latency.bare)
    if fastest is None or (not is_hidden and latency.value <= _APART * fastest.value) or is_vague(fastest):
        return text
    number, _, unit = text.partition(" ")
    low = duration_text(fastest.bare)
    same_unit = not intervals and low.endswith(f" {unit}")
    return f"{number} ({low.removesuffix(f' {unit}')}) {unit}" if same_unit else f"{text} ({low})"


def _floors(cells: Sequence[SummaryCell], backends: Sequence[str]) -> Iterator[_Row]:
    """What the frameworks take at least; nothing if no floor was measured."""
    shown = [Text(_floor([cell for cell in cells if cell.backend == name])) for name in backends]
    if any(shown):
        yield "floor", "", shown


def _floor(cells: Sequence[SummaryCell]) -> str:
    known = [cell for cell in cells if cell.floor is not None]
    floors = [cell.floor for cell in known if cell.floor is not None and not is_above_call(cell)]
    if floors:
        least = duration_text(min(floors, key=lambda floor: floor.value).bare)
        return f"≥{least}" + ("" if any(cell.floor_proven for cell in known) else " (not proven)")
    if known:
        return "disturbed"
    return "unknown" if any(cell.floor_problem for cell in cells) else ""


def _unknown_floors(cells: Sequence[SummaryCell], name: Callable[[Shape], str]) -> Iterator[str]:
    """Why a floor of a work is unknown, by backend."""
    for backend, every in grouped(cells, lambda cell: cell.backend).items():
        problems = [cell.floor_problem for cell in every if cell.floor_problem]
        if problems and all(cell.floor is None for cell in every):
            why = shorten(problems[0], _PROBLEM_WIDTH, placeholder=" …")
            yield f"Floor unknown of {name(cells[0].shape)}, {backend}: {why}."


def _pairs(found: SettingSummary) -> Iterator[RenderableType]:
    text = calibration_line([twin.ratio for twin in found.twins])
    named = [
        f"{ratio_text(twin.ratio.estimate)} {_name(found)(shape_of(twin.row))}, batch {twin.row['batch']}, "
        f"{backend_name(twin.row)}: {twin.ratio.verdict.value}"
        for twin in found.twins
    ]
    different = any(twin.ratio.verdict.is_different for twin in found.twins)
    style = "red" if different else "" if found.twins else "yellow"
    yield Text(" ".join([text, *("; ".join(named) + "." for _ in named[:1])]), style=style)


def _ratios(summary: Summary) -> Iterator[tuple[str, Ratio]]:
    """The ratios of all settings, which are judged together, by what was measured."""
    for found in summary.settings:
        for cell in found.cells:
            if cell.ratio is not None:
                yield f"{_name(found)(cell.shape)}, batch {cell.batch}, {cell.backend}", cell.ratio


def _verdicts(ratios: Sequence[Ratio]) -> Iterator[RenderableType]:
    """How many ratios are decided, and what a decision about the others takes."""
    if ratios:
        decisions = "".join(f" {line}" for line in decision_lines(ratios))
        yield Text.assemble(("Verdicts: ", "bold"), f"{counts_text(ratios)}.{decisions}")


def _rule(ratios: Sequence[tuple[str, Ratio]]) -> Iterator[str]:
    if ratios:
        judged = [ratio for _, ratio in ratios]
        yield " ".join([rule_line(judged, MARGIN), *least_lines(judged)])
    told = [f"{name}: {text}" for name, ratio in ratios if (text := cpu_text(ratio)) is not None]
    if told:
        yield f"Contradicted: {listed(told, _DISAGREEING_NAMED)}."


def _failures(groups: tuple[FailureGroup, ...]) -> Iterator[RenderableType]:
    if not groups:
        return
    yield Text("Not measured, or not counted:", style="bold")
    for group in groups:
        place = ", ".join(part for part in (group.host, group.environment, group.isolation) if part)
        named = listed(group.trials, _TRIALS_NAMED)
        head = Text.assemble(
            (f"{group.count} {group.status.value}", "red"), f" ({place}): {group.reason or 'no reason'}"
        )
        yield Padding(Group(head, Padding(Text(named, style="dim"), (0, 0, 0, 2))), (0, 0, 0, 2))
    yield Text()


def _flagged(flagged: Flagged) -> Iterator[RenderableType]:
    if not flagged.trials:
        return
    causes = ", ".join(f"{name} {count}" for name, count in flagged.by_guard.items())
    trials = count_text(flagged.watched, "trial", "trials")
    yield Text(
        f"Flagged by guards: {flagged.trials} of {trials} ({causes}); docs/measurement.md says of what.",
        style="yellow",
    )


def _not_in_turns(summary: Summary) -> Iterator[RenderableType]:
    for (interleaving, reason), count in summary.apart.items():
        trials = count_text(count, "trial", "trials")
        yield Text(f"Measured {_APART_HOW.get(interleaving, interleaving)}: {trials}; {reason}.\n", style="yellow")
    if summary.short:
        trials = count_text(summary.short, "trial", "trials")
        yield Text(f"Fewer turns than the least number: {trials}, for lack of time (timeout_s).\n", style="yellow")


def _totals(summary: Summary) -> str:
    retried = f"; {count_text(summary.retried, 'attempt', 'attempts')} repeated" if summary.retried else ""
    trials = count_text(sum(summary.totals.values()), "trial", "trials")
    return f"{trials}: {statuses_text(summary.totals)}{retried}"


def _isolation(row: Row) -> str:
    if row["isolation"] == "docker":
        return f"in containers (isolation=docker, image {(row['image_digest'] or 'unknown')[:19]})"
    if row["isolation"] == "process":
        why = f": {row['executor_reason']}" if row["executor_reason"] else ""
        return f"as plain processes, NOT in containers (isolation=process{why})"
    return f"isolation={row['isolation'] or 'unknown'}"

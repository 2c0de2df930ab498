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

from orchestrator.analysis import (
    MARGIN,
    Cell,
    Estimate,
    FailureGroup,
    Flagged,
    Line,
    SettingSummary,
    Shape,
    Summary,
    Verdict,
)
from orchestrator.analysis.ratios import BASELINE
from orchestrator.report.text import (
    COLOURS,
    calibration_line,
    count_text,
    counts_text,
    cpu_text,
    duration_text,
    is_above_call,
    is_vague,
    listed,
    margin_text,
    numerics_name,
    ratio_text,
    rule_lines,
    sentences,
    shape_name,
    statuses_text,
    work_name,
)
from runners.contract import Interleaving

_COMPARED = 3
"""Backends beside the baseline in one table."""
_COMPARED_WITH_INTERVALS = 2
_WIDTH = 80
_LABELS = 9
"""Columns of batch and n, with what parts them."""
_TOO_WIDE = "?"
_PROBLEM_WIDTH = 80
_TRIALS_NAMED = 3
_DISAGREEING_NAMED = 3
_APART = 1.1
"""How many times the 10th percentile the median must be for both to be shown: then calls were disturbed."""
_APART_HOW = {
    Interleaving.ALONE.value: "alone, not in turns with the others",
    Interleaving.PAIRS.value: "in turns with eager alone",
}
_MARKS = {
    Verdict.FASTER: "+",
    Verdict.SLIGHTLY_FASTER: "+=",
    Verdict.SLOWER: "-",
    Verdict.SLIGHTLY_SLOWER: "-=",
    Verdict.EQUIVALENT: "=",
    Verdict.UNDECIDED: "~",
}


def render(summary: Summary, intervals: bool = False) -> RenderableType:
    """Sentences and a table per host and environment, the verdicts, what failed and why, and the totals.

    Args:
        summary: of one campaign.
        intervals: with all intervals and the 10th percentiles of calls that were disturbed.
    """
    parts: list[RenderableType] = [*_failures(summary.failures), *_flagged(summary.flagged), *_not_in_turns(summary)]
    for setting in summary.settings:
        parts.extend(_setting(setting, intervals))
    parts.extend(_rule(summary))
    parts.append(Text.assemble(("Total: ", "bold"), _totals(summary)))
    return Group(*parts)


def ruled_table(*names: str) -> Table:
    """A table for the terminal, with a rule below its head where it has names."""
    table = Table(box=box.SIMPLE_HEAD if any(names[1:]) else None, padding=(0, 1), pad_edge=False, show_edge=False)
    for name in names:
        table.add_column(name, overflow="fold")
    return table


def _setting(found: SettingSummary, intervals: bool) -> Iterator[RenderableType]:
    setting = found.setting
    numerics = list(dict.fromkeys(numerics_name(line.shape) for line in found.lines))
    hardware = [name for name in (found.cpu_model, found.gpu_name) if name]
    where = [*hardware, *(numerics if len(numerics) == 1 else []), f"environment {setting.environment}"]
    yield Text.assemble((setting.host, "bold"), f": {', '.join(where)}, {_isolation(found)}")
    name = _name(found)
    for sentence in sentences(found, MARGIN, name):
        yield Padding(Text(sentence), (0, 0, 0, 2))
    yield Text()
    yield from _tables(found, name, intervals)
    yield Text(
        "Median latency of one call at a time over n processes (±: its 95 % interval, ?: too wide for a number), and "
        "how many times faster than eager it is by its 10th percentile; + faster, - slower, = equal, ~ undecided. All: "
        "`taxmeter results show --intervals`.",
        style="dim",
    )
    yield from _pairs(found)
    yield Text()


def _name(found: SettingSummary) -> Callable[[Shape], str]:
    """By which the shapes of a setting are told apart: what all have in common stands in its head."""
    return work_name if len({numerics_name(line.shape) for line in found.lines}) == 1 else shape_name


def _tables(found: SettingSummary, name: Callable[[Shape], str], intervals: bool) -> Iterator[RenderableType]:
    """Per work a head with the floors, and a table with a row for each batch."""
    backends = sorted({cell.backend for cell in found.cells}, key=lambda backend: (backend != BASELINE, backend))
    baseline = [backend for backend in backends if backend == BASELINE]
    compared = [backend for backend in backends if backend != BASELINE]
    at_once = _COMPARED_WITH_INTERVALS if intervals else _COMPARED
    works = {shape: [line for line in found.lines if line.shape == shape] for shape in _shapes(found)}
    for start in range(0, max(len(compared), 1), at_once):
        shown = [*baseline, *compared[start : start + at_once]]
        rows = {shape: list(_rows(lines, shown, intervals)) for shape, lines in works.items()}
        widths = _widths(shown, [cells for work in rows.values() for *_, cells in work])
        for shape, lines in works.items():
            yield Text.assemble((name(shape), "bold"), _floors(lines, shown))
            table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
            table.add_column("batch", justify="right", no_wrap=True)
            table.add_column("n", justify="right", min_width=2, no_wrap=True)
            for backend, width in zip(shown, widths, strict=True):
                table.add_column(Text(backend), overflow="fold", width=width)
            for label, count, cells in rows[shape]:
                table.add_row(label, count, *cells)
            yield table


def _shapes(found: SettingSummary) -> list[Shape]:
    return list(dict.fromkeys(line.shape for line in found.lines))


def _widths(names: Sequence[str], rows: Iterable[Sequence[Text]]) -> Sequence[int | None]:
    """Of the columns of all works the same, where they fit the screen; else null, and each table finds its own."""
    cells = list(rows)
    widths = [max(len(name), *(row[index].cell_len for row in cells)) for index, name in enumerate(names)]
    return widths if sum(widths) + len(widths) + _LABELS <= _WIDTH else [None] * len(widths)


def _rows(lines: Sequence[Line], backends: Sequence[str], intervals: bool) -> Iterator[tuple[str, str, list[Text]]]:
    """A row for each batch; with intervals one below it with the 10th percentiles, where calls were disturbed."""
    for line in lines:
        by_backend = [[cell for cell in line.cells if cell.backend == backend] for backend in backends]
        most = max((cell.latency.processes for cell in line.cells if cell.latency is not None), default=0)
        shown = [
            Text("\n").join(_cell(cell, most, intervals) for cell in cells) if cells else Text("-")
            for cells in by_backend
        ]
        yield str(line.batch), str(most), shown
        fastest = [", ".join(filter(None, map(_fastest, cells))) for cells in by_backend]
        if intervals and any(fastest):
            yield "p10", "", [Text(text) for text in fastest]


def _cell(cell: Cell, most: int, intervals: bool) -> Text:
    parts = []
    if cell.latency is not None:
        parts.append(Text(_latency(cell.latency, cell.ratio is None, intervals)))
    if cell.ratio is not None:
        ratio = cell.ratio
        number = ratio_text(ratio.estimate) if intervals else f"x{ratio.estimate.value:.2f}"
        mark = _MARKS[ratio.verdict]
        parts.append(Text(mark if is_vague(ratio.estimate) else f"{number} {mark}", style=COLOURS[ratio.verdict]))
    if cell.latency is not None and cell.latency.processes < most:
        parts.append(Text(f"n={cell.latency.processes}"))
    if cell.unsteady:
        parts.append(Text(f"{cell.unsteady} not steady", style="yellow"))
    parts.extend(Text(f"{count} {status.value}", style="red") for status, count in cell.failures.items())
    return Text(" ").join(parts)


def _latency(latency: Estimate, is_alone: bool, intervals: bool) -> str:
    if intervals:
        return duration_text(latency)
    if is_vague(latency):
        return _TOO_WIDE
    text = duration_text(latency.bare)
    return f"{text} {margin_text(latency).replace(' ', '')}".rstrip() if is_alone else text


def _fastest(cell: Cell) -> str:
    if cell.latency is None or cell.fastest is None or cell.latency.value <= _APART * cell.fastest.value:
        return ""
    return duration_text(cell.fastest.bare)


def _floors(lines: Sequence[Line], backends: Sequence[str]) -> str:
    """What the frameworks take at least; empty if no floor was measured."""
    told = []
    for backend in backends:
        every = [cell for line in lines for cell in line.cells if cell.backend == backend]
        cells = [cell for cell in every if cell.floor is not None]
        floors = [cell.floor for cell in cells if cell.floor is not None and not is_above_call(cell)]
        if floors:
            proven = any(cell.floor_proven for cell in cells)
            told.append(f"{backend} {duration_text(min(floors, key=_value))}" + ("" if proven else " (not proven)"))
        elif cells:
            told.append(f"{backend} disturbed, above a call")
        elif problems := [cell.floor_problem for cell in every if cell.floor_problem]:
            told.append(f"{backend} unknown ({shorten(problems[0], _PROBLEM_WIDTH, placeholder=' …')})")
    return f"; framework alone, at least: {', '.join(told)}" if told else ""


def _value(estimate: Estimate) -> float:
    return estimate.value


def _pairs(found: SettingSummary) -> Iterator[RenderableType]:
    text = calibration_line([pair.ratio for pair in found.aa_pairs])
    named = [
        f"{ratio_text(pair.ratio.estimate)} {_name(found)(pair.shape)}, batch {pair.batch}, {pair.backend}: "
        f"{pair.ratio.verdict.value}"
        for pair in found.aa_pairs
    ]
    different = any(pair.ratio.verdict.is_different for pair in found.aa_pairs)
    style = "red" if different else "" if found.aa_pairs else "yellow"
    yield Text(" ".join([text, *("; ".join(named) + "." for _ in named[:1])]), style=style)


def _rule(summary: Summary) -> Iterator[RenderableType]:
    """What the ratios of all settings, which are judged together, say."""
    cells = [
        (f"{_name(found)(line.shape)}, batch {line.batch}, {cell.backend}", cell.ratio)
        for found in summary.settings
        for line in found.lines
        for cell in line.cells
        if cell.ratio is not None
    ]
    ratios = [ratio for _, ratio in cells]
    if not ratios:
        return
    yield Text.assemble(("Verdicts: ", "bold"), f"{counts_text(ratios)}. ", " ".join(rule_lines(ratios, MARGIN)))
    told = [f"{name}: {text}" for name, ratio in cells if (text := cpu_text(ratio)) is not None]
    if told:
        yield Text(f"Contradicted: {listed(told, _DISAGREEING_NAMED)}.")


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
        f"Flagged by guards: {flagged.trials} of {trials} ({causes}). They count in the numbers below; guard_flags in "
        "their rows names them, and docs/measurement.md tells what that means.\n",
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


def _isolation(found: SettingSummary) -> str:
    setting = found.setting
    if setting.isolation == "docker":
        return f"in containers (isolation=docker, image {setting.image_digest[:19] or 'unknown'})"
    if setting.isolation == "process":
        why = f": {found.executor_reason}" if found.executor_reason else ""
        return f"as plain processes, NOT in containers (isolation=process{why})"
    return f"isolation={setting.isolation or 'unknown'}"

"""A summary as a table for the terminal. Nothing is printed here: `render` returns what rich can print.

The layout fits 80 columns, so that it stays readable in a file or a log, too.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

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
    Latency,
    Line,
    SettingSummary,
    Shape,
    Summary,
    Verdict,
)
from orchestrator.analysis.ratios import BASELINE
from orchestrator.report.sentences import sentences
from orchestrator.report.verdicts import COLOURS, calibration_line, counts_text, cpu_text, rule_lines
from orchestrator.report.wording import (
    count_text,
    duration_text,
    is_vague,
    margin_text,
    numerics_name,
    ratio_text,
    shape_name,
    work_name,
)
from runners.contract import Interleaving, Status

_COMPARED_PER_TABLE = 2
_TRIALS_NAMED = 3
_DISAGREEING_NAMED = 3
_APART = 1.1
"""How many times the 10th percentile the median must be for both to be shown: then calls were disturbed."""
_APART_HOW = {
    Interleaving.ALONE.value: "alone, not in turns with the others",
    Interleaving.PAIRS.value: "in turns with eager alone",
}
_MODES = {Latency.SYNC: "one call at a time", Latency.PIPELINED: "back-to-back calls"}
_MARKS = {
    Verdict.FASTER: "+",
    Verdict.SLIGHTLY_FASTER: "+=",
    Verdict.SLOWER: "-",
    Verdict.SLIGHTLY_SLOWER: "-=",
    Verdict.EQUIVALENT: "=",
    Verdict.UNDECIDED: "~",
}


def render(summary: Summary) -> RenderableType:
    """Sentences and a table per host and environment, the verdicts, what failed and why, and the totals."""
    parts: list[RenderableType] = [*_failures(summary.failures), *_flagged(summary.flagged), *_not_in_turns(summary)]
    for setting in summary.settings:
        parts.extend(_setting(setting, summary.latency))
    parts.extend(_rule(summary))
    parts.append(Text.assemble(("Total: ", "bold"), _totals(summary)))
    return Group(*parts)


def _setting(found: SettingSummary, latency: Latency) -> Iterator[RenderableType]:
    setting = found.setting
    numerics = list(dict.fromkeys(numerics_name(line.shape) for line in found.lines))
    hardware = [name for name in (found.cpu_model, found.gpu_name) if name]
    where = [*hardware, *(numerics if len(numerics) == 1 else []), f"environment {setting.environment}"]
    yield Text.assemble((setting.host, "bold"), f": {', '.join(where)}, {_isolation(found)}")
    name = _name(found)
    for sentence in sentences(found, MARGIN, name):
        yield Padding(Text(sentence), (0, 0, 0, 2))
    yield Text()
    yield from _tables(found, name)
    yield Text(
        f"Median latency of {_MODES[latency]} over n processes, times faster than eager, both with their 95 % "
        "interval; + faster, - slower, = equal, ~ undecided; floor: what the framework takes at least.",
        style="dim",
    )
    yield from _pairs(found)
    yield Text()


def _name(found: SettingSummary) -> Callable[[Shape], str]:
    """By which the shapes of a setting are told apart: what all have in common stands in its head."""
    return work_name if len({numerics_name(line.shape) for line in found.lines}) == 1 else shape_name


def _tables(found: SettingSummary, name: Callable[[Shape], str]) -> Iterator[RenderableType]:
    backends = sorted({cell.backend for cell in found.cells}, key=lambda backend: (backend != BASELINE, backend))
    baseline = [backend for backend in backends if backend == BASELINE]
    compared = [backend for backend in backends if backend != BASELINE]
    for start in range(0, max(len(compared), 1), _COMPARED_PER_TABLE):
        shown = [*baseline, *compared[start : start + _COMPARED_PER_TABLE]]
        table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
        table.add_column("", overflow="fold")
        table.add_column("batch", justify="right", no_wrap=True)
        table.add_column("n", justify="right", no_wrap=True)
        for backend in shown:
            table.add_column(Text(backend), overflow="fold")
        for shape in dict.fromkeys(line.shape for line in found.lines):
            _add_rows(table, name(shape), [line for line in found.lines if line.shape == shape], shown)
        yield table


def _add_rows(table: Table, name: str, lines: Sequence[Line], backends: Sequence[str]) -> None:
    """A row for each batch, one below it where calls were disturbed, and one for the floors, which have no batch."""
    rows: list[tuple[str, str, list[Text]]] = []
    for line in lines:
        by_backend = [[cell for cell in line.cells if cell.backend == backend] for backend in backends]
        processes = [cell.latency.processes for cell in line.cells if cell.latency is not None]
        most = max(processes, default=0)
        shown = [Text("\n").join(_cell(cell, most) for cell in cells) if cells else Text("-") for cells in by_backend]
        rows.append((str(line.batch), str(most), shown))
        fastest = [_joined(_fastest(cell) for cell in cells) for cells in by_backend]
        if any(fastest):
            rows.append(("p10", "", [Text(text) for text in fastest]))
    floors = [_joined(_floor(cell) for line in lines for cell in line.cells if cell.backend == b) for b in backends]
    if any(floors):
        rows.append(("floor ≥", "", [Text(floor, style="cyan") for floor in floors]))
    # The workload beside its first row, its sizes beside the next ones
    names = list(name.split(", "))
    for number in range(max(len(rows), len(names))):
        label, count, cells = rows[number] if number < len(rows) else ("", "", [])
        table.add_row(Text(names[number] if number < len(names) else "", style="bold"), label, count, *cells)


def _joined(texts: Iterable[str]) -> str:
    """Each text once."""
    return ", ".join(text for text in dict.fromkeys(texts) if text)


def _cell(cell: Cell, most: int) -> Text:
    parts = []
    if cell.latency is not None:
        text = duration_text(replace(cell.latency, low=None, high=None))
        parts.append(Text(text if cell.ratio is not None else f"{text} {_margin(cell.latency)}".rstrip()))
    if cell.ratio is not None:
        ratio = cell.ratio
        text = f"x{ratio.estimate.value:.2f} {_margin(ratio.estimate)}{_MARKS[ratio.verdict]}"
        parts.append(Text(_MARKS[ratio.verdict] if is_vague(ratio.estimate) else text, style=COLOURS[ratio.verdict]))
    if cell.latency is not None and cell.latency.processes < most:
        parts.append(Text(f"n={cell.latency.processes}"))
    if cell.unsteady:
        parts.append(Text(f"{cell.unsteady} not steady", style="yellow"))
    parts.extend(Text(f"{count} {status.value}", style="red") for status, count in cell.failures.items())
    return Text(" ").join(parts)


def _margin(estimate: Estimate) -> str:
    return margin_text(estimate).replace(" ", "")


def _fastest(cell: Cell) -> str:
    if cell.latency is None or cell.fastest is None or cell.latency.value <= _APART * cell.fastest.value:
        return ""
    return duration_text(replace(cell.fastest, low=None, high=None))


def _floor(cell: Cell) -> str:
    if cell.floor is None:
        return ""
    return duration_text(cell.floor) + ("" if cell.floor_proven else " (not proven)")


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
        more = len(told) - _DISAGREEING_NAMED
        rest = f"; and {more} more" if more > 0 else ""
        yield Text(f"Contradicted: {'; '.join(told[:_DISAGREEING_NAMED])}{rest}.")


def _failures(groups: tuple[FailureGroup, ...]) -> Iterator[RenderableType]:
    if not groups:
        return
    yield Text("Not measured, or not counted:", style="bold")
    for group in groups:
        place = ", ".join(part for part in (group.host, group.environment, group.isolation) if part)
        named = "; ".join(group.trials[:_TRIALS_NAMED])
        more = len(group.trials) - _TRIALS_NAMED
        rest = f"; and {more} more" if more > 0 else ""
        head = Text.assemble(
            (f"{group.count} {group.status.value}", "red"), f" ({place}): {group.reason or 'no reason'}"
        )
        yield Padding(Group(head, Padding(Text(named + rest, style="dim"), (0, 0, 0, 2))), (0, 0, 0, 2))
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
    counts = [f"{summary.totals[status]} {status.value}" for status in Status if summary.totals.get(status)]
    retried = f"; {count_text(summary.retried, 'attempt', 'attempts')} repeated" if summary.retried else ""
    return f"{count_text(sum(summary.totals.values()), 'trial', 'trials')}: {', '.join(counts) or 'none'}{retried}"


def _isolation(found: SettingSummary) -> str:
    setting = found.setting
    if setting.isolation == "docker":
        return f"in containers (isolation=docker, image {setting.image_digest[:19] or 'unknown'})"
    if setting.isolation == "process":
        why = f": {found.executor_reason}" if found.executor_reason else ""
        return f"as plain processes, NOT in containers (isolation=process{why})"
    return f"isolation={setting.isolation or 'unknown'}"

"""A summary as a table for the terminal. Nothing is printed here: `render` returns what rich can print.

The layout fits 80 columns, so that it stays readable in a file or a log, too.
"""

from collections.abc import Iterator

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from orchestrator.analysis import (
    MARGIN,
    Cell,
    FailureGroup,
    Flagged,
    Latency,
    Line,
    Setting,
    SettingSummary,
    Shape,
    Summary,
)
from orchestrator.report.verdicts import COLOURS, calibration_line, counts_text, cpu_text, rule_lines
from orchestrator.report.wording import count_text, duration_text, percent_text, ratio_text, shape_name
from runners.contract import Status

_COMPARED_PER_TABLE = 2
_TRIALS_NAMED = 3
_APART = 1.1
"""How many times the 10th percentile the median must be for both to be shown: then calls were disturbed."""
_MODES = {Latency.SYNC: "one call at a time", Latency.PIPELINED: "back-to-back calls"}


def render(summary: Summary) -> RenderableType:
    """Tables per host and environment, the verdicts, what failed and why, and the totals."""
    parts: list[RenderableType] = []
    for setting in summary.settings:
        parts.extend(_setting(setting, summary.latency))
    parts.extend(_rule(summary))
    parts.extend(_failures(summary.failures))
    parts.extend(_flagged(summary.flagged))
    parts.append(Text.assemble(("Total: ", "bold"), _totals(summary)))
    return Group(*parts)


def _setting(one: SettingSummary, latency: Latency) -> Iterator[RenderableType]:
    setting = one.setting
    yield Text.assemble((f"{setting.host}, environment {setting.environment}", "bold"), f": {_isolation(setting)}")
    if one.executor_reason:
        yield Text(f"Executor: {one.executor_reason}")
    hardware = [name for name in (one.cpu_model, one.gpu_name) if name]
    if hardware:
        yield Text(f"Hardware: {', '.join(hardware)}")
    processes = max(cell.latency.processes for cell in one.cells if cell.latency)
    yield Text(
        f"Median latency of {_MODES[latency]} and, below it, how many times faster than eager (above 1 is faster); "
        f"[95 % interval] over {count_text(processes, 'process', 'processes')}."
    )
    if any(cell.floor for cell in one.cells):
        unproven = any(cell.floor and not cell.floor_proven for cell in one.cells)
        doubt = "; ? where that is not proven" if unproven else ""
        yield Text(
            "floor: what the framework takes at least, by twins with the same operations and next to no arithmetic, "
            f"and its share of the latency{doubt}."
        )
    for shape in dict.fromkeys(line.shape for line in one.lines):
        yield from _shape_tables(shape, [line for line in one.lines if line.shape == shape], processes)
    yield from _pairs(one)
    yield Text()


def _shape_tables(shape: Shape, lines: list[Line], processes: int) -> Iterator[RenderableType]:
    backends = sorted({cell.backend for line in lines for cell in line.cells}, key=lambda name: (name != "eager", name))
    baseline = [name for name in backends if name == "eager"]
    compared = [name for name in backends if name != "eager"]
    for start in range(0, max(len(compared), 1), _COMPARED_PER_TABLE):
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
        table.add_column("batch", justify="right", no_wrap=True)
        shown = [*baseline, *compared[start : start + _COMPARED_PER_TABLE]]
        for name in shown:
            table.add_column(Text(name), overflow="fold")
        for line in lines:
            cells = [[cell for cell in line.cells if cell.backend == name] for name in shown]
            table.add_row(str(line.batch), *(_cell(found, processes) for found in cells))
        yield Text(f"\n{shape_name(shape)}", style="bold")
        yield table


def _cell(found: list[Cell], processes: int) -> Text:
    return Text("\n").join(_cell_lines(cell, processes) for cell in found) if found else Text("-")


def _cell_lines(cell: Cell, processes: int) -> Text:
    lines = []
    if cell.latency is not None:
        few = f" n={cell.latency.processes}" if cell.latency.processes < processes else ""
        lines.append(Text(f"{duration_text(cell.latency)}{few}"))
        if cell.fastest is not None and cell.latency.value > _APART * cell.fastest.value:
            lines.append(Text(f"p10 {duration_text(cell.fastest)}"))
    if cell.floor is not None and cell.latency is not None:
        share = percent_text(min(1.0, cell.floor.value / cell.latency.value))
        doubt = "" if cell.floor_proven else " ?"
        lines.append(Text(f"floor ≥ {duration_text(cell.floor)}, {share}{doubt}", style="cyan"))
    if cell.ratio is not None:
        ratio, style = cell.ratio, COLOURS[cell.ratio.verdict]
        lines.append(Text(f"{ratio_text(ratio.estimate)}\n{ratio.verdict.value}", style=style))
    if cell.unsteady:
        lines.append(Text(f"{cell.unsteady} not steady", style="yellow"))
    lines.extend(Text(f"{count} {status.value}", style="red") for status, count in cell.failures.items())
    return Text("\n").join(lines)


def _pairs(one: SettingSummary) -> Iterator[RenderableType]:
    yield Text("\n" + calibration_line([pair.ratio for pair in one.aa_pairs]), style="" if one.aa_pairs else "yellow")
    for pair in one.aa_pairs:
        name = f"{shape_name(pair.shape)}, batch {pair.batch}, {pair.backend}"
        pairs = count_text(pair.ratio.estimate.processes, "session", "sessions")
        style = "red" if pair.ratio.verdict.is_different else ""
        line = f"{ratio_text(pair.ratio.estimate)} over {pairs}: {name}: {pair.ratio.verdict.value}"
        yield Padding(Text(line, style=style), (0, 0, 0, 2))


def _rule(summary: Summary) -> Iterator[RenderableType]:
    """What the ratios of all settings, which are judged together, say."""
    cells = [
        (f"{shape_name(line.shape)}, batch {line.batch}, {cell.backend}", cell.ratio)
        for one in summary.settings
        for line in one.lines
        for cell in line.cells
        if cell.ratio is not None
    ]
    ratios = [ratio for _, ratio in cells]
    if not ratios:
        return
    yield Text.assemble(("Verdicts: ", "bold"), f"{counts_text(ratios)}.")
    yield from map(Text, rule_lines(ratios, MARGIN))
    for name, ratio in cells:
        told = cpu_text(ratio)
        if told is not None:
            yield Padding(Text(f"{name}: {told}"), (0, 0, 0, 2))
    yield Text()


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
    yield Text(f"Flagged by guards: {flagged.trials} of {trials} ({causes}).", style="yellow")
    yield Text(
        "They count in the numbers above; their rows name them in guard_flags and say in guards what was seen.\n"
        "docs/measurement.md tells what that means, results/README.md how to leave them out.\n"
    )


def _totals(summary: Summary) -> str:
    counts = [f"{summary.totals[status]} {status.value}" for status in Status if summary.totals.get(status)]
    retried = f"; {count_text(summary.retried, 'attempt', 'attempts')} repeated" if summary.retried else ""
    return f"{count_text(sum(summary.totals.values()), 'trial', 'trials')}: {', '.join(counts) or 'none'}{retried}"


def _isolation(setting: Setting) -> str:
    if setting.isolation == "docker":
        return f"in containers (isolation=docker, image {setting.image_digest[:19] or 'unknown'})"
    if setting.isolation == "process":
        return "as plain processes, NOT in containers (isolation=process)"
    return f"isolation={setting.isolation or 'unknown'}"

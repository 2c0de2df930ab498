"""A comparison for the terminal: cells with their ratios, what was not measured, and what else differs."""

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from orchestrator.analysis import Change, Pairing, Ratio
from orchestrator.analysis.axes import DEFAULTS, Axis, Key, grouped, key_text
from orchestrator.analysis.comparison import SIDE, Cell, ComparisonTable, Difference, Entry
from orchestrator.report.text import (
    GROUPS,
    calibration_line,
    count_text,
    counts_text,
    cpu_text,
    indented,
    listed,
    ratio_text,
    rule_lines,
    value_text,
    verdict_colour,
    verdict_name,
)

_CELL, _NARROW_CELL = 34, 22
"""Columns of a terminal that a cell takes: `x1.31 [1.28, 1.34] slightly faster`, or the verdict on its own line."""
_LABEL: Final = 24
_NAMED: Final = 2
_FIELDS_SHOWN: Final = 12
_TELLING: Final = (
    *("gpu_driver_version", "gpus", "cpu.model_name", "cpu.governor", "cpu.boost", "cpu.max_frequency_hz"),
    *("cpu.cores", "cpu.smt_active", "kernel.release", "memory.total_bytes", "virtualisation"),
    *("isolation", "environment", "image_config_sha256", "torch_version", "onnxruntime_version", "exclusive"),
)
"""How the names of those fields begin that explain a difference most often; they come first, and are not cut off."""
_PAIRED: Final = {
    Pairing.TURNS: "taken in turns",
    Pairing.ROUNDS: "paired by round",
    Pairing.UNPAIRED: "unpaired: no shared rounds",
}


def render_comparison(table: ComparisonTable, width: int) -> RenderableType:
    """The table, its verdicts, what was not measured and what else differs."""
    parts: list[RenderableType] = [Text(line) for line in _heading(table)]
    parts.extend(_tables(table, width))
    parts.append(Text())
    parts.extend(_verdicts(table))
    parts.extend(_not_measured(table))
    parts.extend(render_differences(table))
    return Group(*parts)


def render_differences(table: ComparisonTable) -> Iterator[RenderableType]:
    """What else differs between the sides of the ratios."""
    if not table.ratios:
        return
    if not table.differences:
        yield Text("Nothing else that is known differs between the sides of any ratio.")
        return
    compared = ", ".join(table.compared)
    yield Text(f"What else differs, {compared} left out (baseline → compared):", style="bold")
    yield from render_changes([(found.change, _where(found, table)) for found in table.differences], _FIELDS_SHOWN)


def render_changes(changes: Sequence[tuple[Change, str]], most: int | None = None) -> Iterator[RenderableType]:
    """Fields that differ, by group, those first that explain a difference most often."""

    def rank(pair: tuple[Change, str]) -> int:
        return next((at for at, name in enumerate(_TELLING) if pair[0].field.startswith(name)), len(_TELLING))

    for group, found in grouped(changes, lambda pair: pair[0].group).items():
        here = sorted(found, key=rank) if most else found
        yield Text(f"  {GROUPS.get(group, group)}")
        for change, where in here[:most]:
            yield indented(f"{change.field}: {change.then} → {change.now}{where}", 4)
        if most and len(here) > most:
            more = f"and {len(here) - most} more, which --format csv, json and parquet have"
            yield indented(Text(more, style="dim"), 4)


def policy_lines(table: ComparisonTable) -> Iterator[str]:
    """What was left out, and what was pooled."""
    if table.policy.latest:
        yield "Of each cell only the newest campaign."
    if table.policy.without_flagged:
        yield "Without the trials that guards flagged as disturbed."
    if table.policy.pool:
        pooled = ", ".join(sorted(pool.value for pool in table.policy.pool))
        yield f"POOLED on request over different {pooled}: a cell may hold what is not one thing."


def flagged_line(table: ComparisonTable) -> str | None:
    """How many processes guards flagged; null if none."""
    flagged = sum(entry.cell.flagged for entry in table.entries)
    processes = sum(len(entry.cell.measured) for entry in table.entries)
    if not flagged:
        return None
    return f"Guards flagged {flagged} of {processes} processes as disturbed; --without-flagged leaves them out."


def pairing_text(table: ComparisonTable) -> str:
    """How the processes of the two sides pair in the ratios, as `paired by round`; empty if there is no ratio."""
    kinds = table.pairings
    unless = "".join(f", or {_PAIRED[kind]} where it says so" for kind in kinds[1:])
    return f"{_PAIRED[kinds[0]]}{unless}" if kinds else ""


def pairing_mark(ratio: Ratio, table: ComparisonTable) -> str:
    """What stands behind a ratio that was found in another way than most."""
    return "" if ratio.pairing is table.pairings[0] else f" {_PAIRED[ratio.pairing].partition(':')[0]}"


def _heading(table: ComparisonTable) -> Iterator[str]:
    metric = table.metric
    yield f"{metric.name}: {metric.meaning}. Median over processes [95 % interval]."
    if table.baseline:
        baseline = " ".join(f"{name}={value}" for name, value in table.baseline.items())
        if set(table.baseline) == {SIDE}:
            baseline = str(table.baseline[SIDE])
        how = pairing_text(table)
        yield f"x: how many times better than {baseline}, above 1 is better [95 % interval{how and f', {how}'}]."
    fixed = [f"{where.name}={value}" for where, value in table.fixed.items() if value not in (None, DEFAULTS)]
    if fixed:
        yield f"All: {' '.join(fixed)}"
    if table.added:
        yield f"Kept apart, because trials differ in it: {', '.join(table.added)}."
    yield from _sides(table)
    yield from policy_lines(table)


def _sides(table: ComparisonTable) -> Iterator[str]:
    """Which campaigns and hosts are behind the two sides."""
    if set(table.baseline) != {SIDE}:
        return
    for side in dict.fromkeys(entry.key[-1] for entry in table.entries):
        cells = [entry.cell for entry in table.entries if entry.key[-1] == side and entry.cell.measured]
        campaigns = sorted({name for cell in cells for name in cell.campaigns})
        hosts = sorted({name for cell in cells for name in cell.hosts})
        yield f"{side}: campaign {listed(campaigns, _NAMED)}, host {listed(hosts, _NAMED)}"


def _tables(table: ComparisonTable, width: int) -> Iterator[RenderableType]:
    row_axes = table.axes[: len(table.axes) - table.columns]
    rows = list(dict.fromkeys(entry.key[: len(row_axes)] for entry in table.entries))
    columns = _column_keys(table)
    labels = _label_count(row_axes, rows, width)
    heads = len(row_axes) - labels
    room = width - sum(_label_width(row_axes[heads + i], rows, heads + i) for i in range(labels))
    is_narrow = room < _CELL * len(columns)
    fitting = max(1, room // (_NARROW_CELL if is_narrow else _CELL))
    for head in dict.fromkeys(row[:heads] for row in rows):
        yield Text("\n" + (key_text(head, row_axes[:heads]) or "defaults") if heads else "", style="bold")
        for number, shown in enumerate(_chunks(columns, table, fitting)):
            if number:
                yield Text()
            here = [row for row in rows if row[:heads] == head]
            yield _grid(table, row_axes[heads:], here, shown, is_narrow=is_narrow)


def _grid(
    table: ComparisonTable,
    label_axes: Sequence[Axis],
    rows: Sequence[Key],
    columns: Sequence[Key],
    *,
    is_narrow: bool,
) -> Table:
    grid = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for where in label_axes:
        grid.add_column(where.name, justify="right" if where.is_number else "left", overflow="fold")
    column_axes = table.axes[len(table.axes) - table.columns :]
    for column in columns:
        name = ", ".join(where.shown(value) for where, value in zip(column_axes, column, strict=True))
        grid.add_column(Text(name or table.metric.name), overflow="fold")
    by_key = {entry.key: entry for entry in table.entries}
    usual = max((len(entry.cell.measured) for entry in table.entries), default=0)
    for row in rows:
        labels = [
            where.shown(value) for where, value in zip(label_axes, row[len(row) - len(label_axes) :], strict=True)
        ]
        entries = [by_key.get((*row, *column)) for column in columns]
        grid.add_row(*map(Text, labels), *(_cell(entry, table, usual, is_narrow=is_narrow) for entry in entries))
    return grid


def _cell(entry: Entry | None, table: ComparisonTable, usual: int, *, is_narrow: bool) -> Text:
    if entry is None:
        return Text("-", style="dim")
    lines = []
    cell = entry.cell
    if cell.estimate is not None:
        few = f" n={cell.estimate.processes}" if cell.estimate.processes < usual else ""
        lines.append(Text(f"{value_text(cell.estimate, table.metric.unit)}{few}"))
    if entry.ratio is not None:
        lines.append(_ratio(entry, table, is_narrow=is_narrow))
    if cell.unsteady:
        lines.append(Text(f"{cell.unsteady} not steady", style="yellow"))
    failed = {status: count for status, count in cell.statuses.items() if status.value != "ok"}
    lines.extend(Text(f"{count} {status.value}", style="red") for status, count in failed.items())
    if not lines:
        lines.append(Text("no value", style="yellow"))
    elif entry.problem and cell.measured:
        lines.append(Text("no ratio", style="yellow"))
    return Text("\n").join(lines)


def _ratio(entry: Entry, table: ComparisonTable, *, is_narrow: bool) -> Text:
    ratio = entry.ratio
    assert ratio is not None
    name = verdict_name(ratio.verdict, table.metric.name)
    mark = pairing_mark(ratio, table)
    between = "\n" if is_narrow else " "
    return Text(f"{ratio_text(ratio.estimate)}{between}{name}{mark}", style=verdict_colour(ratio.verdict))


def _verdicts(table: ComparisonTable) -> Iterator[Text]:
    ratios = [entry.ratio for entry in table.entries if entry.ratio is not None]
    flagged = flagged_line(table)
    if flagged is not None:
        yield Text(flagged, style="yellow")
    if not ratios:
        cells = [entry.cell for entry in table.entries]
        yield Text(f"{count_text(len(cells), 'cell', 'cells')} of {_size(cells)}.")
        return
    compared = {cell.key: cell for entry in table.ratios for cell in (entry.cell, entry.baseline) if cell is not None}
    counts = counts_text(ratios, table.metric.name)
    yield Text.assemble(("Verdicts: ", "bold"), f"{counts}, over {_size(compared.values())}.")
    for line in (*rule_lines(ratios, table.policy.margin), *_contradictions(table)):
        yield Text(line)
    yield Text(calibration_line([twin.ratio for twin in table.twins]))


def _contradictions(table: ComparisonTable) -> Iterator[str]:
    told = [(table.text(entry), text) for entry in table.ratios if entry.ratio and (text := cpu_text(entry.ratio))]
    for name, text in told[:_FIELDS_SHOWN]:
        yield f"{name}: {text}"
    if len(told) > _FIELDS_SHOWN:
        yield f"and {len(told) - _FIELDS_SHOWN} more that CPU time calls otherwise"


def _size(cells: Collection[Cell]) -> str:
    processes = sum(len(cell.measured) for cell in cells)
    samples = sum(cell.estimate.samples for cell in cells if cell.estimate)
    return f"{count_text(processes, 'process', 'processes')}, {count_text(samples, 'sample', 'samples')}"


def _not_measured(table: ComparisonTable) -> Iterator[RenderableType]:
    found: dict[str, list[str]] = {}
    for entry in table.entries:
        for reason in [entry.problem] if entry.problem else entry.cell.reasons:
            found.setdefault(reason, []).append(table.text(entry))
    if not found:
        return
    yield Text("Not measured, or not compared:", style="bold")
    for reason, names in found.items():
        yield indented(Text(reason), 2)
        yield indented(Text(listed(names, _NAMED), style="dim"), 4)


def _where(difference: Difference, table: ComparisonTable) -> str:
    if len(difference.entries) == len(table.ratios):
        return ""
    names = [table.text(table.entries[position]) for position in difference.entries]
    return f" (in {len(names)} of {len(table.ratios)}: {listed(names, _NAMED)})"


def _column_keys(table: ComparisonTable) -> list[Key]:
    """The keys of columns, that of the baseline first."""
    if not table.columns:
        return [()]
    names = [where.name for where in table.axes[-table.columns :]]
    keys = list(dict.fromkeys(entry.key[-table.columns :] for entry in table.entries))

    def is_other(key: Key) -> bool:
        return any(table.baseline.get(name, value) != value for name, value in zip(names, key, strict=True))

    return sorted(keys, key=is_other)


def _chunks(columns: Sequence[Key], table: ComparisonTable, fitting: int) -> Iterator[list[Key]]:
    """As many columns as fit, each time with the baseline if it is one of them."""
    names = [where.name for where in table.axes[len(table.axes) - table.columns :]] if table.columns else []
    repeated = list(columns[:1]) if set(table.baseline) & set(names) and len(columns) > 1 else []
    rest = list(columns[len(repeated) :])
    step = max(1, fitting - len(repeated))
    for start in range(0, len(rest), step):
        yield [*repeated, *rest[start : start + step]]


def _label_count(row_axes: Sequence[Axis], rows: Sequence[Key], width: int) -> int:
    """How many of the last axes of the rows fit beside two cells; the others become headings."""
    room = width - 2 * _NARROW_CELL
    count = 0
    for position in reversed(range(len(row_axes))):
        room -= _label_width(row_axes[position], rows, position)
        if room < 0:
            break
        count += 1
    return max(count, min(1, len(row_axes)))


def _label_width(where: Axis, rows: Sequence[Key], position: int) -> int:
    longest = max((len(where.shown(row[position])) for row in rows), default=0)
    return min(_LABEL, max(longest, len(where.name))) + 2

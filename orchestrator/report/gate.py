"""A gate's decision: for the terminal, as Markdown and as JUnit's XML."""

import re
from collections.abc import Iterator
from typing import Final
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from rich.console import Group, RenderableType
from rich.text import Text

from orchestrator.analysis.comparison import Gate, GatedCell, Outcome
from orchestrator.report import markdown
from orchestrator.report.comparison import (
    flagged_line,
    pairing_mark,
    pairing_text,
    policy_lines,
    render_differences,
)
from orchestrator.report.text import (
    calibration_line,
    count_text,
    decision_lines,
    indented,
    least_lines,
    percent_text,
    ratio_text,
    value_text,
)

_SHOWN: Final = 10
_IN_MARKDOWN: Final = 100
_STYLES: Final = {
    Outcome.SLOWER: "red",
    Outcome.MISSING: "yellow",
    Outcome.UNDECIDED: "yellow",
    Outcome.FASTER: "green",
}
_TITLES: Final = {
    Outcome.SLOWER: "Slower beyond doubt",
    Outcome.MISSING: "Missing in the candidate",
    Outcome.UNDECIDED: "Undecided",
    Outcome.FASTER: "Faster beyond doubt",
    Outcome.WITHIN_LIMIT: "Not slower than allowed",
    Outcome.NEW: "New in the candidate",
}
_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 has no form for, such as the escapes of a terminal in the reason of a failure."""
_TOLD: Final = (Outcome.SLOWER, Outcome.MISSING, Outcome.UNDECIDED, Outcome.FASTER)


def render_gate(found: Gate) -> RenderableType:
    """The decision, the cells behind it, and what else differs."""
    parts: list[RenderableType] = [Text(line) for line in _heading(found)]
    for outcome in _TOLD:
        cells = [cell for cell in found.cells if cell.outcome is outcome]
        if cells:
            parts.append(Text(f"{_TITLES[outcome]}:", style=_STYLES.get(outcome, "")))
            parts += [indented(_line(cell, found), 2) for cell in cells[:_SHOWN]]
            if len(cells) > _SHOWN:
                parts.append(indented(Text(f"and {len(cells) - _SHOWN} more", style="dim"), 2))
    parts.extend(render_differences(found.table))
    style = "bold green" if found.passed else "bold red"
    parts.append(Text.assemble((_decision(found), style), f" {_counts(found)}"))
    return Group(*parts)


def gate_markdown(found: Gate) -> str:
    lines = [f"## {'✅' if found.passed else '❌'} taxmeter gate: {_decision(found)}", "", _counts(found), ""]
    lines += [f"- {line}" for line in _heading(found)]
    shown = [cell for cell in found.cells if cell.outcome is not Outcome.NEW][:_IN_MARKDOWN]
    lines += ["", *markdown.head(["cell", "baseline", "candidate", "ratio, above 1 is better", ""])]
    lines += [markdown.row(_columns(cell, found)) for cell in shown]
    if len(found.cells) > len(shown):
        lines += ["", f"and {len(found.cells) - len(shown)} more"]
    if found.table.differences:
        lines += ["", "What else differs:", ""]
        changes = [difference.change for difference in found.table.differences[:_IN_MARKDOWN]]
        lines += [f"- {markdown.cell(f'{change.field}: {change.then} → {change.now}')}" for change in changes]
    return "\n".join(lines) + "\n"


def gate_junit(found: Gate) -> str:
    """The cells as test cases: a slow-down is a failure, what is missing is skipped unless it is required."""
    failures = found.failures
    missing = [cell for cell in found.cells if cell.outcome is Outcome.MISSING]
    skipped = [] if found.require_all else missing
    suite = Element(
        "testsuite",
        name="taxmeter gate",
        tests=str(len(found.cells)),
        failures=str(len(failures)),
        errors="0",
        skipped=str(len(skipped)),
    )
    properties = SubElement(suite, "properties")
    limit = f"{100 * found.max_slowdown:g}%"
    for name, value in (("baseline", found.baseline), ("candidate", found.candidate), ("max-slowdown", limit)):
        SubElement(properties, "property", name=name, value=value)
    for cell in found.cells:
        case = SubElement(suite, "testcase", classname=f"taxmeter.{found.table.metric.name}", name=cell.name)
        text = _line(cell, found)
        if cell in failures:
            SubElement(case, "failure", message=text, type=cell.outcome.value).text = text
        elif cell.outcome is Outcome.MISSING:
            SubElement(case, "skipped", message=text)
        else:
            SubElement(case, "system-out").text = text
    SubElement(suite, "system-out").text = "\n".join(_heading(found))
    indent(suite)
    document = _NOT_XML.sub("\ufffd", tostring(suite, encoding="unicode"))
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{document}\n'


def _heading(found: Gate) -> Iterator[str]:
    table = found.table
    yield f"{table.metric.name}: {table.metric.meaning}; {found.candidate} against {found.baseline}."
    how = pairing_text(table)
    if how:
        yield f"Ratios are {how}."
    yield f"Allowed slow-down: {percent_text(found.max_slowdown)}. All cells are judged together (Holm)."
    yield from least_lines(found.ratios, "Smallest slow-down that could have been proven")
    yield from decision_lines(found.ratios)
    yield from policy_lines(table)
    flagged = flagged_line(table)
    if flagged is not None:
        yield flagged
    yield calibration_line([twin.ratio for twin in table.twins])


def _decision(found: Gate) -> str:
    if found.passed:
        return f"passed: no slow-down beyond {percent_text(found.max_slowdown)} is proven."
    slower, missing = (sum(cell.outcome is outcome for cell in found.failures) for outcome in list(Outcome)[:2])
    parts = [f"{count_text(slower, 'cell is', 'cells are')} slower beyond doubt"] if slower else []
    parts += [f"{count_text(missing, 'cell is', 'cells are')} missing"] if missing else []
    return f"failed: {', '.join(parts)}."


def _counts(found: Gate) -> str:
    counts = [f"{found.count(outcome)} {outcome.value}" for outcome in Outcome if found.count(outcome)]
    return f"{count_text(len(found.cells), 'cell', 'cells')}: {', '.join(counts)}."


def _line(cell: GatedCell, found: Gate) -> str:
    name, before, after, ratio, word = _columns(cell, found)
    if cell.outcome is Outcome.MISSING or not ratio:
        return f"{name}: {cell.reason or word}"
    return f"{name}: {ratio}, {before} → {after}"


def _columns(gated: GatedCell, found: Gate) -> tuple[str, str, str, str, str]:
    entry, unit = gated.entry, found.table.metric.unit
    baseline = entry.cell if entry.is_baseline else entry.baseline
    candidate = None if entry.is_baseline else entry.cell
    values = [value_text(cell.estimate, unit) if cell and cell.estimate else "" for cell in (baseline, candidate)]
    ratio = ""
    if entry.ratio is not None:
        ratio = ratio_text(entry.ratio.estimate, decimals=3) + pairing_mark(entry.ratio, found.table)
    word = gated.outcome.value + (f": {gated.reason}" if gated.reason else "")
    return gated.name, values[0], values[1], ratio, word

"""What the store says about claims: for the terminal within 80 columns, as Markdown, and as a JSON document."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from orchestrator.analysis import Estimate
from orchestrator.analysis.claiming import Claim, Decision, Figure, Finding, JudgedCase, Kind, Scale, unit_of
from orchestrator.report.text import count_text, value_text

_COLOURS: Final = {Finding.HOLDS: "green", Finding.FAILS: "red", Finding.NOT_ENOUGH_DATA: "yellow"}
_CASES_SHOWN: Final = 8


def render_claims(decisions: Sequence[Decision], *, detailed: bool) -> RenderableType:
    """A line per claim, the counts, and below them why claims fail or are not decided.

    Args:
        decisions: of `decide`.
        detailed: whether all claims are told in full.
    """
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    # Names are typed again, so that they stay whole; numbers may go on in the next line.
    for name, whole in (("cases", True), ("claim", True), ("number and bound", False)):
        table.add_column(Text(name, style="bold"), no_wrap=whole, overflow="fold")
    for one in decisions:
        # What is not decided is told below, with its count; beside the words the numbers would have no place.
        count = "" if one.finding is Finding.NOT_ENOUGH_DATA else f" {_count(one)}"
        shown = Text(f"{one.finding.value}{count}", style=_COLOURS[one.finding])
        table.add_row(
            shown, one.claim.id, f"{_number(one)} {_with_unit(one.claim, one.claim.statistic.threshold.sign)}"
        )
    parts: list[RenderableType] = [table, Text(), Text(counts_text(decisions), style="bold")]
    for one in decisions:
        if detailed or one.finding is not Finding.HOLDS:
            parts += [Text(), *_details(one)]
    return Group(*parts)


def counts_text(decisions: Sequence[Decision]) -> str:
    """How many claims hold, fail, and are not decided."""
    counts = Counter(one.finding for one in decisions)
    words = {Finding.HOLDS: "hold", Finding.FAILS: "fail", Finding.NOT_ENOUGH_DATA: "have not enough data"}
    told = ", ".join(f"{counts[finding]} {word}" for finding, word in words.items())
    return f"{count_text(len(decisions), 'claim', 'claims')}: {told}"


def claims_markdown(decisions: Sequence[Decision]) -> str:
    """A page."""
    lines = [
        "# Claims",
        "",
        counts_text(decisions),
        "",
        "| | claim | number | must be | cases |",
        "|---|---|---|---|---|",
    ]
    for one in decisions:
        bound = _with_unit(one.claim, one.claim.statistic.threshold.text)
        cells = (one.finding.value, one.claim.text, _number(one), bound, _count(one))
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    for one in decisions:
        lines += ["", f"## {one.claim.id}: {one.finding.value}", "", one.claim.text, ""]
        lines += [f"- {text}" for text in _facts(one)]
        for judged in one.cases[:_CASES_SHOWN]:
            lines.append(f"- {judged.finding.value}: {_case_text(one.claim, judged)}")
        if len(one.cases) > _CASES_SHOWN:
            lines.append(f"- and {len(one.cases) - _CASES_SHOWN} more cases")
    return "\n".join(lines) + "\n"


def claims_document(decisions: Sequence[Decision]) -> list[dict[str, Any]]:
    """For programs; an interval without an end on one side has null there."""
    return [
        {
            "id": one.claim.id,
            "finding": one.finding.value,
            "text": one.claim.text,
            "source": one.claim.source,
            "published": one.claim.published,
            "kind": one.claim.statistic.kind.value,
            "must_be": one.claim.statistic.threshold.text,
            "holds_for": one.claim.holds_for,
            "cases": [
                {
                    "label": judged.case.label,
                    "finding": judged.finding.value,
                    "metric": judged.case.metric,
                    "unit": unit_of(judged.case.metric) if one.claim.statistic.kind is Kind.LEVEL else "1",
                    "figure": _figure_document(judged.case.figure),
                    "note": judged.case.note,
                }
                for judged in one.cases
            ],
            "left_out": [{"label": case.label, "reason": case.note} for case in one.left_out],
            "missing": list(one.missing),
            "measured_by": list(one.claim.measured_by),
        }
        for one in decisions
    ]


def _details(one: Decision) -> Iterator[RenderableType]:
    yield Text.assemble((f"{one.finding.value}: ", _COLOURS[one.finding]), (one.claim.id, "bold"))
    yield _indented(one.claim.text)
    for text in _facts(one):
        yield _indented(text)
    for judged in one.cases[:_CASES_SHOWN]:
        yield _indented(f"{judged.finding.value}: {_case_text(one.claim, judged)}", 4)
    if len(one.cases) > _CASES_SHOWN:
        yield _indented(f"and {len(one.cases) - _CASES_SHOWN} more, which --format json has", 4)


def _facts(one: Decision) -> Iterator[str]:
    each = "in all cases" if one.claim.holds_for == "all" else "in one case at least"
    holding = f"; is in {one.count(Finding.HOLDS)} of {len(one.cases)}" if one.cases else ""
    yield f"{_subject(one)} {_with_unit(one.claim, one.claim.statistic.threshold.text)} {each}{holding}"
    yield f"Source: {one.claim.source}" + (f" ({one.claim.published})" if one.claim.published else "")
    if one.left_out:
        case = one.left_out[0]
        label = f"{case.label}: " if case.label else ""
        more = f" and {len(one.left_out) - 1} more" if len(one.left_out) > 1 else ""
        yield f"Cannot run, so left out: {label}{case.note}{more}"
    for text in one.missing:
        yield f"Missing: {text}"
    if one.finding is Finding.NOT_ENOUGH_DATA:
        for number, name in enumerate(one.claim.measured_by):
            yield f"{'Or' if number else 'Measured by'}: make cluster-sweep SWEEP={name}"


def _case_text(claim: Claim, judged: JudgedCase) -> str:
    case = judged.case
    label = f"{case.label}: " if case.label else ""
    figure = "" if case.figure is None else f"{figure_text(case.figure, claim)}, n={case.figure.processes}"
    note = f" ({case.note})" if case.note and figure else case.note
    return f"{label}{figure}{note}"


def figure_text(figure: Figure, claim: Claim) -> str:
    """A number with its interval; the number alone is missing where only its bounds are known."""
    unit = _unit(claim)
    if unit != "1" and figure.value is not None:
        text = value_text(Estimate(figure.value, figure.low, figure.high, figure.processes, 0), unit)
        return text if figure.low is not None else f"{text} without an interval"
    sign = "x" if claim.statistic.kind is Kind.RATIO else ""
    value = "" if figure.value is None else f"{sign}{_digits(figure.value, figure)}"
    if figure.low is None or figure.high is None:
        return f"{value} without an interval"
    return f"{value} [{_digits(figure.low, figure)}, {_digits(figure.high, figure)}]".strip()


def _digits(value: float, figure: Figure) -> str:
    if math.isinf(value):
        return "∞"
    # What may be 0 has as many digits everywhere; what is a factor has as many that count.
    return f"{value:.2f}" if figure.scale is Scale.LINEAR else f"{value:.3g}"


def _unit(claim: Claim) -> str:
    return "1" if claim.level is None else unit_of(claim.level.metric)


def _with_unit(claim: Claim, bound: str) -> str:
    # As it was written, so that it is known again, and not in the unit that fits the number.
    unit = _unit(claim)
    return bound if unit == "1" else f"{bound} {unit}"


def _subject(one: Decision) -> str:
    """What must be within a bound."""
    metrics = " or ".join(dict.fromkeys(case.metric for case in (*(each.case for each in one.cases), *one.left_out)))
    kind = one.claim.statistic.kind
    if not metrics:
        return "Must be"
    return f"{metrics} must be" if kind is Kind.LEVEL else f"{kind.value.capitalize()} of {metrics} must be"


def _number(one: Decision) -> str:
    """Of the case that decides: the worst, or the nearest to the bound."""
    figures = [judged.case.figure for judged in one.cases if judged.case.figure is not None]
    return figure_text(figures[0], one.claim) if figures else "–"


def _count(one: Decision) -> str:
    """In how many cases it holds."""
    return f"{one.count(Finding.HOLDS)}/{len(one.cases)}" if one.cases else ""


def _figure_document(figure: Figure | None) -> dict[str, Any] | None:
    if figure is None:
        return None
    ends = {"low": figure.low, "high": figure.high}
    finite = {name: None if end is None or math.isinf(end) else end for name, end in ends.items()}
    return {"value": figure.value, **finite, "processes": figure.processes}


def _indented(text: str, columns: int = 2) -> RenderableType:
    return Padding(Text(text), (0, 0, 0, columns))

"""What the store says about claims: for the terminal within 80 columns, as Markdown, and as a JSON document."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from orchestrator.analysis import Estimate
from orchestrator.analysis.axes import grouped
from orchestrator.analysis.claims import Agreement, Claim, Decision, Figure, Finding, JudgedCase, Kind, Scale
from orchestrator.report import markdown
from orchestrator.report.text import TOO_WIDE, count_text, indented, is_useless, spread_text, value_text

_COLOURS: Final = {Finding.HOLDS: "green", Finding.FAILS: "red", Finding.NOT_ENOUGH_DATA: "yellow"}
_CASES_SHOWN: Final = 8


def render_claims(decisions: Sequence[Decision], *, detailed: bool) -> RenderableType:
    """A line per claim that something was measured for, and the counts; below them why claims fail or are not decided.

    Args:
        decisions: of `decide`.
        detailed: whether all claims are told in full. Else those without any number are listed by the sweep that
            measures them.
    """
    unmeasured = [] if detailed else [decision for decision in decisions if not _has_number(decision)]
    shown = [decision for decision in decisions if decision not in unmeasured]
    parts: list[RenderableType] = [_table(shown), Text()] if shown else []
    parts += [Text(counts_text(decisions), style="bold"), *map(Text, least_lines(decisions))]
    for decision in shown:
        if detailed or decision.finding is not Finding.HOLDS or decision.agreement is Agreement.OUTSIDE:
            title = Text.assemble(
                (f"{decision.finding.value}: ", _COLOURS[decision.finding]), (decision.claim.id, "bold")
            )
            facts = [indented(text, 4 if is_case else 2) for text, is_case in _lines(decision)]
            parts += [Text(), title, indented(decision.claim.text, 2), *facts]
    by_sweep = grouped(unmeasured, lambda decision: decision.claim.measured_by[0])
    if by_sweep:
        parts += [Text(), Text("Nothing is measured for these; `taxmeter claims NAME` says what is missing:")]
    for sweep, missing in by_sweep.items():
        parts += [Text(f"make cluster-sweep SWEEP={sweep}"), indented(", ".join(each.claim.id for each in missing), 4)]
    return Group(*parts)


def _has_number(decision: Decision) -> bool:
    return any(judged.case.figure is not None for judged in decision.cases) or bool(decision.left_out)


def _table(decisions: Sequence[Decision]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    # Names are typed again, so that they stay whole; numbers may go on in the next line.
    for name, whole in (("cases", True), ("claim", True), ("number", False)):
        table.add_column(Text(name, style="bold"), no_wrap=whole, overflow="fold")
    for decision in decisions:
        # What is not decided is told below, with its count; beside the words the numbers would have no place.
        count = "" if decision.finding is Finding.NOT_ENOUGH_DATA else f" {_count(decision)}"
        published = "" if decision.agreement in (None, Agreement.NOT_ENOUGH_DATA) else f", {published_text(decision)}"
        number = f"{number_text(decision)} {_bound(decision.claim)}{published}"
        table.add_row(
            Text(f"{decision.finding.value}{count}", style=_COLOURS[decision.finding]), decision.claim.id, number
        )
    return table


def counts_text(decisions: Sequence[Decision]) -> str:
    """How many claims hold, fail, and are not decided; and how many published values were found again."""
    findings = Counter(decision.finding for decision in decisions)
    words = {Finding.HOLDS: "hold", Finding.FAILS: "fail", Finding.NOT_ENOUGH_DATA: "have not enough data"}
    told = ", ".join(f"{findings[finding]} {word}" for finding, word in words.items())
    agreements = Counter(decision.agreement for decision in decisions if decision.agreement is not None)
    published = ", ".join(f"{agreements[agreement]} {agreement.value}" for agreement in Agreement)
    values = f"; {count_text(agreements.total(), 'published value', 'published values')}: {published}"
    return f"{count_text(len(decisions), 'claim', 'claims')}: {told}" + (values if agreements else "")


def least_lines(decisions: Sequence[Decision]) -> Iterator[str]:
    """How far from its bound a factor had to lie to be on one side of it; nothing where no case has an interval."""
    figures = [judged.case.figure for decision in decisions for judged in decision.cases]
    least = [
        math.sqrt(figure.high / figure.low) - 1
        for figure in figures
        if figure and figure.scale is Scale.LOGARITHMIC and figure.low and figure.high and figure.high < math.inf
    ]
    if least:
        yield f"Smallest distance from a bound that 95 % intervals could have told: {spread_text(least)}."


def claims_markdown(decisions: Sequence[Decision]) -> str:
    lines = ["# Claims", "", counts_text(decisions), "", *least_lines(decisions), ""]
    lines += markdown.head(["", "claim", "number", "must be", "cases", "published"])
    for decision in decisions:
        verdict, number, published = decision.finding.value, number_text(decision), published_text(decision)
        told = [verdict, decision.claim.text, number, _bound(decision.claim), _count(decision), published]
        lines.append(markdown.row(told))
    for decision in decisions:
        lines += ["", f"## {decision.claim.id}: {decision.finding.value}", "", decision.claim.text, ""]
        lines += [f"- {text}" for text, _ in _lines(decision)]
    return "\n".join(lines) + "\n"


def claims_document(decisions: Sequence[Decision]) -> list[dict[str, Any]]:
    """For programs; an interval without an end on decision side has null there."""
    return [
        {
            "id": decision.claim.id,
            "finding": decision.finding.value,
            "agreement": None if decision.agreement is None else decision.agreement.value,
            "text": decision.claim.text,
            **decision.claim.model_dump(
                mode="json", include={"source", "quote", "paraphrase", "published", "holds_for"}
            ),
            "kind": decision.claim.kind.value,
            "must_be": decision.claim.statistic.threshold.text,
            "cases": [
                {
                    "label": judged.case.label,
                    "finding": judged.finding.value,
                    "agreement": None if judged.agreement is None else judged.agreement.value,
                    "metric": judged.case.metric,
                    "unit": decision.claim.unit,
                    "figure": _figure_document(judged.case.figure),
                    "note": judged.case.note,
                }
                for judged in decision.cases
            ],
            "left_out": [{"label": case.label, "reason": case.note} for case in decision.left_out],
            "missing": list(decision.missing),
            "measured_by": list(decision.claim.measured_by),
        }
        for decision in decisions
    ]


def number_text(decision: Decision) -> str:
    """Of the case that decides: the worst, or the nearest to the bound; `–` if no case has a number."""
    figures = [judged.case.figure for judged in decision.cases if judged.case.figure is not None]
    return _figure_text(figures[0], decision.claim) if figures else "–"


def published_text(decision: Decision) -> str:
    """The published value and whether it lies in the interval; empty if none is published."""
    claim, agreement = decision.claim, decision.agreement
    if claim.published is None or agreement is None:
        return ""
    values = claim.published if isinstance(claim.published, tuple) else (claim.published,)
    sign = "x" if claim.kind is Kind.RATIO and isinstance(claim.published, float) else ""
    return f"{', '.join(f'{sign}{value:g}' for value in values)} {agreement.value}"


def _lines(decision: Decision) -> Iterator[tuple[str, bool]]:
    """What there is to say of a decision, and whether it is said of a case."""
    claim = decision.claim
    each = "in all cases" if claim.holds_for == "all" else "in one case at least"
    holding = f"; is in {decision.count(Finding.HOLDS)} of {len(decision.cases)}" if decision.cases else ""
    yield f"{_subject(decision)} {_bound(claim)} {each}{holding}", False
    says = f"says: “{claim.quote}”" if claim.quote else f"says, in other words: {claim.paraphrase}"
    yield f"{claim.source} {says}", False
    if decision.agreement is not None:
        inside = (
            f", inside in {decision.count(Agreement.INSIDE)} of {len(decision.cases)} intervals"
            if decision.cases
            else ""
        )
        yield f"Published: {published_text(decision)}{inside}", False
    if decision.left_out:
        case, more = decision.left_out[0], len(decision.left_out) - 1
        label = f"{case.label}: " if case.label else ""
        yield f"Cannot run, so left out: {label}{case.note}" + (f" and {more} more" if more else ""), False
    yield from ((f"Missing: {text}", False) for text in decision.missing)
    if decision.finding is Finding.NOT_ENOUGH_DATA:
        for number, name in enumerate(claim.measured_by):
            yield f"{'Or' if number else 'Measured by'}: make cluster-sweep SWEEP={name}", False
    yield from ((_case_text(claim, judged), True) for judged in decision.cases[:_CASES_SHOWN])
    if len(decision.cases) > _CASES_SHOWN:
        yield f"and {len(decision.cases) - _CASES_SHOWN} more, which --format json has", True


def _case_text(claim: Claim, judged: JudgedCase) -> str:
    case = judged.case
    label = f"{case.label}: " if case.label else ""
    figure = "" if case.figure is None else f"{_figure_text(case.figure, claim)}, n={case.figure.processes}"
    note = f" ({case.note})" if case.note and figure else case.note
    published = (
        "" if judged.agreement in (None, Agreement.NOT_ENOUGH_DATA) else f"; published value {judged.agreement.value}"
    )
    return f"{judged.finding.value}: {label}{figure}{note}{published}"


def _figure_text(figure: Figure, claim: Claim) -> str:
    """A number with its interval; the number alone is missing where only its bounds are known."""
    if claim.unit != "1" and figure.value is not None:
        text = value_text(Estimate(figure.value, figure.low, figure.high, figure.processes, 0), claim.unit)
        return text if figure.low is not None else f"{text} without an interval"
    sign = "x" if claim.kind is Kind.RATIO else ""
    value = "" if figure.value is None else f"{sign}{_digits(figure.value, figure)}"
    if figure.low is None or figure.high is None:
        return f"{value} without an interval"
    # what has bounds alone, or an end beyond what was measured, is no estimate with scatter
    is_scatter = figure.value is not None and figure.scale is not Scale.LINEAR and math.isfinite(figure.high)
    if is_scatter and is_useless(Estimate(1.0, figure.low, figure.high, 1, 0)):
        return TOO_WIDE
    return f"{value} [{_digits(figure.low, figure)}, {_digits(figure.high, figure)}]".strip()


def _digits(value: float, figure: Figure) -> str:
    if math.isinf(value):
        return "∞"
    # What may be 0 has as many digits everywhere; what is a factor has as many that count.
    return f"{value:.2f}" if figure.scale is Scale.LINEAR else f"{value:.3g}"


def _bound(claim: Claim) -> str:
    # As it was written, so that it is known again, and not in the unit that fits the number.
    return claim.statistic.threshold.text + ("" if claim.unit == "1" else f" {claim.unit}")


def _subject(decision: Decision) -> str:
    """What must be within a bound."""
    metrics = " or ".join(
        dict.fromkeys(case.metric for case in (*(each.case for each in decision.cases), *decision.left_out))
    )
    if not metrics:
        return "Must be"
    return (
        f"{metrics} must be"
        if decision.claim.kind is Kind.LEVEL
        else f"{decision.claim.kind.value.capitalize()} of {metrics} must be"
    )


def _count(decision: Decision) -> str:
    return f"{decision.count(Finding.HOLDS)}/{len(decision.cases)}" if decision.cases else ""


def _figure_document(figure: Figure | None) -> dict[str, Any] | None:
    if figure is None:
        return None
    ends = {"low": figure.low, "high": figure.high}
    finite = {name: None if end is None or math.isinf(end) else end for name, end in ends.items()}
    return {"value": figure.value, **finite, "processes": figure.processes}

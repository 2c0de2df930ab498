"""The page that lists what was drawn: figures, tables, the numbers in the paper's text, and what the claims say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.analysis.claiming import Decision, Finding
from orchestrator.analysis.paper import Published
from orchestrator.report.claims import counts_text, figure_text
from orchestrator.report.figures.composing import Drawn, Sheet

_WORDS = {Drawn.WHOLE: "drawn", Drawn.PARTLY: "**partly**", Drawn.MISSING: "**missing**"}


@dataclass(frozen=True)
class Written:
    """A figure with its files."""

    sheet: Sheet
    files: tuple[Path, ...]


def index_page(written: Sequence[Written], published: Published, decisions: Sequence[Decision]) -> str:
    """A page of Markdown.

    Args:
        written: the figures, in their order.
        published: what the paper prints.
        decisions: of the paper's claims; none if nobody decided them.
    """
    about = (
        f"{published.source}. Each figure shows what this store has of the points that the paper's sweep asks for; "
        "what is missing is drawn as missing. Figure 2 is a drawing, which nothing measures."
    )
    lines = [
        "# The paper again",
        "",
        about,
        "",
        "| | state | what | points | files |",
        "|---|---|---|---|---|",
    ]
    lines += [_row(one) for one in written]
    lines += ["", "## Numbers in the paper's text", "", "| the paper | here |", "|---|---|"]
    decided = decided_texts(decisions)
    lines += [f"| {one.full_text} | {decided.get(one.claim, 'not decided')} |" for one in published.statements]
    if decisions:
        lines += ["", "## Claims", "", f"{counts_text(decisions)}. `taxmeter claims` tells each in full.", ""]
        lines += ["| | claim | number |", "|---|---|---|"]
        lines += [f"| {one.finding.value} | {one.claim.text} | {_number(one) or '–'} |" for one in decisions]
    for one in written:
        lines += _section(one)
    return "\n".join(lines) + "\n"


def decided_texts(decisions: Sequence[Decision]) -> Mapping[str, str]:
    """What the store says of claims, in words, by the id of the claim."""
    found = {}
    for one in decisions:
        number = _number(one)
        found[one.claim.id] = one.finding.value + (f", {number}" if number else "")
    return found


def _number(one: Decision) -> str:
    """Of the case that decides."""
    figures = [judged.case.figure for judged in one.cases if judged.case.figure is not None]
    return figure_text(figures[0], one.claim) if figures and one.finding is not Finding.NOT_ENOUGH_DATA else ""


def _row(one: Written) -> str:
    spec = one.sheet.spec
    files = ", ".join(f"[{path.suffix[1:]}]({path.name})" for path in one.files)
    return f"| {spec.label} | {_WORDS[one.sheet.state]} | {spec.title} | {one.sheet.completeness} | {files} |"


def _section(one: Written) -> list[str]:
    spec = one.sheet.spec
    lines = ["", f"## {spec.label}. {spec.title}", ""]
    picture = next((path for suffix in (".svg", ".png") for path in one.files if path.suffix == suffix), None)
    if picture is not None:
        lines += [f"![{spec.label}: {spec.title}]({picture.name})", ""]
    return lines + [f"- {text}" for text in (*one.sheet.notes, *one.sheet.small_print) if text]

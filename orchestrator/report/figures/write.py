"""Writes figures and tables into a directory, with a page that lists them, the paper's numbers and what claims say."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.analysis.claims import Agreement, Decision, Finding
from orchestrator.analysis.paper import Published, Trials
from orchestrator.errors import ConfigurationError
from orchestrator.report import markdown
from orchestrator.report.claims import counts_text, number_text, published_text
from orchestrator.report.figures.canvas import drawing, save
from orchestrator.report.figures.catalogue import Spec
from orchestrator.report.figures.compose import Drawn, Material, Sheet, compose
from orchestrator.report.figures.tables import comma_separated, markdown_page

INDEX: Final = "index.md"
_WORDS: Final = {Drawn.WHOLE: "drawn", Drawn.PARTLY: "**partly**", Drawn.MISSING: "**missing**"}


@dataclass(frozen=True)
class Written:
    """A figure with its files."""

    sheet: Sheet
    files: tuple[Path, ...]


def write_paper(
    directory: Path,
    specs: Sequence[Spec],
    trials: Trials,
    published: Published,
    sweeps: Path,
    decisions: Sequence[Decision],
    formats: Sequence[str],
    told: Callable[[Written], None],
) -> Path:
    """Draws figures and writes them with an index; `told` hears of each as soon as it is written.

    Returns:
        The index.

    Raises:
        ConfigurationError: a sweep is wrong, or the directory cannot be written.
    """
    material = Material(trials, published, sweeps, decided_texts(decisions))
    try:
        directory.mkdir(parents=True, exist_ok=True)
        written = []
        for spec in specs:
            with drawing():
                sheet = compose(spec, material)
                files = save(sheet.figure, directory, spec.stem, formats)
            written.append(Written(sheet, (*files, *_as_text(sheet, directory))))
            told(written[-1])
        path = directory / INDEX
        path.write_text(index_page(written, published, decisions), encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(
            f"cannot be written: {error.strerror}; name another with --output", file=directory
        ) from None
    return path


def _as_text(sheet: Sheet, directory: Path) -> list[Path]:
    """A table as Markdown and CSV, too."""
    if sheet.table is None:
        return []
    spec = sheet.spec
    page = markdown_page(sheet.table, f"{spec.label}. {spec.title}", (*sheet.notes, *sheet.small_print))
    paths = []
    for suffix, text in (("md", page), ("csv", comma_separated(sheet.table))):
        paths.append(directory / f"{spec.stem}.{suffix}")
        paths[-1].write_text(text, encoding="utf-8")
    return paths


def index_page(written: Sequence[Written], published: Published, decisions: Sequence[Decision]) -> str:
    about = (
        f"{published.source}. Each figure shows what this store has of the points that the paper's sweep asks for; "
        "what is missing is drawn as missing. Figure 2 is a drawing, which nothing measures."
    )
    lines = [
        "# The paper again",
        "",
        about,
        "",
        *markdown.head(["", "state", "what", "points", "files"]),
    ]
    lines += [_row(figure) for figure in written]
    lines += ["", "## Numbers in the paper's text", "", *markdown.head(["the paper", "here"])]
    decided = decided_texts(decisions)
    lines += [markdown.row([text.full_text, decided.get(text.claim, "not decided")]) for text in published.statements]
    if decisions:
        lines += ["", "## Claims", "", f"{counts_text(decisions)}. `taxmeter claims` tells each in full.", ""]
        lines += markdown.head(["", "claim", "number", "published"])
        rows = ((case.finding.value, case.claim.text, _number(case) or "–", published_text(case)) for case in decisions)
        lines += map(markdown.row, rows)
    for figure in written:
        lines += _section(figure)
    return "\n".join(lines) + "\n"


def decided_texts(decisions: Sequence[Decision]) -> Mapping[str, str]:
    """What the store says of claims, in words, by the id of the claim."""
    return {decision.claim.id: _decided_text(decision) for decision in decisions}


def _decided_text(decision: Decision) -> str:
    is_known = decision.agreement not in (None, Agreement.NOT_ENOUGH_DATA)
    published = published_text(decision) if is_known else ""
    return ", ".join(filter(None, (decision.finding.value, _number(decision), published)))


def _number(decision: Decision) -> str:
    """Of the case that decides."""
    return "" if decision.finding is Finding.NOT_ENOUGH_DATA else number_text(decision)


def _row(written: Written) -> str:
    spec = written.sheet.spec
    files = ", ".join(f"[{path.suffix[1:]}]({path.name})" for path in written.files)
    return markdown.row([spec.label, _WORDS[written.sheet.state], spec.title, written.sheet.completeness, files])


def _section(written: Written) -> list[str]:
    spec = written.sheet.spec
    lines = ["", f"## {spec.label}. {spec.title}", ""]
    picture = next((path for suffix in (".svg", ".png") for path in written.files if path.suffix == suffix), None)
    if picture is not None:
        lines += [f"![{spec.label}: {spec.title}]({picture.name})", ""]
    return lines + [f"- {text}" for text in (*written.sheet.notes, *written.sheet.small_print) if text]

"""Writes figures, tables and their index into a directory."""

from collections.abc import Callable, Sequence
from pathlib import Path

from orchestrator.analysis.claiming import Decision
from orchestrator.analysis.paper import Published, Trials
from orchestrator.errors import ConfigurationError
from orchestrator.report.figures.canvas import drawing, save
from orchestrator.report.figures.catalogue import Spec
from orchestrator.report.figures.composing import Material, Sheet, compose
from orchestrator.report.figures.index import Written, decided_texts, index_page
from orchestrator.report.figures.tables import comma_separated, markdown

INDEX = "index.md"


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
    """Draws figures and writes them with an index.

    Args:
        directory: is made; files of the same names are replaced.
        specs: which figures and tables.
        trials: of the store.
        published: what the paper prints.
        sweeps: the directory of the paper's sweeps.
        decisions: of the paper's claims.
        formats: of `canvas.FORMATS`.
        told: called with each figure as soon as it is written.

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
            written.append(_written(spec, material, directory, formats))
            told(written[-1])
        path = directory / INDEX
        path.write_text(index_page(written, published, decisions), encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(
            f"cannot be written: {error.strerror}; name another with --output", file=directory
        ) from None
    return path


def _written(spec: Spec, material: Material, directory: Path, formats: Sequence[str]) -> Written:
    with drawing():
        sheet = compose(spec, material)
        files = save(sheet.figure, directory, spec.stem, formats)
    return Written(sheet, (*files, *_as_text(sheet, directory)))


def _as_text(sheet: Sheet, directory: Path) -> list[Path]:
    """A table as Markdown and CSV, too."""
    if sheet.table is None:
        return []
    spec = sheet.spec
    page = markdown(sheet.table, f"{spec.label}. {spec.title}", (*sheet.notes, *sheet.small_print))
    paths = []
    for suffix, text in (("md", page), ("csv", comma_separated(sheet.table))):
        paths.append(directory / f"{spec.stem}.{suffix}")
        paths[-1].write_text(text, encoding="utf-8")
    return paths

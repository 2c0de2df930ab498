"""Prints rows, and writes what is to be a file."""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from orchestrator.boundary import terminal_text
from orchestrator.cli.terminal import raw_stream, write_data
from orchestrator.errors import ConfigurationError
from orchestrator.store.query.tabular import FORMATS, ArrowTable, relation_of, write_rows

_MOST_ROWS = 1000
"""Of a table for people; more are elided in the middle. The other formats have all."""

SUFFIXES = {".csv": "csv", ".json": "json", ".ndjson": "json", ".jsonl": "json", ".parquet": "parquet"}

rows_format_option = click.option(
    "--format",
    "form",
    type=click.Choice(["table", *FORMATS]),
    default=None,
    help="By default a table, or what the name of --output says. In JSON there is one object per line.",
)
rows_output_option = click.option(
    "--output", type=click.Path(path_type=Path), help="A file for the rows; printed without it."
)
force_option = click.option("--force", is_flag=True, help="Take the place of a file that is there.")


class SafeConsole(Console):
    """Draws by codes of its own, and passes on none of those that a text holds."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(terminal_text(segment.text), segment.style)


def console(width: int | None = None, *, highlight: bool = True) -> Console:
    """What draws on standard output."""
    return SafeConsole(file=raw_stream(sys.stdout), width=width, highlight=highlight)


def wide_console(width: int = 120) -> Console:
    """A console as wide as the terminal, or wide enough for the table when there is none."""
    plain = console()
    return plain if plain.is_terminal else console(width, highlight=False)


def chosen_form(form: str | None, output: Path | None) -> str:
    """The format that was asked for, or that the name of the output says; a table on the terminal."""
    if output is None:
        if form == "parquet":
            raise ConfigurationError("Parquet cannot be printed; add --output FILE")
        return form or "table"
    chosen = form or SUFFIXES.get(output.suffix)
    if chosen is None or chosen == "table":
        raise ConfigurationError(f"add --format with one of {', '.join(FORMATS)}", file=output)
    return chosen


def print_rows(rows: ArrowTable, form: str) -> None:
    """Prints rows as `table`, `csv` or `json` (one object per line)."""
    if form == "table":
        _print_table(rows)
        return
    with tempfile.TemporaryDirectory(prefix="taxmeter-") as directory:
        path = Path(directory) / "rows"
        try:
            write_rows(rows.to_reader(), path, form)
        except OSError as error:
            problem = f"cannot write temporary files: {error.strerror or error}; free space there, or set TMPDIR"
            raise ConfigurationError(problem, file=Path(directory)) from error
        with path.open(encoding="utf-8", newline="") as lines:
            for line in lines:
                write_data(line)


def write_text(path: Path, text: str, *, append: bool = False) -> None:
    """Writes a file that was asked for."""
    try:
        with path.open("a" if append else "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ConfigurationError(f"cannot be written: {error.strerror}; name another file", file=path) from None


def _print_table(rows: ArrowTable) -> None:
    plain = console()
    # Nobody can scroll a file sideways, but any program can cut its lines.
    width = plain.width if plain.is_terminal else 100_000
    with relation_of(rows) as relation:
        relation.show(max_width=width, max_rows=_MOST_ROWS)

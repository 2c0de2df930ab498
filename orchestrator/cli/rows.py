"""`taxmeter results sql | export`: rows for people and for other programs."""

import sys
from pathlib import Path

import click

from orchestrator.analysis.tax import VIEWS as TAX_VIEWS
from orchestrator.cli.stores import open_results, place_option
from orchestrator.cli.tables import (
    SUFFIXES,
    chosen_form,
    force_option,
    print_rows,
    rows_format_option,
    rows_output_option,
)
from orchestrator.errors import ConfigurationError
from orchestrator.store.export import ExportOrder, with_units
from orchestrator.store.export import export as write_export
from orchestrator.store.query.sql import ask, query_errors
from orchestrator.store.query.tabular import FORMATS, appearing, write_rows


@click.command()
@click.argument("query", required=False)
@place_option
@click.option("--file", "file", type=click.Path(path_type=Path, dir_okay=False), help="Read the query from this file.")
@rows_format_option
@rows_output_option
@force_option
def sql(
    query: str | None, place: str | Path, file: Path | None, form: str | None, output: Path | None, force: bool
) -> None:
    """Answers QUERY, in the SQL of DuckDB; `-` reads it from standard input.

    The tables are trials, samples, systems, environments, campaigns, latest, and tax, which is trials with regime and
    tax derived from what was measured; `DESCRIBE trials` lists the columns of one. Rows that are not sealed yet are in
    them, too. A query can read the store and nothing else.
    """
    text = _query(query, file)
    form = chosen_form(form, output)
    connection = open_results(place).connect(TAX_VIEWS)
    relation = ask(connection, text)
    with query_errors(connection, text):
        if output is None:
            print_rows(relation.to_arrow_table(), form)
            return
        with appearing(output, force=force) as temporary:
            rows = relation.to_arrow_reader()
            count = write_rows(with_units(rows) if form == "parquet" else rows, temporary, form)
    click.echo(f"{output}: {count} rows", err=True)


@click.command()
@place_option
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default=None,
    help="By default what the name of --output says, else parquet.",
)
@click.option("--where", metavar="SQL", default=None, help="Trials to take, such as \"status = 'ok'\"; all without it.")
@click.option("--columns", metavar="NAME,…", default=None, help="Columns to take, into one file; all without it.")
@click.option("--samples", is_flag=True, help="A row per timed sample, into one file.")
@click.option(
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    help="A new directory for all tables, or a file for one.",
)
@click.option("--anonymise", is_flag=True, help="Without names of hosts and users, addresses and serial numbers.")
@click.option("--force", is_flag=True, help="Take the place of an export that is there.")
def export(
    place: str | Path,
    form: str | None,
    where: str | None,
    columns: str | None,
    samples: bool,
    output: Path,
    anonymise: bool,
    force: bool,
) -> None:
    """Writes results to a directory or a file, for other programs or other people.

    A directory in Parquet is a store again, which every command here reads, and `merge` takes. What --anonymise takes
    out and leaves in stands in results/README.md; look at it before you publish it.
    """
    chosen = None if columns is None else tuple(name.strip() for name in columns.split(",") if name.strip())
    if chosen == ():
        raise ConfigurationError("--columns names no column; write them as workload,batch")
    named = SUFFIXES.get(output.suffix)
    if named is not None and form is not None and named != form:
        raise ConfigurationError(f"--format {form} does not fit the name of the file", file=output)
    order = ExportOrder(form or named or "parquet", output, where, chosen, samples, anonymise, force)
    counts = write_export(open_results(place).view(), order)
    click.echo(f"{output}: {', '.join(f'{count} {name}' for name, count in counts.items())}")
    if order.form == "parquet" and not order.is_file:
        click.echo(f"it is a store: taxmeter results ls --results {output}")


def _query(query: str | None, file: Path | None) -> str:
    if (query is None) == (file is None):
        raise ConfigurationError("give a query, `-` to read it from standard input, or --file")
    if file is not None:
        try:
            return file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"cannot be read: {error}", file=file) from None
    return sys.stdin.read() if query == "-" else str(query)

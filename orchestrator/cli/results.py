"""`taxmeter results`: what was measured, for people and for other programs."""

import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.compute as pc
from rich.markup import escape
from rich.table import Table

from orchestrator.analysis import columns, summarise
from orchestrator.analysis.tax import VIEWS as TAX_VIEWS
from orchestrator.cli.options import format_option
from orchestrator.cli.progress import duration_text
from orchestrator.cli.store_care import compact, drop_command, import_command, merge, push_command, verify
from orchestrator.cli.stores import open_results, place_option
from orchestrator.cli.tables import console, print_rows, wide_console, write_text
from orchestrator.errors import ConfigurationError
from orchestrator.report import coverage_columns, coverage_page, render
from orchestrator.store import Origin, Results
from orchestrator.store.query.sql import ask, campaign_list, query_errors
from orchestrator.store.query.tabular import FORMATS, appearing, write_rows
from orchestrator.store.sharing.exporting import ExportOrder, with_units
from orchestrator.store.sharing.exporting import export as write_export
from runners.contract import Status

_AMBIGUOUS_SHOWN = 3
_ID_SHOWN = 12
_LOGGED = ("trial_id", "attempt", "workload", "backend", "batch", "host", "status", "reason", "log_tail")
_ENDLESS = 10_000
_HOSTS_SHOWN = 3
_ORIGINS = {Origin.MEASURED.value: "this store", Origin.IMPORTED.value: "imported", Origin.MERGED.value: "merged"}
_SUFFIXES = {".csv": "csv", ".json": "json", ".ndjson": "json", ".jsonl": "json", ".parquet": "parquet"}

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


@click.group()
def results() -> None:
    """The result store."""


for command in (verify, compact, merge, import_command, drop_command, push_command):
    results.add_command(command)


@results.command("ls")
@place_option
@format_option("table", "csv", "json", help="A table for people, or all rows as CSV or JSON.")
def list_campaigns(place: str | Path, form: str) -> None:
    """Lists the campaigns, the newest first, and how their trials ended."""
    rows = campaign_list(open_results(place).view())
    if form != "table":
        print_rows(rows, form)
        return
    if not len(rows):
        click.echo("no campaign yet; run `make cluster-sweep`")
        return
    listed = [_for_people(row) for row in rows.to_pylist()]
    table = Table(box=None, pad_edge=False)
    for name, value in listed[0].items():
        table.add_column(name, justify="right" if isinstance(value, int) else "left", no_wrap=True)
    for row in listed:
        table.add_row(*(escape(str(value)) for value in row.values()))
    # An id that is cut cannot be copied into another command.
    console(max(wide_console().width, console(_ENDLESS).measure(table).maximum)).print(table)


@results.command()
@click.argument("campaign_id", required=False)
@click.option("--intervals", is_flag=True, help="All intervals, and the 10th percentiles of calls that were disturbed.")
@place_option
def show(campaign_id: str | None, place: str | Path, intervals: bool) -> None:
    """Shows the table of one campaign, by default of the newest. The beginning of its id is enough."""
    opened = open_results(place)
    print_summary(opened, known_campaign(opened, campaign_id, place)["campaign_id"], intervals)


@results.command("log")
@click.argument("trial", required=False)
@place_option
def show_log(trial: str | None, place: str | Path) -> None:
    """Shows how a trial ended, why, and the end of its log. The beginning of its id is enough.

    Without TRIAL: of the newest campaign one trial for each reason for which trials did not end ok.
    """
    opened = open_results(place)
    if trial is None:
        campaign = known_campaign(opened, None, place)["campaign_id"]
        rows = _trials_of(opened, campaign, _LOGGED).to_pylist()
        ended = {
            (row["status"], row["reason"]): row for row in rows if row["status"] not in (Status.OK, Status.SKIPPED)
        }
        if not ended:
            click.echo(f"{campaign}: every trial that ran ended ok")
        rows = list(ended.values())
    else:
        rows = opened.trials(pc.starts_with(pc.field("trial_id"), pattern=trial), _LOGGED).arrow().to_pylist()
        names = sorted({row["trial_id"] for row in rows})
        if not names:
            raise ConfigurationError(f"{place}: no trial {trial}; `taxmeter results log` shows those that failed")
        if len(names) > 1:
            shown = ", ".join(name[:_ID_SHOWN] for name in names[:_AMBIGUOUS_SHOWN])
            raise ConfigurationError(f"{place}: {trial} is the beginning of {len(names)} trials ({shown}, …)")
    for row in sorted(rows, key=lambda row: (row["trial_id"], row["attempt"])):
        what = f"{row['workload']} {row['backend']} batch {row['batch']}"
        click.echo(f"{row['trial_id']} attempt {row['attempt']}: {what} on {row['host']}, {row['status']}")
        for line in (row["reason"] or "no reason").splitlines():
            click.echo(f"  {line.expandtabs()}")
        for line in (row["log_tail"] or "no log").splitlines():
            click.echo(f"  | {line.expandtabs()}")


@results.command()
@click.argument("campaign_ids", nargs=-1)
@place_option
@click.option("--output", type=click.Path(path_type=Path), help="A file for the page; printed without it.")
def coverage(campaign_ids: tuple[str, ...], place: str | Path, output: Path | None) -> None:
    """Says what ran and what did not in one campaign or several, by default the newest, as a page of Markdown."""
    opened = open_results(place)
    campaigns = [known_campaign(opened, campaign_id, place) for campaign_id in campaign_ids or (None,)]
    trials = [_trials_of(opened, campaign["campaign_id"], coverage_columns()) for campaign in campaigns]
    page = coverage_page(campaigns, trials, opened.environments().arrow())
    if output is None:
        click.echo(page, nl=False)
    else:
        write_text(output, page)


@results.command()
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


@results.command()
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
    named = _SUFFIXES.get(output.suffix)
    if named is not None and form is not None and named != form:
        raise ConfigurationError(f"--format {form} does not fit the name of the file", file=output)
    order = ExportOrder(form or named or "parquet", output, where, chosen, samples, anonymise, force)
    report = write_export(open_results(place).view(), order)
    click.echo(f"{output}: {', '.join(f'{count} {name}' for name, count in report.rows.items())}")
    if order.form == "parquet" and not order.is_file:
        click.echo(f"it is a store: taxmeter results ls --results {output}")


def known_campaign(opened: Results, campaign_id: str | None, place: str | Path) -> dict[str, Any]:
    """The row of a campaign, by its id or a beginning that no other shares; by default of the newest.

    Raises:
        ConfigurationError: there is no such campaign, or more than one.
    """
    rows = opened.campaigns().arrow().sort_by([("started_at", "descending")]).to_pylist()
    if not rows:
        raise ConfigurationError(f"{place}: no campaign yet; run `make cluster-sweep`")
    if campaign_id is None:
        return dict(rows[0])
    chosen = [row for row in rows if row["campaign_id"] == campaign_id]
    chosen = chosen or [row for row in rows if row["campaign_id"].startswith(campaign_id)]
    if not chosen:
        raise ConfigurationError(f"{place}: no campaign {campaign_id}; `taxmeter results ls` lists them")
    if len(chosen) > 1:
        names = ", ".join(row["campaign_id"] for row in chosen[:_AMBIGUOUS_SHOWN])
        more = f" and {len(chosen) - _AMBIGUOUS_SHOWN} more" if len(chosen) > _AMBIGUOUS_SHOWN else ""
        raise ConfigurationError(f"{place}: {campaign_id} may be {names}{more}; write more of the id")
    return dict(chosen[0])


def print_summary(opened: Results, campaign_id: str, intervals: bool = False) -> None:
    """Prints the table of a campaign."""
    wide_console().print(render(summarise(_trials_of(opened, campaign_id, columns())), intervals))


def chosen_form(form: str | None, output: Path | None) -> str:
    """The format that was asked for, or that the name of the output says; a table on the terminal.

    Raises:
        ConfigurationError: there is none, or it cannot be printed.
    """
    if output is None:
        if form == "parquet":
            raise ConfigurationError("Parquet cannot be printed; add --output FILE")
        return form or "table"
    chosen = form or _SUFFIXES.get(output.suffix)
    if chosen is None or chosen == "table":
        raise ConfigurationError(f"add --format with one of {', '.join(FORMATS)}", file=output)
    return chosen


def _trials_of(opened: Results, campaign_id: str, names: Sequence[str]) -> pa.Table:
    return opened.trials(pc.field("campaign_id") == campaign_id, names).arrow()


def _query(query: str | None, file: Path | None) -> str:
    if (query is None) == (file is None):
        raise ConfigurationError("give a query, `-` to read it from standard input, or --file")
    if file is not None:
        try:
            return file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"cannot be read: {error}", file=file) from None
    return sys.stdin.read() if query == "-" else str(query)


def _for_people(row: dict[str, Any]) -> dict[str, Any]:
    hosts = row["hosts"]
    more = f" +{len(hosts) - _HOSTS_SHOWN}" if len(hosts) > _HOSTS_SHOWN else ""
    started: datetime = row["started_at"]
    return {
        "campaign": row["campaign_id"],
        "started (UTC)": f"{started:%Y-%m-%d %H:%M}",
        "sweep": row["sweep"],
        "origin": _ORIGINS.get(row["origin"], "unknown"),
        "hosts": " ".join(hosts[:_HOSTS_SHOWN]) + more,
        **{name: row[name] for name in ("planned", "ok", "failed", "unsupported", "skipped")},
        "left": row["left_to_do"],
        "duration": "" if row["duration_s"] is None else duration_text(row["duration_s"]),
    }

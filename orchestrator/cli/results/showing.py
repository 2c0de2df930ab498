"""`taxmeter results ls | show | coverage`: what the store has."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from orchestrator.analysis import columns, summarise
from orchestrator.cli.options import open_results, place_option
from orchestrator.cli.progress import duration_text
from orchestrator.cli.results.tables import print_rows, wide_console
from orchestrator.errors import ConfigurationError
from orchestrator.report import coverage_columns, coverage_page, render
from orchestrator.store import Results, Store
from orchestrator.store.query.listing import campaign_list

_AMBIGUOUS_SHOWN = 3
_ENDLESS = 10_000
_HOSTS_SHOWN = 3


@click.command("ls")
@place_option
@click.option(
    "--format", "form", type=click.Choice(["table", "csv", "json"]), default="table", show_default=True, help="A table for people, or all rows as CSV or JSON."
)
def list_campaigns(place: str | Path, form: str) -> None:
    """Lists the campaigns, the newest first, and how their trials ended."""
    rows = campaign_list(open_results(place).view())
    if form != "table":
        print_rows(rows, form)
        return
    if not len(rows):
        click.echo("no campaign yet; run `make cluster-sweep`")
        return
    _print_table([_for_people(row) for row in rows.to_pylist()])


@click.command()
@click.argument("campaign_id", required=False)
@place_option
def show(campaign_id: str | None, place: str | Path) -> None:
    """Shows the table of one campaign, by default of the newest. The beginning of its id is enough."""
    opened = open_results(place)
    print_summary(opened, known_campaign(opened, campaign_id, place)["campaign_id"])


@click.command()
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
        return
    try:
        output.write_text(page, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"cannot be written: {error.strerror}; name another file", file=output) from None


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


def print_summary(opened: Results | Store, campaign_id: str) -> None:
    """Prints the table of a campaign."""
    trials = (
        opened.trials(columns(), campaign_id=campaign_id)
        if isinstance(opened, Store)
        else _trials_of(opened, campaign_id, columns())
    )
    wide_console().print(render(summarise(trials)))


def _trials_of(opened: Results, campaign_id: str, names: Sequence[str]) -> pa.Table:
    return opened.trials(pc.field("campaign_id") == campaign_id, names).arrow()


def _print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    table = Table(box=None, pad_edge=False)
    for name, value in rows[0].items():
        table.add_column(name, justify="right" if isinstance(value, int) else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(escape(str(value)) for value in row.values()))
    # An id that is cut cannot be copied into another command.
    Console(width=max(wide_console().width, Console(width=_ENDLESS).measure(table).maximum)).print(table)


def _for_people(row: dict[str, Any]) -> dict[str, Any]:
    hosts = row["hosts"]
    more = f" +{len(hosts) - _HOSTS_SHOWN}" if len(hosts) > _HOSTS_SHOWN else ""
    started: datetime = row["started_at"]
    return {
        "campaign": row["campaign_id"],
        "started (UTC)": f"{started:%Y-%m-%d %H:%M}",
        "sweep": row["sweep"],
        "hosts": " ".join(hosts[:_HOSTS_SHOWN]) + more,
        **{name: row[name] for name in ("planned", "ok", "failed", "unsupported", "skipped")},
        "left": row["left_to_do"],
        "duration": "" if row["duration_s"] is None else duration_text(row["duration_s"]),
    }

"""`taxmeter results`: what was measured."""

from pathlib import Path

import click
from rich.console import Console

from orchestrator.analysis import columns, summarise
from orchestrator.cli.options import results_option
from orchestrator.errors import ConfigurationError
from orchestrator.report import render
from orchestrator.store import Store


@click.group()
def results() -> None:
    """The result store."""


@results.command("ls")
@results_option
def list_campaigns(results_directory: Path) -> None:
    """Lists the campaigns, the newest first."""
    store = open_existing(results_directory)
    rows = store.campaigns().sort_by([("started_at", "descending")]).to_pylist()
    for row in rows:
        attempts = store.attempts(row["campaign_id"]).values()
        ok = sum(attempt.status.value == "ok" for attempt in attempts)
        click.echo(f"{row['campaign_id']:48} {ok:5} ok of {row['planned_trials']:5} planned")
    if not rows:
        click.echo("no campaign yet; run `make cluster-sweep`")


@results.command()
@click.argument("campaign_id", required=False)
@results_option
def show(campaign_id: str | None, results_directory: Path) -> None:
    """Shows the table of one campaign, by default of the newest."""
    store = open_existing(results_directory)
    known = store.campaigns().sort_by([("started_at", "descending")])["campaign_id"].to_pylist()
    if not known:
        raise ConfigurationError("no campaign yet; run `make cluster-sweep`", file=results_directory)
    if campaign_id is not None and campaign_id not in known:
        raise ConfigurationError(f"no campaign {campaign_id}; `taxmeter results ls` lists them", file=results_directory)
    print_summary(store, campaign_id or known[0])


def print_summary(store: Store, campaign_id: str) -> None:
    """Prints the table of a campaign."""
    wide_console().print(render(summarise(store.trials(columns(), campaign_id=campaign_id))))


def open_existing(directory: Path) -> Store:
    """Opens a store for reading.

    Raises:
        ConfigurationError: there is none.
    """
    if not directory.is_dir():
        raise ConfigurationError("no such store; run `make cluster-sweep`, or name one with --results", file=directory)
    return Store.open(directory)


def wide_console() -> Console:
    """A console as wide as the terminal, or wide enough for the table when there is none."""
    plain = Console()
    return plain if plain.is_terminal else Console(width=120)

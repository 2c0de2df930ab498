"""`taxmeter results`: what was measured."""

from pathlib import Path
from typing import Any

import click
from rich.console import Console

from orchestrator.analysis import columns, summarise
from orchestrator.cli.options import results_option
from orchestrator.errors import ConfigurationError, ExitCode
from orchestrator.exchange import ImportReport, import_export
from orchestrator.report import coverage_columns, coverage_page, render
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
    print_summary(store, known_campaign(store, campaign_id, results_directory)["campaign_id"])


@results.command()
@click.argument("campaign_ids", nargs=-1)
@results_option
@click.option("--output", type=click.Path(path_type=Path), help="A file for the page; printed without it.")
def coverage(campaign_ids: tuple[str, ...], results_directory: Path, output: Path | None) -> None:
    """Says what ran and what did not in one campaign or several, by default the newest, as a page of Markdown."""
    store = open_existing(results_directory)
    campaigns = [known_campaign(store, campaign_id, results_directory) for campaign_id in campaign_ids or (None,)]
    trials = [store.trials(coverage_columns(), campaign_id=campaign["campaign_id"]) for campaign in campaigns]
    page = coverage_page(campaigns, trials, store.environments())
    if output is None:
        click.echo(page, nl=False)
        return
    try:
        output.write_text(page, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"cannot be written: {error.strerror}; name another file", file=output) from None


@results.command("import")
@click.argument("directory", type=click.Path(path_type=Path))
@results_option
@click.option(
    "--accept-versions",
    is_flag=True,
    help="Take results of other versions than the lock's, under an environment name of their own.",
)
def import_command(directory: Path, results_directory: Path, accept_versions: bool) -> ExitCode:
    """Adds the results of DIRECTORY, which `taxmeter task export` wrote and another machine ran."""
    report = import_export(directory, Store.open(results_directory), accept_versions=accept_versions)
    _print_import(report, results_directory)
    return ExitCode.OK if report.is_whole else ExitCode.TRIALS_FAILED


def _print_import(report: ImportReport, results_directory: Path) -> None:
    manifest = report.manifest
    for damage in report.damages:
        click.echo(f"not imported: {damage}", err=True)
    if report.conflicts:
        click.echo(
            f"not imported: {report.conflicts} rows that the store has with another content; "
            "this export was run twice, and each machine or run needs an export of its own",
            err=True,
        )
    for notice in report.notices:
        click.echo(f"note: {notice}", err=True)
    for name, differences in report.found.items():
        click.echo(f"environment {name} is not the locked one: {differences}")
    if report.missing:
        click.echo(f"not here: {', '.join(report.missing)}")
    if report.begun or report.untouched:
        click.echo(
            f"not finished: {report.begun} trials began and have no record, {report.untouched} have not begun; "
            "./run.sh goes on there"
        )
    if report.added:
        click.echo(f"campaign {manifest.campaign_id}: {report.added} rows added, {report.already} were there already")
        command = f"taxmeter results show {manifest.campaign_id} --results {results_directory}"
        click.echo(f"its table: {command}")
    else:
        click.echo(f"campaign {manifest.campaign_id}: nothing added, {report.already} rows were there already")


def known_campaign(store: Store, campaign_id: str | None, directory: Path) -> dict[str, Any]:
    """The row of a campaign, by default of the newest.

    Raises:
        ConfigurationError: there is no such campaign.
    """
    rows = store.campaigns().sort_by([("started_at", "descending")]).to_pylist()
    if not rows:
        raise ConfigurationError("no campaign yet; run `make cluster-sweep`", file=directory)
    for row in rows:
        if campaign_id in (None, row["campaign_id"]):
            return dict(row)
    raise ConfigurationError(f"no campaign {campaign_id}; `taxmeter results ls` lists them", file=directory)


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

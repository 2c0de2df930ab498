"""`taxmeter results import`: what another machine measured."""

from pathlib import Path

import click

from orchestrator.cli.options import results_option, writing
from orchestrator.errors import ExitCode
from orchestrator.campaign.exchange import ImportReport, import_export
from orchestrator.store import Store


@click.command("import")
@click.argument("directory", type=click.Path(path_type=Path))
@results_option
@click.option(
    "--accept-versions",
    is_flag=True,
    help="Take results of other versions than the lock's, under an environment name of their own.",
)
def import_command(directory: Path, results_directory: Path, accept_versions: bool) -> ExitCode:
    """Adds the results of DIRECTORY, which `taxmeter task export` wrote and another machine ran."""
    with writing():
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

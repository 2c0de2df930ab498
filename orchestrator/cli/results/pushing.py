"""`taxmeter results push`: the store in an object store."""

from pathlib import Path

import click

from orchestrator.cli.options import require_store, results_option, writing
from orchestrator.errors import ExitCode
from orchestrator.store import Store
from orchestrator.store.storage.generations import KEEP_S
from orchestrator.store.objects.pushing import PushReport, push

_DAY_S = 24 * 3600


@click.command("push")
@click.argument("url")
@results_option
@click.option("--prune", is_flag=True, help="Delete what no push has listed for --keep-days.")
@click.option(
    "--keep-days",
    type=click.FloatRange(min=0),
    default=KEEP_S / _DAY_S,
    show_default=True,
    help="How long what was replaced stays for those who still read it.",
)
def push_command(url: str, results_directory: Path, prune: bool, keep_days: float) -> ExitCode:
    """Makes the store readable at URL, such as s3://BUCKET/PREFIX?endpoint_override=HOST:PORT&region=NAME.

    Uploads what is missing there, and does nothing if nothing is. Credentials come from the environment:
    AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE.
    """
    require_store(results_directory)
    layout = Store.open(results_directory).layout
    with writing():
        report = push(layout, url, prune=prune, prune_after_s=keep_days * _DAY_S, progress=_print_upload)
    _print_report(report, url)
    if layout.segments():
        click.echo("note: rows that are not sealed yet stay behind; push again when the sweep has ended", err=True)
    return ExitCode.OK


def _print_upload(key: str, size: int) -> None:
    click.echo(f"{size / 1e6:10.2f} MB  {key}")


def _print_report(report: PushReport, url: str) -> None:
    for key in report.replaced:
        click.echo(f"note: {key} was there with another content, and was replaced", err=True)
    click.echo(
        f"{report.uploaded} files ({report.uploaded_bytes / 1e6:.2f} MB) uploaded, {report.present} were there already"
    )
    if report.pruned:
        click.echo(f"{report.pruned} old files deleted")
    if report.superseded:
        click.echo(f"{report.superseded} replaced files are kept for those who read them; --prune deletes them later")
    click.echo(
        f"generation {report.generation} of this store {'is now' if report.published else 'was already'} at {url}"
    )
